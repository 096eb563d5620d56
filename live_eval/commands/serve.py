"""`live-eval serve`: a service without a trainer, to which others submit checkpoints."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from live_eval.commands.arguments import absolute_path, directory
from live_eval.commands.service_options import add_out, add_service_options
from live_eval.errors import ConfigError

if TYPE_CHECKING:
    from live_eval.commands.arguments import Subparsers

DEFAULT_PORT = 8555


def add_parser(subparsers: Subparsers) -> None:
    """Add `serve` to the command line."""
    parser = subparsers.add_parser(
        "serve",
        help="a service that evaluates the checkpoints that others submit",
        description="Run eval engines and evaluate checkpoints as they are submitted: over HTTP, by"
        " `live-eval submit`, or from a folder. Ctrl-C ends all jobs and the service; started again with the"
        " same --out it goes on where it was killed. Serves a page for people at the same address.",
    )
    add_out(parser, "where the service's files go; one that is there is continued", required=True)
    parser.add_argument(
        "--base",
        type=absolute_path,
        metavar="PATH",
        help="the model, as a Hugging Face checkpoint: its tokenizer reads the datasets, and engines start"
        " with it. Needed except with --eval-checkpoint (the first is taken) or --engine-address (is asked)",
    )
    parser.add_argument(
        "--eval-checkpoint",
        type=absolute_path,
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="checkpoints to evaluate at once",
    )
    parser.add_argument(
        "--eval-checkpoint-watch",
        type=absolute_path,
        nargs="+",
        action="extend",
        default=[],
        metavar="DIR",
        help="evaluate each whole checkpoint that appears in this folder, once, in order of number",
    )
    http = parser.add_argument_group("HTTP")
    http.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    http.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"port, 0 for a free one (default {DEFAULT_PORT})"
    )
    http.add_argument(
        "--token-file",
        type=absolute_path,
        metavar="FILE",
        help="file with the token that clients must have; else the environment's LIVE_EVAL_HTTP_TOKEN. Needed"
        " where --host is not this machine's own",
    )
    http.add_argument(
        "--checkpoint-root",
        type=directory,
        nargs="+",
        action="extend",
        default=[],
        metavar="DIR",
        help="checkpoints may be submitted over HTTP from below these directories (default: none)",
    )
    add_service_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; 0 after one, 2 for a known error."""
    if args.base is None and not args.eval_checkpoint and not args.engine_address:
        raise ConfigError(
            "serve needs the model for its tokenizer and its engines: give --base PATH, or --eval-checkpoint"
            " or --engine-address, which say it too"
        )
    from live_eval.commands.serving import serve

    return serve(args)
