"""The asyncio client: its errors, its deadlines, and that no answer goes to another request."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest
from fakes.channel_peer import LeverHandler, raw_server, until

from live_eval.channel import ChannelClient, ChannelServer, Connection
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


async def test_requests_of_many_tasks_each_get_their_own_answer(path: Path) -> None:
    async def echo(message: Message, connection: Connection) -> Message | None:
        assert isinstance(message, LeaveGroup)
        await asyncio.sleep(0)
        return ServiceStatus(state="serving", running=(message.group_name,))

    async with ChannelServer(path, echo), ChannelClient(path) as client:
        names = [f"g{i}" for i in range(50)]
        requests = [client.request(LeaveGroup(group_name=name), timeout_s=5) for name in names]
        answers = await asyncio.gather(*requests)
    assert answers == [ServiceStatus(state="serving", running=(name,)) for name in names]


async def test_nobody_there_is_told_at_once(path: Path) -> None:
    async with ChannelClient(path) as client:
        before = time.monotonic()
        with pytest.raises(TransportError, match=r"status_request to .*service\.sock"):
            await client.request(StatusRequest(), timeout_s=30)
        assert time.monotonic() - before < 10.0


async def test_an_error_reply_is_raised_with_the_peers_code(path: Path) -> None:
    async def refuse(message: Message, connection: Connection) -> Message | None:
        if isinstance(message, StatusRequest):
            return None
        raise StoreFull("42 bytes are missing")

    async with ChannelServer(path, refuse), ChannelClient(path) as client:
        with pytest.raises(PeerError, match="42 bytes are missing") as caught:
            await client.request(TrainingEnded(), timeout_s=5)
        assert caught.value.remote_code == "store_full"
        assert await client.request(StatusRequest(), timeout_s=5) == Ok()


async def test_a_late_answer_is_never_taken_for_the_next_ones(
    server: ChannelServer, handler: LeverHandler
) -> None:
    async with ChannelClient(server.path) as client:
        with pytest.raises(TransportError, match=r"no answer within 0\.1 s"):
            await client.request(LeaveGroup(group_name="a"), timeout_s=0.1)
        handler.release("a")
        handler.release("b")
        for name in ("b", "b"):
            answer = await client.request(LeaveGroup(group_name=name), timeout_s=5)
            assert answer == ServiceStatus(state="serving", running=(name,))


async def test_a_cancelled_request_raises_cancelled_and_its_answer_is_dropped(
    server: ChannelServer, handler: LeverHandler
) -> None:
    async with ChannelClient(server.path) as client:
        task = asyncio.create_task(client.request(LeaveGroup(group_name="a"), timeout_s=5))
        await until(lambda: handler.begun == ["a"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        handler.release("a")
        handler.release("b")
        answer = await client.request(LeaveGroup(group_name="b"), timeout_s=5)
        assert answer == ServiceStatus(state="serving", running=("b",))


async def test_waiting_for_another_tasks_request_counts(server: ChannelServer, handler: LeverHandler) -> None:
    async with ChannelClient(server.path) as client:
        slow = asyncio.create_task(client.request(LeaveGroup(group_name="a"), timeout_s=5))
        await until(lambda: handler.begun == ["a"])
        with pytest.raises(TransportError, match="no answer"):
            await client.request(StatusRequest(), timeout_s=0.1)
        handler.release("a")
        assert await slow == ServiceStatus(state="serving", running=("a",))


async def test_a_restarted_server_is_found_again(path: Path, handler: LeverHandler) -> None:
    async with ChannelClient(path) as client:
        for _ in range(3):
            async with ChannelServer(path, handler):
                assert isinstance(await client.request(StatusRequest(), timeout_s=5), ServiceStatus)
        with pytest.raises(TransportError):
            await client.request(StatusRequest(), timeout_s=5)


async def test_a_server_that_closes_in_order_during_a_request_says_so(
    path: Path, handler: LeverHandler
) -> None:
    async with ChannelClient(path) as client:
        async with ChannelServer(path, handler):
            task = asyncio.create_task(client.request(LeaveGroup(group_name="a"), timeout_s=5))
            await until(lambda: handler.begun == ["a"])
        with pytest.raises(PeerError, match="closing"):
            await task


def hang_up(sock: socket.socket) -> None:
    read_frame(sock)


def answer_half(sock: socket.socket) -> None:
    read_frame(sock)
    sock.sendall(frame(encode(Ok()))[:-1])


def answer_nonsense(sock: socket.socket) -> None:
    read_frame(sock)
    sock.sendall(frame(b"\xc1"))


def announce_too_much(sock: socket.socket) -> None:
    read_frame(sock)
    sock.sendall(b"\xff\xff\xff\xff")


@pytest.mark.parametrize("script", [hang_up, answer_half, answer_nonsense, announce_too_much])
async def test_a_broken_answer_is_a_transport_error_and_the_next_request_connects_anew(
    path: Path, script: object
) -> None:
    def answer(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(frame(encode(Ok())))

    assert callable(script)
    with raw_server(path, script, answer) as accepted:
        async with ChannelClient(path) as client:
            with pytest.raises(TransportError, match="sync_commit"):
                await client.request(SyncCommit(sync_id="s", weight_version=1), timeout_s=5)
            assert await client.request(StatusRequest(), timeout_s=5) == Ok()
        assert len(accepted) == 2


async def test_what_nobody_asked_for_is_not_taken_for_an_answer(path: Path) -> None:
    def answer_twice(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(frame(encode(Ok())) + frame(encode(ServiceStatus(state="finished"))))
        read_frame(sock)

    def answer(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(frame(encode(ServiceStatus(state="serving"))))

    with raw_server(path, answer_twice, answer):
        async with ChannelClient(path) as client:
            assert await client.request(TrainingEnded(), timeout_s=5) == Ok()
            assert await client.request(StatusRequest(), timeout_s=5) == ServiceStatus(state="serving")


async def test_a_message_that_cannot_be_sent_is_the_callers_error(server: ChannelServer) -> None:
    async with ChannelClient(server.path) as client:
        with pytest.raises(MalformedMessage):
            await client.request(SyncCommit(sync_id="\ud800", weight_version=1), timeout_s=5)
        with pytest.raises(ValueError, match="notify"):
            await client.request(StoreChanged(), timeout_s=5)
