"""What `live-eval results` and `live-eval versions` print: tables for people, JSON for programs.

Reads the ledger and the store's catalogue of one run, which may be running or dead; changes
neither. A table leaves columns out where the terminal is narrow; JSON has everything, always.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from live_eval.errors import StoreError
from live_eval.plain import in_one_line, plain
from live_eval.reasons import JobStatus
from live_eval.results.exports import export
from live_eval.results.reader import LedgerReader
from live_eval.results.records import job_record
from live_eval.results.selection import Selection
from live_eval.results.uncertainty import MARKS, METHODS, difference, interval
from live_eval.rundir import RunDir
from live_eval.store import Catalogue, DiscardRecord, VersionRecord

if TYPE_CHECKING:
    from live_eval.results.rows import AttemptRow, Transition

ALL = Selection()

_STYLES = {
    "succeeded": "green",
    "sealed": "green",
    "running": "cyan",
    "waiting": "cyan",
    "receiving": "cyan",
    "failed": "bold red",
    "timed_out": "bold red",
    "discarded": "red",
    "dropped": "red",
}

_ALWAYS_TOLD = (
    JobStatus.SUCCEEDED,
    JobStatus.SUPERSEDED,
    JobStatus.CANCELLED,
    JobStatus.FAILED,
    JobStatus.TIMED_OUT,
    JobStatus.DROPPED,
)
_TOTALS = (*_ALWAYS_TOLD, JobStatus.RUNNING, JobStatus.WAITING)

_MOST_FAULTS = 5
"""Faults told below a table; the others are in the jobs' details (`--json`)."""

_PIPE_WIDTH = 200
"""Columns where the output is no terminal, so that a file or a pipe gets all of them."""
_INTERVAL_WIDTH = 80
_DIFFERENCE_WIDTH = 120
"""Where there is room for a difference with its interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of a table: shown where the terminal has at least `from_width` columns."""

    title: str
    value: Callable[[dict[str, Any]], object]
    from_width: int = 0
    right: bool = False
    optional: bool = False
    """Left out where no row has a value."""


JOB_COLUMNS = (
    Column(title="version", value=lambda job: target_name(job), right=True),
    Column(title="dataset", value=lambda job: job["dataset"]),
    Column(title="score", value=lambda job: _number(job["score"]), right=True),
    Column(
        title="95 %",
        value=lambda job: interval(job["score_low"], job["score_high"]),
        from_width=_INTERVAL_WIDTH,
        optional=True,
    ),
    Column(
        title="to previous",
        value=lambda job: difference(job["metrics"], "vs_previous"),
        from_width=_DIFFERENCE_WIDTH,
        optional=True,
    ),
    Column(
        title="to best",
        value=lambda job: difference(job["metrics"], "vs_best"),
        from_width=170,
        optional=True,
    ),
    Column(title="status", value=lambda job: job["status"]),
    Column(title="scored", value=lambda job: _scored(job), from_width=60, right=True),
    Column(
        title="errored", value=lambda job: job["n_errored"] or "", from_width=120, right=True, optional=True
    ),
    Column(title="reason", value=lambda job: _reason(job), from_width=80, optional=True),
    Column(title="step", value=lambda job: job["train_step"], from_width=80, right=True),
    Column(title="rollout", value=lambda job: job["rollout_id"], from_width=100, right=True),
    Column(title="seconds", value=lambda job: _number(job["duration_s"], 1), from_width=100, right=True),
    Column(title="attempts", value=lambda job: job["attempt"], from_width=130, right=True),
)

VERSION_COLUMNS = (
    Column(title="version", value=lambda v: _or_dash(v["policy_version"]), right=True),
    Column(title="state", value=lambda v: v["state"]),
    Column(title="incarnation", value=lambda v: v["incarnation"], from_width=130, right=True),
    Column(title="weight version", value=lambda v: v["weight_version"], from_width=110, right=True),
    Column(title="rollout", value=lambda v: v["rollout_id"], from_width=90, right=True),
    Column(title="step", value=lambda v: v["train_step"], from_width=60, right=True),
    Column(title="tensors", value=lambda v: v["num_tensors"] or "", from_width=110, right=True),
    Column(title="size", value=lambda v: _size(v["num_bytes"]), from_width=100, right=True),
    Column(title="digest", value=lambda v: v["digest"][:12]),
    Column(title="reason", value=lambda v: _version_reason(v), from_width=80),
    Column(title="held s", value=lambda v: _number(v["held_s"]), from_width=120, right=True, optional=True),
    Column(title="sealed at", value=lambda v: _time(v["sealed_at"]), from_width=150),
)


