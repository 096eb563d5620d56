"""What every process of a run that has a parent does about the parent's death."""

from __future__ import annotations

import os
import signal
import threading
import time

WATCH_INTERVAL_S = 0.5


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
