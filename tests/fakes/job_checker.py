"""Says whether a finished job's records are right, from the files alone.

SQL on the two databases, the lines of results.jsonl, the sample files, and the W&B run as read
back. Of live-eval it uses only that reading back. Every check is an assertion that names what is off.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakes.job import Job, query_database

from live_eval.results.wandb_readback import ReadRun, read_run, result_ids

if TYPE_CHECKING:
    from fakes.job_trainer import JobTrainer

TERMINAL = {"succeeded", "failed", "timed_out", "cancelled", "superseded", "dropped"}
MOVES = {
    "": {"waiting"},
    "waiting": {"running", "failed", "timed_out", "cancelled", "superseded", "dropped"},
    "running": {"waiting", "succeeded", "failed", "timed_out", "cancelled"},
}
COUNTS = ("n_expected", "n_scored", "n_errored", "n_aborted")


@dataclass
class Books:
    """Everything that a finished job left, read once."""

    root: Path
    jobs: dict[str, sqlite3.Row]
    results: dict[str, sqlite3.Row]
    moves: dict[str, list[sqlite3.Row]]
    outbox: list[sqlite3.Row]
    versions: dict[int, sqlite3.Row]
    discards: list[sqlite3.Row]
    pins: list[sqlite3.Row]
    lines: list[dict[str, Any]]
    """Of results.jsonl."""
    wandb: ReadRun
    datasets: tuple[str, ...]

    @classmethod
    def read(cls, job: Job) -> Books:
        ledger, catalogue = job.run_dir.ledger, job.run_dir.catalogue
        moves: dict[str, list[sqlite3.Row]] = defaultdict(list)
        for row in query_database(ledger, "SELECT * FROM transitions ORDER BY id"):
            moves[row["job_id"]].append(row)
        (key,) = query_database(ledger, "SELECT value FROM kv WHERE key = 'wandb/run_id'")
        return cls(
            root=job.root,
            jobs={row["job_id"]: row for row in query_database(ledger, "SELECT * FROM jobs")},
            results={row["job_id"]: row for row in query_database(ledger, "SELECT * FROM results")},
            moves=moves,
            outbox=query_database(ledger, "SELECT * FROM outbox ORDER BY seq"),
            versions={
                row["policy_version"]: row for row in query_database(catalogue, "SELECT * FROM versions")
            },
            discards=query_database(catalogue, "SELECT * FROM discards"),
            pins=query_database(catalogue, "SELECT * FROM pins"),
            lines=[json.loads(line) for line in job.run_dir.results_jsonl.read_text().splitlines()],
            wandb=read_run(job.run_dir.wandb / "wandb", json.loads(key["value"])),
            datasets=tuple(dataset.name for dataset in job.datasets),
        )

    def samples(self, job_id: str) -> list[dict[str, Any]]:
        """Every line of the sample file that the job's result names."""
        return _samples(Path(self.results[job_id]["samples_path"]))


def check_job(job: Job, *lives: JobTrainer) -> Books:
    """Check everything; `lives`: the trainers of the job, in the order of their incarnations."""
    books = Books.read(job)
    _check_jobs(books)
    _check_told(books)
    _check_wandb(books)
    _check_samples(books)
    _check_versions(books, lives)
    return books


def _check_jobs(books: Books) -> None:
    """Each job went a legal way to exactly one terminal state, and has exactly one result of it."""
    assert books.jobs.keys() == books.results.keys() == books.moves.keys()
    pairs = Counter(
        (row["policy_version"], row["checkpoint_number"], row["dataset"]) for row in books.jobs.values()
    )
    assert set(pairs.values()) <= {1}, f"evaluated twice: {pairs}"
    for name, job in books.jobs.items():
        way = [(move["from_status"], move["to_status"]) for move in books.moves[name]]
        assert all(to in MOVES[source] for source, to in way), f"{name}: {way}"
        assert [source for source, _ in way] == ["", *(to for _, to in way[:-1])], f"{name}: {way}"
        assert [to for _, to in way if to in TERMINAL] == [way[-1][1]], f"{name}: {way}"
        result = books.results[name]
        assert way[-1][1] == job["status"] == result["status"], name
        assert result["reason"] == job["reason"] != "", name
        assert (result["score"] is not None) == (result["status"] == "succeeded"), name
        if result["status"] != "succeeded":
            assert result["metrics"] == "{}", name
        starts = [move["attempt"] for move in books.moves[name] if move["to_status"] == "running"]
        assert starts == sorted(set(starts)), f"{name}: {starts}"


def _check_told(books: Books) -> None:
    """Outbox and results.jsonl have every result once, in the order in which they became durable."""
    told = [row["key"] for row in books.outbox if row["kind"] == "result"]
    assert sorted(told) == sorted(row["result_id"] for row in books.results.values())
    assert [line["result_id"] for line in books.lines] == told
    for line in books.lines:
        row = books.results[line["job_id"]]
        for name in ("status", "reason", "policy_version", "checkpoint", "dataset", "score", *COUNTS):
            assert line[name] == row[name], f"{line['job_id']}: {name}"


