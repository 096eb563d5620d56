"""Files of versions that are gone, kept for the next one, which then need not take their pages anew.

Taking, filling and giving back the pages of a file costs a kernel twice as much as the copy itself,
beside a training step; a version is as large as the one before it. Knows files and their sizes, not
versions. A spare is a courtesy: where one cannot be kept, taken or removed, a new file does as well.

Invariants: a file that has another name, or that any process has open or mapped, is not written again;
with what is written into it counted, a directory of spares never makes the store larger than it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import stat
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

MakeFile = Callable[[Path, int], int]
"""Makes the file at a path for so many bytes; a descriptor of it, for reading and writing."""
_NAME = re.compile(r"(\d+)-[0-9a-f]{32}")
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Without waiting for who holds a lease on the file."""


class Spares:
    """Spare files, at most those of one version; safe for threads and processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def refill(self, gone: Path) -> None:
        """Keep the files of directory `gone`, which nobody finds any more, in place of what is kept now.

        What cannot be written again stays where it is.
        """
        free = [gone / name for name in _names(gone) if name.endswith(".safetensors")]
        free = [path for path in free if _is_free(path)]
        if free:
            self.trim(0)
        for path in free:
            with contextlib.suppress(OSError):  # another process removes the same version
                os.rename(path, self._directory / f"{path.stat().st_size}-{uuid.uuid4().hex}")

    def open(self, path: Path, num_bytes: int) -> int:
        """A descriptor, for reading and writing, of a file at `path` that is to have `num_bytes`.

        A spare of just that size with its old content, or else a new, empty file; then as many bytes of
        spares go as it will take. Nothing may be at `path`. OSError if it cannot be made.
        """
        for spare in self._files():
            if _size_of(spare) == num_bytes and (descriptor := _take(spare, path)) is not None:
                return descriptor
        self.trim(self.num_bytes() - num_bytes)
        return create(path, num_bytes)

    def num_bytes(self) -> int:
        """Bytes of all spares."""
        return sum(_size_of(path) for path in self._files())

    def trim(self, num_bytes: int) -> None:
        """Remove spares until so many bytes are left, or fewer."""
        left = self.num_bytes()
        for path in self._files():
            if left <= num_bytes:
                return
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            left -= _size_of(path)

    def _files(self) -> Iterator[Path]:
        names = _names(self._directory)
        return (self._directory / name for name in sorted(names) if _NAME.fullmatch(name))


def create(path: Path, _num_bytes: int) -> int:
    """A descriptor, for reading and writing, of a new and empty file, whatever it is to take."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)


def _take(spare: Path, path: Path) -> int | None:
    """A descriptor of the spare, which is at `path` then; None if another was first, or it is not free.

    It is asked again whether it is free: who came by its old name may have been on the way when it was
    kept, and is there by now.
    """
    try:
        os.rename(spare, path)
    except OSError:
        return None
    try:
        if _is_free(path):
            path.chmod(0o644)
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        pass
    path.unlink(missing_ok=True)
    return None


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _size_of(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _is_free(path: Path) -> bool:
    """Whether it is a file with bytes in it and no other name, which no process has open or mapped."""
    try:
        descriptor = os.open(path, _LOOK)
    except OSError:
        return False
    try:
        if not _has_no_other_user(descriptor):
            return False
        status = os.fstat(descriptor)
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size > 0
    finally:
        os.close(descriptor)


def _has_no_other_user(descriptor: int) -> bool:
    """Asks for a lease, which the kernel gives only then, and not at all where it cannot know, as on a
    network file system (fcntl(2), F_SETLEASE)."""
    if sys.platform != "linux":
        return False
    try:
        # Who opens it meanwhile would otherwise end this process by SIGIO.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        # Somebody may wait for the lease to end by now; then it is said to be one of less.
        alone = fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_WRLCK
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return alone
