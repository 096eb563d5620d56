"""What a server pushes: order, slow readers, and how a subscription ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest
from fakes.channel_peer import LeverHandler, RawPeer, raw_server, until

from live_eval.channel import ChannelClient, ChannelServer, Connection
from live_eval.errors import PeerError, StoreFull, TransportError
from protocol.codec import encode
from protocol.errors import MalformedMessage
from protocol.frames import frame, read_frame
from protocol.messages import EngineEvent, JobEvent, Message, Ok, StatusRequest, Subscribe


def event(number: int, *, size: int = 0) -> EngineEvent:
    return EngineEvent(engine=f"e{number}", state="ready", detail="x" * size)


async def test_events_arrive_in_order_after_the_answer(server: ChannelServer, handler: LeverHandler) -> None:
    client = ChannelClient(server.path)
    async with client.subscribe(Subscribe()) as events:
        (connection,) = handler.subscribers
        for number in range(100):
            assert connection.push(event(number))
        assert [await anext(events) for _ in range(100)] == [event(number) for number in range(100)]


async def test_what_is_pushed_while_the_request_is_handled_follows_its_answer(path: Path) -> None:
    async def subscribe(message: Message, connection: Connection) -> Message | None:
        connection.push(event(1))
        await asyncio.sleep(0.01)
        connection.push(event(2))
        return None

    async with ChannelServer(path, subscribe), await RawPeer.connect(path) as peer:
        peer.send(Subscribe())
        assert [await peer.receive() for _ in range(3)] == [Ok(), event(1), event(2)]


async def test_plain_iteration_subscribes_too(server: ChannelServer, handler: LeverHandler) -> None:
    async def consume() -> list[Message]:
        return [message async for message in ChannelClient(server.path).subscribe(Subscribe())]

    task = asyncio.create_task(consume())
    await until(lambda: bool(handler.subscribers))
    handler.subscribers[0].push(event(1))
    await server.close()
    assert await task == [event(1)]


async def test_a_slow_reader_is_dropped_and_a_fast_one_misses_nothing(
    path: Path, handler: LeverHandler
) -> None:
    async with ChannelServer(path, handler, max_backlog_bytes=200_000) as server:
        async with await RawPeer.connect(path) as slow:
            slow.send(Subscribe())
            await slow.receive()
            async with ChannelClient(path).subscribe(Subscribe()) as events:
                slow_side, fast_side = handler.subscribers
                for number in range(300):
                    slow_side.push(event(number, size=10_000))
                    assert fast_side.push(event(number, size=10_000))
                    assert await anext(events) == event(number, size=10_000)
                    assert slow_side._stream.num_unsent < 250_000
                assert slow_side.closed
                assert not slow_side.push(event(0))
                assert not fast_side.closed
            await asyncio.wait_for(slow_side.wait_closed(), 5)
        await server.close()


async def test_pushes_during_a_request_are_bounded_too(path: Path) -> None:
    taken: list[bool] = []

    async def flood(message: Message, connection: Connection) -> Message | None:
        taken.extend(connection.push(event(number, size=10_000)) for number in range(100))
        return None

    async with ChannelServer(path, flood, max_backlog_bytes=100_000), await RawPeer.connect(path) as peer:
        peer.send(Subscribe())
        assert await peer.ended()
    assert 5 <= taken.count(True) <= 11
    assert not taken[-1]


async def test_a_slow_reader_learns_that_messages_are_missing(path: Path, handler: LeverHandler) -> None:
    server = ChannelServer(path, handler, max_backlog_bytes=100_000)
    async with server, ChannelClient(path).subscribe(Subscribe()) as events:
        (connection,) = handler.subscribers
        while connection.push(event(0, size=10_000)):
            pass
        with pytest.raises(TransportError, match="messages may be missing"):
            while True:
                await anext(events)
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_a_subscription_ends_when_the_server_closes_in_order(
    server: ChannelServer, handler: LeverHandler
) -> None:
    async with ChannelClient(server.path).subscribe(Subscribe()) as events:
        handler.subscribers[0].push(event(1))
        await server.close()
        assert [message async for message in events] == [event(1)]


async def test_a_server_that_dies_is_told_from_one_that_closes(path: Path) -> None:
    def die(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(frame(encode(Ok())) + frame(encode(event(1))))

    with raw_server(path, die):
        async with ChannelClient(path).subscribe(Subscribe()) as events:
            assert await anext(events) == event(1)
            with pytest.raises(TransportError):
                await anext(events)


async def test_a_refused_subscription_raises_the_peers_error(path: Path) -> None:
    async def refuse(message: Message, connection: Connection) -> Message | None:
        raise StoreFull("no seat")

    async with ChannelServer(path, refuse):
        with pytest.raises(PeerError, match="no seat"):
            async with ChannelClient(path).subscribe(Subscribe()):
                pass
        with pytest.raises(PeerError, match="no seat"):
            await anext(ChannelClient(path).subscribe(Subscribe()))


async def test_a_server_that_never_answers_a_subscription_is_given_up(path: Path) -> None:
    with raw_server(path), pytest.raises(TransportError, match=r"within 0\.1 s"):
        await anext(ChannelClient(path).subscribe(Subscribe(), timeout_s=0.1))


async def test_nobody_there_to_subscribe_to_is_told_at_once(path: Path) -> None:
    with pytest.raises(TransportError):
        await anext(ChannelClient(path).subscribe(Subscribe()))


async def test_the_server_notices_a_subscriber_that_leaves(
    server: ChannelServer, handler: LeverHandler
) -> None:
    async with ChannelClient(server.path).subscribe(Subscribe()):
        (connection,) = handler.subscribers
        assert not connection.closed
    await asyncio.wait_for(connection.wait_closed(), 5)
    assert not connection.push(event(1))


async def test_a_cancelled_reader_sees_cancelled_and_may_read_on(
    server: ChannelServer, handler: LeverHandler
) -> None:
    async with ChannelClient(server.path).subscribe(Subscribe()) as events:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(events)
        handler.subscribers[0].push(event(1))
        assert await anext(events) == event(1)


async def test_requests_go_on_beside_a_subscription_on_one_connection(
    server: ChannelServer, handler: LeverHandler
) -> None:
    async with await RawPeer.connect(server.path) as peer:
        peer.send(Subscribe())
        assert await peer.receive() == Ok()
        handler.subscribers[0].push(event(1))
        peer.send(StatusRequest())
        assert await peer.receive() == event(1)
        assert not isinstance(await peer.receive(), EngineEvent)


async def test_an_event_that_cannot_be_encoded_is_the_pushers_error(
    server: ChannelServer, handler: LeverHandler
) -> None:
    async with ChannelClient(server.path).subscribe(Subscribe()) as events:
        (connection,) = handler.subscribers
        with pytest.raises(MalformedMessage):
            connection.push(JobEvent(job_id="j", dataset="d", status="running", score=float("inf")))
        assert connection.push(event(1))
        assert await anext(events) == event(1)
