"""The one address that slime's eval function knows: HTTP requests in, handed to whoever serves the job.

Owns the listening socket and HTTP itself (h11); what a request means, and whether it may reach an
engine, is for the handler. Only loopback. Invariant: without a handler nothing is handed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Self

import h11

from live_eval.engines.requests import Forwarded
from live_eval.evaluation.run import Answer

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
MAX_BODY = 256 << 20
READ = 1 << 16
ROUTES = {
    "GET": {"/health", "/model_info", "/get_model_info", "/server_info", "/get_server_info", "/v1/models"},
    "POST": {"/generate", "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"},
}
"""What an eval may ask of an engine. Nothing that loads, flushes, pauses or aborts."""

Handler = Callable[[str, str, bytes, str], Awaitable[Answer]]
"""method, path, body, content type -> the answer."""


class Gateway:
    """Listens from `async with` on; `open` and `close` say who answers."""

    def __init__(self) -> None:
        self.port = 0
        self._handler: Handler | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def open(self, handler: Handler) -> None:
        """Requests go to this handler from now on."""
        self._handler = handler

    def close(self) -> None:
        """Requests are refused from now on."""
        self._handler = None

    # --- one connection -------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, h11.ProtocolError) as error:  # the other side is gone, or speaks no HTTP
            logger.debug("a connection ended: %r", error)
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        while (request := await _next(connection, reader)) is not None and isinstance(request, h11.Request):
            body = await _body(connection, reader)
            path = request.target.decode("latin-1").partition("?")[0]
            answer = await self._answer(request.method.decode(), path, body, _content_type(request))
            writer.write(_encode(connection, answer))
            await writer.drain()
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _answer(self, method: str, path: str, body: bytes | None, content_type: str) -> Answer:
        if body is None:
            return refused(413, f"a request may have {MAX_BODY} bytes")
        if path not in ROUTES.get(method, ()):
            return refused(404, f"{method} {path} is not offered to eval functions")
        if self._handler is None:
            return refused(503, "no job is running")
        return await self._handler(method, path, body, content_type)


def refused(status: int, why: str) -> Forwarded:
    """An answer of the gateway's own."""
    body = json.dumps({"error": {"message": f"live-eval: {why}"}}).encode()
    return Forwarded(status=status, content_type="application/json", body=body, engine="")


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Event | None:
    """The next event of the other side; None when it has closed."""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(READ))
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None
        else:
            return event  # pyright: ignore[reportReturnType]


async def _body(connection: h11.Connection, reader: asyncio.StreamReader) -> bytes | None:
    """The request's whole body; None if it is too long."""
    parts: list[bytes] = []
    size = 0
    while isinstance(event := await _next(connection, reader), h11.Data):
        size += len(event.data)
        if size <= MAX_BODY:
            parts.append(bytes(event.data))
    return b"".join(parts) if size <= MAX_BODY else None


def _content_type(request: h11.Request) -> str:
    found = [value for name, value in request.headers if name == b"content-type"]
    return found[0].decode("latin-1") if found else ""


def _encode(connection: h11.Connection, answer: Answer) -> bytes:
    headers = [("content-type", answer.content_type), ("content-length", str(len(answer.body)))]
    parts = (
        connection.send(h11.Response(status_code=answer.status, headers=headers)),
        connection.send(h11.Data(data=answer.body)),
        connection.send(h11.EndOfMessage()),
    )
    return b"".join(part for part in parts if part)
