"""A small HTTP/1.1 server for tests, written by hand so that it can misbehave on the wire.

Keeps connections alive as SGLang's does, answers JSON or text, and can close an idle connection
after a while, or a connection in the middle of a request (`Hangup`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Self

Reply = tuple[int, Any]
Handler = Callable[[str, str, Any], Awaitable[Reply]]


class Hangup(Exception):
    """Raised by a handler: close the connection without an answer."""


class HttpServer:
    """Serves one handler on a free port of 127.0.0.1 inside `async with`."""

    def __init__(self, handler: Handler, *, port: int = 0, idle_s: float = 60.0) -> None:
        self.handler = handler
        self.idle_s = idle_s
        self.port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection, as a killed server does."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, Hangup, TimeoutError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(self.idle_s):
                head = await reader.readuntil(b"\r\n\r\n")
            request, *lines = head.decode().split("\r\n")
            method, path, _ = request.split(" ")
            headers = dict(line.lower().split(": ", 1) for line in lines if line)
            raw = await reader.readexactly(int(headers.get("content-length", "0")))
            status, answer = await self.handler(method, path, json.loads(raw) if raw else None)
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            kind = "text/plain" if isinstance(answer, str) else "application/json"
            writer.write(
                f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n".encode()
                + data
            )
            await writer.drain()