def run_results(args: argparse.Namespace, console: Console | None = None) -> int:
    """`live-eval results DIR [--json] [--export FILE]`; LedgerError if there is no ledger."""
    selection: Selection = args.selection
    with LedgerReader.open_readonly(RunDir(args.dir).ledger) as ledger:
        if args.export is not None:
            ended = [job for job in selection.of(job_records(ledger)) if job["result_id"]]
            export(sorted(ended, key=lambda job: job["finished_at"]), args.export)
            print(f"{len(ended)} results written to {args.export}", file=sys.stderr)
        if args.json:
            print(json.dumps(results_report(ledger, selection), indent=2, allow_nan=False))
        elif args.export is None:
            show_results(ledger, console or make_console(), selection)
    return 0


def run_versions(args: argparse.Namespace, console: Console | None = None) -> int:
    """`live-eval versions DIR [--json]`; StoreError if there is no catalogue."""
    path = RunDir(args.dir).catalogue
    if not path.is_file():
        raise StoreError(
            f"no version store at {path.parent}: give the directory that a run was started with (--out)"
        )
    catalogue = Catalogue.open(path)
    try:
        versions, discarded = catalogue.versions(), catalogue.discarded()
    finally:
        catalogue.close()
    if args.json:
        print(json.dumps(versions_report(versions, discarded), indent=2))
    else:
        show_versions(versions, discarded, console or make_console())
    return 0


def results_report(ledger: LedgerReader, selection: Selection = ALL) -> dict[str, Any]:
    """Everything that the ledger knows, as JSON values: jobs in order of creation, each with its
    result's fields, all its transitions and attempts; what each dataset was and since when; totals by
    state; how far each sink is. A selection leaves out jobs, nothing else."""
    transitions, attempts = _by_job(ledger.transitions()), _by_job(ledger.attempt_rows())
    jobs = selection.of(job_records(ledger))
    for job in jobs:
        job["transitions"] = transitions.get(job["job_id"], [])
        job["attempts"] = attempts.get(job["job_id"], [])
    return {
        "run_id": ledger.run_id,
        "datasets": ledger.datasets(),
        "jobs": jobs,
        "totals": {status.value: ledger.totals().of(status) for status in JobStatus},
        "outbox_rows": ledger.last_seq(),
        "sinks": ledger.cursors(),
    }


def _by_job(rows: Sequence[Transition | AttemptRow]) -> dict[str, list[dict[str, Any]]]:
    records: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        record = asdict(row)
        records.setdefault(record.pop("job_id"), []).append(record)
    return records


def versions_report(versions: Sequence[VersionRecord], discarded: Sequence[DiscardRecord]) -> dict[str, Any]:
    """All rows of the catalogue as JSON values."""
    return {"versions": [asdict(v) for v in versions], "discarded": [asdict(d) for d in discarded]}


