"""Command line: measure how the cost of a sync grows, show a table, draw it."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import warnings
from pathlib import Path

from rich.console import Console

from benchmarks import figures as shape
from benchmarks.growth.curves import Panel, shown
from benchmarks.growth.settings import QUICK, GrowthSettings
from benchmarks.places import SHARED_MEMORY

OBJECT_STORE_BYTES = 512 << 20


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures here, as a JSON list")
    parser.add_argument("--chart", type=Path, metavar="PNG", help="draw the curves (needs matplotlib)")
    parser.add_argument("--quick", action="store_true", help="tiny amounts, once: shows that it works")
    return parser.parse_args(arguments)


def run(settings: GrowthSettings, disk: Path) -> list[Panel]:
    """Measure all panels: stores in shared memory, ledgers on the disk."""
    import torch

    from benchmarks.growth import queueing, syncs
    from benchmarks.local_ray import local_ray

    torch.set_num_threads(1)
    place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else disk
    print("datasets ...", file=sys.stderr, flush=True)
    datasets = queueing.by_datasets(settings, disk)
    with local_ray(OBJECT_STORE_BYTES):
        print("bytes ...", file=sys.stderr, flush=True)
        by_bytes = syncs.by_bytes(settings, place)
        print("tensors ...", file=sys.stderr, flush=True)
        by_tensors = syncs.by_tensors(settings, place)
        print("versions ...", file=sys.stderr, flush=True)
        versions = syncs.by_versions(settings, place, disk / "versions.sqlite")
    return [by_bytes, by_tensors, versions, datasets]


def main(arguments: list[str]) -> int:
    """Run it."""
    warnings.simplefilter("ignore")
    options = parse(arguments)
    settings = QUICK if options.quick else GrowthSettings()
    with tempfile.TemporaryDirectory(prefix="live-eval-growth-", ignore_cleanup_errors=True) as disk:
        panels = run(settings, Path(disk))
    rows = list(shown(panels))
    caption = (
        f"Medians of {settings.num_rounds} in ms, and their middle half, on {os.cpu_count()} cores "
        f"({platform.machine()})."
    )
    Console(width=None if sys.stdout.isatty() else 160).print(
        shape.table(rows, title="How the cost of a sync grows", caption=caption)
    )
    if options.out:
        shape.write(options.out, rows)
    if options.chart:
        from benchmarks.growth.chart import draw

        draw(options.chart, panels)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
