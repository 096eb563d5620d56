"""`live-eval view`: the saved W&B view of a run, with panels by policy version."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from live_eval.commands.arguments import run_directory
from live_eval.errors import ConfigError

if TYPE_CHECKING:
    from live_eval.commands.arguments import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add `view` to the command line."""
    parser = subparsers.add_parser(
        "view",
        help="save a W&B view of a run: panels by policy version",
        description="Save a view of the run's W&B project: score with its interval for each dataset, lag, "
        "coverage, held time and counts, all by policy version.",
    )
    parser.add_argument(
        "dir", type=run_directory, metavar="DIR", help="the run's directory (--out of the run)"
    )
    parser.add_argument("--entity", help="W&B entity; the run's own, else the default of the login")
    parser.add_argument("--project", help="W&B project; the run's own unless given")
    parser.add_argument("--print", action="store_true", help="print the view as JSON and save nothing")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Save the view of `args.dir`, or print it."""
    from live_eval.config import ServiceConfig
    from live_eval.results.wandb_view import save, spec, view
    from live_eval.rundir import RunDir

    config = ServiceConfig.load(RunDir(args.dir).config)
    wandb = config.wandb
    if wandb is None:
        raise ConfigError(f"{args.dir} is a run without W&B")
    made = view(
        entity=args.entity or wandb.entity or ("" if args.print else default_entity()),
        project=args.project or wandb.project,
        datasets=[dataset.name for dataset in config.datasets],
        group=wandb.group,
    )
    print(json.dumps(spec(made), indent=2) if args.print else save(made))
    return 0


def default_entity() -> str:
    """The entity of the login that W&B finds; ConfigError if there is none."""
    import wandb

    try:
        entity = wandb.Api().default_entity
    except (wandb.Error, OSError, ValueError) as error:
        raise ConfigError(f"W&B does not say who you are ({error}): give --entity") from error
    if not entity:
        raise ConfigError("W&B knows no default entity of this login: give --entity")
    return entity
