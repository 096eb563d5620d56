"""What a slime job asks of live-eval, checked.

Made once from slime's parsed arguments; pure, so it can be tried without slime, torch or Ray. Every
refusal says what to change. Invariant: settings that exist can be carried out, as far as that can be
known before files are opened and machines are asked.
"""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from live_eval.config import HttpSettings
from live_eval.errors import ConfigError
from live_eval.scheduling.config import engines_per_eval_of
from slime_patch.arguments import FLAGS, MODE_FLAG, MODES, given_flags
from slime_patch.datasets import DatasetPlan, plan_datasets
from slime_patch.engine_args import device_of, dtype_of, engine_args
from slime_patch.updates import Updates, updates_of
from slime_patch.wandb_settings import WandbSettings, wandb_settings

if TYPE_CHECKING:
    from live_eval.scheduling.config import EnginesPerEval, OnUpdate

logger = logging.getLogger(__name__)

Mode = Literal["latest-synced", "checkpoint"]
OnFailure = Literal["record", "alert", "stop"]
GB = 1_000_000_000
DEFAULT_DIR = "live_eval_runs"
TOKEN_ENV = "LIVE_EVAL_HTTP_TOKEN"


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineChoice:
    """Which eval engines: to launch on GPUs of our own, or running ones."""

    num_gpus: int = 0
    """0 where addresses are given."""
    gpus_per_engine: int = 1
    addresses: tuple[str, ...] = ()
    """URLs."""
    device: str = "cuda"
    dtype: str | None = None
    args: tuple[str, ...] = ()
    concurrency: int = 64
    """Samples in flight per engine."""
    per_eval: EnginesPerEval = "all"
    """How many of them a checkpoint's evaluation has."""

    @property
    def num_engines(self) -> int:
        """Servers."""
        return len(self.addresses) or self.num_gpus // self.gpus_per_engine


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All of it."""

    mode: Mode
    on_update: OnUpdate
    interval: int | None
    """Rollouts; None: every sync is due."""
    skip_first: bool
    snapshot: Literal["due", "all"]
    checkpoints: tuple[str, ...]
    watch: tuple[Path, ...]
    """Folders in which checkpoints appear."""
    queue_size: int
    max_consecutive_cancels: int
    engines: EngineChoice
    datasets: tuple[DatasetPlan, ...]
    base: Path
    """--hf-checkpoint."""
    output_dir: Path | None
    """None: a new directory below DEFAULT_DIR."""
    store_dir: Path | None
    store_max_bytes: int | None
    """None: by the model's size."""
    keep_versions: int
    engine_timeout_s: float
    sync_deadline_s: float
    timeout_s: float
    drain_timeout_s: float
    updates: Updates | None
    """How weight updates are listened to; None in checkpoint mode."""
    steps_per_rollout: int | None
    """Optimizer steps; None where slime was not told its batch size."""
    update_weights_interval: int
    wandb: WandbSettings | None
    """Of a run of its own."""
    attach_wandb: bool
    """Whether results go to the trainer's run instead."""
    on_failure: OnFailure
    by_slime: bool
    """Whether slime's own eval function evaluates."""
    http: HttpSettings | None = None
    """None: no HTTP API."""

    @property
    def taps_syncs(self) -> bool:
        """Whether the trainers' syncs are listened to."""
        return self.mode == "latest-synced"


