"""Where a run's sockets lie.

A unix socket's path has room for about 100 bytes, a run directory's may be longer. Then the
socket lies in a short private directory, and a pointer file in the run directory says where.
Invariant: every process that asks for the same directory and name gets the same path.
"""

from __future__ import annotations

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
    return _pointed_to(pointer) or _make_private(pointer, name)


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_PATH_BYTES


def _pointed_to(pointer: Path) -> Path | None:
    """What the pointer file names, if its directory is there and this user's alone."""
    try:
        path = Path(pointer.read_text(encoding="utf-8"))
        info = path.parent.lstat()
    except (OSError, ValueError):
        return None
    private = stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o077
    return path if private and _fits(path) else None


def _make_private(pointer: Path, name: str) -> Path:
    path = Path(tempfile.mkdtemp(prefix="live-eval-")) / name  # mkdtemp gives mode 0700
    if not _fits(path):
        path.parent.rmdir()
        raise ConfigError(f"no room for a socket below {path.parent.parent}: set TMPDIR to a shorter path")
    # Written beside, then linked: of several processes at once the first one's choice holds.
    draft = pointer.with_name(f"{pointer.name}.{os.getpid()}")
    draft.write_text(str(path), encoding="utf-8")
    try:
        os.link(draft, pointer)
    except FileExistsError:
        if (other := _pointed_to(pointer)) is not None:
            path.parent.rmdir()
            return other
        os.replace(draft, pointer)  # it points to a directory that is gone
    finally:
        draft.unlink(missing_ok=True)
    return path
