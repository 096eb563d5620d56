"""The checker of whole jobs is itself checked: records that were tampered with are noticed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.job import Job, job_in
from fakes.job_checker import check_job

from live_eval.config import EngineSettings

if TYPE_CHECKING:
    from fakes.job_trainer import JobTrainer

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, job_base: Path, job_engine_url: str
) -> Iterator[tuple[Job, JobTrainer]]:
    engines = EngineSettings(addresses=(job_engine_url,), device="cpu")
    root = tmp_path_factory.mktemp("checked") / "job"
    with job_in(root, job_base, engines, scheduler={"on_update": "queue"}) as job:
        trainer = job.trainer()
        job.start()
        for _ in range(2):
            trainer.round()
        job.finish()
        yield job, trainer


def sql(name: str, *statements: str) -> Callable[[Job], None]:
    """Changes a database, past the triggers that keep live-eval from it."""

    def tamper(job: Job) -> None:
        with closing(sqlite3.connect(job.root / name)) as db:
            for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                db.execute(f"DROP TRIGGER {trigger}")
            for statement in statements:
                db.execute(statement)
            db.commit()

    return tamper


def without_last_line(job: Job) -> None:
    lines = job.run_dir.results_jsonl.read_text().splitlines(keepends=True)
    job.run_dir.results_jsonl.write_text("".join(lines[:-1]))


def with_a_line_twice(job: Job) -> None:
    lines = job.run_dir.results_jsonl.read_text().splitlines(keepends=True)
    job.run_dir.results_jsonl.write_text("".join([*lines, lines[-1]]))


def without_wandb_rows(job: Job) -> None:
    shutil.rmtree(next((job.root / "wandb").glob("offline-run-*")))


def with_wandb_rows_twice(job: Job) -> None:
    run = next((job.root / "wandb").glob("offline-run-*"))
    shutil.copytree(run, run.with_name(f"{run.name}-1"))


def with_another_answer(job: Job) -> None:
    path = job.root / "samples" / "v1" / "a.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), "reward": 7.0}), *rest, ""]))


def with_another_label(job: Job) -> None:
    path = job.root / "samples" / "v1" / "a.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), "engine_label": "2"}), *rest, ""]))


def with_something_in_staging(job: Job) -> None:
    (job.root / "store" / "staging" / "v000009").mkdir()


TAMPERED: dict[str, Callable[[Job], None]] = {
    "another score": sql("ledger.sqlite", "UPDATE results SET score = 0.123 WHERE job_id = 'v1/a'"),
    "a result gone": sql("ledger.sqlite", "DELETE FROM results WHERE job_id = 'v1/a'"),
    "an end gone": sql(
        "ledger.sqlite", "UPDATE jobs SET status = 'running', finished_at = NULL WHERE job_id = 'v1/a'"
    ),
    "two ends": sql(
        "ledger.sqlite",
        "INSERT INTO transitions (job_id, from_status, to_status, attempt, reason, at)"
        " VALUES ('v1/a', 'running', 'failed', 1, 'internal', 1.0)",
    ),
    "an end skipped": sql("ledger.sqlite", "DELETE FROM transitions WHERE to_status = 'running'"),
    "an outbox row gone": sql("ledger.sqlite", "DELETE FROM outbox WHERE kind = 'result' AND seq % 2 = 0"),
    "another digest": sql("store/catalogue.sqlite", "UPDATE versions SET digest = 'x'"),
    "a version under way": sql("store/catalogue.sqlite", "UPDATE versions SET state = 'receiving'"),
    "a claim left": sql("store/catalogue.sqlite", "INSERT INTO pins VALUES (1, 'v1', 'running')"),
    "a line gone": without_last_line,
    "a line twice": with_a_line_twice,
    "W&B rows gone": without_wandb_rows,
    "W&B rows twice": with_wandb_rows_twice,
    "another reward on disk": with_another_answer,
    "another label on disk": with_another_label,
    "something in staging": with_something_in_staging,
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_records_are_noticed(finished: tuple[Job, JobTrainer], tmp_path: Path, name: str) -> None:
    job, trainer = finished
    shutil.copytree(job.root, tmp_path / "job")
    copy = Job(tmp_path / "job", job.base, job.engines)
    moved = f"UPDATE results SET samples_path = replace(samples_path, '{job.root}', '{copy.root}')"
    sql("ledger.sqlite", moved)(copy)
    check_job(copy, trainer)
    TAMPERED[name](copy)
    with pytest.raises((AssertionError, KeyError)):
        check_job(copy, trainer)
