"""A version while it is being received: bytes land in their final files, then one rename seals it.

Knows the base checkpoint, its staging directory and the catalogue; not how bytes travel. Every
life ends once, as sealed or discarded, and the catalogue says so before the caller is told.
Invariant: nothing under versions/ is there without passing `seal`, and a sync that failed leaves
no file behind.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from live_eval.digests import tensor_digest
from live_eval.errors import StoreError, StoreFull, VersionRefused
from live_eval.reasons import DiscardReason
from live_eval.store.completeness import check_known, check_whole
from live_eval.store.directories import StoreDirectories, is_full, tree_bytes
from live_eval.store.manifest import Manifest, TensorRecord
from live_eval.store.records import VersionRecord, VersionState
from live_eval.store.shard import Shard
from live_eval.store.written_shard import FileRange, WrittenShard

if TYPE_CHECKING:
    from live_eval.store.assembly import Assembly
    from live_eval.store.base import BaseCheckpoint
    from live_eval.store.catalogue import Catalogue
    from live_eval.store.room import Room
    from protocol.messages import BucketHeader, TensorMeta

logger = logging.getLogger(__name__)

BYTES_A_TENSOR = 1024
"""More than a tensor takes in a shard's header, the index and the manifest together."""
BYTES_A_VERSION = 1 << 20
"""More than rounding files up to blocks takes in a version of a hundred files."""


class StagedState(Enum):
    """OPEN -> SEALED | DISCARDED."""

    OPEN = "open"
    SEALED = "sealed"
    DISCARDED = "discarded"


@dataclass(kw_only=True, slots=True)
class _Bucket:
    """What one bucket header asked for."""

    shard: Shard | WrittenShard | None
    """None if the bucket brought nothing new."""
    places: list[tuple[TensorMeta, np.ndarray | FileRange]]
    filled: bool = False


