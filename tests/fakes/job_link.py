"""A link to a receiver actor that kills the actor's process at a named message of a sync."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from live_eval.publisher.ray_link import RayLink
from protocol.messages import BucketHeader, SourceDone, SyncBegin, SyncCommit

if TYPE_CHECKING:
    from protocol.messages import Message


@dataclass(frozen=True, slots=True)
class KillPoint:
    """When the receiver dies."""

    kind: type[Message]
    index: int = 0
    """Of a bucket."""
    delay_s: float | None = None
    """None: after the message was answered; else so long after it was sent."""

    def __str__(self) -> str:
        when = "answered" if self.delay_s is None else f"{self.delay_s * 1000:g} ms after it was sent"
        return f"{self.kind.__name__} {self.index} {when}"

    def is_at(self, message: Message) -> bool:
        """Whether this is the message."""
        if not isinstance(message, self.kind):
            return False
        return not isinstance(message, BucketHeader) or message.index == self.index


def after_begin() -> KillPoint:
    """The sync has its number and its place, and not a byte."""
    return KillPoint(SyncBegin)


def after_bucket(index: int) -> KillPoint:
    """So many buckets and one more have arrived."""
    return KillPoint(BucketHeader, index)


def after_source_done() -> KillPoint:
    """Everything has arrived, and nothing is committed."""
    return KillPoint(SourceDone)


def during_seal(delay_s: float) -> KillPoint:
    """The commit was sent so long ago: before, in the middle of, or after writing, renaming and recording."""
    return KillPoint(SyncCommit, delay_s=delay_s)


class KillingLink(RayLink):
    """Speaks to the actor, and kills its process once at the point that was set."""

    def __init__(self, actor: Any) -> None:
        super().__init__(actor)
        self.num_kills = 0
        self._pid = 0
        self._point: KillPoint | None = None
        self._watched: Any = None

    def kill_at(self, point: KillPoint, pid: int) -> None:
        """Kill process `pid` when the next sync comes to this point."""
        self._pid, self._point = pid, point

    def start(self, message: Message, payload: Any = None) -> Any:
        pending = super().start(message, payload)
        point = self._point
        if point is not None and point.is_at(message):
            self._point = None
            if point.delay_s is None:
                self._watched = pending
            else:
                time.sleep(point.delay_s)
                self._kill()
        return pending

    def wait(self, pending: Any, timeout_s: float) -> Message:
        answer = super().wait(pending, timeout_s)
        if self._watched is not None and pending is self._watched:
            self._watched = None
            self._kill()
        return answer

    def _kill(self) -> None:
        self.num_kills += 1
        os.kill(self._pid, signal.SIGKILL)
