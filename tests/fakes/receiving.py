"""A receiver with a clock that the test moves, and a publisher's part played by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from fakes.sync import begin, bucket, commit, content, done

from live_eval.store import BaseCheckpoint, VersionStore
from live_eval.subscriber.receiver import Receiver

if TYPE_CHECKING:
    from protocol.messages import SyncBegin, SyncOutcome, TensorMeta

DEADLINE_S = 10.0


class Desk:
    """Receiver, store, clock, and how often the service was told to look."""

    def __init__(self, store: VersionStore, base: BaseCheckpoint) -> None:
        self.store = store
        self.now = 0.0
        self.num_changes = 0
        self.receiver = Receiver(
            store, base, deadline_s=DEADLINE_S, clock=lambda: self.now, on_change=self._count
        )

    @classmethod
    def open(
        cls, root: Path, base: BaseCheckpoint, *, max_bytes: int = 1 << 30, keep_newest: int = 3
    ) -> Desk:
        """Open the store as its writer, as a receiver that starts does."""
        store = VersionStore.open(root, base=base, max_bytes=max_bytes, keep_newest=keep_newest, writer=True)
        return cls(store, base)

    def close(self) -> None:
        """Give the store up, as a process that ends does."""
        self.store.close()

    def begin(
        self, weight_version: int = 1, *, sources: tuple[str, ...] = ("pp_0",), life: str = "life-1"
    ) -> SyncBegin:
        """Begin a sync and return its begin."""
        of = begin(weight_version, sources=sources, incarnation=life)
        self.receiver.begin(of)
        return of

    def send(
        self, of: SyncBegin, index: int, *tensors: TensorMeta, source: str = "pp_0", salt: int | None = None
    ) -> None:
        """Send a bucket whose content depends on names and `salt` (the weight version if not given)."""
        header = bucket(of, index, *tensors, source=source)
        memory = self.receiver.open_bucket(header)
        for tensor, place in zip(tensors, memory, strict=True):
            place[:] = content(tensor, of.weight_version if salt is None else salt)
        self.receiver.bucket_filled(header)

    def finish(self, of: SyncBegin, num_buckets: int, *, source: str = "pp_0") -> SyncOutcome:
        """End the source and commit."""
        self.receiver.source_done(done(of, num_buckets, source=source))
        return self.receiver.commit(commit(of))

    def sync(self, weight_version: int, *tensors: TensorMeta, life: str = "life-1") -> SyncOutcome:
        """A whole sync in two buckets."""
        of = self.begin(weight_version, life=life)
        self.send(of, 0, *tensors[:2])
        self.send(of, 1, *tensors[2:])
        return self.finish(of, 2)

    def _count(self) -> None:
        self.num_changes += 1

    def reasons(self) -> list[tuple[int, str]]:
        """Weight version and reason of everything that was discarded."""
        return [(record.weight_version, record.reason) for record in self.store.discarded()]

    def content(self, policy_version: int, tensor: TensorMeta) -> np.ndarray:
        """The bytes of a tensor as a sealed version has them."""
        path = self.store.path(policy_version)
        found = np.empty(tensor.num_bytes, dtype=np.uint8)
        BaseCheckpoint.read(path).copy_tensor(tensor.name, found)
        return found
