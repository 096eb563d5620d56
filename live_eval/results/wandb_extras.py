"""What W&B is told beside the rows: the table of all results, tables of samples, alerts. Pure.

Tables and alerts are described here as plain values; the process that has wandb makes them. A table of
samples is read by that process too, so that the service copies no answers. Invariant: what is described
twice, after a restart, replaces what was there; only an alert is for people once, so those of rows that
an earlier life had fed are left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from live_eval.reasons import JobStatus
from live_eval.results.records import duration_s

if TYPE_CHECKING:
    from pathlib import Path

    from live_eval.results.rows import OutboxRow
    from protocol.messages import JobResult

DISCARDED = "discarded"
"""What a sync without a version is called among the things to alert about."""
ALERTABLE = frozenset({DISCARDED, *(status.value for status in JobStatus if status.terminal)})

RESULTS_KEY = "live_eval/results"
RESULT_COLUMNS = (
    "policy_version",
    "checkpoint",
    "train_step",
    "dataset",
    "status",
    "reason",
    "score",
    "n_expected",
    "n_scored",
    "n_errored",
    "n_aborted",
    "attempt",
    "duration_s",
    "weight_digest",
    "detail",
)
SAMPLE_COLUMNS = (
    "row_id",
    "sample",
    "status",
    "reward",
    "prompt",
    "response",
    "label",
    "finish_reason",
    "num_tokens",
    "error",
)
MAX_CELL = 10_000
"""Characters of one cell; a table is for looking, the whole text is in the sample file."""


def result_cells(result: JobResult, *, attempt: int) -> list[Any]:
    """A result as a row of the table, in the order of RESULT_COLUMNS."""
    values = {
        **{name: getattr(result, name) for name in RESULT_COLUMNS if hasattr(result, name)},
        "attempt": attempt,
        "duration_s": duration_s(result.started_at, result.finished_at),
        "detail": result.detail[:MAX_CELL],
    }
    return [values[name] for name in RESULT_COLUMNS]


def sample_cells(path: Path, *, limit: int) -> list[list[Any]]:
    """The first `limit` samples of a job's file by (row, sample), in the order of SAMPLE_COLUMNS.

    OSError, ValueError or KeyError if the file cannot be read, or is none of samples.
    """
    # A last line that was not written to its end has no end, and is left out.
    samples = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    samples.sort(key=lambda each: (each["row_id"], each["sample"]))
    return [[_cell(sample.get(name)) for name in SAMPLE_COLUMNS] for sample in samples[:limit]]


def samples_wanted(result: JobResult) -> bool:
    """Whether there are samples to show: answers of a version that has a score."""
    return result.status == JobStatus.SUCCEEDED and bool(result.samples_path)


def alert_of(row: OutboxRow, kinds: Collection[str]) -> dict[str, str] | None:
    """Title, text and level of the alert that a row deserves; None for most rows."""
    if row.result is not None:
        result = row.result
        if result.status not in kinds:
            return None
        level = "ERROR" if result.status in (JobStatus.FAILED, JobStatus.TIMED_OUT) else "WARN"
        text = f"{result.reason}: {result.detail}" if result.detail else result.reason
        return {
            "title": f"live-eval: {result.job_id} {result.status}",
            "text": text[:MAX_CELL],
            "level": level,
        }
    event = row.event
    if event is None or event.state != DISCARDED or DISCARDED not in kinds:
        return None
    text = f"{event.reason}: {event.detail}" if event.detail else event.reason
    title = f"live-eval: weight version {event.weight_version} discarded"
    return {"title": title, "text": text[:MAX_CELL], "level": "WARN"}


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:MAX_CELL]
