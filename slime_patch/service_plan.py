"""The service's configuration, from a job's settings and the place where it runs. Values only."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval.config import EngineSettings, ServiceConfig, StoreSettings
from live_eval.evaluation.job import RunLimits
from live_eval.rundir import RunDir
from live_eval.scheduling.config import SchedulerConfig

if TYPE_CHECKING:
    from slime_patch.settings import Settings
    from slime_patch.slime_eval.plan import SlimeEvalPlan

SPARE_VERSIONS = 4
"""Beyond the versions that are kept: one arrives, one is evaluated, two wait."""
OVERHEAD_BYTES = 4 << 20
"""Of a version beside its tensors: headers, manifest, small files."""
LEAST_STORE_BYTES = 4_000_000_000
"""For small models, of which many may wait."""
REWARD_TIMEOUT_S = 120.0
"""Reward functions of slime may ask a model server."""
NUM_GRADERS = 4
MAX_CHUNK = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class ServicePlan:
    """What the service actor is given: everything it needs to make the rest on its own node."""

    settings: Settings
    run_dir: Path
    slime_arguments: dict[str, Any] = field(repr=False)
    """slime's arguments that reward functions may read."""
    wandb_group: str | None = None
    """The trainer's group, with the suffix that slime gave it."""
    slime_eval: SlimeEvalPlan | None = None
    """Where slime's own eval function evaluates."""
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """Of a directory that has no run yet; the same wherever the service is started again."""


def store_bytes(settings: Settings, model_bytes: int) -> int:
    """The byte budget of the version store."""
    if settings.store_max_bytes is not None:
        return settings.store_max_bytes
    needed = (settings.keep_versions + SPARE_VERSIONS) * (model_bytes + OVERHEAD_BYTES)
    return max(needed, LEAST_STORE_BYTES)


def limits(settings: Settings) -> RunLimits:
    """How many samples are asked for at once."""
    per_engine = settings.engines.concurrency
    chunk = max(1, min(MAX_CHUNK, per_engine // 2))
    return RunLimits(
        timeout_s=settings.timeout_s,
        chunk_size=chunk,
        num_in_flight=max(1, per_engine // chunk) * max(1, settings.engines.num_engines),
    )


def service_config(plan: ServicePlan, *, run_id: str, model_bytes: int, data_dir: Path) -> ServiceConfig:
    """The configuration of the service process; `data_dir` holds what `prepare` made."""
    settings, engines = plan.settings, plan.settings.engines
    run_dir = RunDir(plan.run_dir)
    datasets = tuple(
        dataset.eval_set(prepared_file(data_dir, number)) for number, dataset in enumerate(settings.datasets)
    )
    return ServiceConfig(
        run_id=run_id,
        run_dir=run_dir.root,
        base=settings.base,
        datasets=datasets,
        scheduler=SchedulerConfig(
            datasets=tuple(dataset.name for dataset in datasets),
            on_update=settings.on_update,
            interval=settings.interval,
            skip_first=settings.skip_first,
            queue_size=settings.queue_size,
            max_consecutive_cancels=settings.max_consecutive_cancels,
            engines_per_eval=engines.per_eval,
            job_timeout_s=settings.timeout_s,
            drain_timeout_s=settings.drain_timeout_s,
        ),
        store=StoreSettings(max_bytes=store_bytes(settings, model_bytes), keep_newest=settings.keep_versions),
        engines=EngineSettings(
            num_engines=max(1, engines.num_engines),
            addresses=engines.addresses,
            device=engines.device,
            dtype=engines.dtype,
            tp_size=engines.gpus_per_engine,
            extra_args=engines.args,
            usable_timeout_s=settings.engine_timeout_s,
        ),
        limits=limits(settings),
        wandb=_wandb(plan, run_id),
        http=settings.http,
        checkpoint_watch=settings.watch,
        num_graders=NUM_GRADERS,
        reward_timeout_s=REWARD_TIMEOUT_S,
    )


def prepared_file(data_dir: Path, number: int) -> Path:
    """Where the eval set of that number is written; its name may hold any character, so it is not used."""
    return data_dir / f"eval-{number}.jsonl"


def _wandb(plan: ServicePlan, run_id: str) -> Any:
    settings = plan.settings
    if settings.wandb is None:
        return None
    shown = {
        "run_id": run_id,
        "mode": settings.mode,
        "on_update": settings.on_update,
        "interval": settings.interval,
    }
    return settings.wandb.config(plan.run_dir, group=plan.wandb_group, shown=shown)
