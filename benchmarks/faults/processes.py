"""Signals to the bench's processes, by the pid files that they write."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.faults.workers import Desk


def pid_of(desk: Desk, role: str) -> int | None:
    """The process that has this role now; None if none has named itself."""
    try:
        return int(desk.pid_file(role).read_text())
    except (FileNotFoundError, ValueError):
        return None


def state_of(pid: int | None) -> str:
    """The kernel's letter for the state of a process; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid: int | None) -> bool:
    """Whether it can still run."""
    return state_of(pid) not in ("", "Z", "X")


def send(pid: int | None, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def kill(pid: int | None) -> None:
    """End it, frozen or not."""
    send(pid, signal.SIGKILL)
