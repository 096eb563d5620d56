"""The receiver as one more engine of slime's distributed updater: real Ray, real gloo group."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.local_ray import local_ray
from fakes.slime_broadcast import BroadcastingUpdater, Lock
from fakes.store_content import stored_content
from fakes.sync import MODEL, content, write_base
from fakes.weights import weights

from live_eval.publisher.member import MemberConfig
from live_eval.publisher.ray_link import RayLink
from live_eval.subscriber.ray_facade import RayFacade
from live_eval.subscriber.ray_receiver import RayReceiverConfig, start_ray_receiver
from slime_patch.tap import SyncNote, seat_receiver

if TYPE_CHECKING:
    import torch
    from fakes.slime_standins import NamedTensors

    from protocol.messages import SyncOutcome

pytestmark = pytest.mark.ray

WAIT_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def ray_cluster() -> Iterator[None]:
    with local_ray():
        yield


class Rank:
    """One pipeline source with its updater: every `stride`-th tensor, in buckets of one."""

    def __init__(self, number: int, stride: int, actor: Any) -> None:
        import ray

        self.parameters: dict[str, torch.Tensor] = {}
        self._number, self._stride = number, stride
        self.updater = BroadcastingUpdater(self.chunks, get=ray.get, pp_rank=number)
        self.lock = Lock(ray.put)
        config = MemberConfig(
            run_id="run",
            source=f"pp_{number}",
            sources=tuple(f"pp_{each}" for each in range(stride)),
            incarnation_id="life",
        )
        self.tap = seat_receiver(
            self.updater, RayLink(actor), config, get=ray.get, ready=lambda: ray.put(None)
        )
        self.updater.connect_rollout_engines([], self.lock, engine_gpu_counts=[])

    def chunks(self) -> list[NamedTensors]:
        return [[(name, tensor)] for name, tensor in self.parameters.items()]

    def sync(self, version: int, *, wanted: bool = True) -> None:
        """Update, and change the weights in place the moment the update returns."""
        self.parameters = dict(weights(version)[self._number :: self._stride])
        self.tap.note = SyncNote(rollout_id=version - 2, train_step=version, wanted=wanted)
        self.updater.update_weights()
        for tensor in self.parameters.values():
            tensor.fill_(0)

    def outcome(self) -> SyncOutcome:
        assert self.tap._publisher is not None
        deadline = time.monotonic() + WAIT_S
        while not (found := self.tap._publisher.outcomes()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return found[-1]


class Job:
    """Some pipeline sources and their receiver."""

    def __init__(self, root: Path, name: str) -> None:
        write_base(root / "base", tied=True)
        self.store = root / "store"
        config = RayReceiverConfig(store=self.store, base=root / "base", max_bytes=1 << 30, deadline_s=5.0)
        self.actor: Any = start_ray_receiver(config, name=name, actor_class=RayFacade)
        self.ranks: list[Rank] = []

    def add(self, num_ranks: int = 1) -> list[Rank]:
        self.ranks = [Rank(number, num_ranks, self.actor) for number in range(num_ranks)]
        return self.ranks

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


def whole(version: int) -> dict[str, bytes]:
    return {meta.name: content(meta, version).tobytes() for meta in MODEL}


def test_a_version_is_what_was_broadcast_and_an_unwanted_update_is_received_and_dropped(job: Job) -> None:
    (rank,) = job.add()
    for version in (1, 2, 3):
        rank.sync(version, wanted=version != 2)
        if version == 2:
            continue
        outcome = rank.outcome()
        assert (outcome.state, outcome.weight_version, outcome.detail) == ("sealed", version, "")
        assert stored_content(job.store, outcome.policy_version) == whole(version)
    assert rank.updater.num_groups == 1


def test_two_pipeline_ranks_make_one_version(job: Job) -> None:
    ranks = job.add(2)
    for version in (1, 2):
        for rank in ranks:
            rank.sync(version)
        assert {rank.outcome().state for rank in ranks} == {"sealed"}
        assert stored_content(job.store, version) == whole(version)


def test_a_receiver_that_dies_between_updates_costs_one_version_and_comes_back(job: Job) -> None:
    import ray

    (rank,) = job.add()
    rank.sync(1)
    assert rank.outcome().state == "sealed"
    ray.kill(job.actor, no_restart=False)
    began = time.monotonic()
    rank.sync(2)
    assert time.monotonic() - began < 20.0
    outcome = rank.outcome()
    assert (outcome.state, outcome.reason) == ("discarded", "receiver_restarted")
    ray.get(job.actor.ping.remote(), timeout=WAIT_S)
    rank.sync(3)
    assert rank.outcome().state == "sealed"
    assert (rank.updater.num_groups, rank.lock.log[:2]) == (3, ["acquire", "release"])
    assert stored_content(job.store, 3) == whole(3)
