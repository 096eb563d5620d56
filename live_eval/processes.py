"""What live-eval's processes and threads do about what is beside them: a parent that dies, a trainer."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

WATCH_INTERVAL_S = 0.5
STEPS_BACK = 5
"""In units of nice: behind a training step when cores are short, yet not starved (a third of its weight)."""
LAST_PLACE = 19


def end_with_parent(grace_s: float = 10.0) -> None:
    """Called by a child as it starts: SIGTERM to itself once its parent is gone, then SIGKILL."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_INTERVAL_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def stand_back(*, whole_process: bool = False) -> None:
    """Let work of ordinary priority on this host come first, from now on.

    For the calling thread and those that it starts afterwards; with `whole_process` for all threads
    that are there. Linux has a priority for each thread, and a policy for work that nobody waits for:
    when it wakes up, it takes no core from who is at work.
    """
    for thread in _threads() if whole_process else (threading.get_native_id(),):
        try:
            now = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, min(now + STEPS_BACK, LAST_PLACE))
            if sys.platform == "linux":
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
        except OSError:  # the thread has ended, or the sandbox forbids it: only a courtesy is lost
            continue


def _threads() -> Iterable[int]:
    return [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
