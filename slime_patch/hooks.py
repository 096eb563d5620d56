"""What slime's scripts call. Every hook does nothing in inline mode, and nothing when called again.

    args = parse_args(add_custom_arguments=hooks.add_arguments);  hooks.configure(args)
    ...create_rollout_manager...    hooks.start(args, pgs, rollout_manager)
    create_training_models(..., actor_cls=hooks.actor_class(args));  hooks.attach(args, actor_model)
    ...the training loop...         hooks.finish(args)

Importing this loads nothing heavy. Settings and handles stay in this process; slime's arguments get
plain values only, because slime writes them into checkpoints.
"""

from __future__ import annotations

import argparse
import atexit
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from slime_patch import arguments

if TYPE_CHECKING:
    from slime_patch.job import LiveEvalJob

MODE_ATTRIBUTE = "eval_mode"


class _State:
    """Of this process: it drives one job."""

    parser: argparse.ArgumentParser | None = None
    args: Namespace | None = None
    """Configured already."""
    job: LiveEvalJob | None = None
    started = False


_state = _State()


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register live-eval's flags on slime's parser."""
    if arguments.MODE_FLAG in parser._option_string_actions:
        return parser
    _state.parser = arguments.add_arguments(parser, arguments.sglang_flags())
    return parser


def configure(args: Namespace) -> None:
    """After slime's parse: refuse what cannot be, and keep slime's inline eval from running.

    In inline mode `args` is left as slime alone would have made it. Ends the process with a message
    where the flags cannot work, as argparse does.
    """
    if getattr(args, MODE_ATTRIBUTE, None) is None or args is _state.args:
        return
    from live_eval.errors import LiveEvalError

    try:
        _configure(args, sys.argv[1:])
    except LiveEvalError as error:
        sys.exit(f"{sys.argv[0]}: error: {error}")


def _configure(args: Namespace, argv: list[str]) -> None:
    from live_eval.store.checkpoint import check_complete
    from slime_patch.settings import settings_of

    if _state.parser is not None:
        arguments.check_flags(argv, _state.parser._option_string_actions)
    settings = settings_of(args, argv)
    if settings is None:
        for name in arguments.our_dests():
            if hasattr(args, name):
                delattr(args, name)
        return
    check_complete(settings.base)
    for path in settings.checkpoints:
        check_complete(path)
    from slime_patch.job import LiveEvalJob

    args.eval_interval = None  # slime's own eval would stop the training to ask the rollout engines
    _state.job, _state.args, _state.started = LiveEvalJob(settings), args, False


def start(args: Namespace, pgs: Any, rollout_manager: Any) -> None:
    """After create_rollout_manager: eval GPUs, the service and the receiver.

    Ends the process with a message where they cannot be had, before any training.
    """
    job = _job(args)
    if job is None or _state.started:
        return
    _state.started = True
    atexit.register(job.abandon)  # for a script that ends without finish; before Ray's own exit hook
    from live_eval.errors import LiveEvalError

    try:
        job.start(args, pgs, rollout_manager)
    except LiveEvalError as error:
        sys.exit(f"{sys.argv[0]}: error: {error}")


def actor_class(args: Namespace) -> type | None:
    """slime's training actor with the tap; None where slime's own is to be used."""
    job = _job(args)
    if job is None or not job.settings.taps_syncs:
        return None
    from slime_patch.train_actor import LiveEvalTrainActor

    return LiveEvalTrainActor


def attach(args: Namespace, actor_model: Any) -> None:
    """After create_training_models: the trainers learn which rollout each update belongs to."""
    job = _job(args)
    if job is not None:
        job.attach(args, actor_model)


def finish(args: Namespace) -> None:
    """After the training loop: slime's GPUs go back, and what is left is evaluated."""
    job = _job(args)
    if job is not None and _state.started:
        job.finish()


def abandon(args: Namespace) -> None:
    """Training has failed: end live eval now."""
    job = _job(args)
    if job is not None and _state.started:
        job.abandon()


def _job(args: Namespace) -> LiveEvalJob | None:
    return _state.job if getattr(args, MODE_ATTRIBUTE, "inline") != "inline" else None
