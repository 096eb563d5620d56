"""What the training thread leaves to a thread beside it: a queue of syncs, and what became of them.

    training thread --submit--> queue --_next--> sender thread --_report--> outcomes() --> training thread

Knows neither Ray nor files; how a sync is sent is the subclass's. Invariants: nothing here makes the
training thread wait, except `close` for as long as it is told; what was submitted before `close` is
taken before the thread ends.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from live_eval.processes import stand_back
from live_eval.publisher.notes import MAX_OUTCOMES

if TYPE_CHECKING:
    from live_eval.publisher.staging import StagedBucket
    from protocol.messages import SyncBegin, SyncGivenUp, SyncOutcome


@dataclass(kw_only=True, slots=True)
class StagedSync:
    """A committed sync of one source."""

    begin: SyncBegin
    source: str
    buckets: list[StagedBucket]
    release: Callable[[], None]
    """Gives the staging memory back; may be called more than once."""


class SenderThread(ABC):
    """The thread and its queue; a subclass calls `_start` when it is ready and sends in `_run`."""

    def __init__(self, name: str) -> None:
        self._changed = threading.Condition()
        self._queue: deque[StagedSync | SyncGivenUp] = deque()
        self._outcomes: deque[SyncOutcome] = deque(maxlen=MAX_OUTCOMES)
        self._ends_at = math.inf
        """When a sender that is being closed stops waiting for others; infinite until then."""
        self._thread = threading.Thread(target=self._stand_back_and_run, name=name, daemon=True)

    # --- training thread ----------------------------------------------------------------

    def submit(self, item: StagedSync | SyncGivenUp) -> None:
        """Queue a committed sync, or the note that one was given up. Never waits."""
        with self._changed:
            self._queue.append(item)
            self._changed.notify_all()

    def outcomes(self) -> list[SyncOutcome]:
        """Outcomes since the last call, in order."""
        with self._changed:
            found = list(self._outcomes)
            self._outcomes.clear()
        return found

    def close(self, timeout_s: float) -> bool:
        """Let the sender finish its queue; False if it did not within `timeout_s` seconds."""
        with self._changed:
            self._ends_at = time.monotonic() + timeout_s
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- sender thread ------------------------------------------------------------------

    @abstractmethod
    def _run(self) -> None:
        """Send until `_next` says that it is the last time."""

    @property
    def _closing(self) -> bool:
        return self._ends_at < math.inf

    def _start(self) -> None:
        self._thread.start()

    def _next(self, timeout_s: float | None = None) -> tuple[StagedSync | SyncGivenUp | None, bool]:
        """What comes next, None if nothing does in `timeout_s`; and whether the queue is empty for good."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing, timeout=timeout_s)
            item = self._queue.popleft() if self._queue else None
            return item, item is None and self._closing

    def _report(self, outcome: SyncOutcome) -> None:
        with self._changed:
            self._outcomes.append(outcome)

    def _stand_back_and_run(self) -> None:
        stand_back()
        self._run()
