"""The client: typed errors, no repetition of what was answered, a deadline on every call."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.engine import FakeEngine
from fakes.engine_checkpoint import write_checkpoint
from fakes.engine_http import HttpServer

from live_eval.engines.client import EngineRefused, SGLangClient
from live_eval.errors import EngineDied, EngineError, EngineTimeout, LoadFailed
from live_eval.evaluation.source import GenRequest


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeEngine]:
    async with FakeEngine(model=write_checkpoint(tmp_path / "model", seed=0)) as fake:
        yield fake


@pytest.fixture
async def client(server: FakeEngine) -> AsyncIterator[SGLangClient]:
    async with SGLangClient(server.url, name="e0") as found:
        yield found


def prompts(*texts: str) -> list[GenRequest]:
    return [GenRequest(request_id=f"r{n}", text=text) for n, text in enumerate(texts)]


async def test_answers_carry_id_label_and_engine(client: SGLangClient, server: FakeEngine) -> None:
    server.answer_label = "not the one that you think"
    first, second = await client.generate(prompts("a", "b"), timeout_s=5)
    assert (first.request_id, second.request_id) == ("r0", "r1")
    assert first.label == "not the one that you think"
    assert first.engine == "e0"
    assert first.finish_reason == "stop"
    assert await client.generate([], timeout_s=5) == []


async def test_prompts_of_two_kinds_are_not_mixed_in_a_call(client: SGLangClient) -> None:
    mixed = [*prompts("a"), GenRequest(request_id="r1", input_ids=(1, 2))]
    with pytest.raises(EngineError, match="all have text"):
        await client.generate(mixed, timeout_s=5)


async def test_what_the_server_is_and_serves(client: SGLangClient, server: FakeEngine) -> None:
    assert (await client.model_info()).weight_version == "default"
    assert (await client.server_info()).flavour == "sglang-0.5.15.post1/float32/cpu/tp1"
    assert await client.health()


async def test_a_refusal_is_never_repeated(client: SGLangClient, server: FakeEngine) -> None:
    server.refuses_beyond = 3
    with pytest.raises(EngineRefused, match="longer than the model's context") as caught:
        await client.generate(prompts("abcdef"), timeout_s=5)
    assert caught.value.status == 400
    assert server.calls.count("/generate") == 1


async def test_a_connection_that_is_closed_without_an_answer_costs_one_repetition(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model", seed=0)
    async with FakeEngine(model=model, hang_up=1) as server, SGLangClient(server.url) as client:
        (answer,) = await client.generate(prompts("a"), timeout_s=5)
        assert answer.request_id == "r0"
        assert server.calls.count("/generate") == 2
        server.hang_up = 2
        with pytest.raises(EngineDied, match="gone during /generate"):
            await client.generate(prompts("a"), timeout_s=5)
        assert server.calls.count("/generate") == 4


async def test_a_server_that_closes_idle_connections_is_no_trouble(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model", seed=0)
    async with FakeEngine(model=model, idle_s=0.05) as server, SGLangClient(server.url) as client:
        for _ in range(3):
            await client.generate(prompts("a"), timeout_s=5)
            await asyncio.sleep(0.1)
        assert server.calls.count("/generate") == 3


async def test_a_load_is_not_repeated_when_the_connection_breaks(
    client: SGLangClient, server: FakeEngine, tmp_path: Path
) -> None:
    server.hang_up = 1
    with pytest.raises(LoadFailed, match="closed the connection"):
        await client.load_from_disk(tmp_path, "7", timeout_s=5)
    assert server.calls == ["/update_weights_from_disk 7"]


async def test_a_server_that_is_not_there_is_dead(tmp_path: Path) -> None:
    async with SGLangClient("http://127.0.0.1:9") as client:
        with pytest.raises(EngineDied, match="cannot be reached"):
            await client.model_info()


async def test_a_server_that_does_not_answer_is_late(client: SGLangClient, server: FakeEngine) -> None:
    server.tokens_s = 30
    with pytest.raises(EngineTimeout, match="did not answer /generate"):
        await client.generate(prompts("a"), timeout_s=0.2)
    server.load_s = 30
    with pytest.raises(LoadFailed, match="did not answer"):
        await client.load_from_disk(Path("x"), "7", timeout_s=0.2)
    server.health_s = 30
    with pytest.raises(EngineTimeout):
        await client.health(timeout_s=0.2)


async def test_a_failed_load_says_what_the_server_said(client: SGLangClient, server: FakeEngine) -> None:
    server.load_status = 400
    with pytest.raises(LoadFailed, match=r"400.*Failed to update weights"):
        await client.load_from_disk(Path("x"), "7", timeout_s=5)


async def test_flush_goes_on_until_the_server_is_idle(client: SGLangClient, server: FakeEngine) -> None:
    server.flush_refusals = 5
    await client.flush_until_idle(deadline_s=10)
    # Back-off: not 60 tries in a second.
    assert server.calls.count("/flush_cache") == 6


async def test_a_server_that_cannot_freeze_its_garbage_is_used_as_it_is(
    client: SGLangClient, server: FakeEngine
) -> None:
    await client.freeze_gc()  # the stand-in knows no such path
    assert "/freeze_gc" in server.calls
    assert await client.health()


async def test_a_flush_that_is_refused_for_ever_ends_with_the_servers_words(
    client: SGLangClient, server: FakeEngine
) -> None:
    server.flush_refusals = math.inf
    began = time.monotonic()
    with pytest.raises(EngineTimeout, match="400 Flush cache failed: 0 pending requests"):
        await client.flush_until_idle(deadline_s=1.0)
    assert time.monotonic() - began < 20
    assert server.calls.count("/flush_cache") < 15


async def test_log_probs_of_a_broken_model_are_nan(
    client: SGLangClient, server: FakeEngine, tmp_path: Path
) -> None:
    (sound,) = await client.logprobs([[5, 6, 7]])
    assert len(sound) == 2
    assert all(math.isfinite(value) for value in sound)
    bad = write_checkpoint(tmp_path / "nan", seed=1)
    data = bytearray((bad / "model.safetensors").read_bytes())
    data[-1024:] = b"\xff" * 1024  # the last tensor of the file
    (bad / "model.safetensors").write_bytes(data)
    await client.load_from_disk(bad, "7", timeout_s=5)
    (broken,) = await client.logprobs([[5, 6, 7]])
    assert [math.isnan(value) for value in broken] == [True, True]


@pytest.mark.parametrize("answer", ["no json", [1, 2, 3], {}, [{"meta_info": {}}], [None]])
async def test_an_answer_that_makes_no_sense_is_an_engine_error(answer: object) -> None:
    async def handle(_method: str, _path: str, _body: object) -> tuple[int, object]:
        return 200, answer

    async with HttpServer(handle) as server, SGLangClient(server.url) as client:
        for call in (
            client.model_info,
            client.server_info,
            lambda: client.logprobs([[1, 2]]),
            lambda: client.generate(prompts("a"), timeout_s=5),
            lambda: client.load_from_disk(Path("x"), "7", timeout_s=5),
        ):
            with pytest.raises(EngineError):
                await call()


@pytest.mark.parametrize("log_probs", [[], [[None, 1, None]], None])
async def test_log_probs_that_are_not_one_a_token_are_an_engine_error(log_probs: object) -> None:
    async def handle(_method: str, _path: str, _body: object) -> tuple[int, object]:
        return 200, [{"meta_info": {"input_token_logprobs": log_probs}}]

    async with HttpServer(handle) as server, SGLangClient(server.url) as client:
        with pytest.raises(EngineError, match="sent no log-probs"):
            await client.logprobs([[1, 2]])


@pytest.mark.parametrize(
    "answer", [{"success": False, "message": "rank 1: out of memory"}, {"success": "yes"}, {}]
)
async def test_a_load_of_which_one_rank_failed_is_a_failed_load_though_the_status_is_200(
    answer: object,
) -> None:
    async def handle(_method: str, _path: str, _body: object) -> tuple[int, object]:
        return 200, answer

    async with HttpServer(handle) as server, SGLangClient(server.url) as client:
        with pytest.raises(LoadFailed, match=r"to loading .*x as '7'"):
            await client.load_from_disk(Path("x"), "7", timeout_s=5)


async def test_abort_ends_what_runs(client: SGLangClient, server: FakeEngine) -> None:
    server.tokens_s = 30
    running = asyncio.create_task(client.generate(prompts("a", "b"), timeout_s=60))
    while not server.num_running:  # noqa: ASYNC110 - the fake has no event for it
        await asyncio.sleep(0.01)
    await client.abort_all()
    assert {answer.finish_reason for answer in await running} == {"abort"}


@pytest.mark.parametrize(
    ("segments", "label"),
    [((), "7"), (("7", "7"), "7"), (("6", "7"), "6+7"), (("7", "8"), "7+8"), (("default",), "default+7")],
)
async def test_an_answer_is_labelled_by_all_weights_that_it_was_generated_on(
    client: SGLangClient, server: FakeEngine, segments: tuple[str, ...], label: str
) -> None:
    server.answer_label, server.segments = "7", segments
    (answer,) = await client.generate(prompts("a"), timeout_s=5)
    assert answer.label == label


async def test_a_server_without_checksums_says_so_and_is_none_the_worse(
    client: SGLangClient, server: FakeEngine
) -> None:
    assert await client.checksum() == ""
    server.checksum = "content"
    first = await client.checksum()
    assert first
    assert await client.checksum() == first
