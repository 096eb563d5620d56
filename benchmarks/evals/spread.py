"""An evaluation's prompts on several engines: three against one, and through a router against without.

    python -m benchmarks.evals.spread [--gb 0.02] [--rounds 5] [--router PYTHON] [--out FILE]

Engines are real SGLang servers on the CPU, used through the lease that an evaluation uses. PYTHON is the
interpreter of an environment that has `sglang-router`; without it that part is left out. The router stands
before the same two engines with the same weights. It takes one prompt a request (a list is refused: status
422), so it is given as many requests at a time as a lease has prompts under way, and the two engines are
asked like that without it as well. Prompts and lengths of answers differ, so that it matters who gets what.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from rich.console import Console

from benchmarks import figures as shape
from benchmarks.evals.model import EvalModel
from benchmarks.figures import Figure, Measured, Shown
from benchmarks.settings import MIN_ROUNDS
from live_eval.engines.engine import EngineSpec
from live_eval.engines.group import EngineGroup, GroupSettings
from live_eval.engines.launch import EngineProcess, free_port, launch_settings
from live_eval.engines.pin import PinTarget
from live_eval.evaluation.sampling import SamplingParams
from live_eval.evaluation.source import GenRequest

if TYPE_CHECKING:
    from live_eval.engines.lease import Lease

NUM_ENGINES = 3
NUM_BEHIND_ROUTER = 2
NUM_PROMPTS = 128
PROMPTS_A_CALL = 16
CALLS_AN_ENGINE = 2
POLICIES = ("cache_aware", "round_robin")
"""The router's default, and the plainest."""
ONE_BY_ONE = "one by one"
SPEED_UP_GOAL = round(1 / 2.5, 3)
"""As time over time."""
CALL_TIMEOUT_S = 300.0
ROUTER_START_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Seconds of the whole set, by the way its prompts went."""

    engines: dict[int, Measured]
    """Direct, by number of engines."""
    one_by_one: dict[str, Measured] = field(default_factory=dict)
    """A request a prompt to two engines: without the router, and through it by policy."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evals.spread", description=__doc__)
    parser.add_argument("--gb", type=float, default=0.02, help="size of the model, 10^9 bytes")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help=f">= {MIN_ROUNDS}")
    parser.add_argument("--router", type=Path, metavar="PYTHON", help="has sglang-router")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures here, as a JSON list")
    options = parser.parse_args(arguments)
    if options.rounds < MIN_ROUNDS or options.gb <= 0:
        parser.error(f"--rounds must be at least {MIN_ROUNDS}, --gb above 0")
    return options


async def measure(root: Path, base: Path, urls: Sequence[str], options: argparse.Namespace) -> Found:
    """Every way in turn, each after a round that does not count; what is compared takes turns."""
    times: dict[str, list[float]] = {}

    async def timed(way: str, work: Awaitable[object]) -> None:
        began = time.perf_counter()
        await work
        took = time.perf_counter() - began
        print(f"{way}: {num_tokens() / took:.0f} tokens/s", file=sys.stderr, flush=True)
        times.setdefault(way, []).append(took)

    behind = urls[:NUM_BEHIND_ROUTER]
    async with AsyncExitStack() as stack:
        routers = {}
        for policy in POLICIES if options.router else ():
            router = _router(options.router, policy, behind, root / f"{policy}.log")
            routers[policy] = await stack.enter_async_context(router)
        for number in range(options.rounds + 1):
            for count in range(1, len(urls) + 1):
                async with _leased(root / f"{count}-{number}", base, urls[:count]) as lease:
                    await timed(str(count), lease.generate(requests()))
                    if count == len(behind) and routers:
                        await timed(ONE_BY_ONE, _one_by_one(behind))
                        for policy, url in routers.items():
                            await timed(policy, _one_by_one([url]))
    found = {way: Measured(seconds=seconds[1:]) for way, seconds in times.items()}
    return Found(
        engines={count: found.pop(str(count)) for count in range(1, len(urls) + 1)}, one_by_one=found
    )


def requests() -> list[GenRequest]:
    """The set: answers of 8 to 64 tokens, in an order that favours nobody."""
    prefix = f"spread-{time.monotonic_ns()}"
    made = []
    for number in range(NUM_PROMPTS):
        sampling = SamplingParams(max_new_tokens=8 + (number * 37) % 57, ignore_eos=True)
        made.append(
            GenRequest(
                request_id=f"{prefix}-{number}",
                text=f"say {number * 7919 % 1000} backwards =",
                sampling=sampling.for_sample(str(number)),
            )
        )
    return made


def num_tokens() -> int:
    """Of all answers."""
    return sum(request.sampling["max_new_tokens"] for request in requests())


