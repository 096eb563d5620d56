"""The blocking client and notify: whatever the server does, the caller gets its time back."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.channel_peer import LeverHandler, raw_server, until

from live_eval.channel import BlockingClient, ChannelServer, Connection, notify
from live_eval.errors import PeerError, StoreFull, TransportError
from protocol.codec import encode
from protocol.errors import MalformedMessage
from protocol.frames import frame, read_frame
from protocol.messages import (
    LeaveGroup,
    Message,
    Ok,
    ServiceStatus,
    StatusRequest,
    StoreChanged,
    SyncCommit,
    TrainingEnded,
)


def read_then(*data: bytes, pause_s: float = 0.0) -> Callable[[socket.socket], None]:
    """A server's script: read a request, send `data` piece by piece, wait for the client to leave."""

    def script(sock: socket.socket) -> None:
        read_frame(sock)
        for piece in data:
            sock.sendall(piece)
            time.sleep(pause_s)
        if data and data[-1]:
            sock.recv(1)

    return script


ANSWER = frame(encode(Ok()))


def test_a_request_is_answered_and_the_connection_kept(path: Path) -> None:
    def script(sock: socket.socket) -> None:
        for _ in range(3):
            read_frame(sock)
            sock.sendall(ANSWER)

    with raw_server(path, script) as accepted, BlockingClient(path) as client:
        assert [client.request(StatusRequest(), timeout_s=5) for _ in range(3)] == [Ok()] * 3
        assert len(accepted) == 1


def never_answer(sock: socket.socket) -> None:
    while sock.recv(4096):  # until the client leaves
        pass


LONG_ANSWER = frame(encode(ServiceStatus(state="serving", running=("x" * 300,))))
SLOW_SERVERS: dict[str, list[Callable[[socket.socket], None]]] = {
    "accepts nobody": [],
    "never answers": [never_answer],
    "drips its answer": [read_then(*(LONG_ANSWER[i : i + 1] for i in range(300)), pause_s=0.1)],
}


@pytest.mark.parametrize("scripts", SLOW_SERVERS.values(), ids=SLOW_SERVERS.keys())
def test_a_server_that_is_too_slow_costs_the_timeout_and_no_more(
    path: Path, scripts: list[Callable[[socket.socket], None]]
) -> None:
    with raw_server(path, *scripts), BlockingClient(path) as client:
        before = time.monotonic()
        with pytest.raises(TransportError, match=r"no answer within 0\.2 s"):
            client.request(StatusRequest(), timeout_s=0.2)
        assert 0.15 < time.monotonic() - before < 4.0


def test_a_request_larger_than_a_frozen_server_takes_is_given_up_in_time(path: Path) -> None:
    with raw_server(path), BlockingClient(path) as client:
        before = time.monotonic()
        with pytest.raises(TransportError, match="no answer"):
            message = SyncCommit(sync_id="x" * 60_000, weight_version=1)
            for _ in range(20):
                client.request(message, timeout_s=0.2)
        assert time.monotonic() - before < 10.0


BROKEN_ANSWERS = {
    "hangs up": b"",
    "half a length": ANSWER[:2],
    "half a frame": ANSWER[:-1],
    "no message": frame(b"\xc1"),
    "too long": b"\xff\xff\xff\xff",
}