def settings_of(args: Namespace, argv: Sequence[str]) -> Settings | None:
    """The settings of slime's parsed arguments; None in inline mode. ConfigError says what to change."""
    mode = args.eval_mode
    if mode not in MODES:
        raise ConfigError(f"{MODE_FLAG} is {mode!r}: choose one of {', '.join(MODES)}")
    if mode == "inline":
        _refuse_lonely_flags(argv)
        return None
    _refuse_unsupported(args)
    updates = updates_of(args) if mode == "latest-synced" else None
    checkpoints = tuple(args.eval_checkpoint or ())
    watch = tuple(args.eval_checkpoint_watch or ())
    if mode == "checkpoint" and not checkpoints and not watch:
        raise ConfigError(
            "--eval-mode checkpoint evaluates checkpoints: name them with --eval-checkpoint PATH ..., or "
            "their folder with --eval-checkpoint-watch DIR"
        )
    _check_numbers(args)
    attach, by_slime = args.eval_wandb_run == "attach", args.eval_runner == "slime"
    if attach:
        logger.warning(
            "--eval-wandb-run attach: live-eval's rows go into the trainer's W&B run, through the driver; "
            "those that come after the driver has ended are in the ledger only"
        )
    return Settings(
        mode=mode,
        on_update=args.eval_on_update,
        interval=args.eval_interval,
        skip_first=bool(args.skip_eval_before_train),
        snapshot=args.eval_snapshot,
        checkpoints=tuple(str(Path(path).absolute()) for path in checkpoints),
        watch=tuple(Path(path).absolute() for path in watch),
        queue_size=args.eval_queue_size,
        max_consecutive_cancels=args.eval_max_consecutive_cancels,
        engines=_engines(args, argv),
        datasets=plan_datasets(args, by_slime=by_slime),
        base=_base(args),
        output_dir=_output_dir(args),
        store_dir=_absolute(args.eval_store_dir),
        store_max_bytes=None if args.eval_store_max_gb is None else int(args.eval_store_max_gb * GB),
        keep_versions=args.eval_keep_versions,
        engine_timeout_s=args.eval_engine_timeout_s,
        sync_deadline_s=args.eval_sync_deadline_s,
        timeout_s=args.eval_timeout_s,
        drain_timeout_s=args.eval_drain_timeout_s,
        updates=updates,
        steps_per_rollout=_steps_per_rollout(args),
        update_weights_interval=getattr(args, "update_weights_interval", 1),
        wandb=None if attach else wandb_settings(args),
        attach_wandb=attach,
        on_failure=args.eval_on_failure,
        by_slime=by_slime,
        http=_http(args),
    )


def _refuse_lonely_flags(argv: Sequence[str]) -> None:
    ours = {flag.name for flag in FLAGS} - {MODE_FLAG}
    for name in given_flags(argv):
        if name in ours or name.startswith("--eval-sglang-"):
            raise ConfigError(
                f"{name} does nothing in --eval-mode inline: give --eval-mode latest-synced or "
                "checkpoint, or "
                "leave it out"
            )


def _refuse_unsupported(args: Namespace) -> None:
    if args.eval_runner == "slime" and getattr(args, "sglang_config", None):
        raise ConfigError(
            "--eval-runner slime knows the eval engines only, and not the models of --sglang-config by "
            "their names: use --eval-runner live-eval, or leave --sglang-config out"
        )
    if args.eval_wandb_run == "attach" and wandb_settings(args) is None:
        raise ConfigError(
            "--eval-wandb-run attach writes to the trainer's W&B run: give --use-wandb, or leave it out"
        )


def _engines(args: Namespace, argv: Sequence[str]) -> EngineChoice:
    addresses = tuple(map(_url, args.eval_engine_addrs or ()))
    num_gpus, per_engine = args.eval_num_gpus, args.eval_num_gpus_per_engine
    own = getattr(args, "eval_sglang", None) or []
    if addresses:
        if num_gpus is not None or own:
            raise ConfigError(
                "--eval-engine-addrs names running engines: leave --eval-num-gpus and --eval-sglang-* "
                "out, and "
                "set the servers up where you start them"
            )
        return EngineChoice(
            addresses=addresses,
            concurrency=args.eval_concurrency,
            per_eval=_per_eval(args.eval_engines_per_eval),
        )
    if num_gpus is None:
        raise ConfigError(
            "live eval needs engines of its own: give --eval-num-gpus N (beside the GPUs of trainer and "
            "rollout), or "
            "--eval-engine-addrs HOST:PORT ..."
        )
    if num_gpus < 1 or per_engine < 1 or num_gpus % per_engine:
        raise ConfigError(
            f"--eval-num-gpus {num_gpus} with --eval-num-gpus-per-engine {per_engine}: both must be 1 or "
            "more, and the "
            "first a multiple of the second"
        )
    return EngineChoice(
        num_gpus=num_gpus,
        gpus_per_engine=per_engine,
        device=device_of(argv, own),
        dtype=dtype_of(argv, own),
        args=engine_args(
            argv, own, rollout_gpus_per_engine=args.rollout_num_gpus_per_engine, gpus_per_engine=per_engine
        ),
        concurrency=args.eval_concurrency,
        per_eval=_per_eval(args.eval_engines_per_eval),
    )


