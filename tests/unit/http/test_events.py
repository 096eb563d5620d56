"""Server-sent events: order, resume, and clients that do not read; over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fakes.job_bench import target

from live_eval.http.errors import ApiError
from live_eval.http.events import MAX_CLIENTS, MAX_UNREAD, EventLog
from protocol.messages import JobEvent

if TYPE_CHECKING:
    from fakes.http_bench import HttpBench

Event = tuple[str, str, Any]
"""Id, kind, data."""


@asynccontextmanager
async def stream(url: str, **headers: str) -> AsyncIterator[AsyncIterator[Event]]:
    async with (
        httpx.AsyncClient(timeout=20) as client,
        client.stream("GET", f"{url}/api/v1/events", headers=headers) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield parsed(answer.aiter_lines())


async def parsed(lines: AsyncIterator[str]) -> AsyncIterator[Event]:
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}


async def take(events: AsyncIterator[Event], *kinds: str) -> list[Event]:
    """The next event of each of these kinds, in this order."""
    found = []
    for kind in kinds:
        async with asyncio.timeout(20):
            async for event in events:
                if event[1] == kind:
                    found.append(event)
                    break
    return found


async def test_a_job_is_told_from_its_making_to_its_result(http: HttpBench) -> None:
    async with http.api, stream(http.api.url) as events:
        (hello,) = await take(events, "hello")
        assert hello[2] == {"life": http.api.events.life, "run_id": "run"}
        http.bench.seal(1)
        async with http.life():
            made, runs, ended, result = await take(events, "job", "job", "job", "result")
            version, status = await take(events, "version", "status")
    assert [each[2]["job_id"] for each in (made, runs, ended)] == ["v1/a", "v1/b", "v1/a"]
    assert result[2]["score"] == 1.0
    assert (version[2]["policy_version"], version[2]["state"]) == (1, "sealed")
    assert status[2]["stable_version"] == 1
    assert not http.api.source.run_dir.http_url.exists()


async def test_who_comes_again_gets_exactly_what_was_missed(http: HttpBench) -> None:
    log = http.api.events
    async with http.api:
        for number in range(5):
            log.add("test", number)
        async with stream(http.api.url, **{"last-event-id": f"{log.life}-3"}) as events:
            found = await take(events, "hello", "test", "test")
            assert [data for _, kind, data in found if kind == "test"] == [3, 4]
            log.add("test", 5)
            assert (await take(events, "test"))[0] == (f"{log.life}-6", "test", 5)


@pytest.mark.parametrize("last_id", ["other-3", "nonsense", "-", "{life}-99", "{life}--1", "{life}-x"])
def test_an_id_of_another_life_or_the_future_means_a_reset(last_id: str) -> None:
    log = EventLog()
    log.add("test", 1)
    client = log.follow(last_id.replace("{life}", log.life))
    assert [b"event: reset" in frame for frame in client.frames] == [False, False, True]
    assert log.last_id.encode() in client.frames[-1]


def test_what_is_not_kept_any_more_means_a_reset() -> None:
    log = EventLog(kept=3)
    for number in range(5):
        log.add("test", number)
    assert b"event: reset" in log.follow(f"{log.life}-1").frames[-1]
    assert len(log.follow(f"{log.life}-2").frames) == 2 + 3
    assert len(log.follow(f"{log.life}-5").frames) == 2


def test_large_events_are_kept_by_their_bytes() -> None:
    log = EventLog(kept_bytes=5000)
    for number in range(20):
        log.add("test", "x" * 1000)
        kept = min(number + 1, 4)  # a frame is some bytes longer than its text
        assert len(log.follow(f"{log.life}-{number + 1 - kept}").frames) == 2 + kept
    assert b"event: reset" in log.follow(f"{log.life}-15").frames[-1]
    log.add("test", "x" * 6000)
    assert b"event: reset" in log.follow(f"{log.life}-20").frames[-1]


def test_an_odd_text_does_not_come_back_to_who_told_of_it() -> None:
    log = EventLog()
    client = log.follow()
    log.add("engine", {"detail": "half \ud800 a pair", "path": Path("x")})
    assert b'"half \\ud800 a pair"' in client.frames[-1]


def test_a_client_that_reads_nothing_is_dropped_and_holds_nobody_up() -> None:
    log = EventLog()
    dead, alive = log.follow(), log.follow()
    for number in range(MAX_UNREAD + 1):
        log.add("test", number)
        alive.frames.clear()
    assert (dead.ended, alive.ended, log.num_clients) == (True, False, 1)


def test_more_streams_than_there_is_room_for_are_refused() -> None:
    log = EventLog()
    clients = [log.follow() for _ in range(MAX_CLIENTS)]
    with pytest.raises(ApiError) as caught:
        log.follow()
    assert (caught.value.status, caught.value.code) == (503, "too_many_clients")
    log.leave(clients[0])
    log.follow()


async def test_a_client_that_goes_frees_its_place(http: HttpBench) -> None:
    async with http.api:
        async with stream(http.api.url) as events:
            await take(events, "hello")
            assert http.api.events.num_clients == 1
        await http.bench.until(lambda: http.api.events.num_clients == 0)


async def test_the_end_of_the_service_ends_its_streams_soon(http: HttpBench) -> None:
    async with asyncio.timeout(10):
        async with http.api:
            reading = asyncio.create_task(read_all(http.api.url))
            await http.bench.until(lambda: http.api.events.num_clients == 1)
        assert (await reading)[0] == "hello"


async def read_all(url: str) -> list[str]:
    async with stream(url) as events:
        return [kind async for _, kind, _ in events]


async def test_a_socket_that_is_never_read_does_not_hold_up_the_end(http: HttpBench) -> None:
    async with asyncio.timeout(15):
        async with http.api:
            host, port = http.api.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
            writer.write(f"GET /api/v1/events HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            await http.bench.until(lambda: http.api.events.num_clients == 1)
            for _ in range(3 * MAX_UNREAD):
                http.api.events.add("test", "x" * 20_000)
                await asyncio.sleep(0)
            assert http.api.events.num_clients == 0
        writer.close()
        assert reader is not None


async def test_progress_is_told_a_few_times_a_second_at_most(http: HttpBench) -> None:
    http.bench.seal(1)
    http.bench.ledger.create_jobs(target(1), ["a"], now=1.0)
    http.bench.ledger.start("v1/a", now=2.0)
    async with http.api, stream(http.api.url) as events:
        for done in range(50):
            http.api.job_event(
                JobEvent(
                    job_id="v1/a",
                    dataset="a",
                    status="running",
                    num_done=done,
                    num_expected=50,
                    score=0.5,
                    num_scored=done,
                )
            )
        job, progress = await take(events, "job", "progress")
        assert job[2]["status"] == "running"
        assert (progress[2]["num_done"], progress[2]["estimate"]["score"]) == (49, 0.5)
        assert (await http.get("/api/v1/jobs/v1/a"))["estimate"]["num_scored"] == 49
        assert http.api.events.last_id.endswith("-2")
