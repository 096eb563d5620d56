"""The HTTP server inside the service's event loop.

Owns the listening socket and uvicorn's life. Invariant: it takes no signal from the service, and at
the end no client keeps it waiting for longer than CLOSE_S; no client keeps one of its places for longer
than SILENT_S without asking, or than STUCK_S without reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import uvicorn

from live_eval.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp

    from live_eval.config import HttpSettings

logger = logging.getLogger(__name__)

CLOSE_S = 1
MAX_CONNECTIONS = 256
"""More are answered with 503 by uvicorn."""
SILENT_S = 10.0
"""Longest time from a connection, or from an answer, to the end of the next request's headers. uvicorn itself
waits for ever for a request that was begun."""
STUCK_S = 30.0
"""A client whose socket takes nothing for so long is gone."""
LOOK_S = 1.0


class _Server(uvicorn.Server):
    """uvicorn without hands on the process' signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, and say when it is done."""
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The service has its own."""
        yield


class HttpServer:
    """Serves an application on the configured address; `async with` starts and ends it."""

    def __init__(self, app: ASGIApp, settings: HttpSettings, *, url_file: Path | None = None) -> None:
        self.url = ""
        """Where it is reached, once it is."""
        self._app = app
        self._settings = settings
        self._url_file = url_file
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        listener = listen(self._settings)
        self.url = url_of(self._settings.host, listener.getsockname()[1])
        config = uvicorn.Config(
            self._app,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=CLOSE_S,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="http")
        await self._server.listening.wait()
        self._watch = asyncio.create_task(_watch(self._server.server_state.connections), name="http-watch")
        if self._url_file is not None:
            self._url_file.write_text(self.url + "\n", encoding="utf-8")
        logger.info("the HTTP API is at %s", self.url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._url_file is not None:
            self._url_file.unlink(missing_ok=True)
        if self._server is None or self._task is None:
            return
        if self._watch is not None:
            self._watch.cancel()
        self._server.should_exit = True
        done, _ = await asyncio.wait([self._task], timeout=CLOSE_S + 2)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task])


async def _watch(connections: Collection[Any]) -> None:
    """Cut off clients that hold their places and do nothing with them."""
    since: dict[_Idle, float] = {}
    while True:
        await asyncio.sleep(LOOK_S)
        now = time.monotonic()
        since = {idle: since.get(idle, now) for each in connections if (idle := _idle(each)) is not None}
        for idle, begun in since.items():
            if now - begun > (SILENT_S if idle.unread is None else STUCK_S):
                idle.connection.transport.abort()


class _Idle(NamedTuple):
    """How a connection does nothing; another one as soon as anything happens in it."""

    connection: Any
    """One of uvicorn's protocols."""
    request: Any
    """The last one that it made."""
    unread: int | None
    """Bytes that wait for it to be read; None where it has its answer, and asks for nothing."""


def _idle(connection: Any) -> _Idle | None:
    """None while a request is being answered."""
    request = connection.cycle
    if connection.flow.write_paused:
        return _Idle(connection, request, connection.transport.get_write_buffer_size())
    return _Idle(connection, request, None) if request is None or request.response_complete else None


def listen(settings: HttpSettings) -> socket.socket:
    """A bound socket; ConfigError that names the address where it cannot be had."""
    where = url_of(settings.host, settings.port)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host.strip("[]"), settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(
            f"the HTTP host {settings.host!r} is no address of this machine: {error}"
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot serve HTTP at {where}: {error.strerror}; give another port, or 0 for any that is free"
        ) from error
    return listener


def url_of(host: str, port: int) -> str:
    """The address as a person types it; of all interfaces, by the loopback one."""
    bare = host.strip("[]")
    bare = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bare, bare)
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"
