"""Frames over an asyncio stream: what server and client share.

Knows nothing of requests and answers. A frame that has begun must be complete within
`frame_timeout_s`; between frames a peer may be silent for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from protocol.codec import Limits, decode
from protocol.errors import MalformedMessage
from protocol.frames import FrameReader, frame

if TYPE_CHECKING:
    from protocol.messages import Message

_CHUNK_BYTES = 64 * 1024


class Stream:
    """One connection's frames. Not for use by two readers at once."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        limits: Limits,
        frame_timeout_s: float,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._frames = FrameReader(max_bytes=limits.max_bytes)
        self._ready: deque[bytes] = deque()
        self._frame_timeout_s = frame_timeout_s
        self._frame_deadline: float | None = None

    async def receive(self) -> bytes | None:
        """The next payload; None once the peer has closed between two frames.

        Raises LimitExceeded on a length that is too large, MalformedMessage on an end inside a
        frame, TimeoutError on a frame that does not get complete, OSError on a broken connection.
        """
        while not self._ready:
            chunk = b"" if self._frames.broken else await self._read()
            if not chunk and self._frames.num_pending and not self._frames.broken:
                raise MalformedMessage("the connection was closed inside a frame")
            payloads = self._frames.feed(chunk)
            if not chunk:
                return None
            self._ready.extend(payloads)
            self._set_frame_deadline(begun=bool(payloads))
        return self._ready.popleft()

    async def receive_message(self) -> Message | None:
        """The next message; None as for `receive`. Raises ProtocolError for what is none."""
        payload = await self.receive()
        return None if payload is None else decode(payload, limits=self._limits)

    async def _read(self) -> bytes:
        async with asyncio.timeout_at(self._frame_deadline):
            return await self._reader.read(_CHUNK_BYTES)

    def _set_frame_deadline(self, *, begun: bool) -> None:
        if not self._frames.num_pending:
            self._frame_deadline = None
        elif begun or self._frame_deadline is None:
            self._frame_deadline = asyncio.get_running_loop().time() + self._frame_timeout_s

    async def send(self, payload: bytes) -> None:
        """Write one frame and wait until most of what is buffered is with the kernel."""
        self.write(payload)
        await self._writer.drain()

    def write(self, payload: bytes) -> None:
        """Buffer one frame without waiting; nothing happens on a connection that is closing."""
        if not self._writer.is_closing():
            self._writer.write(frame(payload, max_bytes=self._limits.max_bytes))

    @property
    def num_unsent(self) -> int:
        """Bytes that the peer has not taken and the kernel has no room for."""
        return self._writer.transport.get_write_buffer_size()

    async def is_stale(self) -> bool:
        """Whether an idle connection has ended, or holds what nobody asked for."""
        if self._ready or self._writer.is_closing():
            return True
        try:
            async with asyncio.timeout(0):
                await self._reader.read(1)  # at once if there is something; nothing is lost if not
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def close(self, *, linger_s: float) -> None:
        """Close once what is buffered is sent, or after `linger_s` if the peer does not read it."""
        self._writer.close()
        if self.num_unsent:
            asyncio.get_running_loop().call_later(linger_s, self.abort)

    def abort(self) -> None:
        """Close at once; what is buffered is lost."""
        self._writer.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, however it came to that."""
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
