"""Whole jobs on the real engine, without faults: what each policy makes of V when V' comes."""

from __future__ import annotations

import json
import time
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
    books = check_job(job, trainer)
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
    check_job(job, trainer)
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
    check_job(job, trainer)
    assert job.ends() == {"v1/a": COMPLETED, "v4/a": COMPLETED, "v6/a": COMPLETED}


def test_cancel_aborts_at_once_and_its_guard_lets_one_complete(make_job: MakeJob, gate: EngineGate) -> None:
    """An evaluation takes longer than the time between syncs, so without the guard none would end."""
    job = make_job(
        scheduler={"on_update": "cancel"},
        datasets=(Dataset(name="a", num_rows=8, max_new_tokens=250), Dataset(name="b")),
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
    books = check_job(job, trainer)
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
    books = check_job(job, trainer)
    assert job.ends() == dict.fromkeys(("v1/a", "v1/b", "c1/a", "c1/b", "v2/a", "v2/b"), COMPLETED)
    assert books.results["c1/a"]["checkpoint"] == str(checkpoint)
    row = next(row for row in books.wandb.rows if row.get("checkpoint_eval/result_id") == f"{RUN_ID}/c1/a")
    assert row["checkpoint_eval/train_step"] == 40


def test_a_restarted_trainer_continues_the_policy_versions(make_job: MakeJob, gate: EngineGate) -> None:
    """Its weight versions begin at 1 again, and what waited of its earlier life is of no more interest."""
    job = make_job(scheduler={"on_update": "finish"})
    first, second = job.trainer(), job.trainer(life="life-2", seed=1)
    job.start()
    gate.hold(asks("a", after=1))
    first.round()
    gate.wait_held()
    first.round()
    job.until(lambda: job.statuses().get("v2/a") == "waiting")
    second.round()
    job.until(lambda: "v3/a" in job.statuses())
    gate.release()
    second.round()
    job.finish()
    books = check_job(job, first, second)
    numbers = {(row["incarnation"], row["weight_version"]): name for name, row in books.versions.items()}
    assert numbers == {(1, 1): 1, (1, 2): 2, (2, 1): 3, (2, 2): 4}
    ends = job.ends()
    assert (ends["v1/a"], ends["v1/b"], ends["v4/a"], ends["v4/b"]) == (COMPLETED,) * 4
    assert ends["v2/a"].startswith("superseded: ")
    assert ends["v3/a"] in (COMPLETED, "superseded: newer_version")


def test_a_store_that_is_full_drops_what_waits_and_never_what_runs(
    make_job: MakeJob, gate: EngineGate
) -> None:
    job = make_job(scheduler={"on_update": "queue"}, max_bytes=4 << 20)
    trainer = job.trainer()
    job.start()
    gate.hold(asks("a", after=1))
    trainer.round()
    gate.wait_held()
    while "dropped" not in job.statuses().values():
        trainer.round()
        time.sleep(0.05)
    gate.release()
    job.finish()
    books = check_job(job, trainer)
    dropped = {row["policy_version"] for row in books.versions.values() if row["reason"] == "store_full"}
    assert 2 in dropped
    assert 1 not in dropped
    assert job.ends() == {
        f"v{version}/{name}": "dropped: store_full" if version in dropped else COMPLETED
        for version in books.versions
        for name in "ab"
    }


def test_a_service_that_is_told_to_end_ends_every_job_on_record(make_job: MakeJob, gate: EngineGate) -> None:
    job = make_job(scheduler={"on_update": "queue"})
    trainer = job.trainer()
    job.start()
    gate.slow(asks("a", after=1))
    trainer.round()
    trainer.round()
    job.until(lambda: job.num_done("v1/a") > 0 and "v2/a" in job.statuses())
    job.service.stop()
    assert job.service.returncode == 0
    books = check_job(job, trainer)
    assert job.ends() == dict.fromkeys(("v1/a", "v1/b", "v2/a", "v2/b"), "cancelled: shutdown")
    assert json.loads(books.results["v1/a"]["partial"])["score"] is not None


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
    books = check_job(job, trainer)
    assert job.ends() == {
        **dict.fromkeys(("v1/a", "v1/b", "v2/b", "v3/a", "v3/b"), COMPLETED),
        "v2/a": "failed: mixed_version",
    }
    mixed = books.results["v2/a"]
    assert (mixed["score"], mixed["metrics"], mixed["partial"]) == (None, "{}", "{}")
    assert mixed["n_errored"] == 1
    assert json.loads(mixed["engine_versions"]) == ["1", "2"]
    assert "answered on weights '1' instead of '2'" in mixed["detail"]
