"""The version store: one directory of sealed policy versions, shared by receiver and service.

Puts catalogue, room, writer and verification together behind one object. The receiver opens it
with `writer=True`, one at a time; anyone else without. Invariants: a sealed version never changes,
a pinned one is never collected, and `max_bytes` is never exceeded.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from live_eval.errors import ConfigError, CorruptVersion, NoSuchVersion, StoreError, StoreFull, VersionRefused
from live_eval.reasons import DiscardReason
from live_eval.store.assembly import Assembly
from live_eval.store.catalogue import Catalogue
from live_eval.store.directories import StoreDirectories
from live_eval.store.manifest import Manifest
from live_eval.store.records import (
    CollectReason,
    DiscardRecord,
    Incarnation,
    PinKind,
    PinRecord,
    VersionRecord,
    VersionState,
)
from live_eval.store.recovery import is_locked, lock_writer, recover
from live_eval.store.room import Room
from live_eval.store.verify import verify_directory
from live_eval.store.writer import StagedVersion

if TYPE_CHECKING:
    from live_eval.store.base import BaseCheckpoint
    from protocol.messages import SyncBegin

logger = logging.getLogger(__name__)

T = TypeVar("T")


class VersionStore:
    """Sealed versions and the one that is being received; safe for threads. Make it with `open`."""

    def __init__(
        self,
        directories: StoreDirectories,
        catalogue: Catalogue,
        room: Room,
        *,
        base: BaseCheckpoint | None,
        lock: int | None,
        clock: Callable[[], float],
    ) -> None:
        self.root = directories.root
        self._directories = directories
        self._catalogue = catalogue
        self._room = room
        self._base = base
        self._lock_descriptor = lock
        self._clock = clock
        self._begin_lock = threading.Lock()
        self._staged: StagedVersion | None = None
        self._assembly: Assembly | None = None
        self._owed: list[tuple[SyncBegin, str]] = []
        """Syncs whose end could not be recorded, because the disk had no room even for that."""

    @classmethod
    def open(
        cls,
        root: str | Path,
        *,
        base: BaseCheckpoint | None = None,
        max_bytes: int,
        keep_newest: int,
        writer: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> VersionStore:
        """Open or create the store in directory `root`.

        `max_bytes` bounds all versions together, the one being received included; of unpinned ones
        the newest `keep_newest` are kept. A writer needs `base`; there is one at a time (StoreError
        if another lives), and it first ends what a crash left: staging is removed, an unfinished
        sync becomes discarded (receiver_restarted), a version that was renamed but not recorded
        becomes sealed if every byte is right. ConfigError for settings that cannot work.
        """
        if max_bytes <= 0 or keep_newest < 1:
            raise ConfigError(
                f"max_bytes is {max_bytes}, keep_newest is {keep_newest}: both must be at least 1"
            )
        if writer and base is None:
            raise ConfigError("a store that is opened for writing needs the base checkpoint")
        directories = StoreDirectories(Path(root).absolute())
        directories.create()
        lock = lock_writer(directories.writer_lock) if writer else None
        catalogue: Catalogue | None = None
        try:
            catalogue = Catalogue.open(directories.catalogue, clock=clock)
            room = Room(
                catalogue.database, directories, max_bytes=max_bytes, keep_newest=keep_newest, clock=clock
            )
            store = cls(directories, catalogue, room, base=base, lock=lock, clock=clock)
            if writer:
                recover(directories, catalogue, room)
        except BaseException:
            if catalogue:
                catalogue.close()
            if lock is not None:
                os.close(lock)
            raise
        return store

    def close(self) -> None:
        """Give the database and the writer's lock up; what is being received is not ended by this."""
        self._catalogue.close()
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    def __enter__(self) -> VersionStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- writing ------------------------------------------------------------------------

    def begin(self, sync: SyncBegin) -> StagedVersion:
        """Give the sync its policy version and room for it.

        A sync that is still open ends as superseded_by_begin. VersionRefused (bad_weight_version)
        if the number cannot be, StoreFull if it does not fit; both are recorded as discarded.
        """
        if self._lock_descriptor is None or self._base is None:
            raise StoreError("this store was opened for reading, or is closed")
        with self._begin_lock:
            record = self._number(sync)
            self._record_owed()
            if self._staged:
                self._staged.discard(
                    DiscardReason.SUPERSEDED_BY_BEGIN, f"policy version {record.policy_version} began"
                )
            if self._assembly is None:
                self._assembly = Assembly(self._base, self._directories, previous=self._newest_manifest())
            self._staged = StagedVersion(
                record,
                base=self._base,
                catalogue=self._catalogue,
                directories=self._directories,
                room=self._room,
                assembly=self._assembly,
                clock=self._clock,
            )
            return self._staged

    def _number(self, sync: SyncBegin) -> VersionRecord:
        def number() -> int:
            incarnation = self._catalogue.register_incarnation(sync.incarnation_id, sync.weight_version)
            return self._catalogue.allocate(
                incarnation,
                sync.weight_version,
                run_id=sync.run_id,
                rollout_id=sync.rollout_id,
                train_step=sync.train_step,
            )

        try:
            version = self._recorded(number)
        except VersionRefused as refusal:
            self.sync_refused(sync, refusal.reason, refusal.detail)
            raise
        except StoreFull as error:
            self._owed.append((sync, str(error)))
            raise
        return self._catalogue.get(version)

    def _record_owed(self) -> None:
        while self._owed:
            sync, detail = self._owed[0]
            self.sync_refused(sync, DiscardReason.STORE_FULL, detail)
            self._owed.pop(0)

    def sync_refused(self, sync: SyncBegin, reason: DiscardReason, detail: str = "") -> None:
        """Record a sync that its receiver refused before `begin`."""
        self._recorded(
            lambda: self._catalogue.sync_refused(
                incarnation_id=sync.incarnation_id,
                weight_version=sync.weight_version,
                rollout_id=sync.rollout_id,
                train_step=sync.train_step,
                reason=reason,
                detail=detail,
            )
        )

    def note_held(self, incarnation_id: str, weight_version: int, held_s: float) -> None:
        """A source of this sync held its training thread so long; of several the longest counts."""
        self._catalogue.note_held(incarnation_id, weight_version, held_s)

    # --- reading ------------------------------------------------------------------------

    def sealed(self) -> list[VersionRecord]:
        """Versions that can be evaluated now, by rising policy version."""
        return self._catalogue.versions(VersionState.SEALED)

    def stable(self) -> VersionRecord | None:
        """The newest sealed version."""
        return max(self.sealed(), key=lambda record: record.policy_version, default=None)

    def records(self, *, after: int = 0) -> list[VersionRecord]:
        """Every policy version behind this number that was ever given out, in any state, by rising number."""
        return self._catalogue.versions(after=after)

    def dropped(self) -> list[VersionRecord]:
        """Versions that waited to be evaluated and were given up because the store was full."""
        return self._catalogue.dropped()

    def discarded(self, *, skip: int = 0) -> list[DiscardRecord]:
        """Syncs that never became a version, in the order in which they ended, without the first `skip`."""
        return self._catalogue.discarded(skip=skip)

    def total_held_s(self) -> float | None:
        """Seconds for which all syncs together held the trainer; None if none has said so."""
        return self._catalogue.total_held_s()

    def incarnations(self) -> list[Incarnation]:
        """Lives of the trainer that were seen, the oldest first."""
        return self._catalogue.incarnations()

    def get(self, policy_version: int) -> VersionRecord:
        """The record of a version in whatever state; NoSuchVersion if the number was never given out."""
        return self._catalogue.get(policy_version)

    def path(self, policy_version: int) -> Path:
        """Directory of a sealed version, a loadable HF checkpoint; NoSuchVersion if there is none.

        Pin the version first, or it may go away.
        """
        record = self._catalogue.get(policy_version)
        if record.state is not VersionState.SEALED:
            raise NoSuchVersion(f"policy version {policy_version} is {record.state}: {record.reason}")
        return self._directories.version(policy_version)

    def manifest(self, policy_version: int) -> Manifest:
        """The manifest of a sealed version; NoSuchVersion or CorruptVersion."""
        path = self.path(policy_version)
        manifest = Manifest.load(path)
        record = self._catalogue.get(policy_version)
        if (manifest.policy_version, manifest.digest) != (policy_version, record.digest):
            raise CorruptVersion(f"{path}: its manifest is not that of policy version {policy_version}")
        return manifest

    def verify(self, policy_version: int, *, check_finite: bool = True) -> Manifest:
        """Check every byte of a sealed version: headers, shapes, digests, no NaN or infinity.

        CorruptVersion says what is off. Reads the whole version, about as fast as memory allows.
        """
        manifest = self.manifest(policy_version)
        verify_directory(self.path(policy_version), manifest, check_finite=check_finite)
        return manifest

    # --- keeping ------------------------------------------------------------------------

    def pin(self, policy_version: int, owner: str, kind: PinKind) -> None:
        """Claim a sealed version for `owner`, replacing its claim; NoSuchVersion if it is not there."""
        self._catalogue.pin(policy_version, owner, kind)

    def unpin(self, policy_version: int, owner: str) -> bool:
        """Give a claim up (`records.FRESH_OWNER` for the one from birth); False if there was none."""
        return self._catalogue.unpin(policy_version, owner)

    def upgrade(self, policy_version: int, owner: str, kind: PinKind = PinKind.RUNNING) -> bool:
        """Change the kind of a claim; False if it is gone, since the version was dropped meanwhile."""
        return self._catalogue.upgrade(policy_version, owner, kind)

    def pins(self, policy_version: int | None = None) -> list[PinRecord]:
        """All claims, or those on one version."""
        return self._catalogue.pins(policy_version)

    def collect(self) -> list[tuple[int, CollectReason]]:
        """Give up and remove what retention does not keep; what it was."""
        return self._room.collect()

    def used_bytes(self) -> int:
        """Bytes that versions and spare files take or have reserved, hard-linked files counted in full."""
        return self._room.used_bytes()

    def has_writer(self) -> bool:
        """Whether a receiver lives that has this store open for writing."""
        return is_locked(self._directories.writer_lock)

    def _recorded(self, write: Callable[[], T]) -> T:
        """What writes to the catalogue; on a disk that is full once more, without the spare files."""
        try:
            return write()
        except StoreFull:
            if not self._directories.spares.num_bytes():
                raise
            self._directories.spares.trim(0)
            return write()

    def _newest_manifest(self) -> Manifest | None:
        stable = self.stable()
        try:
            return self.manifest(stable.policy_version) if stable else None
        except (CorruptVersion, NoSuchVersion) as error:
            logger.warning("nothing is linked to the newest version: %s", error)
            return None
