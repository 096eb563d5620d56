"""kill -9 of the service in the middle of a job of 200 samples: the same job goes on with those done.

The engine is a real one that the service is attached to, so it outlives each life.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.job import Dataset, Job, job_in
from fakes.job_checker import check_job
from fakes.job_gate import EngineGate, asks, loads

from live_eval.config import EngineSettings
from live_eval.evaluation.job import RunLimits, sample_file

pytestmark = pytest.mark.engine

NUM_SAMPLES = 200
CHUNK = 8
KILLS = (3, 9)
"""Calls of prompts that each life gets answered before it is killed with two more in flight."""


@pytest.fixture
def job(tmp_path: Path, job_base: Path, gate: EngineGate) -> Iterator[Job]:
    with job_in(
        tmp_path / "job",
        job_base,
        EngineSettings(addresses=(gate.url,), device="cpu"),
        datasets=(Dataset(name="a", num_rows=NUM_SAMPLES, max_new_tokens=4),),
        scheduler={"on_update": "queue"},
        limits=RunLimits(chunk_size=CHUNK, num_in_flight=2),
    ) as made:
        yield made


def samples_of(job: Job, attempt: int) -> list[dict[str, Any]]:
    """The whole lines of an attempt's file."""
    path = job.run_dir.samples / sample_file("v1/a", attempt=attempt)
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def kill_after(job: Job, gate: EngineGate, num_calls: int) -> int:
    """Kill the service while two of its calls are unanswered; how many samples are done by then."""
    before = job.num_done("v1/a") if job.statuses() else 0
    gate.hold(asks("a", after=num_calls))
    job.service.start()
    gate.wait_held()
    job.until(lambda: job.num_done("v1/a") >= before + CHUNK * (num_calls - 1))
    job.service.kill()
    gate.drop()
    return job.num_done("v1/a")


def test_no_sample_of_a_job_that_is_killed_again_and_again_is_scored_twice_and_none_is_lost(
    job: Job, gate: EngineGate
) -> None:
    trainer = job.trainer()
    trainer.round()
    done = [kill_after(job, gate, num_calls) for num_calls in KILLS]
    # Once more before the first sample of an attempt, where only the load is under way.
    gate.hold(loads("1"))
    job.service.start()
    gate.wait_held()
    job.service.kill()
    gate.drop()

    job.start()
    job.finish()
    books = check_job(job, trainer)
    assert job.ends() == {"v1/a": "succeeded: completed"}
    num_attempts = len(KILLS) + 1
    assert books.jobs["v1/a"]["attempt"] == num_attempts

    files = [samples_of(job, attempt) for attempt in range(1, num_attempts + 1)]
    made: dict[str, str] = {}
    for each in (each for file in files for each in file if each["status"] == "scored"):
        assert made.setdefault(each["row_id"], each["request_id"]) == each["request_id"], "scored twice"
    assert len(made) == len(files[-1]) == NUM_SAMPLES, "samples are lost"
    assert {each["request_id"]: each["run"] for each in files[-1]}.keys() == set(made.values())

    # Each life went on where the one before had been, and asked only for what was not answered.
    assert done == sorted(done) and done[0] >= CHUNK * (KILLS[0] - 1)
    carried = Counter(each["run"] for each in files[-1])
    assert sorted(carried) == [1, 2, 3]
    for attempt, num_done in enumerate(done, start=1):
        assert sum(carried[run] for run in range(1, attempt + 1)) >= num_done
    for each in files[-1]:
        assert each["request_id"].startswith(f"v1/a@{each['run']}/{each['row_id']}/{each['sample']}.")
        assert each["engine_label"] == "1"
