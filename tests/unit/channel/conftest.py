"""A directory with a path short enough for sockets, and servers that end with the test."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fakes.channel_peer import LeverHandler

from live_eval.channel import ChannelServer


@pytest.fixture
def sock_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="le-") as directory:
        yield Path(directory)


@pytest.fixture
def path(sock_dir: Path) -> Path:
    return sock_dir / "service.sock"


@pytest.fixture
def handler() -> LeverHandler:
    return LeverHandler()


@pytest.fixture
async def server(path: Path, handler: LeverHandler) -> AsyncIterator[ChannelServer]:
    async with ChannelServer(path, handler) as server:
        yield server
