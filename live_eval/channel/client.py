"""The asyncio client of a channel.

Knows nothing of what messages mean. Invariant: an answer is only ever taken for the request
it belongs to; a connection on which one may still be on its way is not used again.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from live_eval.channel.answers import CLOSED, encode_request, open_answer
from live_eval.channel.stream import Stream
from live_eval.errors import TransportError
from protocol.codec import DEFAULT_LIMITS, Limits, tag_of
from protocol.errors import ProtocolError
from protocol.messages import ErrorReply

if TYPE_CHECKING:
    from protocol.messages import Message

FRAME_TIMEOUT_S = 30.0


class ChannelClient:
    """Requests to the server at `path`, one at a time; connects when needed, and again when lost."""

    def __init__(self, path: Path, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path = path
        self._limits = limits
        self._lock = asyncio.Lock()
        self._stream: Stream | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Subscriptions have connections of their own and go on."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abort()
            await stream.wait_closed()

    async def request(self, message: Message, *, timeout_s: float) -> Message:
        """The server's answer.

        Requests of several tasks queue behind each other, and their wait counts. Raises PeerError
        if the answer is an ErrorReply; TransportError if there is none within `timeout_s`
        seconds or the server is gone, and then it may have carried the request out all the same;
        ProtocolError if `message` cannot be sent.
        """
        payload = encode_request(message, limits=self._limits)
        what = f"{tag_of(type(message))} to {self.path}"
        try:
            async with asyncio.timeout(timeout_s), self._lock:
                answer = await self._exchange(payload)
        except TimeoutError as error:
            raise TransportError(f"{what}: no answer within {timeout_s:g} s") from error
        except (OSError, ProtocolError) as error:
            raise TransportError(f"{what}: {error}") from error
        return open_answer(answer, what)

    async def _exchange(self, payload: bytes) -> Message | None:
        if self._stream is None or await self._stream.is_stale():
            await self.close()
            self._stream = await _connect(self.path, self._limits)
        stream, answered = self._stream, False
        try:
            await stream.send(payload)
            answer = await stream.receive_message()
            answered = answer is not None
            return answer
        finally:
            # Late, cancelled or broken: what comes on this connection is no answer to the next.
            if not answered:
                self._stream = None
                stream.abort()

    def subscribe(self, message: Message, *, timeout_s: float = 5.0) -> Subscription:
        """Messages that the server sends once it has answered `message`."""
        return Subscription(self.path, message, limits=self._limits, timeout_s=timeout_s)


class Subscription:
    """An async iterator over what a server pushes, on a connection of its own.

    `async with` returns when the server has answered, so that nothing is missed from there on;
    plain iteration subscribes at the first item. Ends when the server closes in order.
    Subscribing raises as `ChannelClient.request` does. A connection that breaks off later raises
    TransportError, since messages may be missing: the server died, or this side read too slowly.
    """

    def __init__(self, path: Path, message: Message, *, limits: Limits, timeout_s: float) -> None:
        self._path = path
        self._payload = encode_request(message, limits=limits)
        self._what = f"{tag_of(type(message))} to {path}"
        self._limits = limits
        self._timeout_s = timeout_s
        self._stream: Stream | None = None
        self._ended = False

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._ended:
            raise StopAsyncIteration
        stream = self._stream or await self._open()
        try:
            message = await stream.receive_message()
        except (OSError, ProtocolError) as error:
            await self.aclose()
            raise TransportError(f"{self._what}: broken off, messages may be missing: {error}") from error
        if message is None:
            await self.aclose()
            raise TransportError(f"{self._what}: broken off, messages may be missing")
        if isinstance(message, ErrorReply):
            await self.aclose()
            if message.code == CLOSED:
                raise StopAsyncIteration
        return open_answer(message, self._what)

    async def aclose(self) -> None:
        """Close the connection; iteration ends."""
        self._ended = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abort()
            await stream.wait_closed()

    async def _open(self) -> Stream:
        stream: Stream | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                stream = await _connect(self._path, self._limits)
                await stream.send(self._payload)
                open_answer(await stream.receive_message(), self._what)
            self._stream = stream
            return stream
        except TimeoutError as error:
            raise TransportError(f"{self._what}: no answer within {self._timeout_s:g} s") from error
        except (OSError, ProtocolError) as error:
            raise TransportError(f"{self._what}: {error}") from error
        finally:
            if stream is not None and self._stream is None:
                stream.abort()


async def _connect(path: Path, limits: Limits) -> Stream:
    reader, writer = await asyncio.open_unix_connection(os.fspath(path))
    return Stream(reader, writer, limits=limits, frame_timeout_s=FRAME_TIMEOUT_S)
