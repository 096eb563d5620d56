"""`live-eval demo`: its options; the demo itself is live_eval.demo."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from live_eval.commands.arguments import absolute_path, port, positive_int

if TYPE_CHECKING:
    from live_eval.commands.arguments import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add `demo` to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help="train a small model here and evaluate each version",
        description="Train a small model on this machine's CPU, sync its weights over a real transport, and"
        " evaluate each due version with the real SGLang.",
    )
    parser.add_argument(
        "--out", type=absolute_path, required=True, metavar="DIR", help="where the run's files go"
    )
    parser.add_argument(
        "--versions", type=positive_int, default=10, metavar="N", help="weight syncs to make (default 10)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="random seed (default 0)")
    parser.add_argument(
        "--transport",
        choices=("nccl", "ray"),
        default="nccl",
        help="how weights travel: torch.distributed (gloo on a CPU), or over Ray (default nccl)",
    )
    parser.add_argument(
        "--eval-on-update",
        choices=("finish", "cancel", "queue"),
        default="finish",
        help="what a newer due version does to the evaluation that runs (default finish)",
    )
    parser.add_argument(
        "--eval-interval",
        type=positive_int,
        default=1,
        metavar="M",
        help="evaluate once in M rollouts (default 1)",
    )
    parser.add_argument(
        "--n-samples-per-eval-prompt",
        type=positive_int,
        default=1,
        metavar="K",
        help="answers per prompt; more make an evaluation longer (default 1)",
    )
    parser.add_argument(
        "--eval-checkpoint",
        type=absolute_path,
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="Hugging Face checkpoints to evaluate too",
    )
    parser.add_argument(
        "--engines", type=positive_int, default=1, metavar="E", help="eval engines to start (default 1)"
    )
    parser.add_argument(
        "--http-port",
        type=port,
        metavar="N",
        help="serve the page on this port of loopback during the run (0: any that is free)",
    )
    parser.add_argument(
        "--json", type=absolute_path, metavar="FILE", help="write what happened to FILE as JSON"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 if it came to its end with scores."""
    from live_eval.demo.main import run_demo

    return run_demo(args)
