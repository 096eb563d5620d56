"""`live-eval results`: the scores of a run, as a table, as JSON, or exported."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from live_eval.commands.arguments import absolute_path, run_directory

if TYPE_CHECKING:
    from live_eval.commands.arguments import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add `results` to the command line."""
    parser = subparsers.add_parser(
        "results",
        help="scores of a run by policy version",
        description="Show every job of a run: version or checkpoint, dataset, state, reason, score, counts.",
    )
    parser.add_argument(
        "dir", type=run_directory, metavar="DIR", help="the run's directory (--out of the run)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--export", type=absolute_path, metavar="FILE.jsonl", help="write one JSON line a result to this file"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print or export the results of `args.dir`."""
    from live_eval.results.tables import run_results

    return run_results(args)
