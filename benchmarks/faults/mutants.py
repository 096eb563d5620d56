"""Switches one guard of the product off after the other, and sees that the bench notices each.

python -m benchmarks.faults.mutants --json FILE
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.faults import bench
from benchmarks.faults.guards import GUARDS, NOTICED_BY

SEED = 5
"""Of it the first sync of each is one that the guard is for."""
NUM_SYNCS = 24
"""At most; a run ends with the first trouble."""


def noticed(guard: str, *, seed: int = SEED, transport: str = "nccl") -> str:
    """The first trouble of a run without the guard; empty if there was none."""
    settings = bench.BenchSettings(
        transport=transport, num_syncs=NUM_SYNCS, seed=seed, only=NOTICED_BY[guard], without=guard
    )
    return next(iter(bench.run(settings).troubles), "")


def main(arguments: list[str]) -> int:
    """Run all; 1 if a guard is not missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.mutants", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="guard -> what was noticed")
    options = parser.parse_args(arguments)
    found = {guard: noticed(guard) for guard in GUARDS}
    for guard, trouble in found.items():
        print(f"{guard:20} {trouble or 'NOT MISSED'}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
