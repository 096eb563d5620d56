"""What a demo run is made of: its options, and the configurations that follow from them.

Values and files only; nothing here starts a process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from safetensors import SafetensorError

from live_eval.config import EngineSettings, HttpSettings, ServiceConfig, StoreSettings
from live_eval.demo.model import write_base
from live_eval.demo.tasks import TASKS, write_eval_set
from live_eval.errors import ConfigError
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.evaluation.job import RunLimits
from live_eval.evaluation.sampling import SamplingParams
from live_eval.results.wandb_sink import WandbConfig
from live_eval.rundir import RunDir
from live_eval.scheduling.config import OnUpdate, SchedulerConfig
from live_eval.store.base import BaseCheckpoint
from live_eval.store.checkpoint import check_complete
from live_eval.store.place import check_place

if TYPE_CHECKING:
    import argparse

MARKER = ".live-eval-demo"
"""File by which a directory is known as a demo's own, which another demo may replace. Locked during a run."""
STEPS_PER_ROUND = 34
"""With ten versions the model has learnt both tasks by the last one."""
NUM_ROWS = 64
"""Prompts of each eval set."""
MAX_NEW_TOKENS = 8
SAMPLED_TEMPERATURE = 0.6
"""For several answers a prompt; a single one is greedy."""
MAX_STORE_BYTES = 1 << 30
CALLS_PER_ENGINE = 2
"""The second call fills the engine's batch while the first waits for its longest answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoOptions:
    """What the user chose."""

    out: Path
    num_versions: int
    seed: int
    transport: Literal["nccl", "ray"]
    on_update: OnUpdate
    interval: int
    num_samples: int
    checkpoints: tuple[Path, ...]
    num_engines: int
    json_file: Path | None
    http_port: int | None = None
    """Where the page is served during the run; 0: any port that is free, None: no page."""

    @classmethod
    def of(cls, args: argparse.Namespace) -> DemoOptions:
        """The options of a parsed `live-eval demo` command line."""
        return cls(
            out=Path(args.out),
            num_versions=args.versions,
            seed=args.seed,
            transport=args.transport,
            on_update=args.eval_on_update,
            interval=args.eval_interval,
            num_samples=args.n_samples_per_eval_prompt,
            checkpoints=tuple(Path(path) for path in args.eval_checkpoint),
            num_engines=args.engines,
            json_file=Path(args.json) if args.json else None,
            http_port=args.http_port,
        )


def prepare(options: DemoOptions) -> RunDir:
    """Make the run directory with the untrained model and the eval sets in it.

    The directory is this process's until it ends. ConfigError if the directory holds something that no
    demo made, if a demo runs in it or if it cannot be written, or if the page's port is taken;
    CorruptVersion if a checkpoint to evaluate is none. Nothing that was there has been touched then.
    """
    _check_port(options.http_port)
    for path in options.checkpoints:
        check_complete(path)
        if path.resolve().is_relative_to(options.out.resolve()):
            raise ConfigError(
                f"{path} would be removed with the earlier demo in {options.out}; give another --out"
            )
    run_dir = RunDir(options.out)
    try:
        _clear(run_dir.root)
        run_dir.make()
        _lock(run_dir.root / MARKER)
        write_base(run_dir.base, seed=options.seed)
        for task in TASKS:
            write_eval_set(task, _data_file(run_dir, task.name), num_rows=NUM_ROWS, seed=options.seed)
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"cannot prepare {options.out}: {error}; free space there or give another --out"
        ) from error
    check_place(
        run_dir.store,
        index_bytes=BaseCheckpoint.read(run_dir.base).version_bytes,
        kept=options.num_versions,
        max_bytes=MAX_STORE_BYTES,
    )
    return run_dir


def earlier_run(directory: Path) -> str:
    """When the demo in the directory began, for people; empty where there is none."""
    try:
        began = (directory / MARKER).stat().st_mtime
    except OSError:
        return ""
    return datetime.fromtimestamp(began).strftime("%Y-%m-%d %H:%M")


def service_config(options: DemoOptions, run_dir: RunDir, run_id: str) -> ServiceConfig:
    """The service of this run."""
    return ServiceConfig(
        run_id=run_id,
        run_dir=run_dir.root,
        base=run_dir.base,
        datasets=tuple(_eval_set(options, run_dir, task.name) for task in TASKS),
        scheduler=SchedulerConfig(
            datasets=tuple(task.name for task in TASKS),
            on_update=options.on_update,
            interval=options.interval,
        ),
        # All versions of a demo are kept, so that a person can look at them afterwards.
        store=StoreSettings(max_bytes=MAX_STORE_BYTES, keep_newest=options.num_versions),
        engines=EngineSettings(num_engines=options.num_engines, device="cpu"),
        limits=RunLimits(num_in_flight=CALLS_PER_ENGINE * options.num_engines),
        http=_http(options, run_dir),
        wandb=WandbConfig(
            dir=run_dir.wandb,
            project="live-eval-demo",
            group=run_id,
            name=f"{run_id}-eval",
            config={"transport": options.transport, "on_update": options.on_update, "seed": options.seed},
        ),
    )


def _http(options: DemoOptions, run_dir: RunDir) -> HttpSettings | None:
    if options.http_port is None:
        return None
    # Its versions are checkpoints as they lie there, to be evaluated once more from the page.
    return HttpSettings(port=options.http_port, checkpoint_roots=(run_dir.store.absolute(),))


def _check_port(port: int | None) -> None:
    """Refuse a port that the service would find taken half a minute later."""
    if port is None:
        return
    try:
        from live_eval.http.server import listen
    except ImportError as error:
        raise ConfigError(
            f"--http-port: no page without {error.name}: pip install 'live-eval[http]'"
        ) from error
    listen(HttpSettings(port=port)).close()


def _eval_set(options: DemoOptions, run_dir: RunDir, name: str) -> EvalSetConfig:
    temperature = SAMPLED_TEMPERATURE if options.num_samples > 1 else 0.0
    return EvalSetConfig(
        name=name,
        path=_data_file(run_dir, name),
        n=options.num_samples,
        sampling=SamplingParams(temperature=temperature, max_new_tokens=MAX_NEW_TOKENS, seed=options.seed),
    )


def _data_file(run_dir: RunDir, name: str) -> Path:
    return run_dir.data / f"eval-{name}.jsonl"


def _clear(directory: Path) -> None:
    """Remove an earlier demo; refuse to touch anything else."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is no directory; give another --out")
    if not directory.exists() or not any(directory.iterdir()):
        return
    if not (directory / MARKER).exists():
        raise ConfigError(
            f"{directory} is not empty and no demo made it; give a new directory for --out, or remove it"
        )
    _lock(directory / MARKER)
    _make_writable(directory)
    shutil.rmtree(directory)


def _lock(marker: Path) -> None:
    """Lock the marker for the life of this process, made if it is missing; ConfigError if a demo has it."""
    descriptor = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            f"a demo is running in {marker.parent}; wait for it, or give another --out"
        ) from None


def _make_writable(directory: Path) -> None:
    """Sealed versions are read-only directories."""
    for path in directory.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
