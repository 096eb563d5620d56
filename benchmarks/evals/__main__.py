"""Command line: start a server, measure, show a table, write the figures to a file."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks import figures as shape
from benchmarks.evals.measure import NUM_IN_FLIGHT, Found, measure
from benchmarks.evals.model import EvalModel
from benchmarks.figures import Figure, Measured, Shown
from benchmarks.settings import MIN_ROUNDS
from live_eval.engines.launch import EngineProcess, launch_settings

FIRST_TOKEN_GOAL = 1.3
CANCEL_GOAL_S = 1.0
RATE_GOAL = round(1 / 0.95, 3)
"""At least 0.95 of the saturated rate, as time over time."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evals", description=__doc__)
    parser.add_argument("--gb", type=float, default=0.1, help="size of the model, 10^9 bytes")
    parser.add_argument(
        "--rounds", type=int, default=MIN_ROUNDS, help=f"measurements of each kind, >= {MIN_ROUNDS}"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures here, as a JSON list")
    options = parser.parse_args(arguments)
    if options.rounds < MIN_ROUNDS or options.gb <= 0:
        parser.error(f"--rounds must be at least {MIN_ROUNDS}, --gb above 0")
    return options


async def run(options: argparse.Namespace, root: Path) -> list[Shown]:
    """Start the server, measure beside it, end it."""
    model = EvalModel(int(options.gb * 1e9))
    model.write(root / "base")
    engine = EngineProcess.start(launch_settings(root / "base", device="cpu"), log=root / "engine.log")
    try:
        print("starting the server ...", file=sys.stderr, flush=True)
        await engine.wait_ready()
        print("measuring; some minutes ...", file=sys.stderr, flush=True)
        found = await asyncio.to_thread(
            measure, root, root / "base", engine.url, model, num_rounds=options.rounds
        )
    finally:
        await engine.stop()
    num_bytes = sum(tensor.nbytes for _, tensor in model.tensors())
    return list(figures(found, num_bytes))


def figures(found: Found, num_bytes: int) -> Iterator[Shown]:
    """What was found, beside its peers."""
    size = f"{num_bytes / 1e9:.2g} GB"

    def shown(what: str, value: float, goal: float, peer: str, unit: str, times: Measured) -> Shown:
        figure = Figure(figure=f"{what}, {size}", value=round(value, 4), goal=goal, peer=peer, unit=unit)
        return Shown(figure=figure, what=what, size=size, place="CPU", absolute=times.describe(num_bytes))

    load = f"the server's own load and a token: {found.load.median * 1000:.0f} ms"
    yield shown(
        "commit -> first answer on record",
        found.first_token.median / found.load.median,
        FIRST_TOKEN_GOAL,
        load,
        "ratio",
        found.first_token,
    )
    yield shown(
        f"cancel with {NUM_IN_FLIGHT} in flight: V' sealed -> its first answer, less the load",
        found.cancelled.median - found.load.median,
        CANCEL_GOAL_S,
        load,
        "s",
        found.cancelled,
    )
    yield shown(
        "an eval in a row of them, loads and tails included",
        found.continuous.median / found.saturated.median,
        RATE_GOAL,
        f"the same tokens at the server's full rate: {found.saturated.median * 1000:.0f} ms",
        "ratio",
        found.continuous,
    )


def main(arguments: list[str]) -> int:
    """Measure everything."""
    options = parse(arguments)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="live-eval-evals-", ignore_cleanup_errors=True) as directory:
        rows = asyncio.run(run(options, Path(directory)))
    caption = (
        f"Medians of {options.rounds} (in brackets the middle half and the best) on {os.cpu_count()} cores "
        f"({platform.machine()}); the machine's load was {load_before:.2f} before."
    )
    Console(width=None if sys.stdout.isatty() else 200).print(
        shape.table(rows, title="What live eval costs an eval engine", caption=caption)
    )
    if options.out:
        shape.write(options.out, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
