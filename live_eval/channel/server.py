"""The server's side of a channel: a unix socket, and one handler for all its messages.

A connection's requests are handled one after the other, so its answers come in the order of
its requests; connections do not wait for each other. Invariant: whatever a peer sends or
fails to read, only its own connection suffers, and each request is answered exactly once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from live_eval.channel.answers import CLOSED, INTERNAL
from live_eval.channel.socket_file import SocketFile
from live_eval.channel.stream import Stream
from live_eval.errors import LiveEvalError
from protocol.codec import DEFAULT_LIMITS, Limits, decode, encode
from protocol.errors import LimitExceeded, ProtocolError
from protocol.messages import ONE_WAY, ErrorReply, Message, Ok

log = logging.getLogger(__name__)

_BACKLOG = 128
_MAX_ERROR_CHARS = 4000


class Connection:
    """One peer, as the handler sees it."""

    def __init__(self, stream: Stream, *, number: int, max_backlog_bytes: int) -> None:
        self.number = number
        """1, 2, ... in the order of arrival, unique in one server."""
        self._stream = stream
        self._max_backlog_bytes = max_backlog_bytes
        self._held: list[bytes] | None = None
        self._closed = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether nothing reaches the peer any more."""
        return self._closed.is_set()

    async def wait_closed(self) -> None:
        """Wait until the peer has gone or was dropped."""
        await self._closed.wait()

    def push(self, message: Message) -> bool:
        """Send a message that answers nothing, for a subscription; call it in the event loop.

        Never waits. A peer that leaves more than `max_backlog_bytes` unread is dropped. What is
        pushed while a request is handled goes out behind its answer. Returns False if the
        connection is closed. Raises ProtocolError for a message that cannot be encoded.
        """
        payload = encode(message)
        if self.closed:
            return False
        num_held = sum(map(len, self._held or ()))
        if self._stream.num_unsent + num_held > self._max_backlog_bytes:
            log.warning("connection %d reads too slowly and is dropped", self.number)
            self._stream.abort()
            self._closed.set()
            return False
        if self._held is None:
            self._stream.write(payload)
        else:
            self._held.append(payload)
        return True

    def _hold_pushes(self) -> None:
        self._held = []

    def _release_pushes(self) -> None:
        held, self._held = self._held or [], None
        for payload in held:
            self._stream.write(payload)


Handler = Callable[[Message, Connection], Awaitable[Message | None]]
"""Answers a request. None means Ok. A LiveEvalError or ProtocolError is answered as an
ErrorReply with its code (protocol.errors.UnknownMessage for what this server does not take), any
other error as one with code `internal`. What it returns or raises for a one-way message goes
nowhere. A peer that leaves while its request is handled is noticed afterwards."""


class ChannelServer:
    """Serves `handler` on the socket `path`, which only this user can open.

    `async with` starts and closes it. `close` cancels handlers that still run: they see
    CancelledError, their peers an ErrorReply with code `closed`.
    """

    def __init__(
        self,
        path: Path,
        handler: Handler,
        *,
        limits: Limits = DEFAULT_LIMITS,
        max_backlog_bytes: int = 1 << 20,
        frame_timeout_s: float = 30.0,
        send_timeout_s: float = 30.0,
    ) -> None:
        self.path = path
        self._handler = handler
        self._limits = limits
        self._max_backlog_bytes = max_backlog_bytes
        self._frame_timeout_s = frame_timeout_s
        self._send_timeout_s = send_timeout_s
        self._server: asyncio.Server | None = None
        self._socket_file: SocketFile | None = None
        self._tasks: dict[asyncio.Task[None], Stream] = {}
        self._num_accepted = 0
        self._closing = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Serve from now on. ConfigError if the path is too long, or another process serves it."""
        self._closing = False
        self._socket_file = SocketFile.claim(self.path)
        sock = self._socket_file.sock
        self._server = await asyncio.start_unix_server(self._accept, sock=sock, backlog=_BACKLOG)

    async def close(self, *, grace_s: float = 1.0) -> None:
        """Stop accepting, cancel handlers, say goodbye, close.

        Takes about twice `grace_s` seconds at most. RuntimeError if a handler of this server calls it.
        """
        if asyncio.current_task() in self._tasks:
            raise RuntimeError("a handler cannot close its own server: it would wait for itself")
        self._closing = True
        if self._server is not None:
            self._server.close()
        tasks = dict(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
            closed = [asyncio.create_task(stream.wait_closed()) for stream in tasks.values()]
            await asyncio.wait(closed, timeout=grace_s)  # peers take what is left to send
            for stream in tasks.values():
                stream.abort()
            await asyncio.wait(closed)
        if self._socket_file is not None:
            self._socket_file.release()
            self._socket_file = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing:
            writer.transport.abort()
            return
        self._num_accepted += 1
        number = self._num_accepted
        stream = Stream(reader, writer, limits=self._limits, frame_timeout_s=self._frame_timeout_s)
        task = asyncio.create_task(self._serve(stream, number), name=f"{self.path.name}-{number}")
        self._tasks[task] = stream
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection's task failed", exc_info=error)

    async def _serve(self, stream: Stream, number: int) -> None:
        """One connection's life: requests in, answers out, until either side ends it."""
        connection = Connection(stream, number=number, max_backlog_bytes=self._max_backlog_bytes)
        try:
            while (payload := await stream.receive()) is not None:
                connection._hold_pushes()
                answer = await self._answer(payload, connection)
                if answer is not None:
                    async with asyncio.timeout(self._send_timeout_s):
                        await stream.send(answer)
                connection._release_pushes()
        except LimitExceeded as error:  # the frame's length: what follows has no known boundary
            log.warning("connection %d of %s is closed: %s", number, self.path, error)
            stream.write(_encode_error(error.code, str(error)))
        except (OSError, ProtocolError, TimeoutError) as error:
            log.info("connection %d of %s ended: %s", number, self.path, error)
        finally:
            connection._closed.set()
            if self._closing:
                stream.write(_encode_error(CLOSED, "the server is closing"))
            stream.close(linger_s=self._send_timeout_s)

    async def _answer(self, payload: bytes, connection: Connection) -> bytes | None:
        """The answer's bytes; None for a message that gets none."""
        try:
            message = decode(payload, limits=self._limits)
        except ProtocolError as error:
            log.warning("connection %d of %s sent no message: %s", connection.number, self.path, error)
            return _encode_error(error.code, str(error))
        reply = await self._handle(message, connection)
        return None if isinstance(message, ONE_WAY) else reply

    async def _handle(self, message: Message, connection: Connection) -> bytes:
        try:
            answer = await self._handler(message, connection)
        except (LiveEvalError, ProtocolError) as error:
            log.info("%s was refused: %s", type(message).__name__, error)
            return _encode_error(error.code, str(error))
        except Exception as error:  # a fault in one request must not end the service
            log.exception("the handler failed on %s", type(message).__name__)
            return _encode_error(INTERNAL, f"{type(error).__name__}: {error}")
        try:
            return encode(Ok() if answer is None else answer, limits=self._limits)
        except ProtocolError as error:
            log.exception("the answer to %s cannot be sent", type(message).__name__)
            return _encode_error(INTERNAL, f"the answer cannot be sent: {error}")


def _encode_error(code: str, message: str) -> bytes:
    """An ErrorReply that can be encoded whatever the text holds: paths may hold lone surrogates."""
    text = message[:_MAX_ERROR_CHARS].encode("utf-8", "replace").decode("utf-8")
    return encode(ErrorReply(code=code, message=text))
