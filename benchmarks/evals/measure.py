"""The three measurements; each runs a service of its own over the same server."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.evals.rig import Committed, Rig
from benchmarks.figures import Measured
from live_eval.engines.client import SGLangClient
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.evaluation.sampling import SamplingParams
from live_eval.evaluation.source import GenRequest as Request

if TYPE_CHECKING:
    from benchmarks.evals.model import EvalModel
    from live_eval.engines.requests import GenRequest

NUM_IN_FLIGHT = 64
PROMPTS_A_CALL = 32
ENDLESS = 3000
"""Tokens of an answer that no evaluation lives to see the end of."""
ANSWER_TOKENS = 64
NUM_VERSIONS = 5
NUM_WARM_UPS = 1
FIRST, LONG, WHOLE = "first", "long", "whole"
CALL_TIMEOUT_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Everything, in seconds."""

    load: Measured
    """The server's own load of a version and one token, idle, without live-eval."""
    first_token: Measured
    """commit() about to be sent -> the version's first answer is scored and in its file."""
    cancelled: Measured
    """V' sealed while 64 endless requests of V are under way -> V' first answer in its file."""
    saturated: Measured
    """An eval set at the server's full rate, without live-eval."""
    continuous: Measured
    """The same set within back-to-back evaluations of versions, loads and tails included."""


def measure(root: Path, base: Path, url: str, model: EvalModel, *, num_rounds: int) -> Found:
    """All of it, over the server at `url`, which serves `base`; writes below `root`."""
    data = write_sets(root)
    first = _set(FIRST, data, max_new_tokens=1)
    endless = _set(LONG, data, max_new_tokens=ENDLESS)
    whole = _set(WHOLE, data, max_new_tokens=ANSWER_TOKENS)
    with Rig(root / "tokens", base, url, (first,), on_update="queue") as rig:
        first_token = [_first_token(rig, model) for _ in range(num_rounds + NUM_WARM_UPS)]
        versions = [rig.store.path(version.policy_version) for version in rig.store.sealed()]
        load = [asyncio.run(_own_load(url, path)) for path in (*versions, *versions, *versions)]
    with Rig(root / "cancel", base, url, (first, endless), on_update="cancel") as rig:
        cancelled = _cancelled(rig, model, num_rounds)
    saturated = [asyncio.run(_own_rate(url)) for _ in range(NUM_WARM_UPS + 3)]
    with Rig(root / "continuous", base, url, (whole,), on_update="queue") as rig:
        continuous = _continuous(rig, model)
    return Found(
        load=Measured(seconds=load[NUM_WARM_UPS:]),
        first_token=Measured(seconds=first_token[NUM_WARM_UPS:]),
        cancelled=Measured(seconds=cancelled),
        saturated=Measured(seconds=saturated[NUM_WARM_UPS:]),
        continuous=Measured(seconds=continuous),
    )


def write_sets(root: Path) -> dict[str, Path]:
    """One row for the first token, as many as may be in flight for the others."""
    root.mkdir(parents=True, exist_ok=True)
    sizes = {FIRST: 1, LONG: NUM_IN_FLIGHT, WHOLE: 2 * NUM_IN_FLIGHT}
    paths = {name: root / f"{name}.jsonl" for name in sizes}
    for name, size in sizes.items():
        rows = ({"prompt": _prompt(number), "label": "?"} for number in range(size))
        paths[name].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return paths


def _prompt(number: int) -> str:
    return f"reverse the letters of word {number} ="


def _set(name: str, data: dict[str, Path], *, max_new_tokens: int) -> EvalSetConfig:
    sampling = SamplingParams(max_new_tokens=max_new_tokens, ignore_eos=True)
    return EvalSetConfig(name=name, path=data[name], sampling=sampling)


def _first_token(rig: Rig, model: EvalModel) -> float:
    model.step()
    version = rig.publish(model)
    return _first_answer_at(rig, version) - version.commit_at


def _cancelled(rig: Rig, model: EvalModel, num_rounds: int) -> list[float]:
    found: list[float] = []
    for _ in range(num_rounds + NUM_WARM_UPS):
        model.step()
        version = rig.publish(model)
        found.append(_first_answer_at(rig, version) - version.sealed_at)
        job_id = f"v{version.policy_version}/{LONG}"
        rig.until(lambda job_id=job_id: job_id in rig.running(), f"{job_id} runs")
        time.sleep(1.0)  # the engine has taken all requests and is in the middle of decoding them
    # The first ones met no evaluation that had to be cancelled.
    return found[NUM_WARM_UPS:]


def _continuous(rig: Rig, model: EvalModel) -> list[float]:
    """Seconds an evaluation took, from the end of the one before, in a row of them without a pause."""
    versions: list[Committed] = []
    for _ in range(NUM_VERSIONS + NUM_WARM_UPS):
        model.step()
        versions.append(rig.publish(model))
    ends = [_ended_at(rig, f"v{version.policy_version}/{WHOLE}") for version in versions]
    return [after - before for before, after in itertools.pairwise(ends)]


def _first_answer_at(rig: Rig, version: Committed) -> float:
    """When the set's only sample was written; what is done behind it is no part of the way to it."""
    job_id = f"v{version.policy_version}/{FIRST}"
    _ended_at(rig, job_id)
    return rig.samples_of(job_id).stat().st_mtime


def _ended_at(rig: Rig, job_id: str) -> float:
    result = rig.result(job_id)
    if result.status != "succeeded" or result.finished_at is None:
        raise RuntimeError(f"{job_id} is {result.status}: {result.reason} {result.detail}")
    return result.finished_at


async def _own_load(url: str, path: Path) -> float:
    """The server's own load of a checkpoint, and one token."""
    async with SGLangClient(url) as client:
        await client.flush_until_idle(deadline_s=CALL_TIMEOUT_S)
        began = time.perf_counter()
        await client.load_from_disk(path, path.name, timeout_s=CALL_TIMEOUT_S)
        await client.generate(_requests(1, max_new_tokens=1), timeout_s=CALL_TIMEOUT_S)
        return time.perf_counter() - began


async def _own_rate(url: str) -> float:
    """The whole set in calls of 32 prompts, two under way at a time, as an evaluation sends them."""
    async with SGLangClient(url) as client:
        await client.flush_until_idle(deadline_s=CALL_TIMEOUT_S)
        requests = _requests(2 * NUM_IN_FLIGHT, max_new_tokens=ANSWER_TOKENS)
        calls = [requests[at : at + PROMPTS_A_CALL] for at in range(0, len(requests), PROMPTS_A_CALL)]
        free = asyncio.Semaphore(2)

        async def send(call: list[GenRequest]) -> None:
            async with free:
                await client.generate(call, timeout_s=CALL_TIMEOUT_S)

        began = time.perf_counter()
        await asyncio.gather(*(send(call) for call in calls))
        return time.perf_counter() - began


def _requests(count: int, *, max_new_tokens: int) -> list[GenRequest]:
    sampling = SamplingParams(max_new_tokens=max_new_tokens, ignore_eos=True)
    return [
        Request(
            request_id=f"own-{time.monotonic_ns()}-{number}",
            text=_prompt(number),
            sampling=sampling.for_sample(str(number)),
        )
        for number in range(count)
    ]
