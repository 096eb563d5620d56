"""Command line of the benchmarks: measure, show a table, write the figures to a file."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import figures as shape
from benchmarks.places import SHARED_MEMORY, NoRoom, require_room
from benchmarks.settings import MIN_ROUNDS, NUM_ROUNDS, Settings, quick

if TYPE_CHECKING:
    from benchmarks.figures import Shown


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures here, as a JSON list")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the ratios (needs matplotlib)")
    parser.add_argument("--quick", action="store_true", help="a few MB, once: shows that it works, no speed")
    parser.add_argument(
        "--gb",
        type=float,
        nargs="+",
        default=[0.25, 1.0],
        metavar="SIZE",
        help="sizes of the weights, 10^9 bytes; 2 takes 12 more minutes and 20 GB of memory",
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of the training step, the staging copy and the memcpy"
    )
    parser.add_argument("--small", type=int, default=100_000, help="tensors of the sync of small ones, or 0")
    parser.add_argument(
        "--rounds",
        type=int,
        default=NUM_ROUNDS,
        help=f"measurements of each kind, >= {MIN_ROUNDS}; half as many again of small sizes",
    )
    parser.add_argument(
        "--disk", type=Path, default=Path(tempfile.gettempdir()), help="a directory on a local disk"
    )
    options = parser.parse_args(arguments)
    if options.rounds < MIN_ROUNDS or options.threads < 1 or min(options.gb) <= 0 or options.small < 0:
        parser.error(f"--rounds must be at least {MIN_ROUNDS}, --threads 1, --gb above 0, --small 0")
    return options


def settings_of(options: argparse.Namespace) -> Settings:
    """What these options ask for."""
    settings = Settings(
        gigabytes=tuple(options.gb),
        places=tuple(place for place in (SHARED_MEMORY, options.disk) if place.is_dir()),
        num_small=options.small,
        num_threads=options.threads,
        num_rounds=options.rounds,
    )
    return quick(settings) if options.quick else settings


def run(settings: Settings) -> list[Shown]:
    """Measure everything, saying what is under way; NoRoom before anything is started."""
    rooms = {
        (gigabytes, place): require_room(place, int(gigabytes * 1e9))
        for gigabytes in settings.gigabytes
        for place in settings.places
    }
    import torch

    from benchmarks import ratios, suite
    from benchmarks.local_ray import local_ray
    from benchmarks.small import measure_small

    torch.set_num_threads(settings.num_threads)
    rows: list[Shown] = []
    with local_ray(_object_store_bytes([gigabytes for (gigabytes, _), fits in rooms.items() if fits])):
        for (gigabytes, place), fits in rooms.items():
            left_out = "" if fits else "; memory is short: without async_save and ray.put"
            _say(f"{gigabytes:g} GB below {place}{left_out} ...")
            found = suite.measure(settings, gigabytes, place, with_peers=fits)
            rows += ratios.figures(found)
            late = {name: sum(not cost.covered for cost in costs) for name, costs in found.costs.items()}
            _say(f"  a step takes {found.step_s:.2f} s; not over by its end: {late}")
        if settings.num_small:
            _say(f"{settings.num_small} small tensors below {settings.places[0]} ...")
            rows += measure_small(settings, settings.places[0])
    return rows


def _object_store_bytes(gigabytes: list[float]) -> int:
    """Room for the largest weights twice that are put in one piece, and for what a sync puts."""
    return int(max(gigabytes, default=0) * 2.2e9) + (512 << 20)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Run the benchmarks; 2 if a place or the memory has no room."""
    from rich.console import Console

    warnings.simplefilter("ignore")
    options = parse(arguments)
    settings = settings_of(options)
    load_before = os.getloadavg()[0]
    try:
        rows = run(settings)
    except NoRoom as error:
        print(error, file=sys.stderr)
        return 2
    caption = (
        f"Medians of {settings.num_rounds} (in brackets the middle half and the best) on "
        f"{os.cpu_count()} cores ({platform.machine()}); the machine's load was {load_before:.2f} before and "
        f"{os.getloadavg()[0]:.2f} after, this run's own included."
    )
    Console(width=None if sys.stdout.isatty() else 220).print(
        shape.table(rows, title="What a sync costs", caption=caption)
    )
    if options.out:
        shape.write(options.out, rows)
    if options.chart:
        from benchmarks.chart import draw

        draw(options.chart, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