@pytest.mark.parametrize("data", BROKEN_ANSWERS.values(), ids=BROKEN_ANSWERS.keys())
def test_a_broken_answer_is_a_transport_error_and_the_next_request_connects_anew(
    path: Path, data: bytes
) -> None:
    def broken(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(data)

    with raw_server(path, broken, read_then(ANSWER)), BlockingClient(path) as client:
        with pytest.raises(TransportError, match="sync_commit to"):
            client.request(SyncCommit(sync_id="s", weight_version=1), timeout_s=5)
        assert client.request(StatusRequest(), timeout_s=5) == Ok()


def test_an_idle_connection_that_ended_or_holds_a_stray_message_is_replaced(path: Path) -> None:
    stray = frame(encode(ServiceStatus(state="finished")))
    scripts = [read_then(ANSWER + stray), read_then(ANSWER, b""), read_then(ANSWER)]
    with raw_server(path, *scripts) as accepted, BlockingClient(path) as client:
        for expected in (1, 2, 3):
            assert client.request(TrainingEnded(), timeout_s=5) == Ok()
            assert len(accepted) == expected
            time.sleep(0.05)


def test_nobody_there_is_told_at_once(path: Path) -> None:
    before = time.monotonic()
    with BlockingClient(path) as client, pytest.raises(TransportError):
        client.request(StatusRequest(), timeout_s=30)
    assert time.monotonic() - before < 10.0


def test_a_path_without_a_place_is_a_transport_error(sock_dir: Path) -> None:
    for path in (sock_dir / "x" / "y.sock", sock_dir / ("z" * 120)):
        with BlockingClient(path) as client, pytest.raises(TransportError):
            client.request(StatusRequest(), timeout_s=5)


async def test_an_error_reply_is_raised_with_the_peers_code(path: Path) -> None:
    async def refuse(message: Message, connection: Connection) -> Message | None:
        raise StoreFull("no room")

    async with ChannelServer(path, refuse):
        with BlockingClient(path) as client:
            with pytest.raises(PeerError, match="no room") as caught:
                await asyncio.to_thread(client.request, StatusRequest(), timeout_s=5)
            assert (caught.value.remote_code, caught.value.message) == ("store_full", "no room")


def test_threads_share_a_client_and_their_wait_counts(path: Path) -> None:
    reached = threading.Event()
    go = threading.Event()

    def hold(sock: socket.socket) -> None:
        read_frame(sock)
        reached.set()
        go.wait(5.0)
        sock.sendall(ANSWER)

    answers: list[Message] = []
    with raw_server(path, hold), BlockingClient(path) as client:
        thread = threading.Thread(target=lambda: answers.append(client.request(TrainingEnded(), timeout_s=5)))
        thread.start()
        reached.wait(5.0)
        with pytest.raises(TransportError, match="no answer"):
            client.request(StatusRequest(), timeout_s=0.1)
        go.set()
        thread.join()
    assert answers == [Ok()]


async def test_a_late_answer_is_never_taken_for_the_next_ones(
    server: ChannelServer, handler: LeverHandler
) -> None:
    def use() -> Message:
        with BlockingClient(server.path) as client:
            with pytest.raises(TransportError):
                client.request(LeaveGroup(group_name="a"), timeout_s=0.1)
            handler.release("b")
            return client.request(LeaveGroup(group_name="b"), timeout_s=5)

    assert await asyncio.to_thread(use) == ServiceStatus(state="serving", running=("b",))


def test_a_message_that_cannot_be_sent_is_the_callers_error(path: Path) -> None:
    with BlockingClient(path) as client:
        with pytest.raises(MalformedMessage):
            client.request(SyncCommit(sync_id="\ud800", weight_version=1), timeout_s=5)
        with pytest.raises(ValueError, match="notify"):
            client.request(StoreChanged(), timeout_s=5)


async def test_notify_hands_a_one_way_message_over(server: ChannelServer, handler: LeverHandler) -> None:
    assert await asyncio.to_thread(notify, server.path, StoreChanged())
    await until(lambda: handler.one_way == [StoreChanged()])


def test_notify_to_nobody_is_no_error(sock_dir: Path) -> None:
    plain_file = sock_dir / "file"
    plain_file.write_text("")
    for path in (sock_dir / "none", sock_dir / ("z" * 120), sock_dir / "a\0b", plain_file, sock_dir):
        assert not notify(path, StoreChanged())


def test_notify_of_what_cannot_be_encoded_is_no_error(path: Path) -> None:
    assert not notify(path, SyncCommit(sync_id="\ud800", weight_version=1))


def test_notify_to_a_frozen_server_with_a_full_queue_returns_in_time(path: Path) -> None:
    with raw_server(path):
        results: list[bool] = []
        took: list[float] = []
        for _ in range(7):
            before = time.monotonic()
            results.append(notify(path, StoreChanged()))
            took.append(time.monotonic() - before)
        assert not any(results[-5:])
        # 50 ms, and what a busy machine adds: some of the calls are longer there.
        assert sorted(took[-5:])[2] < 0.4, took
        assert max(took) < 5.0, took


def test_notify_of_more_than_a_frozen_server_takes_returns_in_time(path: Path) -> None:
    message = SyncCommit(sync_id="x" * 65_000, weight_version=1)
    jobs = ServiceStatus(state="serving", running=tuple(message.sync_id for _ in range(20)))
    with raw_server(path):
        before = time.monotonic()
        assert not notify(path, jobs)
        assert time.monotonic() - before < 5.0
