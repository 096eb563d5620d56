"""The gateway: only what an eval may ask, only while a job runs, over kept connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from live_eval.engines.requests import Forwarded
from slime_patch.slime_eval import gateway
from slime_patch.slime_eval.gateway import HOST, Gateway


async def echo(method: str, path: str, body: bytes, content_type: str) -> Forwarded:
    return Forwarded(status=200, content_type=content_type, body=body, engine="eval-0")


@pytest.fixture
async def served() -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    async with Gateway() as made:
        made.open(echo)
        async with httpx.AsyncClient(base_url=f"http://{HOST}:{made.port}", trust_env=False) as client:
            yield made, client


async def test_requests_and_answers_go_through_unchanged_on_one_connection(served) -> None:
    _, client = served
    for body in (b'{"text": "a"}', b"\x00" * 300_000):
        answer = await client.post(
            "/generate?x=1", content=body, headers={"content-type": "application/json"}
        )
        assert (answer.status_code, answer.content) == (200, body)
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "path", ["/update_weights_from_disk", "/flush_cache", "/abort_request", "/", "/generate/../x"]
)
async def test_nothing_else_reaches_an_engine(served, path: str) -> None:
    _, client = served
    answer = await client.post(path, content=b"{}")
    assert answer.status_code == 404
    assert "not offered to eval functions" in answer.text


async def test_between_jobs_it_refuses(served) -> None:
    made, client = served
    made.close()
    assert (await client.post("/generate", content=b"{}")).status_code == 503


async def test_a_body_beyond_the_limit_is_refused(served, monkeypatch: pytest.MonkeyPatch) -> None:
    _, client = served
    monkeypatch.setattr(gateway, "MAX_BODY", 10)
    assert (await client.post("/generate", content=b"x" * 11)).status_code == 413


async def test_what_is_no_http_ends_its_own_connection_only(served) -> None:
    made, client = served
    reader, writer = await asyncio.open_connection(HOST, made.port)
    writer.write(b"\x16\x03\x01 not http\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    assert (await client.get("/health")).status_code == 200
