"""The socket's file: who may connect, who may serve, and where it lies when the path is long."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from live_eval.channel import ChannelClient, ChannelServer, socket_path
from live_eval.errors import ConfigError, TransportError
from protocol.messages import ServiceStatus, StatusRequest

if TYPE_CHECKING:
    from fakes.channel_peer import LeverHandler

SERVER_PROCESS = """
import asyncio, sys
from pathlib import Path
from live_eval.channel import ChannelServer

async def main():
    async def handler(message, connection):
        return None
    async with ChannelServer(Path(sys.argv[1]), handler):
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_only_the_user_can_open_the_socket(server: ChannelServer) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


async def test_the_mode_does_not_depend_on_the_umask(path: Path, handler: LeverHandler) -> None:
    before = os.umask(0)
    try:
        async with ChannelServer(path, handler):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


async def test_the_socket_goes_with_its_server_and_the_path_serves_again(
    path: Path, handler: LeverHandler
) -> None:
    for _ in range(2):
        async with ChannelServer(path, handler):
            assert path.is_socket()
        assert not path.exists()


async def test_a_second_server_is_refused_and_the_first_goes_on(
    server: ChannelServer, handler: LeverHandler
) -> None:
    with pytest.raises(ConfigError, match="live process"):
        await ChannelServer(server.path, handler).start()
    async with ChannelClient(server.path) as client:
        assert isinstance(await client.request(StatusRequest(), timeout_s=5), ServiceStatus)


async def test_a_socket_left_behind_is_taken_over(path: Path, handler: LeverHandler) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.fspath(path))
    async with ChannelServer(path, handler), ChannelClient(path) as client:
        assert isinstance(await client.request(StatusRequest(), timeout_s=5), ServiceStatus)


async def test_a_killed_servers_path_can_be_served_at_once(path: Path, handler: LeverHandler) -> None:
    command = [sys.executable, "-c", SERVER_PROCESS, os.fspath(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 30) == b"ready\n"
        with pytest.raises(ConfigError, match="live process"):
            await ChannelServer(path, handler).start()
        async with ChannelClient(path) as client:
            await client.request(StatusRequest(), timeout_s=5)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            with pytest.raises(TransportError):
                await client.request(StatusRequest(), timeout_s=5)
            async with ChannelServer(path, handler):
                assert isinstance(await client.request(StatusRequest(), timeout_s=5), ServiceStatus)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_what_is_no_socket_is_neither_removed_nor_served(path: Path, handler: LeverHandler) -> None:
    path.write_text("mine")
    with pytest.raises(ConfigError, match="no socket"):
        await ChannelServer(path, handler).start()
    assert path.read_text() == "mine"


async def test_a_path_that_cannot_be_bound_is_refused_with_its_name(
    sock_dir: Path, handler: LeverHandler
) -> None:
    for path in (sock_dir / "missing" / "x.sock", sock_dir / ("x" * 120)):
        with pytest.raises(ConfigError, match="cannot serve on"):
            await ChannelServer(path, handler).start()


def test_a_short_path_lies_in_the_directory_itself(sock_dir: Path) -> None:
    assert socket_path(sock_dir, "service.sock") == sock_dir / "service.sock"
    assert not list(sock_dir.iterdir())


@pytest.fixture
def long_dir(sock_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose path leaves no room for a socket; temporary files go below sock_dir."""
    monkeypatch.setattr(tempfile, "tempdir", str(sock_dir))
    directory = sock_dir / ("d" * 60) / ("e" * 60)
    directory.mkdir(parents=True)
    return directory


async def test_a_long_path_is_replaced_by_a_private_short_one(long_dir: Path, handler: LeverHandler) -> None:
    path = socket_path(long_dir, "service.sock")
    assert len(os.fsencode(path)) <= 100
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (long_dir / "service.sock.path").read_text() == str(path)
    assert [file.name for file in long_dir.iterdir()] == ["service.sock.path"]
    async with ChannelServer(path, handler), ChannelClient(socket_path(long_dir, "service.sock")) as client:
        assert isinstance(await client.request(StatusRequest(), timeout_s=5), ServiceStatus)
    assert socket_path(long_dir, "service.sock") == path
    assert socket_path(long_dir, "receiver.sock") != path


def test_all_that_ask_at_once_get_the_same_path(long_dir: Path) -> None:
    paths: list[Path] = []
    barrier = threading.Barrier(8)
    (long_dir / "service.sock.path").write_text(f"{long_dir}/gone/service.sock")

    def ask() -> None:
        barrier.wait()
        paths.append(socket_path(long_dir, "service.sock"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 8
    assert len(set(paths)) == 1


def test_a_pointer_to_a_place_that_is_gone_or_open_to_others_is_replaced(long_dir: Path) -> None:
    first = socket_path(long_dir, "service.sock")
    first.parent.rmdir()
    second = socket_path(long_dir, "service.sock")
    assert second != first
    second.parent.chmod(0o755)
    third = socket_path(long_dir, "service.sock")
    assert third != second
    (long_dir / "service.sock.path").write_bytes(b"\xff\0")
    assert socket_path(long_dir, "service.sock").parent.is_dir()


def test_no_short_place_at_all_is_refused_with_what_to_do(
    long_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(long_dir))
    with pytest.raises(ConfigError, match="TMPDIR"):
        socket_path(long_dir, "service.sock")
    assert (long_dir / "service.sock.path").read_text() == ""


def test_a_directory_that_is_not_there_is_refused(long_dir: Path) -> None:
    with pytest.raises(ConfigError, match="too long for a socket"):
        socket_path(long_dir / "missing", "service.sock")
