"""The file of a listening unix socket: one server at a time, and none but its user may connect.

A lock file beside the socket says whether its server lives: the kernel drops the lock with the
process, however that ends. So a socket file whose lock is free was left by a dead server, and
two servers that start at once cannot take the path from each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from live_eval.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class SocketFile:
    """A bound socket with mode 0600, and the lock that makes its path this process's."""

    path: Path
    sock: socket.socket
    lock_fd: int

    @classmethod
    def claim(cls, path: Path) -> Self:
        """Bind `path`; ConfigError if another process serves it or it cannot be bound."""
        lock_fd = _lock(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _remove_socket(path)
            # Set before bind, so that there is no moment in which others could connect.
            os.fchmod(sock.fileno(), 0o600)
            sock.bind(os.fspath(path))
            os.chmod(path, 0o600)
            sock.setblocking(False)
        except (OSError, ConfigError) as error:
            sock.close()
            os.close(lock_fd)
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"cannot serve on {path}: {error}") from error
        return cls(path=path, sock=sock, lock_fd=lock_fd)

    def release(self) -> None:
        """Remove the file, then let others claim the path; the lock file stays."""
        with contextlib.suppress(OSError, ConfigError):
            _remove_socket(self.path)
        self.sock.close()
        os.close(self.lock_fd)


def _lock(path: Path) -> int:
    lock_path = path.with_name(f"{path.name}.lock")
    try:
        lock_fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot serve on {path}: {error}") from error
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock_fd)
        if isinstance(error, BlockingIOError):
            raise ConfigError(
                f"a live process serves {path} already: stop it, or use another directory"
            ) from error
        raise ConfigError(f"cannot lock {lock_path}: {error}; use a local directory") from error
    return lock_fd


def _remove_socket(path: Path) -> None:
    """Remove a socket's file if there is one; ConfigError if something else lies there."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} exists and is no socket: remove it, or use another directory")
    path.unlink(missing_ok=True)
