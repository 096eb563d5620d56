"""Which of slime's ways to update weights a job uses, and by which way versions reach live eval.

Pure, made from slime's parsed arguments. Every refusal says what to change.

    slime's updates                          ways to the eval engines' node
    broadcast   distributed updater          ray, nccl
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from typing import Literal

from live_eval.errors import ConfigError

Kind = Literal["broadcast"]
Transport = Literal["ray", "nccl"]

INSTEAD = "or evaluate checkpoints as they are saved, with --eval-mode checkpoint"


@dataclass(frozen=True, kw_only=True, slots=True)
class Updates:
    """How this job's weight updates are listened to."""

    kind: Kind
    transport: Transport
    num_sources: int = 1
    """Ranks that each send a part of a version."""


def updates_of(args: Namespace) -> Updates:
    """ConfigError if they cannot be listened to, or not in the way that was asked for."""
    _refuse_silent(args)
    kind = _kind(args)
    transport: Transport = args.eval_transport or "ray"
    if transport == "nccl":
        _check_member(args)
    return Updates(
        kind=kind, transport=transport, num_sources=getattr(args, "pipeline_model_parallel_size", 1)
    )


def _refuse_silent(args: Namespace) -> None:
    if getattr(args, "debug_train_only", False) or getattr(args, "debug_rollout_only", False):
        raise ConfigError(
            "with --debug-train-only, --debug-rollout-only or --load-debug-rollout-data no weights are "
            "sent, so there is nothing to listen to: use --eval-mode inline or checkpoint"
        )


def _kind(args: Namespace) -> Kind:
    if args.colocate:
        raise ConfigError(
            "--colocate hands weights to the engines as CUDA handles, which cannot be listened to yet: give "
            f"trainer and rollout GPUs of their own, {INSTEAD}"
        )
    mode, transport = args.update_weight_mode, args.update_weight_transport
    if mode != "full" or transport == "disk":
        raise ConfigError(
            f"--update-weight-mode {mode} over --update-weight-transport {transport} cannot be listened "
            f"to yet: use full over nccl, {INSTEAD}"
        )
    if getattr(args, "release_train", False):
        raise ConfigError(f"--release-train cannot be listened to yet: leave it out, {INSTEAD}")
    if (steps := getattr(args, "num_critic_only_steps", 0)) > 0:
        raise ConfigError(
            f"--num-critic-only-steps {steps}: in these steps the same weights are sent again and again, "
            f"which cannot be numbered yet: set it to 0, {INSTEAD}"
        )
    return "broadcast"


def _check_member(args: Namespace) -> None:
    """The receiver as a member of slime's group."""
    if getattr(args, "offload_train", False):
        raise ConfigError(
            "--eval-transport nccl with --offload-train (which --use-critic sets): slime destroys all groups "
            "of the trainer after each step, and the receiver's with them; use --eval-transport ray"
        )
    if args.eval_engine_addrs:
        raise ConfigError(
            "--eval-transport nccl with --eval-engine-addrs: the receiver needs one of the eval engines' "
            "GPUs, and these are not live-eval's; use --eval-transport ray, or give --eval-num-gpus"
        )
