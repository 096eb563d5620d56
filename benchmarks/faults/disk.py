"""A small disk for the store, that can be filled: a tmpfs in a mount namespace of this process."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
from contextlib import suppress
from pathlib import Path

_CLONE_NEWNS = 0x00020000


class SmallDisk:
    """A directory that has little room; an ordinary one where mounting is not allowed."""

    def __init__(self, path: Path, num_bytes: int) -> None:
        path.mkdir(parents=True)
        self.path = path
        self.mounted = _own_mounts() and _mount(path, num_bytes)

    def fill(self, leave: int) -> None:
        """Have somebody else take what there is, but for `leave` bytes."""
        if not self.mounted:
            return
        disk = os.statvfs(self.path)
        with suppress(OSError), (self.path / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(disk.f_bavail * disk.f_frsize - leave, 1))

    def free(self) -> None:
        """Give it back."""
        (self.path / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        """Let the disk go."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)


@functools.cache  # once: workers are forked from a server that lives in the first
def _own_mounts() -> bool:
    if os.geteuid() != 0:
        return False
    return ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) == 0


def _mount(path: Path, num_bytes: int) -> bool:
    private = ["mount", "--make-rprivate", "/"]
    mount = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "none", str(path)]
    return all(
        subprocess.run(command, check=False, capture_output=True).returncode == 0
        for command in (private, mount)
    )
