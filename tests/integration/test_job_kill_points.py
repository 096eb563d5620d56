"""kill -9 of the service at every write boundary of ledger, sample files, sinks and store.

Each life kills itself at a named write (fakes/killed_service.py) over one run directory, and the next
goes on; the engine is a real one that outlives them. LIVE_EVAL_KILLS=300 visits every point six
times, and prints how often; a few are visited otherwise. LIVE_EVAL_SEED replays a run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.job import Job, job_in
from fakes.job_checker import check_job
from fakes.killed_service import POINTS

from live_eval.config import EngineSettings

if TYPE_CHECKING:
    from fakes.job_gate import EngineGate

NUM_KILLS = int(os.environ.get("LIVE_EVAL_KILLS", "0"))
SEED = int(os.environ.get("LIVE_EVAL_SEED", "0"))
KILLS_A_JOB = 25
MAX_WAITING = 3
"""Versions that wait before no further one is made."""
REACH_S = 60.0
"""A life that has not come to its point by then is killed all the same."""

ONCE_A_LIFE = ("jsonl.open", "wandb", "ledger.requeue", "ledger.put", "ledger.create_jobs")
"""What a life may pass no second time."""
NEEDS_A_VERSION = "ledger.create_jobs"
"""What a life passes only if a version is new to it."""

FEW = (
    ("samples.append:half", 3),
    ("ledger.requeue:commit", 1),
    ("ledger.finish:commit", 1),
    ("jsonl.write:half", 1),
    ("wandb.write:after", 1),
)

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300 + 30 * NUM_KILLS)]


def chosen() -> list[list[tuple[str, int]]]:
    """What each job's lives die of: every point in turn, in a random order, at a random time."""
    if not NUM_KILLS:
        return [list(FEW)]
    numbers = random.Random(SEED)
    points: list[str] = []
    while len(points) < NUM_KILLS:
        points += numbers.sample(POINTS, len(POINTS))
    kills: list[tuple[str, int]] = []
    for point in points:
        if point.startswith("ledger.requeue"):
            kills.append(("samples.append:after", 1))  # leaves a job that was running
        kills.append((point, 1 if point.startswith(ONCE_A_LIFE) else numbers.choice((1, 1, 2, 3))))
    kills = kills[:NUM_KILLS]
    return [kills[begin : begin + KILLS_A_JOB] for begin in range(0, NUM_KILLS, KILLS_A_JOB)]


@pytest.fixture
def job(tmp_path: Path, job_base: Path, gate: EngineGate) -> Iterator[Job]:
    engines = EngineSettings(addresses=(gate.url,), device="cpu")
    with job_in(tmp_path / "job", job_base, engines, scheduler={"on_update": "queue"}) as made:
        yield made


def die_at(job: Job, point: str, count: int) -> bool:
    """Let a life die at this point; whether it came to it. If not, it is killed where it is."""
    job.service.start(dies_at=(point, count))
    deadline = time.monotonic() + REACH_S
    while time.monotonic() < deadline:
        if (status := job.service.returncode) is not None:
            assert status == -signal.SIGKILL, f"{point} {count}: {job.service.log_tail()}"
            return True
        if all_is_told(job):
            break
        time.sleep(0.02)
    job.service.kill()
    return False


def all_is_told(job: Job) -> bool:
    """Whether nothing is left to write."""
    if "waiting" in job.statuses().values() or "running" in job.statuses().values():
        return False
    told = job.ask_ledger("SELECT name FROM sinks WHERE acked = (SELECT max(seq) FROM outbox)")
    idle = job.service.state() == "serving" and job.versions() == job.versions_with_jobs()
    return idle and len(told) == 2


@pytest.mark.parametrize("kills", chosen(), ids=lambda kills: f"{len(kills)}-kills")
def test_a_job_whose_service_dies_at_any_write_has_each_result_once_everywhere(
    job: Job, kills: list[tuple[str, int]]
) -> None:
    trainer = job.trainer()
    visited: Counter[str] = Counter()
    for point, count in kills:
        num_waiting = len(job.versions() - job.versions_with_ends())
        if num_waiting < MAX_WAITING or point.startswith(NEEDS_A_VERSION):
            trainer.round()
        visited[point if die_at(job, point, count) else "elsewhere"] += 1
    job.start()
    job.finish()
    books = check_job(job, trainer)
    assert set(job.ends().values()) == {"succeeded: completed"}
    print(
        json.dumps({"seed": SEED, "lives": job.service.num_lives, "results": len(books.results), **visited})
    )
    if not NUM_KILLS:
        assert visited["elsewhere"] <= 1, visited
