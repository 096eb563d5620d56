"""The real parts of transport ray at one place: publisher, Ray, receiver actor, store.

Times are taken at the seam between the sender and Ray, so that nothing of what is measured is
changed. They are those of the answers: two calls of the actor are within the time from the last
bucket to the outcome.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.update import Update
from live_eval.publisher.base import bucketize, tensor_meta
from live_eval.publisher.ray_link import RayLink
from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher
from live_eval.publisher.staging import staging_bytes
from live_eval.store import FRESH_OWNER, VersionStore
from live_eval.store.writer import BYTES_A_TENSOR, BYTES_A_VERSION
from live_eval.subscriber.ray_receiver import RayReceiverConfig, start_ray_receiver
from protocol.messages import BucketStored, SyncOutcome

if TYPE_CHECKING:
    from benchmarks.weights import Weights
    from protocol.messages import Message

BUCKET_BYTES = 256 << 20
"""What the trainer passes to one put_bucket; slime's own buckets are of this order."""
WAIT_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncTimes:
    """One sync that became a version, in seconds."""

    held_s: float
    """What the publisher reports."""
    seal_s: float
    """The last bucket was answered as stored -> the outcome is there."""
    commit_s: float
    """commit() returned -> the outcome is there."""


class TimedLink(RayLink):
    """Remembers when the last bucket and the outcome were answered."""

    stored_at = 0.0
    ended_at = 0.0

    def wait(self, pending: Any, timeout_s: float) -> Message:
        """The actor's answer."""
        answer = super().wait(pending, timeout_s)
        if isinstance(answer, BucketStored):
            self.stored_at = time.perf_counter()
        elif isinstance(answer, SyncOutcome):
            self.ended_at = time.perf_counter()
        return answer


class Site:
    """A receiver with its store below `root`, and the publisher that sends to it."""

    def __init__(self, root: Path, weights: Weights, *, name: str, num_kept: int = 1) -> None:
        weights.write_base(root / "base")
        self._weights = weights
        self._num_kept = num_kept
        self.store_root = root / "store"
        # The one that comes, one more, and what each takes besides its tensors.
        one = weights.num_bytes + BYTES_A_TENSOR * len(weights.tensors) + BYTES_A_VERSION
        self.max_bytes = (num_kept + 2) * one + (16 << 20)
        config = RayReceiverConfig(
            store=self.store_root, base=root / "base", max_bytes=self.max_bytes, keep_newest=num_kept
        )
        self._actor: Any = start_ray_receiver(config, name=name)
        self._link = TimedLink(self._actor)
        metas = [tensor_meta(name, tensor) for name, tensor in weights.tensors]
        self._publisher = RayRefPublisher(
            self._link, RayPublisherConfig(run_id="benchmarks", slot_bytes=staging_bytes(metas))
        )
        self._version = 0
        self._held_s = 0.0
        self._returned_at = 0.0
        self.times: list[SyncTimes] = []

    @property
    def update(self) -> Update:
        """A sync, and the wait until it is sealed."""
        return Update(run=self.sync, finish=self.settle)

    def sync(self) -> None:
        """What the trainer does."""
        self._version += 1
        self._publisher.begin(self._version)
        for bucket in bucketize(self._weights.tensors, BUCKET_BYTES):
            self._publisher.put_bucket(bucket)
        report = self._publisher.commit()
        self._returned_at = time.perf_counter()
        if not report.published:
            raise RuntimeError(f"a sync was not published: {report.reason}")
        self._held_s = report.held_s

    def settle(self) -> None:
        """Wait until the sync is a version, note its times, and let go of it as a service would."""
        deadline = time.monotonic() + WAIT_S
        outcomes: list[SyncOutcome] = []
        while not (outcomes := self._publisher.outcomes()) and time.monotonic() < deadline:
            time.sleep(0.001)
        if [outcome.state for outcome in outcomes] != ["sealed"]:
            raise RuntimeError(f"a sync was not sealed within {WAIT_S:g} s: {outcomes}")
        self.times.append(
            SyncTimes(
                held_s=self._held_s,
                seal_s=self._link.ended_at - self._link.stored_at,
                commit_s=self._link.ended_at - self._returned_at,
            )
        )
        version = outcomes[0].policy_version
        assert version is not None
        with self.open_store() as store:
            store.unpin(version, FRESH_OWNER)

    def open_store(self) -> VersionStore:
        """The receiver's store, as a service has it."""
        return VersionStore.open(self.store_root, max_bytes=self.max_bytes, keep_newest=self._num_kept)

    def close(self) -> None:
        """End publisher and receiver."""
        import ray

        self._publisher.close()
        ray.kill(self._actor, no_restart=True)
