"""Server-sent events: what happened, in order, for clients that come, go and come again.

    add() --> the last 2000, 1 MiB at most --> each client's own queue --> its socket

Invariant: `add` never waits. A client that does not read fills its own queue only, and is dropped; one
that comes again gets exactly what it missed, or is told that it missed something.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from live_eval.http.errors import ApiError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

logger = logging.getLogger(__name__)

KEPT = 2000
KEPT_BYTES = 1 << 20
"""Events differ in size a hundredfold; what a client missed for minutes it reads anew anyway."""
MAX_CLIENTS = 32
MAX_UNREAD = 1000
PING_S = 15.0
SEND_TIMEOUT_S = 30.0
"""A client whose socket takes nothing for so long is gone."""
_encoder = msgspec.json.Encoder()


class Client:
    """One open stream: frames that it has not been sent yet."""

    def __init__(self, frames: list[bytes]) -> None:
        self.frames: deque[bytes] = deque(frames)
        self.ended = False
        self.wake = asyncio.Event()

    def put(self, frame: bytes) -> None:
        """One more, unless it left too many unread: then it is dropped."""
        if len(self.frames) >= MAX_UNREAD:
            self.end()
            return
        self.frames.append(frame)
        self.wake.set()

    def end(self) -> None:
        """Nothing more is sent."""
        self.ended = True
        self.wake.set()


class EventLog:
    """The last events and the clients that follow them; belongs to one event loop."""

    def __init__(
        self, hello: dict[str, Any] | None = None, *, kept: int = KEPT, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self.life = uuid.uuid4().hex[:8]
        self._hello = {"life": self.life, **(hello or {})}
        self._frames: deque[bytes] = deque()
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._num_bytes = 0
        self._seq = 0
        self._clients: set[Client] = set()
        self._closed = False

    @property
    def last_id(self) -> str:
        """Id of the newest event."""
        return f"{self.life}-{self._seq}"

    @property
    def num_clients(self) -> int:
        """Open streams."""
        return len(self._clients)

    def add(self, kind: str, data: Any) -> None:
        """Something happened: tell all who follow, and keep it for those who come again."""
        self._seq += 1
        frame = _frame(kind, data, event_id=self.last_id)
        self._keep(frame)
        for client in list(self._clients):
            client.put(frame)
            if client.ended:
                logger.warning("an event stream left %d events unread and is dropped", MAX_UNREAD)
                self._clients.discard(client)

    def follow(self, last_id: str | None = None) -> Client:
        """A new stream; from behind `last_id` where that is known. ApiError if there are too many."""
        if self._closed or len(self._clients) >= MAX_CLIENTS:
            raise ApiError(
                503,
                "too_many_clients",
                f"{MAX_CLIENTS} event streams are open",
                what_to_do="close a page, or ask again later",
                headers={"retry-after": "5"},
            )
        frames = [b"retry: 2000\n\n", _frame("hello", self._hello)]
        if last_id:
            missed = self._since(last_id)
            frames += [_frame("reset", {}, event_id=self.last_id)] if missed is None else missed
        client = Client(frames)
        self._clients.add(client)
        return client

    def leave(self, client: Client) -> None:
        """The stream is over."""
        client.end()
        self._clients.discard(client)

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for client in list(self._clients):
            self.leave(client)

    def _keep(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._num_bytes += len(frame)
        while len(self._frames) > self._kept or self._num_bytes > self._kept_bytes:
            self._num_bytes -= len(self._frames.popleft())

    def _since(self, last_id: str) -> list[bytes] | None:
        """Frames behind this id; None if they are not all kept, or it is of another life."""
        life, _, number = last_id.rpartition("-")
        if life != self.life or not number.isascii() or not number.isdigit():
            return None
        missed = self._seq - int(number)
        if missed < 0 or missed > len(self._frames):
            return None
        return list(islice(self._frames, len(self._frames) - missed, None))


class EventStream(Response):
    """The answer to /events: lives until the client goes, is dropped, or the service ends."""

    media_type = "text/event-stream"

    def __init__(self, log: EventLog, last_id: str | None) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._log = log
        self._client = log.follow(last_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what comes; a ping where nothing does."""
        gone = asyncio.create_task(_until_gone(receive, self._client))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while not self._client.ended:
                frames, self._client.frames = b"".join(self._client.frames), deque()
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": frames, "more_body": True})
                await self._next()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (OSError, TimeoutError) as error:
            logger.info("an event stream ended: %s", error or "its client reads nothing")
        finally:
            gone.cancel()
            self._log.leave(self._client)

    async def _next(self) -> None:
        client = self._client
        try:
            async with asyncio.timeout(PING_S):
                await client.wake.wait()
        except TimeoutError:
            client.frames.append(b": ping\n\n")
        client.wake.clear()
        if client.ended:
            client.wake.set()


async def _until_gone(receive: Receive, client: Client) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    client.end()


def _frame(kind: str, data: Any, *, event_id: str = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {kind}\ndata: ".encode() + _encoded(data) + b"\n\n"


def _encoded(data: Any) -> bytes:
    """JSON of anything: an odd text in it must not come back to whoever told of it."""
    try:
        return _encoder.encode(data)
    except (ValueError, TypeError):
        return json.dumps(data, default=repr).encode("ascii")
