"""kill -9 of the service at named points of one job; each time it is started again as a driver does.

LIVE_EVAL_KILL_ROUNDS=5 visits each point five times.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.job import Job, job_in
from fakes.job_checker import check_job
from fakes.job_gate import EngineGate, Match, asks, attaches, loads

from live_eval.config import EngineSettings

pytestmark = pytest.mark.engine

COMPLETED = "succeeded: completed"
NUM_ROUNDS = int(os.environ.get("LIVE_EVAL_KILL_ROUNDS", "2"))
POLICIES = [("queue", "finish")[number % 2] for number in range(NUM_ROUNDS)]


@pytest.fixture
def job(tmp_path: Path, job_base: Path, gate: EngineGate, policy: str) -> Iterator[Job]:
    engines = EngineSettings(addresses=(gate.url,), device="cpu")
    with job_in(tmp_path / "job", job_base, engines, scheduler={"on_update": policy}) as made:
        yield made


def kill_at(job: Job, gate: EngineGate, match: Match) -> None:
    """Start the service, and kill it while its engine keeps it waiting for this."""
    gate.hold(match)
    job.service.start()
    gate.wait_held()
    job.service.kill()
    gate.drop()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_whose_service_is_killed_at_every_point_has_each_result_once(
    job: Job, gate: EngineGate
) -> None:
    trainer = job.trainer()
    service = job.service

    # Engines starting.
    gate.hold(attaches)
    service.start()
    gate.wait_held()
    assert service.state() == "starting"
    service.kill()
    gate.drop()

    # Idle.
    job.start()
    service.kill()

    # A version is sealed and not yet seen.
    job.start()
    service.freeze()
    trainer.round()
    service.kill()
    assert job.statuses() == {}

    # The engine holds NaN, and the version is about to be loaded.
    kill_at(job, gate, loads("1"))
    assert job.statuses() == {"v1/a": "waiting", "v1/b": "waiting"}

    # A job is running.
    gate.hold(asks("a", after=1))
    job.start()
    job.until(lambda: job.num_done("v1/a") > 0)
    service.kill()
    gate.drop()
    assert job.statuses() == {"v1/a": "running", "v1/b": "waiting"}

    # Between two datasets.
    gate.hold(asks("b"))
    job.start()
    job.until_ended("v1/a")
    gate.wait_held()
    service.kill()
    gate.drop()
    assert job.ends() == {"v1/a": COMPLETED}

    # A result has just become durable.
    job.start()
    trainer.round()
    job.until(lambda: "v2/a" in job.ends(), pause_s=0.0005)
    service.kill()
    assert job.ends().keys() >= {"v1/a", "v1/b", "v2/a"}

    # Draining.
    gate.hold(asks("b"))
    job.start()
    trainer.round()
    job.end_training()
    gate.wait_held()
    assert service.state() == "draining"
    service.kill()
    gate.drop()

    job.start()
    job.finish()
    books = check_job(job, trainer)
    assert job.ends() == {f"v{version}/{name}": COMPLETED for version in (1, 2, 3) for name in "ab"}
    # What was cut once was run twice, and what had a result was never run again.
    attempts = {name: row["attempt"] for name, row in books.jobs.items()}
    assert [attempts[name] for name in ("v1/a", "v1/b", "v2/a", "v3/a")] == [2, 2, 1, 1]
    assert service.num_lives == 9
