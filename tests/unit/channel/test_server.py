"""What a channel server does with good and bad peers, and with its handler's errors."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from pathlib import Path

import msgpack
import pytest
from fakes.channel_peer import LeverHandler, RawPeer, until

from live_eval.channel import ChannelServer, Connection
from live_eval.errors import StoreFull
from protocol.codec import Limits, encode
from protocol.errors import UnknownMessage
from protocol.frames import frame
from protocol.messages import (
    PROTOCOL_VERSION,
    ErrorReply,
    JobEvent,
    LeaveGroup,
    Message,
    Ok,
    ServiceStatus,
    StatusRequest,
    StoreChanged,
    SubmitCheckpoint,
    TrainingEnded,
)


async def test_a_request_is_answered_by_what_the_handler_returns(server: ChannelServer) -> None:
    async with await RawPeer.connect(server.path) as peer:
        peer.send(StatusRequest())
        assert await peer.receive() == ServiceStatus(state="serving", num_finished=1)


async def test_a_handler_that_returns_nothing_answers_ok(server: ChannelServer) -> None:
    async with await RawPeer.connect(server.path) as peer:
        peer.send(TrainingEnded())
        assert await peer.receive() == Ok()


async def test_a_one_way_message_gets_no_answer_though_the_handler_fails(path: Path) -> None:
    async def fail(message: Message, connection: Connection) -> Message | None:
        if isinstance(message, StoreChanged):
            raise StoreFull("no")
        return None

    async with ChannelServer(path, fail), await RawPeer.connect(path) as peer:
        peer.send(StoreChanged(), TrainingEnded())
        assert await peer.receive() == Ok()
        assert await peer.silent()


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", "malformed_message"),
        (b"\xc1", "malformed_message"),
        (b"not a message", "malformed_message"),
        (b"\x82\xa1v\x02\xa1t\xa2ok", "unsupported_version"),
        (b"\x82\xa1v\x01\xa1t\xa3nok", "unknown_message"),
        (b"\x91" * 100, "limit_exceeded"),
    ],
)
async def test_a_malformed_message_is_answered_and_survived(
    server: ChannelServer, payload: bytes, code: str
) -> None:
    async with await RawPeer.connect(server.path) as peer:
        peer.send_bytes(frame(payload))
        reply = await peer.receive()
        assert isinstance(reply, ErrorReply)
        assert reply.code == code
        peer.send(StatusRequest())
        assert isinstance(await peer.receive(), ServiceStatus)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
async def test_a_pickle_is_malformed_and_never_opened(
    server: ChannelServer, tmp_path: Path, protocol: int
) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "fired"), protocol)
    envelope = msgpack.Packer().pack({"v": PROTOCOL_VERSION, "t": "submit_checkpoint", "path": bomb})
    async with await RawPeer.connect(server.path) as peer:
        for payload in (bomb, envelope):
            peer.send_bytes(frame(payload))
            reply = await peer.receive()
            assert isinstance(reply, ErrorReply)
            assert reply.code in ("malformed_message", "limit_exceeded")
    assert not (tmp_path / "fired").exists()
    pickle.loads(bomb)
    assert (tmp_path / "fired").exists()


async def test_a_frame_that_is_too_long_ends_its_own_connection_only(server: ChannelServer) -> None:
    async with await RawPeer.connect(server.path) as good, await RawPeer.connect(server.path) as bad:
        bad.send_bytes(frame(encode(StatusRequest())) + b"\xff\xff\xff\xff" + b"x" * 1000)
        assert isinstance(await bad.receive(), ServiceStatus)
        reply = await bad.receive()
        assert isinstance(reply, ErrorReply)
        assert reply.code == "limit_exceeded"
        assert await bad.ended()
        good.send(StatusRequest())
        assert isinstance(await good.receive(), ServiceStatus)


async def test_a_peer_that_leaves_inside_a_frame_is_survived(server: ChannelServer) -> None:
    for num_bytes in (1, 4, 5, 20):
        async with await RawPeer.connect(server.path) as peer:
            peer.send_bytes(frame(encode(StatusRequest()))[:num_bytes])
            peer.writer.write_eof()
            assert await peer.ended()
    async with await RawPeer.connect(server.path) as peer:
        peer.send(StatusRequest())
        assert isinstance(await peer.receive(), ServiceStatus)


async def test_a_frame_in_pieces_is_put_together(server: ChannelServer) -> None:
    async with await RawPeer.connect(server.path) as peer:
        for byte in frame(encode(StatusRequest())):
            peer.send_bytes(bytes([byte]))
            await asyncio.sleep(0)
        assert isinstance(await peer.receive(), ServiceStatus)


async def test_a_frame_that_never_gets_complete_ends_its_connection_however_it_drips(
    path: Path, handler: LeverHandler
) -> None:
    async with ChannelServer(path, handler, frame_timeout_s=0.3), await RawPeer.connect(path) as idle:
        async with await RawPeer.connect(path) as slow:
            began = time.monotonic()
            for byte in frame(encode(SubmitCheckpoint(path="x" * 1000)))[:-1]:
                slow.send_bytes(bytes([byte]))
                if await slow.silent(for_s=0.05):
                    continue
                break
            assert 0.25 < time.monotonic() - began < 20.0
        idle.send(StatusRequest())  # silence between frames is no offence
        assert isinstance(await idle.receive(), ServiceStatus)


async def test_an_error_of_ours_is_answered_with_its_code(path: Path) -> None:
    async def refuse(message: Message, connection: Connection) -> Message | None:
        if isinstance(message, StatusRequest):
            raise UnknownMessage("not here")
        raise StoreFull("42 bytes are missing")

    async with ChannelServer(path, refuse), await RawPeer.connect(path) as peer:
        peer.send(TrainingEnded(), StatusRequest())
        assert await peer.receive() == ErrorReply(code="store_full", message="42 bytes are missing")
        assert await peer.receive() == ErrorReply(code="unknown_message", message="not here")


async def test_any_other_error_is_answered_as_internal_and_survived(path: Path) -> None:
    errors = [KeyError("lost"), TimeoutError("late"), ValueError("caf\udce9 " + "x" * 100_000)]

    async def fail(message: Message, connection: Connection) -> Message | None:
        if errors:
            raise errors.pop(0)
        return None

    async with ChannelServer(path, fail), await RawPeer.connect(path) as peer:
        for name in ("KeyError", "TimeoutError", "ValueError"):
            peer.send(TrainingEnded())
            reply = await peer.receive()
            assert isinstance(reply, ErrorReply)
            assert reply.code == "internal"
            assert reply.message.startswith(name)
        peer.send(TrainingEnded())
        assert await peer.receive() == Ok()


async def test_an_answer_that_cannot_be_sent_is_the_servers_fault(path: Path) -> None:
    async def answer(message: Message, connection: Connection) -> Message | None:
        return JobEvent(job_id="j", dataset="d", status="running", score=float("nan"))

    async with ChannelServer(path, answer), await RawPeer.connect(path) as peer:
        peer.send(StatusRequest())
        reply = await peer.receive()
        assert isinstance(reply, ErrorReply)
        assert reply.code == "internal"
        assert "not finite" in reply.message


async def test_requests_of_one_connection_are_handled_in_turn_and_answered_in_order(
    server: ChannelServer, handler: LeverHandler
) -> None:
    async with await RawPeer.connect(server.path) as peer:
        peer.send(LeaveGroup(group_name="a"), StatusRequest(), LeaveGroup(group_name="b"))
        await until(lambda: handler.begun == ["a"])
        handler.release("b")
        assert await peer.silent()
        handler.release("a")
        assert await peer.receive() == ServiceStatus(state="serving", running=("a",))
        assert await peer.receive() == ServiceStatus(state="serving", num_finished=1)
        assert await peer.receive() == ServiceStatus(state="serving", running=("b",))


async def test_connections_do_not_wait_for_each_other(server: ChannelServer, handler: LeverHandler) -> None:
    async with await RawPeer.connect(server.path) as held, await RawPeer.connect(server.path) as free:
        held.send(LeaveGroup(group_name="a"))
        await until(lambda: handler.begun == ["a"])
        free.send(StatusRequest())
        assert isinstance(await free.receive(), ServiceStatus)


async def test_a_peer_that_reads_no_answers_loses_its_connection(path: Path) -> None:
    async def talk(message: Message, connection: Connection) -> Message | None:
        return ErrorReply(code="x", message="y" * 60_000)

    def num_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with ChannelServer(path, talk, send_timeout_s=0.2):
        before = num_open()
        async with await RawPeer.connect(path) as peer:
            peer.send(*[StatusRequest()] * 200)
            await until(lambda: num_open() == before + 2)
            await until(lambda: num_open() == before + 1)  # the peer's end; the server's is closed
            async with await RawPeer.connect(path) as other:
                other.send(StatusRequest())
                assert isinstance(await other.receive(), ErrorReply)


async def test_a_peer_that_leaves_during_its_request_harms_nobody(
    server: ChannelServer, handler: LeverHandler
) -> None:
    async with await RawPeer.connect(server.path) as peer:
        peer.send(LeaveGroup(group_name="a"))
        await until(lambda: handler.begun == ["a"])
    handler.release("a")
    await until(lambda: handler.finished == ["a"])
    async with await RawPeer.connect(server.path) as peer:
        peer.send(StatusRequest())
        assert isinstance(await peer.receive(), ServiceStatus)


async def test_close_says_goodbye_on_every_connection_and_cancels_handlers(
    path: Path, handler: LeverHandler
) -> None:
    server = ChannelServer(path, handler)
    await server.start()
    async with await RawPeer.connect(path) as idle, await RawPeer.connect(path) as waiting:
        idle.send(StatusRequest())
        await idle.receive()
        waiting.send(LeaveGroup(group_name="a"))
        await until(lambda: handler.begun == ["a"])
        await server.close()
        assert handler.cancelled == ["a"]
        for peer in (idle, waiting):
            reply = await peer.receive()
            assert isinstance(reply, ErrorReply)
            assert reply.code == "closed"
            assert await peer.ended()
    await server.close()


async def test_close_is_bounded_though_peers_do_not_read_and_handlers_do_not_stop(path: Path) -> None:
    stop = asyncio.Event()
    begun = asyncio.Event()

    async def stubborn(message: Message, connection: Connection) -> Message | None:
        begun.set()
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue
        return None

    async def talk(message: Message, connection: Connection) -> Message | None:
        if isinstance(message, TrainingEnded):
            return await stubborn(message, connection)
        return ErrorReply(code="x", message="y" * 60_000)

    async with ChannelServer(path, talk) as server:
        async with await RawPeer.connect(path) as deaf, await RawPeer.connect(path) as held:
            deaf.send(*[StatusRequest()] * 100)
            held.send(TrainingEnded())
            await begun.wait()
            before = time.monotonic()
            await server.close(grace_s=0.2)
            assert time.monotonic() - before < 10.0
        stop.set()


async def test_a_handler_cannot_close_its_own_server(path: Path) -> None:
    servers: list[ChannelServer] = []

    async def close(message: Message, connection: Connection) -> Message | None:
        await servers[0].close()
        return None

    async with ChannelServer(path, close) as server, await RawPeer.connect(path) as peer:
        servers.append(server)
        peer.send(TrainingEnded())
        reply = await peer.receive()
        assert isinstance(reply, ErrorReply)
        assert "RuntimeError" in reply.message


async def test_limits_are_the_servers_own(path: Path, handler: LeverHandler) -> None:
    limits = Limits(max_bytes=200)
    async with ChannelServer(path, handler, limits=limits), await RawPeer.connect(path) as peer:
        peer.send(SubmitCheckpoint(path="x" * 300))
        reply = await peer.receive()
        assert isinstance(reply, ErrorReply)
        assert reply.code == "limit_exceeded"
        assert await peer.ended()
