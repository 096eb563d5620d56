"""Command line of the fault bench: break, count, show a table, write the figures."""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.faults import bench, plan
from benchmarks.faults.guards import GUARDS
from benchmarks.faults.sites import SITES

if TYPE_CHECKING:
    from benchmarks.faults.tally import Tally

SECONDS_BETWEEN_LINES = 10.0
NUM_TROUBLES_SHOWN = 20


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--transport", choices=sorted(SITES), required=True)
    parser.add_argument("--syncs", type=int, default=2000, metavar="N", help="at least so many (2000)")
    parser.add_argument(
        "--seed", type=int, default=None, metavar="S", help="replays a run; drawn if not given"
    )
    parser.add_argument(
        "--seconds", type=float, default=math.inf, metavar="S", help="begin no sync after so long"
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="N", help="number of the first sync, to replay from there"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="KIND", help="only faults of these kinds")
    parser.add_argument(
        "--without", choices=sorted(GUARDS), default="", help="switch a guard off: the run must fail"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, as a JSON list")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave logs and store here")
    options = parser.parse_args(arguments)
    unknown = set(options.only) - plan.kinds(options.transport).keys()
    if unknown:
        known = ", ".join(plan.kinds(options.transport))
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {known}")
    return options


def show_progress(num_syncs: int) -> Callable[[Tally], None]:
    """A bar on a terminal, a line now and then elsewhere."""
    began = time.monotonic()
    last = [began]

    def line(tally: Tally) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() and now - last[0] < SECONDS_BETWEEN_LINES and tally.syncs < num_syncs:
            return
        last[0] = now
        done = min(tally.syncs / num_syncs, 1.0)
        bar = "#" * int(30 * done) + "." * (30 - int(30 * done))
        text = (
            f"[{bar}] {tally.syncs}/{num_syncs} syncs, {tally.sealed} sealed, {len(tally.troubles)} troubles"
        )
        left = (now - began) / max(done, 1e-9) * (1 - done)
        end = "\r" if sys.stderr.isatty() and done < 1 else "\n"
        print(f"{text}, {left:.0f} s left ", end=end, file=sys.stderr, flush=True)

    return line


def main(arguments: list[str]) -> int:
    """Run the bench; 1 if something was that must not be."""
    from benchmarks.faults.report import show

    options = parse(arguments)
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    print(f"transport {options.transport}, seed {seed}", file=sys.stderr, flush=True)
    settings = bench.BenchSettings(
        transport=options.transport,
        num_syncs=options.syncs,
        seed=seed,
        first=options.first,
        seconds=options.seconds,
        only=tuple(options.only),
        without=options.without,
        keep=options.keep,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # what was started is ended on the way out
    tally = bench.run(settings, show_progress(options.syncs))
    show(tally)
    if options.json:
        options.json.write_text(json.dumps(tally.figures(), indent=1) + "\n")
    return 1 if tally.troubles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
