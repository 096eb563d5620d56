"""kill -9 of the receiver actor at named points of a sync, in one job over a real Ray.

Each kill is followed by a sync that nothing disturbs. LIVE_EVAL_KILL_ROUNDS=5 visits each of the four
points five times, at other buckets and other moments of the seal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.job import KEEP_NEWEST, MAX_BYTES, RUN_ID, Dataset, Job, job_in
from fakes.job_checker import check_job
from fakes.job_link import KillingLink, after_begin, after_bucket, after_source_done, during_seal
from fakes.job_trainer import STEPS_A_ROUND, JobTrainer
from fakes.local_ray import local_ray

from live_eval.config import EngineSettings
from live_eval.publisher.base import tensor_meta
from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher
from live_eval.publisher.staging import staging_bytes
from live_eval.subscriber.ray_receiver import RayReceiverConfig, start_ray_receiver
from protocol.messages import SyncCommit

if TYPE_CHECKING:
    from live_eval.publisher.base import NamedTensor
    from protocol.messages import SyncOutcome

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(600)]

WAIT_S = 90.0
DEADLINE_S = 5.0
SEAL_DELAYS_S = (0.0, 0.004, 0.008, 0.016, 0.05)
"""A seal of the tiny model takes 10 to 30 ms."""
NUM_ROUNDS = min(int(os.environ.get("LIVE_EVAL_KILL_ROUNDS", "2")), len(SEAL_DELAYS_S))
POINTS = [
    point
    for number in range(NUM_ROUNDS)
    for point in (
        after_begin(),
        after_bucket(number),
        after_source_done(),
        during_seal(SEAL_DELAYS_S[number]),
    )
]


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    with local_ray():
        yield


@pytest.fixture
def job(tmp_path: Path, job_base: Path, job_engine_url: str) -> Iterator[Job]:
    engines = EngineSettings(addresses=(job_engine_url,), device="cpu")
    settings = {"scheduler": {"on_update": "queue"}, "datasets": (Dataset(name="a"),)}
    with job_in(tmp_path / "job", job_base, engines, **settings) as made:
        yield made


class Site:
    """The trainer of a job, and its receiver as an actor."""

    def __init__(self, job: Job) -> None:
        self.actor: Any = start_ray_receiver(
            RayReceiverConfig(
                store=job.run_dir.store,
                base=job.base,
                max_bytes=MAX_BYTES,
                keep_newest=KEEP_NEWEST,
                service_socket=job.socket,
            ),
            name="receiver",
        )
        self.link = KillingLink(self.actor)
        self.trainer = JobTrainer(job.base, self._publisher)

    def _publisher(self, tensors: Sequence[NamedTensor]) -> RayRefPublisher:
        slot_bytes = staging_bytes(tensor_meta(name, tensor) for name, tensor in tensors)
        return RayRefPublisher(
            self.link, RayPublisherConfig(run_id=RUN_ID, slot_bytes=slot_bytes, deadline_s=DEADLINE_S)
        )

    def pid(self) -> int:
        """Process of the actor's present life, once it is there."""
        import ray
        from ray.exceptions import RayActorError

        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return ray.get(self.actor.__ray_call__.remote(lambda _: os.getpid()), timeout=WAIT_S)
            except RayActorError:  # it was killed just now
                assert time.monotonic() < deadline, "the receiver does not come back"
                time.sleep(0.05)

    def outcome(self) -> SyncOutcome:
        """What became of the last sync."""
        deadline = time.monotonic() + WAIT_S
        while not (found := self.trainer.publisher.outcomes()):
            assert time.monotonic() < deadline, "nobody says what became of the sync"
            time.sleep(0.01)
        assert len(found) == 1
        return found[0]

    def close(self) -> None:
        """End the sender and the actor."""
        import ray

        self.trainer.publisher.close(10.0)
        ray.kill(self.actor, no_restart=True)


@pytest.fixture
def site(job: Job, ray_cluster: None) -> Iterator[Site]:
    made = Site(job)
    yield made
    made.close()


def test_a_job_whose_receiver_is_killed_loses_those_syncs_and_nothing_else(job: Job, site: Site) -> None:
    trainer = site.trainer
    job.start()
    killed: dict[int, str] = {}
    for point in POINTS:
        pid = site.pid()
        site.link.kill_at(point, pid)
        trainer.round()
        outcome = site.outcome()
        killed[outcome.weight_version] = f"{outcome.state} {outcome.reason}".strip()
        assert site.pid() != pid
        trainer.round()
        assert site.outcome().state == "sealed", point
    assert site.link.num_kills == len(POINTS) == 4 * NUM_ROUNDS
    job.finish()

    # The trainer noticed nothing: every step was taken, every sync handed over, none held it.
    num_rounds = 2 * len(POINTS)
    assert trainer.num_steps == (num_rounds - 1) * STEPS_A_ROUND
    assert [report.published for report in trainer.reports] == [True] * num_rounds
    assert max(report.held_s for report in trainer.reports) < DEADLINE_S

    # A killed sync is no version, with its reason; at the very end of its seal it may be one, and whole.
    for point, how in zip(POINTS, killed.values(), strict=True):
        assert how == "discarded receiver_restarted" or (point.kind is SyncCommit and how == "sealed"), point
    books = check_job(job, trainer)
    discarded = {row["weight_version"]: row["reason"] for row in books.discards}
    assert discarded == {version: "receiver_restarted" for version, how in killed.items() if how != "sealed"}
    assert list(killed) == list(range(1, num_rounds, 2))

    # What the kills did not touch is evaluated.
    sealed = {row["weight_version"] for row in books.versions.values() if row["state"] == "sealed"}
    assert sealed == set(range(1, num_rounds + 1)) - discarded.keys()
    assert job.ends() == {f"v{version}/a": "succeeded: completed" for version in sorted(sealed)}
