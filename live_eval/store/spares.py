"""Files of versions that are gone, kept for the next one, which then need not take their pages anew.

Taking, filling and giving back the pages of a file costs a kernel twice as much as the copy itself,
beside a training step; a version is as large as the one before it. Knows files and their sizes, not
versions.

Invariants: a file that anybody else could still see, by another name, a descriptor or a mapping, is
removed and never written again; with what is written into it counted, a directory of spares never
makes the store larger than it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

MakeFile = Callable[[Path, int], int]
"""Makes the file at a path for so many bytes; a descriptor of it, for reading and writing."""


class Spares:
    """Spare files, at most those of one version; safe for threads and processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def refill(self, gone: Path) -> None:
        """Keep the files of directory `gone`, which nobody finds any more, in place of what is kept now.

        What cannot be written again stays where it is.
        """
        free = [path for path in gone.glob("*.safetensors") if _is_ours_alone(path)]
        if not free:
            return
        self.clear()
        self._directory.mkdir(exist_ok=True)
        for path in free:
            with contextlib.suppress(FileNotFoundError):  # another process removes the same version
                os.rename(path, self._directory / f"{path.stat().st_size}-{uuid.uuid4().hex}")

    def open(self, path: Path, num_bytes: int) -> int:
        """A descriptor, for reading and writing, of a file at `path` that is to have `num_bytes`.

        A spare of just that size with the old content, or else a new, empty file; then as many bytes of
        spares go as it will take. Nothing may be at `path`. OSError if it cannot be made.
        """
        for spare in self._files():
            if _size_of(spare) == num_bytes:
                with contextlib.suppress(FileNotFoundError):  # another thread was first
                    os.rename(spare, path)
                    return os.open(path, os.O_RDWR)
        self._make_room(num_bytes)
        return create(path, num_bytes)

    def num_bytes(self) -> int:
        """Bytes of all spares."""
        return sum(_size_of(path) for path in self._files())

    def clear(self) -> None:
        """Remove all."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _make_room(self, num_bytes: int) -> None:
        left = num_bytes
        for path in self._files():
            if left <= 0:
                return
            path.unlink(missing_ok=True)
            left -= _size_of(path)

    def _files(self) -> Iterator[Path]:
        with contextlib.suppress(FileNotFoundError):
            yield from sorted(self._directory.iterdir())


def create(path: Path, num_bytes: int) -> int:
    """A descriptor, for reading and writing, of a new and empty file, whatever it is to take."""
    del num_bytes
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)


def _size_of(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _is_ours_alone(path: Path) -> bool:
    """Whether the file has no other name, and no process has it open or mapped; then it is made writable.

    Asks for a lease, which the kernel gives only then, and not at all where it cannot know, as on a
    network file system (fcntl(2), F_SETLEASE).
    """
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or not status.st_size:
            return False  # before anything is changed: the other name may be a version's
        path.chmod(0o644)
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return _has_no_other_user(descriptor)
    finally:
        os.close(descriptor)


def _has_no_other_user(descriptor: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        # Who opens it meanwhile would otherwise end this process by SIGIO.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True
