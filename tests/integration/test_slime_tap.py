"""The tap in slime's updater, with the real publisher, a real Ray and a real receiver: two pipeline ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.local_ray import local_ray
from fakes.member_wire import RayWire
from fakes.slime_ranks import ranks_at, whole
from fakes.slime_standins import NamedTensors, UpdateWeightFromDistributed
from fakes.store_content import stored_content
from fakes.sync import MODEL, content, write_base
from fakes.weights import weights

from live_eval.publisher.ray_link import RayLink
from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher
from live_eval.subscriber.ray_receiver import RayReceiverConfig, start_ray_receiver
from slime_patch.tap import SyncNote, WeightTap

if TYPE_CHECKING:
    import torch

    from protocol.messages import SyncOutcome

pytestmark = pytest.mark.ray

WAIT_S = 60.0
SOURCES = ("pp_0", "pp_1")


@pytest.fixture(scope="module", autouse=True)
def ray_cluster() -> Iterator[None]:
    with local_ray():
        yield


class Rank:
    """One pipeline rank: every other tensor of the model, in buckets of one, tapped."""

    def __init__(self, number: int, actor: Any) -> None:
        self.source = SOURCES[number]
        self.parameters: dict[str, torch.Tensor] = {}
        self.publisher = RayRefPublisher(
            RayLink(actor),
            RayPublisherConfig(
                run_id="run", slot_bytes=1 << 16, source=self.source, sources=SOURCES, incarnation_id="life"
            ),
        )
        self.updater = UpdateWeightFromDistributed(self.chunks)
        self.tap = WeightTap(self.updater, lambda slot_bytes: self.publisher, slot_bytes=1 << 16)
        self._number = number

    def train(self, version: int) -> None:
        self.parameters = dict(weights(version)[self._number :: 2])

    def chunks(self) -> list[NamedTensors]:
        return [[(name, tensor)] for name, tensor in self.parameters.items()]

    def overwrite(self) -> None:
        for tensor in self.parameters.values():
            tensor.fill_(0)


class Job:
    """Two ranks and their receiver."""

    def __init__(self, root: Path, name: str) -> None:
        write_base(root / "base", tied=True)
        self.store = root / "store"
        config = RayReceiverConfig(
            store=self.store, base=root / "base", max_bytes=1 << 30, deadline_s=4.0, payload_timeout_s=2.0
        )
        self.actor: Any = start_ray_receiver(config, name=name)
        self.ranks = [Rank(number, self.actor) for number in range(2)]

    def sync(self, version: int, *, only: int | None = None) -> None:
        """All ranks update, and change their weights in place the moment the update returns."""
        for number, rank in enumerate(self.ranks):
            rank.train(version)
            wanted = only is None or only == number
            rank.tap.note = SyncNote(rollout_id=version - 2, train_step=version, wanted=wanted)
            rank.updater.update_weights()
            rank.overwrite()

    def outcome(self, number: int = 0) -> SyncOutcome:
        deadline = time.monotonic() + WAIT_S
        while not (found := self.ranks[number].publisher.outcomes()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return found[-1]

    def close(self) -> None:
        import ray

        for rank in self.ranks:
            rank.tap.close(10.0)
        ray.kill(self.actor, no_restart=True)


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    made = Job(tmp_path, request.node.name)
    yield made
    made.close()


def test_a_version_is_what_both_ranks_sent_and_not_what_came_later(job: Job) -> None:
    for version in (1, 2):
        job.sync(version)
        outcome = job.outcome()
        assert (outcome.state, outcome.policy_version) == ("sealed", version)
        assert stored_content(job.store, version) == {
            meta.name: content(meta, version).tobytes() for meta in MODEL
        }


def test_a_version_of_which_one_rank_sent_nothing_is_discarded_and_the_next_one_is_whole(job: Job) -> None:
    job.sync(1, only=0)
    outcome = job.outcome()
    assert (outcome.state, outcome.reason) == ("discarded", "source_deadline")
    job.sync(2)
    assert job.outcome().state == "sealed"


def test_a_killed_member_of_the_trainers_group_costs_one_version_and_ray_brings_it_back(
    tmp_path: Path,
) -> None:
    wire = RayWire(tmp_path, "member")
    (rank,) = ranks_at(wire)
    rank.sync(1)
    assert rank.outcome(1).state == "sealed"
    wire.kill()
    began = time.monotonic()
    rank.sync(2)
    assert time.monotonic() - began < 20.0
    wire.revive()
    rank.sync(3)
    lost = rank.outcome(2)
    assert (lost.state, lost.reason) == ("discarded", "receiver_restarted")
    assert stored_content(wire.store, rank.outcome(3).policy_version) == whole(3)
    rank.close()
    wire.close()
