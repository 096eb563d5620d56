"""`live-eval versions`: the policy versions of a run, sealed, dropped and discarded."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from live_eval.commands.arguments import run_directory

if TYPE_CHECKING:
    from live_eval.commands.arguments import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add `versions` to the command line."""
    parser = subparsers.add_parser(
        "versions",
        help="policy versions of a run",
        description="Show each sync of a run: its policy version, weight version, digest and state, with the"
        " reason where it was discarded.",
    )
    parser.add_argument(
        "dir", type=run_directory, metavar="DIR", help="the run's directory (--out of the run)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the versions of `args.dir`."""
    from live_eval.results.tables import run_versions

    return run_versions(args)
