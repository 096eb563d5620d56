"""The directories of a store, and the few file operations whose order matters.

Knows paths, modes and fsync; not what the files hold. Invariant: a directory under versions/ got
there by one rename and holds everything that it will ever hold.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from live_eval.store.spares import Spares

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoreDirectories:
    """Paths of a store under `root`; versions and staging are flat, one directory a version."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.catalogue = root / "catalogue.sqlite"
        self.writer_lock = root / "writer.lock"
        self.versions = root / "versions"
        self.staging = root / "staging"
        self.spare = root / "spare"
        self.spares = Spares(self.spare)

    def create(self) -> None:
        """Make what is not there yet."""
        for directory in (self.versions, self.staging, self.spare):
            directory.mkdir(parents=True, exist_ok=True)

    def version(self, policy_version: int) -> Path:
        """Where the version is once it is sealed."""
        return self.versions / f"v{policy_version:06d}"

    def staging_of(self, policy_version: int) -> Path:
        """Where the version grows."""
        return self.staging / f"v{policy_version:06d}"

    def publish(self, policy_version: int) -> Path:
        """The one rename: staging becomes a version, durable and read-only."""
        source, target = self.staging_of(policy_version), self.version(policy_version)
        sync_directory(source)
        os.rename(source, target)
        protect_directory(target)
        sync_directory(self.versions)
        return target

    def remove_version(self, policy_version: int, *, keep_spares: bool = False) -> None:
        """Remove a version's files, if there are any; by way of a rename, so nobody sees half of one.

        With `keep_spares` those that can be written again are kept for the next version.
        """
        path, trash = self.version(policy_version), self.staging / f"trash-v{policy_version:06d}"
        with contextlib.suppress(FileNotFoundError):
            path.chmod(0o755)  # moving a directory needs write access to it, except for root
            os.rename(path, trash)
        if keep_spares:
            self.spares.refill(trash)
        remove_flat(trash)

    def remove_staging(self, policy_version: int) -> None:
        """Remove what was staged of a version."""
        remove_flat(self.staging_of(policy_version))

    def clear_staging(self) -> None:
        """Remove everything under staging/ and spare/."""
        for entry in (*self.staging.iterdir(), *self.spare.iterdir()):
            remove_flat(entry)

    def version_numbers(self) -> list[int]:
        """Policy versions that have a directory under versions/, whatever the catalogue says."""
        names = (entry.name for entry in self.versions.iterdir())
        return sorted(int(name[1:]) for name in names if name[:1] == "v" and name[1:].isdigit())


def write_file(path: Path, data: bytes) -> None:
    """Write a new small file, durable and read-only."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o444)


def protect_directory(path: Path) -> None:
    """Take write access to the directory away, so that its entries cannot change by accident."""
    path.chmod(0o555)


def sync_directory(path: Path) -> None:
    """Make the directory's entries durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_flat(path: Path) -> None:
    """Remove a directory of files, or a file; what is already gone, or goes meanwhile, is fine."""
    try:
        names = os.listdir(path)
    except NotADirectoryError:
        path.unlink(missing_ok=True)
        return
    except FileNotFoundError:
        return
    for name in names:
        (path / name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()


def tree_bytes(path: Path) -> int:
    """Bytes that a flat directory takes on disk, hard links in full; 0 if it is not there."""
    total = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            stat = entry.stat()
            total += max(stat.st_size, stat.st_blocks * 512)
    return total


def free_bytes(path: Path) -> int:
    """Bytes that this user can still write on the file system of `path`."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def is_full(error: OSError) -> bool:
    """Whether the error says that the disk, a quota or a file size limit is exhausted."""
    return error.errno in _FULL
