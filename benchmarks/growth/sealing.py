"""Seals versions of a few tensors, without a transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.weights import Weights
from live_eval.publisher.base import tensor_meta
from live_eval.store import BaseCheckpoint, VersionStore
from protocol.messages import BucketHeader, SyncBegin

if TYPE_CHECKING:
    from pathlib import Path

NUM_BYTES = 1 << 20
SOURCE = "pp_0"


class Sealer:
    """The writer of a store of its own below `root`."""

    def __init__(self, root: Path, *, num_kept: int) -> None:
        root.mkdir(parents=True)
        self._weights = Weights.make(NUM_BYTES)
        self._weights.write_base(root / "base")
        self._metas = tuple(tensor_meta(name, tensor) for name, tensor in self._weights.tensors)
        self._version = 0
        self.store = VersionStore.open(
            root / "store",
            base=BaseCheckpoint.read(root / "base"),
            max_bytes=1 << 30,
            keep_newest=num_kept,
            writer=True,
        )

    def seal(self) -> int:
        """One more version; its number."""
        self._version += 1
        self._weights.change(self._version)
        begin = SyncBegin(
            sync_id=f"sync-{self._version}",
            run_id="benchmarks",
            incarnation_id="life",
            weight_version=self._version,
            sources=(SOURCE,),
        )
        staged = self.store.begin(begin)
        header = BucketHeader(
            sync_id=begin.sync_id,
            source=SOURCE,
            index=0,
            weight_version=self._version,
            tensors=self._metas,
        )
        for place, array in zip(staged.allocate(header), self._weights.arrays(), strict=True):
            place[:] = array
        staged.filled(header)
        return staged.seal().policy_version

    def close(self) -> None:
        """Give the store up."""
        self.store.close()
