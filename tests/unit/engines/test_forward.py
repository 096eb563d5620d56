"""Single HTTP requests under a lease: answered by an engine that holds the target, or by none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.engine import FakeEngine
from fakes.engine_checkpoint import write_checkpoint

from live_eval.engines import engine as engine_module
from live_eval.engines.engine import EngineSpec, EngineState, RestartPolicy
from live_eval.engines.group import EngineGroup, GroupSettings
from live_eval.engines.pin import PinLimits, PinTarget
from live_eval.errors import EngineDied, EngineError

if TYPE_CHECKING:
    from live_eval.engines.lease import Lease

SETTINGS = GroupSettings(
    limits=PinLimits(flush_s=1.0, load_s=10, fingerprint_s=10),
    restarts=RestartPolicy(back_off_s=0.05),
    usable_timeout_s=10,
    request_timeout_s=10,
)
BODY = json.dumps({"rid": ["r"], "text": ["p"], "sampling_params": [{}]}).encode()


class Bench:
    def __init__(self, group: EngineGroup, server: FakeEngine, target: PinTarget) -> None:
        self.group, self.server, self.target = group, server, target

    async def lease(self) -> Lease:
        lease = await self.group.lease("v1")
        await lease.pin(self.target)
        return lease


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(engine_module, "ATTACH_POLL_S", 0.05)
    base = write_checkpoint(tmp_path / "base", seed=0)
    async with FakeEngine(model=base) as server:
        spec = EngineSpec(name="e0", model_path=base, url=server.url)
        group = EngineGroup([spec], work_dir=tmp_path / "work", settings=SETTINGS)
        await group.start()
        await group.wait_usable(10)
        path = write_checkpoint(tmp_path / "v1", seed=1)
        yield Bench(group, server, PinTarget(label="1", path=path, digest="d1"))
        await group.close()


async def ask(lease: Lease, path: str = "/generate"):
    return await lease.forward("POST", path, body=BODY, content_type="application/json")


async def test_the_answer_comes_back_as_the_engine_gave_it(bench: Bench) -> None:
    async with await bench.lease() as lease:
        answer = await ask(lease)
        assert answer is not None
        assert (answer.status, answer.engine) == (200, "e0")
        assert json.loads(answer.body)[0]["meta_info"]["weight_version"] == "1"
        unknown = await ask(lease, "/nothing")
        assert unknown is not None and unknown.status >= 400


async def test_abort_ends_what_is_in_flight_and_lets_nothing_more_through(bench: Bench) -> None:
    bench.server.tokens_s = 30.0
    async with await bench.lease() as lease:
        running = asyncio.create_task(ask(lease))
        async with asyncio.timeout(20):
            while not bench.server.num_running:  # noqa: ASYNC110 - the fake has no events
                await asyncio.sleep(0.005)
        with pytest.raises(EngineError, match="in flight"):
            await lease.check_after()
        async with asyncio.timeout(10):  # an answer takes 30 s
            await lease.abort()
        assert (await running) is not None  # the engine's own answer to an abort
        assert await ask(lease) is None


async def test_a_request_that_is_lost_takes_its_engine_out(bench: Bench) -> None:
    async with await bench.lease() as lease:
        bench.server.hang_up = 1
        with pytest.raises(EngineDied):
            await ask(lease)
        assert bench.group.engines[0].state is not EngineState.PINNED
        with pytest.raises(EngineDied):
            await ask(lease)


async def test_nothing_goes_through_without_a_pin(bench: Bench) -> None:
    async with await bench.group.lease("v1") as lease:
        with pytest.raises(EngineError, match="nothing is pinned"):
            await ask(lease)
    with pytest.raises(EngineError, match="released"):
        await ask(lease)
