"""Where the server listens, what it says where it cannot, and clients that hold their places."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from live_eval.config import HttpSettings
from live_eval.errors import ConfigError
from live_eval.http import server
from live_eval.http.server import listen, url_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("localhost", "http://localhost:80"),
        ("::1", "http://[::1]:80"),
        ("[::1]", "http://[::1]:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
    ],
)
def test_the_address_is_one_that_a_person_can_open(host: str, url: str) -> None:
    assert url_of(host, 80) == url


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot serve HTTP at http://127.0.0.1:{port}.*another port"):
            listen(HttpSettings(port=port))


def test_a_host_that_is_not_this_machine_is_named() -> None:
    settings = HttpSettings(host="nothing.invalid", token="x" * 16)
    with pytest.raises(ConfigError, match=r"'nothing.invalid' is no address of this machine"):
        listen(settings)


def test_a_free_port_is_found() -> None:
    with listen(HttpSettings()) as listener:
        assert listener.getsockname()[1] > 0


# --- clients that do nothing ------------------------------------------------------------------


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """`/large` has more than a socket takes, `/slow` comes late, all else comes at once."""
    body = b"x" * (8 << 20) if scope["path"] == "/large" else b"x"
    if scope["path"] == "/slow":
        await asyncio.sleep(0.8)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def address(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, int]]:
    for name, value in (("LOOK_S", 0.05), ("SILENT_S", 0.4), ("STUCK_S", 0.4)):
        monkeypatch.setattr(server, name, value)
    async with server.HttpServer(application, HttpSettings()) as serving:
        host, _, port = serving.url.removeprefix("http://").partition(":")
        yield host, int(port)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
    ],
    ids=["nothing", "half a request", "a whole one and a half", "a body that never comes"],
)
async def test_who_asks_nothing_loses_the_place(address: tuple[str, int], sent: bytes) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(5):
            await reader.read()
    writer.close()


async def test_who_reads_nothing_loses_the_place(address: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*address, limit=1024)
    writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.sleep(1.0)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(8 << 20)
    writer.close()


async def test_who_asks_again_and_again_or_waits_for_an_answer_keeps_it(address: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*address)
    for path in ("/", "/slow", *["/"] * 12):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        assert (await reader.readuntil(b"\r\n0\r\n\r\n")).count(b"\r\nx\r\n") == 1
        await asyncio.sleep(0.1)
    writer.close()
