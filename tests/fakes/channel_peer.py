"""Peers of a channel that do what no proper one does, and a handler with levers.

RawPeer speaks bytes to a server; RawServer speaks bytes to a client from a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from protocol.codec import decode, encode
from protocol.frames import frame
from protocol.messages import LeaveGroup, Message, Ok, ServiceStatus, StatusRequest, Subscribe

if TYPE_CHECKING:
    from live_eval.channel import Connection


WAIT_S = 30.0
"""Longest wait for anything."""


async def until(condition: Callable[[], bool], *, timeout_s: float = WAIT_S) -> None:
    """Wait until `condition` holds; AssertionError if it does not in time."""
    give_up_at = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < give_up_at:  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.005)
    assert condition(), f"did not come true within {timeout_s} s"


class RawPeer:
    """An asyncio connection that sends any bytes and reads frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, path: Path) -> Self:
        return cls(*await asyncio.open_unix_connection(os.fspath(path)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def send(self, *messages: Message) -> None:
        self.send_bytes(b"".join(frame(encode(message)) for message in messages))

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self, *, timeout_s: float = WAIT_S) -> Message:
        async with asyncio.timeout(timeout_s):
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            return decode(await self.reader.readexactly(length))

    async def ended(self, *, timeout_s: float = WAIT_S) -> bool:
        """Whether the server closed the connection without sending anything more."""
        async with asyncio.timeout(timeout_s):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    async def silent(self, *, for_s: float = 0.1) -> bool:
        """Whether nothing arrives, not even an end."""
        try:
            async with asyncio.timeout(for_s):
                await self.reader.read(1)
        except TimeoutError:
            return True
        except ConnectionResetError:
            return False
        return False


class LeverHandler:
    """Answers StatusRequest; holds a LeaveGroup until its name is released; keeps subscribers."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.finished: list[str] = []
        self.cancelled: list[str] = []
        self.one_way: list[Message] = []
        self.subscribers: list[Connection] = []
        self._levers: dict[str, asyncio.Event] = {}

    def release(self, name: str) -> None:
        self._levers.setdefault(name, asyncio.Event()).set()

    async def __call__(self, message: Message, connection: Connection) -> Message | None:
        if isinstance(message, StatusRequest):
            return ServiceStatus(state="serving", num_finished=connection.number)
        if isinstance(message, Subscribe):
            self.subscribers.append(connection)
            return Ok()
        if isinstance(message, LeaveGroup):
            return await self._hold(message.group_name)
        self.one_way.append(message)
        return None

    async def _hold(self, name: str) -> Message:
        self.begun.append(name)
        try:
            await self._levers.setdefault(name, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        self.finished.append(name)
        return ServiceStatus(state="serving", running=(name,))


@contextlib.contextmanager
def raw_server(path: Path, *scripts: Callable[[socket.socket], None]) -> Iterator[list[float]]:
    """A thread that gives each connection in turn to the next of `scripts`, then closes it.

    Yields the list of the times at which connections came. With no script it listens only.
    """
    accepted: list[float] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(path))
    listener.listen(1)
    listener.settimeout(5.0)

    def serve() -> None:
        for script in scripts:
            with contextlib.suppress(OSError):
                sock, _ = listener.accept()
                accepted.append(time.monotonic())
                with sock:
                    sock.settimeout(5.0)
                    script(sock)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield accepted
    finally:
        listener.close()
        thread.join()
        path.unlink(missing_ok=True)