def _check_wandb(books: Books) -> None:
    """The W&B run has a row a result, drawn by its policy version or step; scores where there are some."""
    rows = {
        row.get("live_eval/result_id") or row.get(f"checkpoint_eval{_suffix(row)}/result_id"): row
        for row in books.wandb.rows
    }
    ids = result_ids(books.wandb.rows)
    assert len(ids) == len(books.wandb.rows) == len(set(ids)), "rows of nothing, or a result twice"
    assert set(ids) == {row["result_id"] for row in books.results.values()}
    for result in books.results.values():
        row = rows[result["result_id"]]
        live = result["policy_version"] is not None
        prefix = "live_eval" if live else f"checkpoint_eval{_suffix(row)}"
        step = f"{prefix}/policy_version" if live else books.wandb.step_metric(f"{prefix}/status")
        assert step in row, result["job_id"]
        if live:
            assert row[step] == result["policy_version"]
        for name in ("status", "reason", "dataset"):
            assert row[f"{prefix}/{name}"] == result[name], result["job_id"]
        assert row.get(f"{prefix}/{result['dataset']}/score") == result["score"], result["job_id"]
        for key in row:
            if not key.startswith("_"):
                assert key == step or books.wandb.step_metric(key) == step, (
                    f"{key} is drawn by something else"
                )


def _suffix(row: dict[str, Any]) -> str:
    return "_by_number" if any(key.startswith("checkpoint_eval_by_number/") for key in row) else ""


def _check_samples(books: Books) -> None:
    """The score is the mean of the rewards on disk, and each of them was generated on the version."""
    for name, result in books.results.items():
        counted = result["n_scored"] + result["n_errored"] + result["n_aborted"]
        if result["samples_path"]:
            assert counted == result["n_expected"], name
        if result["status"] != "succeeded":
            continue
        samples = books.samples(name)
        assert len({each["row_id"] for each in samples}) == len(samples) == result["n_expected"], name
        scored = [each for each in samples if each["status"] == "scored"]
        assert len(scored) == result["n_scored"], name
        mean = sum(each["reward"] for each in scored) / len(scored)
        assert abs(mean - result["score"]) < 1e-9, name
        version = result["policy_version"]
        label = str(version) if version is not None else f"ckpt-{name.partition('/')[0]}"
        assert {each["engine_label"] for each in scored} == {label}, name
        assert json.loads(result["engine_versions"]) == [label], name
        _check_attempts(name, Path(result["samples_path"]))


def _check_attempts(name: str, last: Path) -> None:
    """Attempts that were cut got the same answers: decoding is greedy, and the weights are the same."""
    answers = {each["row_id"]: each["response"] for each in _samples(last)}
    for path in last.parent.glob(f"{last.name.partition('@')[0].removesuffix('.jsonl')}*.jsonl"):
        for each in _samples(path):
            if each["status"] == "scored":
                assert each["response"] == answers[each["row_id"]], f"{name}: {path.name}"


def _samples(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a sample file."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def _check_versions(books: Books, lives: Sequence[JobTrainer]) -> None:
    """Every version is what the trainer sent, has its jobs, and is claimed by nobody any more."""
    sealed = {
        number: row for number, row in books.versions.items() if row["state"] in ("sealed", "collected")
    }
    for number, row in books.versions.items():
        assert row["state"] in ("sealed", "collected", "discarded"), f"version {number} is {row['state']}"
        if row["state"] == "discarded":
            assert row["reason"], number
            assert not (books.root / "store" / "versions" / f"v{number:06d}").exists(), number
    assert sorted(d["policy_version"] for d in books.discards if d["policy_version"] is not None) == sorted(
        books.versions.keys() - sealed.keys()
    )
    for name, result in books.results.items():
        if result["policy_version"] is None:
            continue
        assert result["policy_version"] in sealed, f"{name} is of a version that never was"
        assert result["weight_digest"] == sealed[result["policy_version"]]["digest"], name
    with_jobs = {job["policy_version"] for job in books.jobs.values()} - {None}
    for number in with_jobs:
        have = {job["dataset"] for job in books.jobs.values() if job["policy_version"] == number}
        assert have == set(books.datasets), f"version {number} has jobs on {have}"
    for number, row in sealed.items():
        sent = lives[row["incarnation"] - 1].digests[row["weight_version"]]
        assert row["digest"] == sent, f"version {number} is not what was sent"
    begun = sorted(books.versions.values(), key=lambda row: row["began_at"])
    assert [row["policy_version"] for row in begun] == sorted(books.versions)
    assert [pin["owner"] for pin in books.pins] == []
    assert not any((books.root / "store" / "staging").iterdir())