class StagedVersion:
    """The one version that is being received; made by `VersionStore.begin`.

    Safe for threads: buckets of several sources may be allocated and filled at once. If any method
    raises, the version has been discarded with that reason already.
    """

    def __init__(
        self,
        record: VersionRecord,
        *,
        base: BaseCheckpoint,
        catalogue: Catalogue,
        directories: StoreDirectories,
        room: Room,
        assembly: Assembly,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._record = record
        self._base = base
        self._catalogue = catalogue
        self._directories = directories
        self._room = room
        self._assembly = assembly
        self._clock = clock
        self._lock = threading.RLock()
        self._state = StagedState.OPEN
        self._verdict: tuple[DiscardReason, str] | None = None
        self._buckets: dict[tuple[str, int], _Bucket] = {}
        self._digests: dict[str, str] = {}
        self._shards: list[Shard | WrittenShard] = []
        self._arrived: set[str] = set()
        self._flusher = ThreadPoolExecutor(1, thread_name_prefix=f"flush-v{record.policy_version}")
        self._flushes: list[Future[None]] = []
        self._reserved = 0
        self._staged = 0
        with self._ends_on_error():
            self._prepare()

    @property
    def policy_version(self) -> int:
        """The number that this version has, sealed or not."""
        return self._record.policy_version

    @property
    def state(self) -> StagedState:
        """Whether it is still being received, and if not, how it ended."""
        return self._state

    @property
    def digests(self) -> dict[str, str]:
        """Name -> digest of every tensor that has arrived so far."""
        with self._lock:
            return dict(self._digests)

    def _prepare(self) -> None:
        whole = sum(meta.num_bytes for meta in self._base.tensors.values())
        self._reserve(whole + self._overhead())
        self._directories.staging_of(self.policy_version).mkdir()

    # --- receiving ----------------------------------------------------------------------

    def allocate(self, header: BucketHeader) -> list[np.ndarray]:
        """Memory for the bucket's tensors, in header order: writable uint8 arrays of one dimension.

        They are the version's file itself, except for tensors that have arrived before, whose bytes
        go to memory of their own and must turn out equal. Write to them until `filled` and no
        longer. VersionRefused for a tensor that is not the model's or a bucket that came before,
        StoreFull if budget or disk cannot take it; both before any byte is written.
        """
        with self._lock, self._ends_on_error():
            found = self._allocate(header, self._shard)
            return [place for place in found if isinstance(place, np.ndarray)]

    def allocate_ranges(self, header: BucketHeader) -> list[np.ndarray | FileRange]:
        """As `allocate`, for bytes that are in memory already: ranges of a file to write them to.

        Cheaper, since no page is mapped. A tensor that has arrived before still gets memory of its
        own. `filled` needs the digests then. StoreFull for a full disk comes with the write.
        """
        with self._lock, self._ends_on_error():
            return self._allocate(header, self._written_shard)

    def filled(self, header: BucketHeader, digests: Sequence[str] | None = None) -> list[str]:
        """The bucket's bytes are all there: take their digests, in header order, and start writing to disk.

        Computes the digests unless the caller has done so from the arrived bytes. VersionRefused
        (duplicate_tensor) if a tensor that came before came with other bytes.
        """
        with self._lock, self._ends_on_error():
            bucket = self._bucket(header)
            places = bucket.places
        # Outside the lock, so that buckets of other sources are taken meanwhile.
        with self._ends_on_error():
            found = list(digests) if digests is not None else [_digest(place) for _, place in places]
        with self._lock, self._ends_on_error():
            self._fill(self._bucket(header), found)
        return found

    def _allocate(
        self, header: BucketHeader, make: Callable[[Path, list[TensorMeta]], Shard | WrittenShard]
    ) -> list[np.ndarray | FileRange]:
        self._check_open()
        key = (header.source, header.index)
        if key in self._buckets:
            raise VersionRefused(
                DiscardReason.OUT_OF_ORDER, f"bucket {header.index} of {header.source} came twice"
            )
        check_known(self._base, header.tensors)
        fresh = {meta.name: meta for meta in header.tensors if meta.name not in self._arrived}
        shard = self._add_shard(list(fresh.values()), make) if fresh else None
        places: list[tuple[TensorMeta, np.ndarray | FileRange]] = []
        for meta in header.tensors:
            own = shard is not None and fresh.pop(meta.name, None) is not None
            place = shard.places[meta.name] if own and shard else np.empty(meta.num_bytes, dtype=np.uint8)
            places.append((meta, place))
        self._buckets[key] = _Bucket(shard=shard, places=places)
        return [place for _, place in places]

    def _add_shard(
        self, metas: list[TensorMeta], make: Callable[[Path, list[TensorMeta]], Shard | WrittenShard]
    ) -> Shard | WrittenShard:
        size = sum(meta.num_bytes for meta in metas)
        if self._staged + size + self._overhead() > self._reserved:
            self._reserve(self._staged + size + self._overhead())
        name = f"shard-{len(self._shards) + 1:05d}.safetensors"
        shard = make(self._directories.staging_of(self.policy_version) / name, metas)
        self._shards.append(shard)
        self._staged += size
        self._arrived.update(meta.name for meta in metas)
        return shard

    def _shard(self, path: Path, metas: list[TensorMeta]) -> Shard:
        return Shard(path, metas, make=self._directories.spares.open)

    def _written_shard(self, path: Path, metas: list[TensorMeta]) -> WrittenShard:
        def flush(shard: WrittenShard) -> None:
            with self._lock:
                # One at a time: it takes along what was written while it waited.
                idle = all(earlier.done() for earlier in self._flushes[-1:])
                if idle and self._state is StagedState.OPEN and not self._verdict:
                    self._flushes.append(self._flusher.submit(shard.flush))

        return WrittenShard(path, metas, make=self._directories.spares.open, on_progress=flush)

    def _bucket(self, header: BucketHeader) -> _Bucket:
        self._check_open()
        bucket = self._buckets.get((header.source, header.index))
        if bucket is None or bucket.filled:
            raise StoreError(f"bucket {header.index} of {header.source} is not waiting to be filled")
        return bucket

    def _fill(self, bucket: _Bucket, digests: list[str]) -> None:
        for (meta, _), digest in zip(bucket.places, digests, strict=True):
            if self._digests.setdefault(meta.name, digest) != digest:
                raise VersionRefused(
                    DiscardReason.DUPLICATE_TENSOR, f"{meta.name!r} came twice with different bytes"
                )
        bucket.filled = True
        bucket.places = []
        if bucket.shard:
            # Begun now, so that little is left to wait for when the sync is committed: writing to disk,
            # and on a tmpfs unmapping, which takes as long as the digests.
            self._flushes.append(self._flusher.submit(bucket.shard.finish))

    # --- the end ------------------------------------------------------------------------

    def seal(self) -> Manifest:
        """Make it a version: check that it is whole, write what is left, rename, record.

        VersionRefused (empty, incomplete, tied_mismatch, payload_lost), StoreFull or StoreError, and
        then it is discarded.
        """
        with self._lock, self._ends_on_error():
            return self._seal()

    def discard(self, reason: DiscardReason, detail: str = "") -> None:
        """Give it up: remove its files, record why. Nothing happens if it has ended already."""
        with self._lock:
            if self._state is not StagedState.OPEN:
                return
            # Kept from the first call on: if it cannot be recorded now, a later call records it.
            reason, detail = self._verdict = self._verdict or (reason, detail)
            self._flusher.shutdown(wait=True, cancel_futures=True)
            self._release()
            # Files first: a disk that is full has no room for the record before they are gone.
            self._directories.remove_staging(self.policy_version)
            self._directories.remove_version(self.policy_version)
            self._directories.spares.trim(0)
            self._catalogue.mark_discarded(self.policy_version, reason, detail)
            self._state = StagedState.DISCARDED
        logger.warning("policy version %d discarded: %s %s", self.policy_version, reason, detail)

    def _seal(self) -> Manifest:
        self._check_open()
        for (source, index), bucket in self._buckets.items():
            if not bucket.filled:
                raise VersionRefused(DiscardReason.PAYLOAD_LOST, f"bucket {index} of {source} was not filled")
        check_whole(self._base, self._digests)
        for flush in self._flushes:
            flush.result()
        self._flusher.shutdown()
        records = [
            TensorRecord(
                name=meta.name,
                dtype=meta.dtype,
                shape=meta.shape,
                digest=self._digests[meta.name],
                file=shard.path.name,
            )
            for shard in self._shards
            for meta in shard.metas
        ]
        self._release()
        staging = self._directories.staging_of(self.policy_version)
        manifest = self._assembly.complete(staging, self._record, records, sealed_at=self._clock())
        disk_bytes = tree_bytes(staging)
        if disk_bytes > self._reserved:
            self._reserve(disk_bytes)
        self._directories.publish(self.policy_version)
        try:
            self._catalogue.mark_sealed(manifest, disk_bytes=disk_bytes)
        except StoreError:
            # A commit may fail after it took effect; what the catalogue says now is what counts.
            if self._catalogue.get(self.policy_version).state is not VersionState.SEALED:
                raise
        self._state = StagedState.SEALED
        self._assembly.sealed(manifest)
        logger.info("policy version %d sealed: digest %s", self.policy_version, manifest.digest)
        return manifest

    # --- helpers ------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._state is not StagedState.OPEN or self._verdict:
            state = StagedState.DISCARDED if self._verdict else self._state
            raise StoreError(f"policy version {self.policy_version} is {state.value} already")

    def _overhead(self) -> int:
        return self._base.side_bytes + BYTES_A_TENSOR * len(self._base.tensors) + BYTES_A_VERSION

    def _reserve(self, num_bytes: int) -> None:
        self._room.reserve(self.policy_version, num_bytes)
        self._reserved = num_bytes

    def _release(self) -> None:
        for shard in self._shards:
            shard.close()
        self._buckets.clear()

    @contextmanager
    def _ends_on_error(self) -> Iterator[None]:
        """Discard the version if the body fails, so that the reason is recorded before it is told."""
        try:
            yield
        except VersionRefused as error:
            self.discard(error.reason, error.detail)
            raise
        except StoreFull as error:
            self.discard(DiscardReason.STORE_FULL, str(error))
            raise
        except StoreError as error:
            self.discard(DiscardReason.STORE_FAILED, str(error))
            raise
        except OSError as error:
            full = is_full(error)
            self.discard(DiscardReason.STORE_FULL if full else DiscardReason.STORE_FAILED, str(error))
            kind = StoreFull if full else StoreError
            raise kind(f"policy version {self.policy_version} could not be written: {error}") from error


def _digest(place: np.ndarray | FileRange) -> str:
    if isinstance(place, FileRange):
        raise StoreError("a bucket that was written to a file needs its digests")
    return tensor_digest(place)
