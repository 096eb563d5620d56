"""The lock that keeps a ledger to one writing process.

Held by the kernel, so that a process that was killed leaves nothing to clean up. The file's text
(the holder's process id) is only for the message.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from live_eval.errors import LedgerError


class WriterLock:
    """An exclusive lock beside the ledger; taken at construction, LedgerError if another has it."""

    def __init__(self, ledger: Path) -> None:
        path = Path(f"{ledger}.lock")
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(f"cannot write beside the ledger {ledger}: {error}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise LedgerError(
                f"the ledger {ledger} is being written by process {holder}: stop that service, "
                "or give this one another directory"
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let another process write; calling it again does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