def show_results(ledger: LedgerReader, console: Console, selection: Selection = ALL) -> None:
    """The table of jobs, policy versions first, what its marks mean, and a line of totals."""
    jobs = sorted(selection.of(job_records(ledger)), key=_job_order)
    if not jobs:
        nothing = "no evaluations yet" if selection.is_all else "no evaluation that fits"
        console.print(f"Run {ledger.run_id} has {nothing}.")
        return
    console.print(make_table(JOB_COLUMNS, jobs, width=console.width, same=("version",)))
    statuses = [job["status"] for job in jobs]
    shown = [f"{statuses.count(s)} {s.value}" for s in _TOTALS if s in statuses or s in _ALWAYS_TOLD]
    console.print(Text(f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}: {', '.join(shown)}"))
    for line in _faults(jobs):
        console.print(Text(plain(line), style="red"))
    methods = sorted({METHODS[job["interval_method"]] for job in jobs if job["interval_method"]})
    if methods and console.width >= _INTERVAL_WIDTH:
        console.print(Text(f"95 %: {'; '.join(methods)}", style="dim"))
    compared = any("vs_previous/diff" in job["metrics"] for job in jobs)
    if compared and console.width >= _DIFFERENCE_WIDTH:
        console.print(Text(MARKS, style="dim"))
    last = ledger.last_seq()
    behind = [f"{name} has {seq} of {last}" for name, seq in ledger.cursors().items() if seq < last]
    if behind:
        console.print(Text(f"Not yet told to every sink: {', '.join(behind)} rows", style="yellow"))


def show_versions(
    versions: Sequence[VersionRecord], discarded: Sequence[DiscardRecord], console: Console
) -> None:
    """The table of versions, then the syncs that never got a number, and a line of totals."""
    rows = [asdict(version) for version in versions]
    refused = [_as_version(record) for record in discarded if record.policy_version is None]
    if not rows and not refused:
        console.print("No weight sync has begun yet.")
        return
    console.print(make_table(VERSION_COLUMNS, rows + refused, width=console.width))
    states = [row["state"] for row in rows + refused]
    parts = [
        f"{states.count(s)} {s}" for s in ("sealed", "collected", "discarded", "receiving") if s in states
    ]
    kept = sum(row["num_bytes"] for row in rows if row["state"] == "sealed")
    console.print(Text(f"{len(states)} syncs: {', '.join(parts)}; {_size(kept) or '0 B'} kept"))


def make_table(
    columns: Sequence[Column],
    rows: Sequence[dict[str, Any]],
    *,
    width: int,
    same: tuple[str, ...] = (),
) -> Table:
    """A table of the columns that `width` has room for; a column named in `same` is left empty
    where it repeats the row above."""
    shown = [
        column
        for column in columns
        if column.from_width <= width and (not column.optional or any(map(column.value, rows)))
    ]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in shown:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    above: dict[str, str] = {}
    for row in rows:
        cells: list[Text] = []
        for column in shown:
            value = column.value(row)
            text = "" if value is None else in_one_line(str(value))
            repeated = column.title in same and above.get(column.title) == text
            above[column.title] = text
            cells.append(Text("" if repeated else text, style=_STYLES.get(text, "")))
        table.add_row(*cells)
    return table


def make_console() -> Console:
    """A console on stdout; wide where stdout is no terminal."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def target_name(job: dict[str, Any]) -> str:
    """What a job evaluated: its policy version, or its checkpoint's key and the last part of its path."""
    if job["policy_version"] is not None:
        return str(job["policy_version"])
    key = job["job_id"].partition("/")[0]
    return f"{key} {job['checkpoint'].rstrip('/').rpartition('/')[2]}"


def job_records(ledger: LedgerReader) -> list[dict[str, Any]]:
    """One record a job, in order of creation; docs/results.md has the fields."""
    results = {result.job_id: result for result in ledger.results()}
    return [job_record(row, results.get(row.job_id)) for row in ledger.jobs()]


def _job_order(job: dict[str, Any]) -> tuple[bool, int, str, int, str]:
    version, dataset = job["policy_version"], job["dataset"]
    if version is not None:
        return (False, version, "", 0, dataset)
    number = int(job["job_id"].partition("/")[0].removeprefix("c"))
    return (True, job["train_step"] or 0, job["checkpoint"], number, dataset)


def _as_version(record: DiscardRecord) -> dict[str, Any]:
    missing = {"incarnation": None, "num_tensors": 0, "num_bytes": 0, "digest": "", "sealed_at": None}
    return {**asdict(record), **missing, "state": "discarded", "same_as": None}


def _scored(job: dict[str, Any]) -> str:
    return f"{job['n_scored']}/{job['n_expected']}" if job["n_expected"] else ""


def _reason(job: dict[str, Any]) -> str:
    return "" if job["status"] == JobStatus.SUCCEEDED else job["reason"]


def _faults(jobs: Sequence[dict[str, Any]]) -> list[str]:
    """What stands behind the reasons of jobs that failed, as far as it is known."""
    failed = (JobStatus.FAILED, JobStatus.TIMED_OUT)
    told = [
        f"{job['job_id']} {job['status']}: {job['detail']}"
        for job in jobs
        if job["status"] in failed and job["detail"]
    ]
    more = len(told) - _MOST_FAULTS
    return told[:_MOST_FAULTS] + ([f"and {more} more, see --json"] if more > 0 else [])


def _version_reason(version: dict[str, Any]) -> str:
    if version["same_as"] is not None:
        return f"same weights as {version['same_as']}"
    return version["reason"]


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _size(num_bytes: int) -> str:
    if not num_bytes:
        return ""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
