"""An engine, or a gateway before it, that says `not now` or nothing at all: asked a bounded number of times
and for a bounded time, and never taken for a prompt that is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.engine_group import SETTINGS, MakeGroup, Version, prompts, until

from live_eval.engines.engine import EngineState
from live_eval.engines.pin import PinLimits
from live_eval.engines.requests import RequestsLost
from live_eval.errors import LoadFailed
from live_eval.evaluation.datasets import EvalRow, EvalSet, EvalSetConfig
from live_eval.evaluation.job import JobSpec, RunLimits
from live_eval.evaluation.rewards import ExactMatch
from live_eval.evaluation.runner import JobRun
from live_eval.reasons import EndReason, JobStatus
from live_eval.targets import PolicyTarget

if TYPE_CHECKING:
    from fakes.engine import FakeEngine

    from live_eval.engines.lease import Lease

pytestmark = pytest.mark.usefixtures("quick_attach")


class Gateway:
    """Answers prompts with an error status so many times; everything else reaches the server."""

    def __init__(self, server: FakeEngine, status: int, times: float) -> None:
        self.status = status
        self.left = times
        self.num_asked = 0
        self._behind = server.handler
        server.handler = self._handle

    async def _handle(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path == "/generate" and not body.get("return_logprob"):
            self.num_asked += 1
            if self.left > 0:
                self.left -= 1
                return self.status, {"error": "no available workers (all circuits open)"}
        return await self._behind(method, path, body)


@pytest.mark.parametrize("status", [404, 429, 500, 503])
async def test_a_status_that_is_not_the_prompts_loses_requests_and_refuses_none(
    make_group: MakeGroup, version: Version, status: int
) -> None:
    group, (server,) = await make_group()
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        gateway = Gateway(server, status, times=1)
        with pytest.raises(RequestsLost, match=f"2 of 2 requests are lost: .* {status} .*all circuits open"):
            await lease.generate(prompts(2))
        assert gateway.num_asked == 1
        assert group.states()["e0"] is not EngineState.PINNED
        await until(lambda: group.states()["e0"] is EngineState.READY)
        await lease.repin()
        assert [answer.finish_reason for answer in await lease.generate(prompts(2))] == ["stop", "stop"]


def run_of(lease: Lease, path: Path) -> JobRun:
    rows = tuple(EvalRow(row_id=f"r{i}", line=i, prompt=f"p{i}", label=f"1:p{i}") for i in range(8))
    config = EvalSetConfig(name="a", path=path)
    spec = JobSpec(
        job_id="v1/a", target=PolicyTarget(policy_version=1), label="1", samples_path=path / "v1" / "a.jsonl"
    )
    limits = RunLimits(chunk_size=4, num_in_flight=1)
    return JobRun(spec, EvalSet(config=config, rows=rows), lease, grader=ExactMatch(), limits=limits)


async def test_a_job_goes_on_when_workers_are_there_again(
    make_group: MakeGroup, version: Version, tmp_path: Path
) -> None:
    group, (server,) = await make_group()
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        Gateway(server, 503, times=2)
        outcome = await run_of(lease, tmp_path).result()
    assert (outcome.status, outcome.score, outcome.num_engine_retries) == (JobStatus.SUCCEEDED, 1.0, 2)


async def test_a_job_without_workers_fails_with_their_words_after_three_tries(
    make_group: MakeGroup, version: Version, tmp_path: Path
) -> None:
    group, (server,) = await make_group()
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        gateway = Gateway(server, 503, times=float("inf"))
        outcome = await run_of(lease, tmp_path).result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, EndReason.ENGINE_FAILED)
    assert "all circuits open" in outcome.detail
    assert gateway.num_asked == 3
    assert (outcome.counts.n_scored, outcome.counts.n_expected) == (0, 8)


async def test_a_load_of_the_version_itself_that_never_ends_is_a_failed_load(
    make_group: MakeGroup, version: Version
) -> None:
    """As where one rank has failed and the others wait for it in a barrier."""
    limits = PinLimits(flush_s=1.0, load_s=0.5, fingerprint_s=10)
    group, (server,) = await make_group(settings=replace(SETTINGS, limits=limits))
    behind, asked = server.handler, list[str]()

    async def handle(method: str, path: str, body: Any) -> tuple[int, Any]:
        if path == "/update_weights_from_disk":
            asked.append(body["weight_version"])
            if body["weight_version"] == "1":
                await asyncio.sleep(3600)
        return await behind(method, path, body)

    server.handler = handle
    async with await group.lease("a") as lease:
        with pytest.raises(LoadFailed, match="did not answer /update_weights_from_disk"):
            await asyncio.wait_for(lease.pin(version(1)), 30)
    assert asked[-1] == "1"
    assert group.states()["e0"] is not EngineState.READY, "what it holds is unknown"
