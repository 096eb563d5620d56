"""Where a run's sockets lie.

A unix socket's path has room for about 100 bytes, a run directory's may be longer. Then the
socket lies in a short private directory, and a pointer file in the run directory says where.
Invariant: every process that asks for the same directory and name gets the same path.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from pathlib import Path

from live_eval.errors import ConfigError

MAX_PATH_BYTES = 100
"""The kernel's limit is 108 on Linux and 104 elsewhere, the final zero counted."""


def socket_path(directory: Path, name: str) -> Path:
    """Path for the socket `name` of the run in `directory`, which must exist.

    Servers and clients call it alike, in any order. ConfigError if no short place can be had.
    """
    direct = Path(os.path.abspath(directory)) / name
    if _fits(direct):
        return direct
    pointer = direct.with_name(f"{name}.path")
    try:
        return _follow(pointer, name)
    except OSError as error:
        raise ConfigError(f"{direct} is too long for a socket, and no other place: {error}") from error


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_PATH_BYTES


def _follow(pointer: Path, name: str) -> Path:
    """The path in the pointer file; a new one is made and written there if it is of no use."""
    with open(os.open(pointer, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # of several that ask at once the first one's choice holds
        path = Path(os.fsdecode(file.read()))
        if path.name == name and _is_private(path.parent) and _fits(path):
            return path
        path = _make_private(name)
        file.seek(0)
        file.truncate()
        file.write(os.fsencode(path))
        return path


def _is_private(directory: Path) -> bool:
    """Whether the directory is there, and this user's alone."""
    try:
        info = directory.lstat()
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o077


def _make_private(name: str) -> Path:
    path = Path(tempfile.mkdtemp(prefix="live-eval-")) / name  # mkdtemp gives mode 0700
    if not _fits(path):
        path.parent.rmdir()
        raise ConfigError(f"no room for a socket below {path.parent.parent}: set TMPDIR to a shorter path")
    return path
