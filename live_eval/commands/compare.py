"""`live-eval results DIR --compare V1 V2`: two versions on the prompts that both scored.

Reads the ledger for the scores and the jobs' sample files for the prompts; changes neither.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from live_eval.errors import ConfigError, DatasetError
from live_eval.evaluation.comparison import Comparison, Flip, compare, prompt_scores
from live_eval.evaluation.sample_log import read_samples
from live_eval.plain import plain
from live_eval.reasons import JobStatus
from live_eval.results.reader import LedgerReader
from live_eval.results.tables import Column, job_records, make_console, make_table
from live_eval.results.uncertainty import MARKS, METHODS, interval, signed
from live_eval.rundir import RunDir

if TYPE_CHECKING:
    from rich.console import Console

    from live_eval.evaluation.sample import Sample

_PROMPT_CHARS = 60

COLUMNS = (
    Column(title="dataset", value=lambda row: row["dataset"]),
    Column(title="before", value=lambda row: f"{row['before']['score']:.3f}", right=True),
    Column(title="after", value=lambda row: f"{row['after']['score']:.3f}", right=True),
    Column(title="difference", value=lambda row: _difference(row), right=True),
    Column(title="95 %", value=lambda row: interval(row["low"], row["high"])),
    Column(title="prompts", value=lambda row: row["prompts"], right=True),
    Column(title="gained", value=lambda row: len(row["gained"]), right=True),
    Column(title="lost", value=lambda row: len(row["lost"]), right=True),
)

FLIP_COLUMNS = (
    Column(title="dataset", value=lambda row: row["dataset"]),
    Column(title="row", value=lambda row: row["row_id"]),
    Column(title="flip", value=lambda row: row["flip"]),
    Column(title="before", value=lambda row: row["before"], right=True),
    Column(title="after", value=lambda row: row["after"], right=True),
    Column(title="prompt", value=lambda row: row["prompt"], from_width=100),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Side:
    """One version's result on one dataset, with its samples."""

    job: dict[str, Any]
    samples: list[Sample]


def run_compare(args: argparse.Namespace, console: Console | None = None) -> int:
    """Print the comparison; ConfigError where one of the two has no score to compare."""
    run_dir = RunDir(args.dir)
    before, after = args.compare
    with LedgerReader.open_readonly(run_dir.ledger) as ledger:
        jobs = args.selection.of(job_records(ledger))
        described = {name: each[-1]["description"] for name, each in ledger.datasets().items()}
    first, second = _scored(jobs, before), _scored(jobs, after)
    both = [name for name in first if name in second]
    if not both:
        raise ConfigError(f"{before} and {after} have a score on no dataset in common")
    rows = [
        _compared(
            _Side(job=first[name], samples=_samples(first[name], run_dir)),
            _Side(job=second[name], samples=_samples(second[name], run_dir)),
            pass_threshold=described.get(name, {}).get("settings", {}).get("pass_threshold", 1.0),
        )
        for name in both
    ]
    if args.json:
        print(json.dumps({"before": before, "after": after, "datasets": rows}, indent=2, allow_nan=False))
    else:
        _show(rows, before, after, console or make_console())
    return 0


def _scored(jobs: list[dict[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    """The succeeded jobs of a version or a checkpoint, by dataset."""
    key = f"v{name}" if name.isdigit() else name
    of_target = [job for job in jobs if job["job_id"].partition("/")[0] == key]
    found = {job["dataset"]: job for job in of_target if job["status"] == JobStatus.SUCCEEDED}
    if not of_target:
        raise ConfigError(f"{name} was never evaluated: give a policy version (7) or a checkpoint (c1)")
    if not found:
        ends = ", ".join(f"{job['dataset']} {job['status']}: {job['reason']}" for job in of_target)
        raise ConfigError(f"{name} has no score: {ends}")
    return found


def _samples(job: dict[str, Any], run_dir: RunDir) -> list[Sample]:
    """The job's samples, also if the run's directory was moved."""
    path = Path(job["samples_path"])
    if not path.is_file():
        path = run_dir.samples / path.parent.name / path.name
    try:
        return read_samples(path)
    except (OSError, DatasetError) as error:
        raise ConfigError(f"the samples of {job['job_id']} cannot be read: {error}") from error


def _compared(before: _Side, after: _Side, *, pass_threshold: float) -> dict[str, Any]:
    found = compare(
        prompt_scores(before.samples, pass_threshold=pass_threshold),
        prompt_scores(after.samples, pass_threshold=pass_threshold),
    )
    prompts = {sample.row_id: sample.prompt for sample in before.samples}
    difference = found.difference
    return {
        "dataset": before.job["dataset"],
        "before": _score(before.job),
        "after": _score(after.job),
        "difference": difference.mean if difference else None,
        "low": difference.low if difference else None,
        "high": difference.high if difference else None,
        "method": difference.method if difference else "",
        "prompts": difference.num_prompts if difference else 0,
        "prompts_before": found.num_before,
        "prompts_after": found.num_after,
        "clear": found.is_clear,
        "gained": _flips(found, prompts, gained=True),
        "lost": _flips(found, prompts, gained=False),
    }


def _score(job: dict[str, Any]) -> dict[str, Any]:
    return {name: job[name] for name in ("job_id", "score", "score_low", "score_high", "train_step")}


def _flips(found: Comparison, prompts: dict[str, str], *, gained: bool) -> list[dict[str, Any]]:
    return [
        {"row_id": flip.row_id, "prompt": prompts[flip.row_id], **_sides(flip)}
        for flip in found.flips
        if flip.gained == gained
    ]


def _sides(flip: Flip) -> dict[str, Any]:
    keep = ("mean", "n", "num_passed")
    sides = {"before": asdict(flip.before), "after": asdict(flip.after)}
    return {side: {name: values[name] for name in keep} for side, values in sides.items()}


def _show(rows: list[dict[str, Any]], before: str, after: str, console: Console) -> None:
    console.print(Text(f"before: {before}    after: {after}    difference: after - before"))
    console.print(make_table(COLUMNS, rows, width=console.width))
    for row in rows:
        if row["prompts"] < max(row["prompts_before"], row["prompts_after"]):
            scored = f"{row['prompts_before']} and {row['prompts_after']} were scored"
            words = f"{row['dataset']}: {row['prompts']} prompts in common, {scored}"
            console.print(Text(plain(words), style="yellow"))
    if methods := sorted({METHODS[row["method"]] for row in rows if row["method"]}):
        console.print(Text(f"95 %: {'; '.join(methods)}", style="dim"))
    if any(row["clear"] for row in rows):
        console.print(Text(MARKS, style="dim"))
    flips = [_flip_row(row, flip, name) for row in rows for name in ("gained", "lost") for flip in row[name]]
    if flips:
        console.print()
        console.print(make_table(FLIP_COLUMNS, flips, width=console.width, same=("dataset",)))
    else:
        console.print(Text("No prompt flipped."))


def _flip_row(row: dict[str, Any], flip: dict[str, Any], name: str) -> dict[str, Any]:
    prompt = " ".join(flip["prompt"].split())
    sides = {side: f"{flip[side]['num_passed']}/{flip[side]['n']}" for side in ("before", "after")}
    short = prompt if len(prompt) <= _PROMPT_CHARS else prompt[: _PROMPT_CHARS - 1] + "…"
    return {"dataset": row["dataset"], "row_id": flip["row_id"], "flip": name, "prompt": short, **sides}


def _difference(row: dict[str, Any]) -> str:
    return signed(row["difference"], row["low"], row["high"])
