"""Finds processes that tests started and left running.

Every process inherits the environment of the one that started it, so a mark in the environment names all
descendants, also those in sessions of their own. Zombies count as gone.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

MARK_NAME = "LIVE_EVAL_TEST_RUN"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that should be gone."""

    pid: int
    command: str


def marked(mark: str, *, proc: Path = Path("/proc")) -> list[Leftover]:
    """Processes other than this one that were started with `mark` in their environment."""
    needle = f"{MARK_NAME}={mark}".encode()
    found: list[Leftover] = []
    for entry in proc.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if needle not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:  # gone meanwhile, or another user's
            continue
        # multiprocessing keeps one of these per interpreter and ends it with the interpreter
        if command and "multiprocessing.resource_tracker" not in command:
            found.append(Leftover(int(entry.name), command))
    return found


def wait_until_gone(mark: str, *, patience_s: float) -> list[Leftover]:
    """The processes of `mark` that are still there after `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    while (found := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def end(leftovers: list[Leftover]) -> None:
    """Kill what was found."""
    for leftover in leftovers:
        try:
            os.kill(leftover.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
