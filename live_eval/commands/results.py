"""`live-eval results`: the scores of a run, as a table, as JSON, exported, or two versions compared."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from live_eval.commands.arguments import absolute_path, run_directory
from live_eval.errors import ConfigError

if TYPE_CHECKING:
    from live_eval.commands.arguments import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add `results` to the command line."""
    parser = subparsers.add_parser(
        "results",
        help="scores of a run by policy version",
        description="Show every job of a run: version or checkpoint, dataset, state, reason, score with its "
        "95 % interval, difference to the version before it, counts.",
    )
    parser.add_argument(
        "dir", type=run_directory, metavar="DIR", help="the run's directory (--out of the run)"
    )
    which = parser.add_argument_group("which jobs (default: all)")
    which.add_argument("--dataset", nargs="+", default=[], metavar="NAME", help="of these datasets")
    which.add_argument(
        "--versions",
        type=_versions,
        default=(None, None),
        metavar="A:B",
        help="versions: 7, 3:7, 3:, :7",
    )
    which.add_argument(
        "--status",
        nargs="+",
        default=[],
        metavar="STATE",
        help="in these states, for example failed",
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("V1", "V2"),
        help="compare two versions (or checkpoints, c1) on the prompts that both scored, and list those that "
        "flipped",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--export",
        type=absolute_path,
        metavar="FILE",
        help="write results to a .jsonl, .csv or .parquet file",
    )
    parser.set_defaults(run=run)


def _versions(text: str) -> tuple[int | None, int | None]:
    from live_eval.results.selection import version_range

    try:
        return version_range(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(args: argparse.Namespace) -> int:
    """Print, compare or export the results of `args.dir`."""
    from live_eval.results.selection import Selection
    from live_eval.results.tables import run_results

    first, last = args.versions
    args.selection = Selection(
        datasets=tuple(args.dataset), first_version=first, last_version=last, statuses=tuple(args.status)
    )
    if args.compare is None:
        return run_results(args)
    if args.export is not None or first is not None or last is not None or args.status:
        raise ConfigError("--compare goes with --dataset and --json only: leave the other options out")
    from live_eval.commands.compare import run_compare

    return run_compare(args)
