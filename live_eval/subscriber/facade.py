"""The engine facade: a process that sits among the engines that a trainer updates, and receives.

    python -m live_eval.subscriber.facade --socket PATH --store DIR --base DIR --max-bytes N

It is told what comes over a unix socket and joins the trainer's torch.distributed group as one
more rank. Invariants: whoever announces a bucket in a group that this process is in gets its
receives posted at once and never an error before they are through, also for a bucket that
cannot be part of the sync; bad syncs are discarded and the process lives on. One thing it
cannot survive, so it is a process of its own: gloo aborts a receiver whose buffer is smaller
than what is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from live_eval.channel import ChannelServer, Connection, notify
from live_eval.errors import LiveEvalError
from live_eval.processes import end_with_parent
from live_eval.reasons import DiscardReason
from live_eval.store import BaseCheckpoint, VersionStore
from live_eval.subscriber.facade_config import FacadeConfig
from live_eval.subscriber.group_bucket import receive_broadcast
from live_eval.subscriber.groups import GroupTable
from live_eval.subscriber.receiver import TICK_S, Receiver
from protocol.messages import (
    GroupStatus,
    GroupStatusRequest,
    JoinGroup,
    LeaveGroup,
    Message,
    Ok,
    ReceiveBucket,
    StoreChanged,
    SyncBegin,
)

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_THREADS = 32
"""Requests that wait at once: joins, receives, and commits that wait for other sources."""


class Facade:
    """Answers publishers; blocking work runs in threads."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._groups = GroupTable()
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="facade")
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._begun: dict[int, str] = {}

    async def handle(self, message: Message, connection: Connection) -> Message:
        """Answer one request."""
        match message:
            case GroupStatusRequest():
                return GroupStatus(instance_id=self._receiver.instance_id, groups=self._groups.names)
            case JoinGroup():
                await self._in_thread(lambda: self._groups.join(message))
                return Ok()
            case LeaveGroup():
                self._groups.leave(message.group_name)
                return Ok()
            case ReceiveBucket():
                return await self._in_thread(lambda: self.receive(message))
            case SyncBegin():
                self._watch(connection, message)
        return await self._in_thread(lambda: self._receiver.handle(message))

    def receive(self, request: ReceiveBucket) -> Message:
        """Post the receives of a bucket and answer when its bytes are safe, or why it is no use.

        TransportError before anything is posted if this process is not in the group.
        """
        return receive_broadcast(self._receiver, self._groups, request)()

    async def tick_forever(self) -> None:
        """Carry deadlines out until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self._in_thread(self._receiver.tick)
            except LiveEvalError:
                logger.exception("a deadline could not be carried out")

    def stop(self) -> None:
        """End the open sync and let all groups go, so that nobody waits for this process."""
        self._groups.leave_all()
        self._receiver.fail_open(DiscardReason.RECEIVER_RESTARTED, "the receiver was stopped")

    def _watch(self, connection: Connection, begin: SyncBegin) -> None:
        """A publisher whose connection ends has lost the sync that it began on it."""
        self._begun[connection.number] = begin.sync_id
        if connection.number not in self._watches:
            task = asyncio.create_task(self._end_with(connection), name=f"watch-{connection.number}")
            self._watches[connection.number] = task

    async def _end_with(self, connection: Connection) -> None:
        await connection.wait_closed()
        sync_id = self._begun.pop(connection.number)
        del self._watches[connection.number]
        try:
            await self._in_thread(
                lambda: self._receiver.fail(
                    sync_id, DiscardReason.PUBLISHER_LOST, "its connection was closed"
                )
            )
        except LiveEvalError as error:
            logger.warning("sync %s of a closed connection: %s", sync_id, error)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


async def serve(config: FacadeConfig) -> None:
    """Receive until SIGTERM or SIGINT."""
    base = BaseCheckpoint.read(config.base, allowed_absent=config.allowed_absent)
    store = VersionStore.open(
        config.store, base=base, max_bytes=config.max_bytes, keep_newest=config.keep_newest, writer=True
    )

    def tell_service() -> None:
        if config.service_socket is not None:
            notify(config.service_socket, StoreChanged())

    facade = Facade(Receiver(store, base, deadline_s=config.deadline_s, on_change=tell_service))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    tell_service()  # an earlier life may have left a sync that has just been discarded
    async with ChannelServer(config.socket, facade.handle):
        logger.info("receiving at %s into %s", config.socket, config.store)
        ticking = asyncio.create_task(facade.tick_forever(), name="tick")
        await stopped.wait()
        ticking.cancel()
        facade.stop()
    store.close()


def main() -> None:
    """Run the facade process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    end_with_parent()
    try:
        asyncio.run(serve(FacadeConfig.parse(sys.argv[1:])))
    except LiveEvalError as error:
        sys.exit(f"error: {error}")
    sys.stdout.flush()
    # Not sys.exit: that would wait for threads in a receive whose peer is frozen.
    os._exit(0)


if __name__ == "__main__":
    main()
