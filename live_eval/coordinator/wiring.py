"""Small answers that the service gives its parts, from its configuration, store and ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from live_eval.engines.engine import EngineSpec
from live_eval.errors import LiveEvalError, NoSuchVersion
from live_eval.targets import CheckpointTarget

if TYPE_CHECKING:
    from live_eval.config import ServiceConfig
    from live_eval.results.rows import JobRow
    from live_eval.store.store import VersionStore


def checkpoints_of(jobs: Iterable[JobRow]) -> set[str]:
    """Paths of the checkpoints that jobs are of."""
    return {job.target.path for job in jobs if isinstance(job.target, CheckpointTarget)}


def engine_specs(config: ServiceConfig) -> list[EngineSpec]:
    """One spec an engine: attached ones where addresses are given, else servers to launch."""
    settings = config.engines
    urls: tuple[str | None, ...] = settings.addresses or (None,) * settings.num_engines
    return [
        EngineSpec(
            name=f"eval-{number}",
            model_path=config.base,
            device=settings.device,
            dtype=settings.dtype,
            tp_size=settings.tp_size,
            # Engines of one host share its visible GPUs: each takes the next `tp_size` of them.
            first_gpu=number * settings.tp_size,
            extra_args=settings.extra_args,
            python=settings.python,
            url=url,
        )
        for number, url in enumerate(urls)
    ]


def digest_of(store: VersionStore, policy_version: int) -> str:
    """The version's digest, empty where the store never knew it."""
    try:
        return store.get(policy_version).digest
    except NoSuchVersion:
        return ""


def same_as(store: VersionStore, policy_version: int) -> int | None:
    """The newest earlier version with the same digest, None where there is none."""
    try:
        return store.get(policy_version).same_as
    except NoSuchVersion:
        return None


def vector_of(value: object) -> tuple[float, ...]:
    """A fingerprint as the ledger keeps it; LiveEvalError if it is none."""
    if not isinstance(value, list):
        raise LiveEvalError(f"the ledger's fingerprint {value!r} is no list of numbers")
    return tuple(float(number) for number in value)
