"""Which of slime's ways to update weights a job uses, and by which way versions reach live eval.

Pure, made from slime's parsed arguments. Every refusal says what to change.

    slime's updates                               ways to the eval engines' node
    broadcast   distributed updater               ray, nccl, disk
    tensors     colocated updater                 ray, disk
    files       full checkpoints on a disk        disk: linked there
    deltas      what has changed, on a disk       disk: linked there, and applied
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from live_eval.errors import ConfigError

Kind = Literal["broadcast", "tensors", "files", "deltas"]
Transport = Literal["ray", "nccl", "disk"]

MAIL_DIR = "live_eval"
"""Below --update-weight-disk-dir, so that links can be made."""
CHECKSUMS = ("xxh3-128", "blake3", "adler32")


@dataclass(frozen=True, kw_only=True, slots=True)
class Updates:
    """How this job's weight updates are listened to."""

    kind: Kind
    transport: Transport
    num_sources: int = 1
    """Pipeline ranks that each send a part of a version."""
    mail_dir: Path | None = None
    """Directory through which versions travel; None with transport disk: in the output directory."""
    critic_only_steps: int = 0
    """Rollouts at the start of which the actor is not trained."""

    @property
    def first_push_has_version(self) -> bool:
        """slime's first delta update only takes stock: it sends nothing and counts nothing."""
        return self.kind != "deltas"


def updates_of(args: Namespace) -> Updates:
    """ConfigError if they cannot be listened to, or not in the way that was asked for."""
    _refuse_silent(args)
    kind = _kind(args)
    transport = _transport(args, kind)
    if transport == "nccl":
        _check_member(args)
    is_pipeline = kind == "broadcast"
    return Updates(
        kind=kind,
        transport=transport,
        num_sources=getattr(args, "pipeline_model_parallel_size", 1) if is_pipeline else 1,
        mail_dir=_mail_dir(args, kind) if transport == "disk" else None,
        critic_only_steps=_critic_only_steps(args),
    )


def _critic_only_steps(args: Namespace) -> int:
    return getattr(args, "num_critic_only_steps", 0) if getattr(args, "use_critic", False) else 0


def _refuse_silent(args: Namespace) -> None:
    if getattr(args, "debug_train_only", False) or getattr(args, "debug_rollout_only", False):
        raise ConfigError(
            "with --debug-train-only, --debug-rollout-only or --load-debug-rollout-data no weights are "
            "sent, so there is nothing to listen to: use --eval-mode inline or checkpoint"
        )


def _kind(args: Namespace) -> Kind:
    if args.update_weight_mode == "delta":
        return "deltas"
    if args.update_weight_transport == "disk":
        return "files"
    return "tensors" if args.colocate else "broadcast"


def _transport(args: Namespace, kind: Kind) -> Transport:
    asked: Transport | None = args.eval_transport
    if kind in ("files", "deltas"):
        if asked not in (None, "disk"):
            raise ConfigError(
                f"--eval-transport {asked} with --update-weight-transport disk: these updates are files, "
                "which are linked where they are; leave --eval-transport out"
            )
        return "disk"
    if asked != "disk" and args.eval_transport_dir is not None:
        raise ConfigError(
            "--eval-transport-dir is read with --eval-transport disk only: give that too, or leave it out"
        )
    if asked == "nccl" and kind == "tensors":
        raise ConfigError(
            "--eval-transport nccl with --colocate: weights go to the engines as CUDA handles, and there is "
            "no group that the receiver could join; use --eval-transport ray"
        )
    return asked or "ray"


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


def _mail_dir(args: Namespace, kind: Kind) -> Path | None:
    if kind in ("files", "deltas"):
        if args.eval_transport_dir is not None:
            raise ConfigError(
                "--eval-transport-dir with --update-weight-transport disk: files are linked below "
                "--update-weight-disk-dir, because links do not go from one file system to another; leave it "
                "out"
            )
        return Path(args.update_weight_disk_dir).absolute() / MAIL_DIR
    return None if args.eval_transport_dir is None else Path(args.eval_transport_dir).absolute()
