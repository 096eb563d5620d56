"""What a writer does before it writes: be the only one, and end what a crash left unfinished.

Knows every point at which a receiver can be killed. Invariant: after `recover` no version is in
`receiving`, staging is empty, and every directory under versions/ belongs to a sealed version.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.errors import CorruptVersion, StoreError
from live_eval.reasons import DiscardReason
from live_eval.store.directories import StoreDirectories, protect_directory, tree_bytes
from live_eval.store.manifest import Manifest
from live_eval.store.records import VersionRecord, VersionState
from live_eval.store.verify import verify_directory

if TYPE_CHECKING:
    from live_eval.store.catalogue import Catalogue
    from live_eval.store.room import Room

logger = logging.getLogger(__name__)

WRITER_WAIT_S = 10.0
"""A receiver that was killed may take seconds to give its memory, and so its lock, back."""
_LOCK_RETRY_S = 0.05


def lock_writer(path: Path) -> int:
    """Take the writer's lock; it is held until the descriptor is closed or the process ends, however it ends.

    StoreError if another process still holds it after WRITER_WAIT_S seconds.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + WRITER_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise StoreError(f"{path} is held: another process receives into this store") from error
        time.sleep(_LOCK_RETRY_S)


def is_locked(path: Path) -> bool:
    """Whether a process holds the writer's lock now; asking takes it from nobody."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def recover(directories: StoreDirectories, catalogue: Catalogue, room: Room) -> None:
    """End every unfinished sync and remove every file that no sealed version owns.

    StoreError if versions/ holds a version that the catalogue never gave out: then the catalogue
    is not this store's, and removing would destroy.
    """
    known = {record.policy_version for record in catalogue.versions()}
    unknown = set(directories.version_numbers()) - known
    if unknown:
        raise StoreError(
            f"{directories.versions} holds versions that the catalogue does not know, {min(unknown)} among "
            f"them; restore {directories.catalogue.name}, or move them away"
        )
    for record in catalogue.versions(VersionState.RECEIVING):
        _end_unfinished(record, directories, catalogue)
    directories.clear_staging()
    for record in catalogue.versions(VersionState.DISCARDED):
        directories.remove_version(record.policy_version)
    room.collect()
    directories.spares.trim(0)  # they may be beyond a budget that is lower than it was


def _end_unfinished(record: VersionRecord, directories: StoreDirectories, catalogue: Catalogue) -> None:
    version = record.policy_version
    path = directories.version(version)
    detail = "the receiver ended before the sync was committed"
    if path.exists():
        try:
            manifest = Manifest.load(path)
            if manifest.policy_version != version:
                raise CorruptVersion(f"{path}: its manifest is that of version {manifest.policy_version}")
            verify_directory(path, manifest, check_finite=False)
        except CorruptVersion as error:
            detail = str(error)
        else:
            protect_directory(path)
            catalogue.mark_sealed(manifest, disk_bytes=tree_bytes(path))
            logger.warning("policy version %d was complete when the receiver ended: sealed", version)
            return
    directories.remove_version(version)
    directories.remove_staging(version)
    catalogue.mark_discarded(version, DiscardReason.RECEIVER_RESTARTED, detail)
    logger.warning("policy version %d discarded: %s", version, detail)
