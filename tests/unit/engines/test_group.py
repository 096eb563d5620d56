"""The group and its lease over attached servers: exclusive, in order, on the pinned label."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from fakes.engine_checkpoint import write_checkpoint
from fakes.engine_group import MakeGroup, Version, prompts, until

from live_eval.engines.engine import EngineSpec, EngineState
from live_eval.engines.group import EngineGroup
from live_eval.errors import (
    EngineError,
)
from live_eval.evaluation.source import GenRequest

if TYPE_CHECKING:
    from pathlib import Path

    from live_eval.engines.requests import Generation

pytestmark = pytest.mark.usefixtures("quick_attach")


async def test_answers_come_in_order_from_all_engines_on_the_pinned_label(
    make_group: MakeGroup, version: Version
) -> None:
    group, servers = await make_group(2)
    for server in servers:
        server.tokens_s = 0.02
    seen: list[Generation] = []
    async with await group.lease("v1") as lease:
        report = await lease.pin(version(1))
        assert report.labels == {"e0": "1", "e1": "1"}
        answers = await lease.generate(prompts(40), on_done=seen.extend)
        await lease.check_after()
    assert [a.request_id for a in answers] == [f"r{n}" for n in range(40)]
    assert {a.label for a in answers} == {"1"}
    assert {a.engine for a in answers} == {"e0", "e1"}
    assert {a.request_id for a in seen} == {a.request_id for a in answers}
    # Two calls of four prompts at a time, at most.
    assert max(server.max_running for server in servers) == 8


async def test_nothing_is_generated_before_a_pin_or_after_a_release(
    make_group: MakeGroup, version: Version
) -> None:
    group, (server,) = await make_group()
    lease = await group.lease("early")
    with pytest.raises(EngineError, match="nothing is pinned"):
        await lease.generate(prompts(1))
    assert group.states() == {"e0": EngineState.READY}
    await lease.pin(version(1))
    assert group.states() == {"e0": EngineState.PINNED}
    await lease.release()
    await lease.release()
    assert group.states() == {"e0": EngineState.READY}
    with pytest.raises(EngineError, match="is released"):
        await lease.generate(prompts(1))
    assert server.num_running == 0


async def test_an_engine_whose_server_does_not_answer_says_once_what_it_waits_for(tmp_path: Path) -> None:
    seen: list[tuple[str, ...]] = []
    base = write_checkpoint(tmp_path / "base", seed=0)
    spec = EngineSpec(name="e0", model_path=base, url="http://127.0.0.1:9")
    group = EngineGroup([spec], work_dir=tmp_path / "work", on_state=lambda *state: seen.append(state))
    await group.start()
    await until(lambda: bool(seen))
    await asyncio.sleep(0.2)
    await group.close()
    assert seen[0] == ("e0", EngineState.STARTING, "waits for a server at http://127.0.0.1:9")
    assert [state for _, state, _ in seen].count(EngineState.STARTING) == 1


async def test_a_second_lease_waits_for_the_first(make_group: MakeGroup, version: Version) -> None:
    group, _ = await make_group()
    first = await group.lease("first")
    second = asyncio.create_task(group.lease("second"))
    third = asyncio.create_task(group.lease("third"))
    await first.pin(version(1))
    await asyncio.sleep(0.05)
    assert not second.done()
    await first.release()
    lease = await second
    assert not third.done()
    third.cancel()
    await lease.release()
    await (await group.lease("fourth")).release()


async def test_no_load_starts_while_a_request_is_in_flight(make_group: MakeGroup, version: Version) -> None:
    group, (server,) = await make_group()
    server.tokens_s = 5
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        # More than the engine is given at a time, so that some wait to be sent when the pin comes.
        running = asyncio.create_task(lease.generate(prompts(40)))
        await until(lambda: server.num_running == 8)
        server.load_s = 0.1
        report = await lease.pin(version(2))
        assert {a.finish_reason for a in await running} == {"abort"}
        assert report.label == "2"
        running = asyncio.create_task(lease.generate(prompts(8)))
        await until(lambda: server.num_running == 8)
    assert {a.finish_reason for a in await running} == {"abort"}
    async with await group.lease("b") as lease:
        await lease.pin(version(1))
    assert server.loads_while_running == 0


async def test_abort_is_quick_and_answers_what_was_never_sent(
    make_group: MakeGroup, version: Version
) -> None:
    group, (server,) = await make_group()
    server.tokens_s = 30
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        running = asyncio.create_task(lease.generate(prompts(64)))
        await until(lambda: server.num_running == 8)
        began = time.monotonic()
        await lease.abort()
        assert time.monotonic() - began < 5  # an answer takes 30 s
        answers = await running
        assert len(answers) == 64
        assert {a.finish_reason for a in answers} == {"abort"}
        assert {a.label for a in answers} == {"1", ""}
        assert server.max_running == 8
        assert {a.finish_reason for a in await lease.generate(prompts(3))} == {"abort"}
        server.tokens_s = 0
        await lease.pin(version(2))
        assert {a.finish_reason for a in await lease.generate(prompts(3))} == {"stop"}


async def test_a_prompt_that_is_refused_spoils_no_other(make_group: MakeGroup, version: Version) -> None:
    group, (server,) = await make_group()
    server.refuses_beyond = 100
    requests = prompts(4)
    requests[2] = GenRequest(request_id="r2", text="x" * 101)
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        server.calls.clear()
        answers = await lease.generate(requests)
    assert [a.finish_reason for a in answers] == ["stop", "stop", "refused", "stop"]
    assert [a.request_id for a in answers] == ["r0", "r1", "r2", "r3"]
    assert "longer than the model's context" in answers[2].detail
    # The call, and each of its four prompts once more on its own: the bad one is not asked again.
    assert server.calls.count("/generate") == 5
    assert group.states() == {"e0": EngineState.READY}


async def test_the_label_on_an_answer_is_the_engines_own(make_group: MakeGroup, version: Version) -> None:
    group, (server,) = await make_group()
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        server.answer_label = "default"
        assert {a.label for a in await lease.generate(prompts(2))} == {"default"}
