"""Whole jobs on the real engine, without faults: what each policy makes of V when V' comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes.job import RUN_ID, Dataset, Job, job_in
from fakes.job_checker import check_job
from fakes.job_gate import EngineGate, asks
from fakes.tiny_model import write_tiny_model

from live_eval.config import EngineSettings
from live_eval.evaluation.job import RunLimits

pytestmark = pytest.mark.engine

COMPLETED = "succeeded: completed"
MakeJob = Callable[..., Job]


@pytest.fixture
def make_job(tmp_path: Path, job_base: Path, gate: EngineGate) -> Iterator[MakeJob]:
    """Makes a job over the shared engine, behind the gate."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Job:
            engines = EngineSettings(addresses=(gate.url,), device="cpu")
            return stack.enter_context(job_in(tmp_path / "job", job_base, engines, **settings))

        yield make


def test_queue_scores_every_due_version_in_order(make_job: MakeJob) -> None:
    job = make_job(scheduler={"on_update": "queue"})
    trainer = job.trainer()
    job.start()
    for _ in range(5):
        trainer.round()
    job.finish()
    books = check_job(job, digests=trainer.digests)
    assert list(job.ends()) == [f"v{version}/{name}" for version in range(1, 6) for name in "ab"]
    assert set(job.ends().values()) == {COMPLETED}
    assert len({books.results[f"v{version}/a"]["score"] for version in range(1, 6)}) > 1


def test_finish_completes_what_runs_and_then_the_newest(make_job: MakeJob, gate: EngineGate) -> None:
    job = make_job(scheduler={"on_update": "finish"})
    trainer = job.trainer()
    job.start()
    gate.hold(asks("a", after=1))
    trainer.round()
    gate.wait_held()
    for _ in range(3):
        trainer.round()
    job.until_ended("v2/a", "v2/b", "v3/a", "v3/b")
    gate.release()
    job.until_ended("v1/a", "v1/b", "v4/a", "v4/b")
    job.finish()
    check_job(job, digests=trainer.digests)
    superseded = "superseded: newer_version"
    assert {name.partition("/")[0]: how for name, how in job.ends().items()} == {
        "v1": COMPLETED,
        "v2": superseded,
        "v3": superseded,
        "v4": COMPLETED,
    }


def test_finish_with_an_interval_scores_due_versions_and_the_last(make_job: MakeJob) -> None:
    job = make_job(scheduler={"on_update": "queue", "interval": 3}, datasets=(Dataset(name="a"),))
    trainer = job.trainer()
    job.start()
    for _ in range(6):  # the first push, then rollouts 0 to 4
        trainer.round()
    job.finish()
    check_job(job, digests=trainer.digests)
    assert job.ends() == {"v1/a": COMPLETED, "v4/a": COMPLETED, "v6/a": COMPLETED}


def test_cancel_aborts_at_once_and_its_guard_lets_one_complete(make_job: MakeJob, gate: EngineGate) -> None:
    """An evaluation takes longer than the time between syncs, so without the guard none would end."""
    job = make_job(
        scheduler={"on_update": "cancel"},
        datasets=(Dataset(name="a", num_rows=16, max_new_tokens=300), Dataset(name="b")),
        limits=RunLimits(chunk_size=4, num_in_flight=1),
    )
    trainer = job.trainer()
    job.start()
    gate.slow(asks("a", after=1))
    for version in range(1, 5):
        trainer.round()
        job.until(lambda version=version: job.num_done(f"v{version}/a") > 0)
    trainer.round()
    job.until(lambda: "v5/a" in job.statuses())
    trainer.round()
    job.until_ended("v5/a", "v5/b")
    gate.release()
    job.finish()
    books = check_job(job, digests=trainer.digests)
    assert {name.partition("/")[0]: how for name, how in job.ends().items()} == {
        **dict.fromkeys(("v1", "v2", "v3"), "cancelled: newer_version"),
        "v4": COMPLETED,
        "v5": "superseded: newer_version",
        "v6": COMPLETED,
    }
    assert [name for name, row in books.jobs.items() if row["protected"]] == ["v4/a", "v4/b"]
    delays = []
    for version in (1, 2, 3):
        cut = books.results[f"v{version}/a"]
        assert cut["n_scored"] > 0
        assert cut["n_aborted"] > 0
        assert json.loads(cut["partial"])["score"] is not None
        assert (cut["score"], cut["metrics"]) == (None, "{}")
        assert books.results[f"v{version}/b"]["n_scored"] == 0
        delays.append(cut["finished_at"] - books.versions[version + 1]["sealed_at"])
    # From the seal of the newer version to the durable end of the older: less than a second.
    # On a machine that is busy with other things one of the three may take longer.
    assert sorted(delays)[1] < 1.0, delays
    assert max(delays) < 10.0, delays


def test_a_checkpoint_in_between_is_not_cancelled_by_a_newer_version(
    make_job: MakeJob, gate: EngineGate, tmp_path: Path
) -> None:
    checkpoint = write_tiny_model(tmp_path / "step_40", seed=7)
    job = make_job(scheduler={"on_update": "cancel"})
    trainer = job.trainer()
    job.start()
    trainer.round()
    job.until_ended("v1/a", "v1/b")
    gate.hold(asks("a", after=1))
    assert job.submit(checkpoint) == ("c1/a", "c1/b")
    gate.wait_held()
    trainer.round()
    job.until(lambda: "v2/a" in job.statuses())
    assert job.statuses()["c1/a"] == "running"
    gate.release()
    job.finish()
    books = check_job(job, digests=trainer.digests)
    assert job.ends() == dict.fromkeys(("v1/a", "v1/b", "c1/a", "c1/b", "v2/a", "v2/b"), COMPLETED)
    assert books.results["c1/a"]["checkpoint"] == str(checkpoint)
    row = next(row for row in books.wandb.rows if row.get("checkpoint_eval/result_id") == f"{RUN_ID}/c1/a")
    assert row["checkpoint_eval/train_step"] == 40


def test_one_answer_on_another_version_fails_the_job_and_is_not_averaged_in(
    make_job: MakeJob, gate: EngineGate
) -> None:
    gate.relabel = lambda request_id: "1" if request_id.startswith("v2/a@1/r3/") else None
    job = make_job(scheduler={"on_update": "queue"})
    trainer = job.trainer()
    job.start()
    for _ in range(3):
        trainer.round()
    job.finish()
    books = check_job(job, digests=trainer.digests)
    assert job.ends() == {
        **dict.fromkeys(("v1/a", "v1/b", "v2/b", "v3/a", "v3/b"), COMPLETED),
        "v2/a": "failed: mixed_version",
    }
    mixed = books.results["v2/a"]
    assert (mixed["score"], mixed["metrics"], mixed["partial"]) == (None, "{}", "{}")
    assert mixed["n_errored"] == 1
    assert json.loads(mixed["engine_versions"]) == ["1", "2"]
    assert "answered on weights '1' instead of '2'" in mixed["detail"]
