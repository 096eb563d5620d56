"""A receiver actor in a real Ray with its store, and who sends to it: by hand, or as a trainer does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fakes.sync import MODEL, write_base
from fakes.weights import weights

from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher
from live_eval.store import BaseCheckpoint, VersionStore
from live_eval.subscriber.ray_receiver import RayReceiverConfig, start_ray_receiver
from protocol.codec import decode, encode
from protocol.payload import payload_layout

if TYPE_CHECKING:
    from live_eval.publisher.base import SyncReport
    from live_eval.publisher.ray_link import RayLink
    from protocol.messages import BucketHeader, Message, SyncOutcome, TensorMeta

WAIT_S = 60.0
"""Longest wait of a test for anything; a restarted actor imports everything anew."""


class Site:
    """A receiver actor and its store."""

    def __init__(self, root: Path, name: str, *, tensors: Sequence[TensorMeta] = (), **settings: Any) -> None:
        write_base(root / "base", tied=True, tensors=tensors)
        config = {"max_bytes": 1 << 30, "deadline_s": 4.0, "payload_timeout_s": 2.0, "keep_newest": 100}
        self.root = root
        self.actor: Any = start_ray_receiver(
            RayReceiverConfig(store=root / "store", base=root / "base", **(config | settings)), name=name
        )

    def pid(self) -> int:
        import ray

        return ray.get(self.actor.__ray_call__.remote(lambda _: os.getpid()), timeout=WAIT_S)

    def read(self, question: Callable[[VersionStore], Any]) -> Any:
        """Ask the store as the service would: from another process than the receiver."""
        with VersionStore.open(self.root / "store", max_bytes=1 << 30, keep_newest=100) as store:
            return question(store)

    def reasons(self, life: str) -> list[tuple[int, str]]:
        found = self.read(lambda store: store.discarded())
        return [(record.weight_version, record.reason) for record in found if record.incarnation_id == life]

    def sealed(self, life: str) -> list[int]:
        """Weight versions of a life that are sealed; each is verified."""

        def ask(store: VersionStore) -> list[int]:
            numbers = {i.number for i in store.incarnations() if i.incarnation_id == life}
            records = [record for record in store.sealed() if record.incarnation in numbers]
            for record in records:
                store.verify(record.policy_version)
            return [record.weight_version for record in records]

        return self.read(ask)

    def content(self, policy_version: int, tensor: TensorMeta) -> bytes:
        found = np.empty(tensor.num_bytes, dtype=np.uint8)
        path = self.read(lambda store: store.path(policy_version))
        BaseCheckpoint.read(path).copy_tensor(tensor.name, found)
        return found.tobytes()

    def close(self) -> None:
        import ray

        ray.kill(self.actor, no_restart=True)


class RayPlayer:
    """Sends by hand."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def ask(self, message: Message) -> Message:
        return self.call(self.actor.request.remote(encode(message)))

    def bucket(self, header: BucketHeader, data: Sequence[np.ndarray]) -> Message:
        import ray

        return self.hand_over(header, ray.put(self.pack(header, data)))

    def hand_over(self, header: BucketHeader, *refs: Any) -> Message:
        return self.call(self.actor.bucket.remote(encode(header), list(refs)))

    def pack(self, header: BucketHeader, data: Sequence[np.ndarray]) -> np.ndarray:
        layout = payload_layout(header.tensors)
        payload = np.zeros(layout.num_bytes, dtype=np.uint8)
        for start, part in zip(layout.offsets, data, strict=True):
            payload[start : start + len(part)] = part
        return payload

    def call(self, pending: Any) -> Message:
        import ray

        return decode(ray.get(pending, timeout=WAIT_S))


def make_publisher(link: RayLink, life: str, **settings: Any) -> RayRefPublisher:
    config: dict[str, Any] = {"run_id": "run", "slot_bytes": 4096, "bucket_bytes": 128, "deadline_s": 0.5}
    return RayRefPublisher(link, RayPublisherConfig(incarnation_id=life, **(config | settings)))


def publish(publisher: RayRefPublisher, version: int, tensors: Sequence[TensorMeta] = MODEL) -> SyncReport:
    publisher.begin(version, rollout_id=version - 2, train_step=version * 10)
    for named in weights(version, tensors):
        publisher.put_bucket([named])
    return publisher.commit()


def outcomes(publisher: RayRefPublisher, number: int) -> list[SyncOutcome]:
    found: list[SyncOutcome] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < number and time.monotonic() < deadline:
        found += publisher.outcomes()
        time.sleep(0.02)
    assert len(found) == number, found
    return found
