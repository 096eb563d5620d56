"""kill -9 of the engine that the service launched: in the middle of an eval, of a load, and while idle.

Every kill costs the start of a real server, 10 to 20 seconds on two cores, so each point is visited
once. LIVE_EVAL_KILL_ROUNDS=5 visits each five times, in one job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.job import Dataset, Job, job_in
from fakes.job_checker import check_job
from fakes.job_engine import kill_server, servers_of

from live_eval.config import EngineSettings
from live_eval.engines.serve import group_members

NUM_ROUNDS = int(os.environ.get("LIVE_EVAL_KILL_ROUNDS", "1"))
WAIT_S = 280.0

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300 + 900 * NUM_ROUNDS)]


@pytest.fixture
def job(tmp_path: Path, job_base: Path) -> Iterator[Job]:
    datasets = (Dataset(name="a", num_rows=8, max_new_tokens=150), Dataset(name="b"))
    engines = EngineSettings(num_engines=1, device="cpu")
    with job_in(
        tmp_path / "job", job_base, engines, datasets=datasets, scheduler={"on_update": "queue"}
    ) as made:
        made.wait_s = WAIT_S
        yield made


class Victim:
    """The engine of a job's service, life after life."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._log = job.run_dir.logs / "eval-0.log"
        self.dead: list[int] = []

    def kill(self) -> None:
        """kill -9 to the whole server that runs now."""
        (group,) = servers_of(self._job.service.pid)
        kill_server(group)
        self.dead.append(group)

    def kill_in_load_of(self, sync: Callable[[], object]) -> None:
        """Kill it within the pin of the version that `sync` makes: as soon as it says that it loads."""
        with self._log.open("rb") as log:
            log.seek(0, os.SEEK_END)
            sync()
            said = b""
            deadline = time.monotonic() + WAIT_S
            while b"Start update_weights" not in said:
                assert time.monotonic() < deadline, "no load came"
                time.sleep(0.0005)
                said += log.read()
        self.kill()


def test_jobs_whose_engine_is_killed_complete_on_the_next_one(job: Job) -> None:
    trainer = job.trainer()
    job.start()
    victim = Victim(job)
    for repeat in range(NUM_ROUNDS):
        asked, loaded, idle = (3 * repeat + number for number in (1, 2, 3))

        # In the middle of an eval.
        trainer.round()
        job.until(lambda version=asked: job.num_done(f"v{version}/a") > 0)
        victim.kill()
        job.until_ended(f"v{asked}/a", f"v{asked}/b")

        # In the middle of a load.
        victim.kill_in_load_of(trainer.round)
        job.until_ended(f"v{loaded}/a", f"v{loaded}/b")

        # While idle; the next version comes before anybody has noticed.
        victim.kill()
        trainer.round()
        job.until_ended(f"v{idle}/a", f"v{idle}/b")
    job.finish()

    books = check_job(job, trainer)
    versions = range(1, 3 * NUM_ROUNDS + 1)
    assert job.ends() == {
        f"v{version}/{name}": "succeeded: completed" for version in versions for name in "ab"
    }
    assert len(set(victim.dead)) == 3 * NUM_ROUNDS
    assert [group_members(group) for group in victim.dead] == [[]] * len(victim.dead)
    # What a dead engine held was asked again within the run; a load that failed is a run of its own.
    attempts = [books.jobs[f"v{version}/a"]["attempt"] for version in versions]
    assert attempts[0::3] == [1] * NUM_ROUNDS
    assert attempts[1::3] == [2] * NUM_ROUNDS
    again = [max(each["attempt"] for each in books.samples(f"v{version}/a")) for version in versions]
    assert again[0::3] == [2] * NUM_ROUNDS
