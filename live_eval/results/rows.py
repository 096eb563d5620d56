"""What the ledger's rows look like to the rest of the program, and how they become columns.

Owns the row types and the two-way mapping of JobResult; knows nothing of connections.
Invariant: a JobResult read back equals the one that was written.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field

from live_eval.errors import LedgerError
from live_eval.reasons import JobStatus
from live_eval.targets import CheckpointTarget, PolicyTarget, Target
from protocol.messages import JobResult

RESULT_COLUMNS: tuple[str, ...] = JobResult.__struct_fields__
_TERMINAL = frozenset(status.value for status in JobStatus if status.terminal)
_JSON_COLUMNS = frozenset({"metrics", "partial", "engine_versions"})


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRow:
    """One job as the ledger holds it; times in seconds since the epoch."""

    job_id: str
    target: Target
    dataset: str
    attempt: int
    status: JobStatus
    reason: str
    protected: bool
    """Whether a newer version may not cancel it."""
    requested_at: float
    started_at: float | None
    """When the latest attempt began."""
    finished_at: float | None
    changed_at: float
    num_done: int
    num_expected: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    """One change of a job's state; `from_status` is empty for its creation."""

    job_id: str
    from_status: str
    to_status: str
    attempt: int
    reason: str
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRow:
    """One time that a job ran."""

    job_id: str
    attempt: int
    started_at: float
    ended_at: float | None
    """None while it runs, or if its service was killed and no other has gone on yet."""
    reason: str
    """Why it ended: that of the result, or why there was another attempt."""
    num_taken_up: int
    """Samples of earlier attempts that it did not ask for again."""
    num_done: int
    """Samples that were scored or errored at its end, those taken up among them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionEvent:
    """What became of a sync or a version, for sinks that count; `key` makes repeats harmless."""

    key: str
    state: str
    """sealed, discarded or dropped."""
    reason: str = ""
    detail: str = ""
    policy_version: int | None = None
    weight_version: int | None = None
    incarnation: int | None = None
    rollout_id: int | None = None
    train_step: int | None = None
    at: float = 0.0
    held_s: float | None = None
    """Seconds for which the sync held the training thread, where known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxRow:
    """Something to tell every sink, in the order in which it became durable."""

    seq: int
    key: str
    """result_id of a result, key of a version event."""
    result: JobResult | None = None
    attempt: int = 0
    """Attempts that the result's job took."""
    event: VersionEvent | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """Number of jobs by state; states without a job are absent."""

    by_status: Mapping[str, int] = field(default_factory=dict)

    def of(self, status: JobStatus) -> int:
        """Number of jobs in `status`."""
        return self.by_status.get(status.value, 0)


def job_from(row: sqlite3.Row) -> JobRow:
    """A row of the jobs table as a JobRow."""
    target: Target
    if row["policy_version"] is None:
        target = CheckpointTarget(
            path=row["checkpoint"], number=row["checkpoint_number"], train_step=row["train_step"]
        )
    else:
        target = PolicyTarget(
            policy_version=row["policy_version"],
            incarnation=row["incarnation"],
            weight_version=row["weight_version"],
            rollout_id=row["rollout_id"],
            train_step=row["train_step"],
        )
    return JobRow(
        job_id=row["job_id"],
        target=target,
        dataset=row["dataset"],
        attempt=row["attempt"],
        status=JobStatus(row["status"]),
        reason=row["reason"],
        protected=bool(row["protected"]),
        requested_at=row["requested_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        changed_at=row["changed_at"],
        num_done=row["num_done"],
        num_expected=row["num_expected"],
    )


def target_columns(target: Target) -> dict[str, object]:
    """The columns of the jobs table that say what is evaluated."""
    if isinstance(target, PolicyTarget):
        return {
            "policy_version": target.policy_version,
            "incarnation": target.incarnation,
            "weight_version": target.weight_version,
            "checkpoint": "",
            "checkpoint_number": None,
            "rollout_id": target.rollout_id,
            "train_step": target.train_step,
        }
    return {
        "policy_version": None,
        "incarnation": 0,
        "weight_version": 0,
        "checkpoint": target.path,
        "checkpoint_number": target.number,
        "rollout_id": None,
        "train_step": target.train_step,
    }


def result_values(result: JobResult) -> list[object]:
    """Values for RESULT_COLUMNS.

    LedgerError for a number that is not finite, or a status in which no job ends.
    """
    if result.status not in _TERMINAL:
        raise LedgerError(f"result {result.result_id}: {result.status!r} is no state in which a job ends")
    if result.finished_at is None:
        raise LedgerError(f"result {result.result_id}: finished_at is missing")
    numbers = {"score": result.score, **{f"metrics[{k!r}]": v for k, v in result.metrics.items()}}
    numbers |= {f"partial[{k!r}]": v for k, v in result.partial.items()}
    for name, value in numbers.items():
        if value is not None and not math.isfinite(value):
            raise LedgerError(f"result {result.result_id}: {name} is {value}, not a finite number")
    values: list[object] = []
    for name in RESULT_COLUMNS:
        value = getattr(result, name)
        values.append(json.dumps(value, sort_keys=True) if name in _JSON_COLUMNS else value)
    return values


def result_from(row: Mapping[str, object] | sqlite3.Row) -> JobResult:
    """A row with RESULT_COLUMNS as a JobResult."""
    fields = {name: row[name] for name in RESULT_COLUMNS}
    for name in ("metrics", "partial"):
        fields[name] = json.loads(str(fields[name]))
    fields["engine_versions"] = tuple(json.loads(str(fields["engine_versions"])))
    return JobResult(**fields)  # type: ignore[arg-type]
