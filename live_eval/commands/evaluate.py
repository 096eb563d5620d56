"""`live-eval eval`: checkpoints on eval sets, here and now, without a trainer or a service."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from live_eval.commands.arguments import absolute_path
from live_eval.commands.service_options import add_out, add_service_options

if TYPE_CHECKING:
    from live_eval.commands.arguments import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add `eval` to the command line."""
    parser = subparsers.add_parser(
        "eval",
        help="evaluate checkpoints here, without a trainer",
        description="Start eval engines, evaluate each checkpoint on each dataset, print the scores and end."
        " Exit status 0 if every job succeeded, 1 if one did not, 2 for wrong use. Started again with the"
        " same --out it does what is left.",
    )
    parser.add_argument(
        "--checkpoint",
        type=absolute_path,
        nargs="+",
        action="extend",
        required=True,
        metavar="PATH",
        help="Hugging Face checkpoints (directories of safetensors files), evaluated in this order",
    )
    add_out(parser, "where results go (default: a new directory in live_eval_runs/)", required=False)
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of a table")
    add_service_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Evaluate; 0 if every job succeeded."""
    from live_eval.commands.offline import evaluate

    return evaluate(args)
