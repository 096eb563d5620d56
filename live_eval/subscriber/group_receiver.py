"""Answers a publisher whose buckets arrive in a group: joins, leaves, receives, and the messages of syncs.

Knows no transport of messages. Invariants: who calls `receive` for one bucket after the other has the
receives posted in that order, and none waits for an earlier bucket to be digested; a source is done only
when all its buckets are.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING

from live_eval.errors import LiveEvalError
from live_eval.subscriber.group_bucket import receive_broadcast
from live_eval.subscriber.groups import GroupTable
from protocol.errors import UnknownMessage
from protocol.messages import (
    GroupStatus,
    GroupStatusRequest,
    JoinGroup,
    LeaveGroup,
    Message,
    Ok,
    ReceiveBucket,
    SourceDone,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from live_eval.subscriber.receiver import Receiver

logger = logging.getLogger(__name__)


class GroupReceiver:
    """A receiver as a member of groups. Safe for threads."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._groups = GroupTable()
        self._digesting = ThreadPoolExecutor(1, thread_name_prefix="facade-digest")
        self._lock = threading.Lock()
        self._filling: dict[tuple[str, str], list[Future[None]]] = defaultdict(list)
        """(sync, source) -> buckets whose bytes are there and are being digested."""

    def handle(self, message: Message) -> Message:
        """Answer any message that carries no bucket; blocks for a join until all members are there."""
        match message:
            case GroupStatusRequest():
                return GroupStatus(instance_id=self._receiver.instance_id, groups=self._groups.names)
            case JoinGroup():
                self._groups.join(message)
                return Ok()
            case LeaveGroup():
                self._groups.leave(message.group_name)
                return Ok()
            case SourceDone():
                self._settle(message.sync_id, message.source)
        return self._receiver.handle(message)

    def receive(self, message: Message) -> Message:
        """Post the receives of a bucket and answer when its bytes are there.

        TransportError before anything is posted if this process is not in the group, and if it breaks.
        """
        if not isinstance(message, ReceiveBucket):
            raise UnknownMessage(f"{type(message).__name__} announces no bucket")
        judge = receive_broadcast(self._receiver, self._groups, message)
        key = (message.header.sync_id, message.header.source)
        with self._lock:
            if not message.header.index:  # earlier syncs of this source that nobody ended
                for old in [known for known in self._filling if known[1] == key[1]]:
                    del self._filling[old]
            self._filling[key].append(self._digesting.submit(_safely, judge))
        return Ok()

    def leave_all(self) -> None:
        """Let all groups go, so that nobody waits for this process."""
        self._groups.leave_all()

    def _settle(self, sync_id: str, source: str) -> None:
        """Wait until the source's buckets are digested."""
        with self._lock:
            pending = self._filling.pop((sync_id, source), [])
        wait_for(pending)


def _safely(judge: Callable[[], Message]) -> None:
    """A bucket that is no use has ended its sync already, or belongs to none."""
    try:
        judge()
    except LiveEvalError as error:
        logger.info("a bucket that belongs to no sync: %s", error)
