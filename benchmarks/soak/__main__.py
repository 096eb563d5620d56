"""Run for as long as told, look at everything every few seconds, say what grows; status 1 if something does.

python -m benchmarks.soak --minutes 60 --out FILE --chart PNG
python -m benchmarks.soak --redraw FILE.looks.jsonl --chart PNG
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.soak.samples import Look, Looks, read
from benchmarks.soak.trends import Trend, figures, trends

SHARED_MEMORY = Path("/dev/shm")
VERSION_BYTES = 8_000_000
"""A little more than one version takes."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long, once all parts work")
    parser.add_argument("--every", type=float, default=5.0, metavar="S", help="a sync each so many seconds")
    parser.add_argument("--look", type=float, default=5.0, metavar="S", help="a look each so many seconds")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the figures; looks go to FILE.looks.jsonl")
    parser.add_argument("--chart", type=Path, metavar="PNG", help="draw the run (needs matplotlib)")
    parser.add_argument("--place", type=Path, default=SHARED_MEMORY, help="directory for the run: a tmpfs")
    parser.add_argument("--redraw", type=Path, metavar="LOOKS", help="no run: judge and draw these looks")
    options = parser.parse_args(arguments)
    if min(options.minutes, options.every, options.look) <= 0:
        parser.error("--minutes, --every and --look must be above 0")
    return options


def run(options: argparse.Namespace, root: Path) -> list[Look]:
    """Start everything, look until the time is over or a signal comes, end everything."""
    import httpx

    from benchmarks.soak.site import SoakSite

    file = options.out.with_name(options.out.name + ".looks.jsonl") if options.out else root / "looks.jsonl"
    found: list[Look] = []
    print("starting all parts ...", file=sys.stderr, flush=True)
    with (
        SoakSite(root / "run", every_s=options.every) as site,
        httpx.Client(timeout=30.0) as client,
        contextlib.suppress(KeyboardInterrupt),
    ):
        signal.signal(signal.SIGTERM, _cut)  # not before: Ray's start brings a handler of its own
        looks = Looks(site, file)
        print(f"looks go to {file}", file=sys.stderr, flush=True)
        ends_at = time.monotonic() + 60 * options.minutes
        while not found or time.monotonic() < ends_at:
            site.check()
            found.append(looks.take())
            if site.metrics_url is not None:
                with contextlib.suppress(httpx.HTTPError):
                    client.get(site.metrics_url)
            time.sleep(options.look)
    return found


def _cut(*_: object) -> None:
    raise KeyboardInterrupt


def show(looks: Sequence[Look], found: Sequence[Trend]) -> None:
    """For people."""
    print(f"{'behind the first quarter':38} {'at the end':>12} {'growth':>12} {'per hour':>12}")
    for trend in found:
        scale, unit = (1 << 20, "MiB") if trend.unit == "B" else (1, "")
        values = (f"{value / scale:.2f} {unit}".strip() for value in (trend.last, trend.growth, trend.slope))
        print(f"{trend.what:38} {' '.join(f'{value:>12}' for value in values)}  {trend.verdict}")
    last = looks[-1]
    print(f"{last.at_s / 60:.1f} minutes; syncs {last.syncs}; jobs {last.jobs}")


def main(arguments: list[str]) -> int:
    """Run, show, write, draw."""
    options = parse(arguments)
    if options.redraw:
        looks = read(options.redraw)
    else:
        root = Path(tempfile.mkdtemp(prefix="live-eval-soak-", dir=options.place))
        try:
            looks = run(options, root)
        finally:
            for path in root.rglob("*"):
                if path.is_dir() and not path.is_symlink():
                    path.chmod(0o755)  # sealed versions are read-only
            shutil.rmtree(root, ignore_errors=True)
    found = trends(looks, version_bytes=VERSION_BYTES)
    show(looks, found)
    rows = list(figures(looks, found))
    if options.out:
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    if options.chart:
        from benchmarks.soak.picture import draw

        draw(options.chart, looks)
    missed = [row for row in rows if row.goal is not None and row.value > row.goal]
    for row in missed:
        print(f"NOT MET: {row.figure}: {row.value:g} {row.unit}, at most {row.goal:g}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