async def _one_by_one(urls: Sequence[str]) -> None:
    """A request a prompt, to these addresses in turn, as many at a time as a lease on two engines sends."""
    addresses = itertools.cycle(urls)
    free = asyncio.Semaphore(NUM_BEHIND_ROUTER * CALLS_AN_ENGINE * PROMPTS_A_CALL)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=CALL_TIMEOUT_S, trust_env=False, limits=limits) as client:

        async def send(request: GenRequest) -> None:
            async with free:
                answer = await client.post(f"{next(addresses)}/generate", json=_body(request))
                answer.raise_for_status()

        await asyncio.gather(*(send(request) for request in requests()))


def _body(request: GenRequest) -> dict[str, object]:
    return {"rid": request.request_id, "text": request.text, "sampling_params": request.sampling}


@asynccontextmanager
async def _leased(work: Path, base: Path, urls: Sequence[str]) -> AsyncIterator[Lease]:
    """A lease on the engines at these addresses, with the model pinned."""
    specs = [
        EngineSpec(name=f"e{number}", model_path=base, device="cpu", url=url)
        for number, url in enumerate(urls)
    ]
    settings = GroupSettings(max_prompts_per_call=PROMPTS_A_CALL, max_calls_per_engine=CALLS_AN_ENGINE)
    group = EngineGroup(specs, work_dir=work, settings=settings)
    await group.start()
    try:
        while not all(engine.usable for engine in group.engines):  # noqa: ASYNC110 - set-up only
            await asyncio.sleep(0.05)
        async with await group.lease("spread") as lease:
            await lease.pin(PinTarget(label="1", path=base))
            yield lease
    finally:
        await group.close()


@asynccontextmanager
async def _router(python: Path, policy: str, urls: Sequence[str], log: Path) -> AsyncIterator[str]:
    """Address of a router before these engines, once it has accepted them."""
    port = free_port()
    command = [str(python), "-m", "sglang_router.launch_router", "--worker-urls", *urls, "--policy", policy]
    command += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)  # noqa: ASYNC220 - set-up only
    try:
        await _ready(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, 10)
        finally:
            process.kill()


async def _ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + ROUTER_START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient(timeout=10.0, trust_env=False) as client:
                if (await client.post(f"{url}/generate", json=_body(requests()[0]))).is_success:
                    return
        await asyncio.sleep(0.5)
    raise RuntimeError(f"the router did not start; see {log}:\n{log.read_text()[-2000:]}")


def figures(found: Found, size: str) -> Iterator[Shown]:
    """What was found, beside its peers."""
    tokens = num_tokens()

    def rate(times: Measured) -> str:
        return f"{tokens / times.median:.0f} tokens/s"

    def shown(what: str, times: Measured, peer: Measured, of: str, goal: float | None) -> Shown:
        value = round(times.median / peer.median, 4)
        figure = Figure(figure=f"{what}, {size}", value=value, goal=goal, peer=f"{of}: {rate(peer)}")
        low, high = (tokens / seconds for seconds in reversed(times.middle_half))
        absolute = f"{rate(times)} ({low:.0f} to {high:.0f})"
        return Shown(figure=figure, what=what, size=size, place="CPU", absolute=absolute)

    one = found.engines[1]
    for count, times in found.engines.items():
        if count > 1:
            goal = SPEED_UP_GOAL if count == NUM_ENGINES else None
            yield shown(f"an eval set on {count} engines", times, one, "one engine", goal)
    for way, times in found.one_by_one.items():
        what = "one prompt a request" if way == ONE_BY_ONE else f"through sglang-router, {way}"
        yield shown(what, times, found.engines[NUM_BEHIND_ROUTER], "the lease on the same two engines", None)


async def run(options: argparse.Namespace, root: Path) -> list[Shown]:
    """Start the servers, measure, end them."""
    model = EvalModel(int(options.gb * 1e9))
    model.write(root / "base")
    started: list[EngineProcess] = []
    print("starting three servers ...", file=sys.stderr, flush=True)
    try:
        for number in range(NUM_ENGINES):
            settings = launch_settings(root / "base", device="cpu")
            started.append(EngineProcess.start(settings, log=root / f"engine{number}.log"))
        await asyncio.gather(*(each.wait_ready() for each in started))
        print("measuring; some minutes ...", file=sys.stderr, flush=True)
        found = await measure(root, root / "base", [each.url for each in started], options)
    finally:
        await asyncio.gather(*(each.stop() for each in started))
    num_bytes = sum(tensor.nbytes for _, tensor in model.tensors())
    return list(figures(found, f"{num_bytes / 1e9:.2g} GB"))


def main(arguments: list[str]) -> int:
    """Measure everything."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="live-eval-spread-", ignore_cleanup_errors=True) as directory:
        rows = asyncio.run(run(options, Path(directory)))
    caption = (
        f"{NUM_PROMPTS} prompts, {num_tokens()} tokens; medians of {options.rounds} (in brackets the middle "
        f"half), as time over time, on {os.cpu_count()} cores ({platform.machine()})."
    )
    Console(width=None if sys.stdout.isatty() else 200).print(
        shape.table(rows, title="An eval set on several engines", caption=caption)
    )
    if options.out:
        shape.write(options.out, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