def _per_eval(word: str) -> EnginesPerEval:
    try:
        return engines_per_eval_of(word)
    except ValueError as error:
        raise ConfigError(
            f"--eval-engines-per-eval is {word!r}: give all, fair or a number of engines"
        ) from error


def _url(address: str) -> str:
    url = address if "://" in address else f"http://{address}"
    host, _, port = url.partition("://")[2].rstrip("/").rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--eval-engine-addrs {address}: give HOST:PORT, for example 10.0.0.5:30000")
    return url.rstrip("/")


def _base(args: Namespace) -> Path:
    base = Path(args.hf_checkpoint)
    if not base.is_dir():
        raise ConfigError(
            f"--hf-checkpoint {base} is no directory: live eval needs the model's files, so download it "
            "and give "
            "the directory"
        )
    return base.absolute()


def _output_dir(args: Namespace) -> Path | None:
    if args.eval_output_dir is not None:
        return Path(args.eval_output_dir).absolute()
    save = getattr(args, "save", None)
    return Path(save).absolute() / "live_eval" if save else None


def _http(args: Namespace) -> HttpSettings | None:
    if args.eval_http_host is None and args.eval_http_port is None:
        return None
    below = [*([args.save] if getattr(args, "save", None) else [])]
    below += [str(Path(path).absolute().parent) for path in args.eval_checkpoint or ()]
    return HttpSettings(
        host=args.eval_http_host or "127.0.0.1",
        port=args.eval_http_port or 0,
        # Not a flag: slime writes its arguments into checkpoints and W&B.
        token=os.environ.get(TOKEN_ENV) or None,
        checkpoint_roots=tuple(dict.fromkeys(Path(path).absolute() for path in below)),
    )


def _absolute(path: str | None) -> Path | None:
    return None if path is None else Path(path).absolute()


def _steps_per_rollout(args: Namespace) -> int | None:
    if getattr(args, "global_batch_size", None) is None:
        return None
    return max(1, args.rollout_batch_size * args.n_samples_per_prompt // args.global_batch_size)


_AT_LEAST_ONE = ("eval_queue_size", "eval_max_consecutive_cancels", "eval_concurrency")
_POSITIVE = ("eval_store_max_gb", "eval_engine_timeout_s", "eval_timeout_s", "eval_drain_timeout_s")
_NOT_NEGATIVE = ("eval_keep_versions", "eval_sync_deadline_s")


def _check_numbers(args: Namespace) -> None:
    if args.eval_interval is not None and args.eval_interval < 1:
        raise ConfigError(
            f"--eval-interval is {args.eval_interval}: give 1 or more, or leave it out for every sync"
        )
    for name in _AT_LEAST_ONE:
        _check(args, name, lambda value: value >= 1, "1 or more")
    for name in _POSITIVE:
        _check(args, name, lambda value: value > 0, "more than 0")
    for name in _NOT_NEGATIVE:
        _check(args, name, lambda value: value >= 0, "0 or more")


def _check(args: Namespace, name: str, holds: Any, what: str) -> None:
    value = getattr(args, name)
    if value is not None and not holds(value):
        raise ConfigError(f"--{name.replace('_', '-')} is {value}: give {what}")
