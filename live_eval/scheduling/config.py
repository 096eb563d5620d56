"""Settings of the scheduler, checked once when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from live_eval.errors import ConfigError

OnUpdate = Literal["finish", "cancel", "queue"]
"""What happens to a running evaluation, and to waiting ones, when a newer due version is sealed."""
EnginesPerEval = int | Literal["all", "fair"]
"""Engines of a checkpoint's evaluation: so many, all of them, or its part of those that are free."""


def engines_per_eval_of(word: str) -> EnginesPerEval:
    """What a user's word means; ValueError if it is neither all, fair nor a number of engines."""
    if word == "all" or word == "fair":
        return word
    number = int(word)
    if number < 1:
        raise ValueError(f"{number} engines")
    return number


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerConfig:
    """How versions become evaluations and in which order these run. ConfigError if a value cannot work."""

    datasets: tuple[str, ...]
    """Names of the eval sets; each evaluation of a version has one job per name."""
    eval_every: dict[str, int] = field(default_factory=dict)
    """Datasets that are not evaluated every time: on each so manyth due version, on the first, on a
    last one that was not due, and on each that somebody asks for. Checkpoints are evaluated on all."""
    job_timeouts: dict[str, float] = field(default_factory=dict)
    """Instead of `job_timeout_s`, for jobs of these datasets."""
    on_update: OnUpdate = "finish"
    num_engines: int = 1
    """Engines of the group."""
    engines_per_eval: EnginesPerEval = "all"
    """Other than `all`: checkpoints are evaluated side by side, each on its part of the engines. A policy
    version always has all of them."""
    interval: int | None = None
    """A version is due every this many rollouts; None: every version is due."""
    skip_first: bool = False
    """Leave out the first push of a trainer, which holds the weights it started from."""
    queue_size: int = 16
    """Live versions that may wait under `queue`; one more and the oldest waiting one is dropped."""
    max_consecutive_cancels: int = 3
    """After so many evaluations in a row were cancelled for a newer version the next one is protected."""
    max_attempts: int = 2
    """Runs that a job gets when its engine or its load fails."""
    job_timeout_s: float = 1800.0
    """A running job is stopped after this time; so is an evaluation in which nothing happens for so long."""
    drain_timeout_s: float | None = 3600.0
    """Time from the end of training in which what is left may run; None: no limit."""
    abort_grace_s: float = 30.0
    """A job that was told to stop is ended after this time even if nobody confirmed it."""

    def __post_init__(self) -> None:
        if self.on_update not in get_args(OnUpdate):
            raise ConfigError(f"on_update is {self.on_update!r}; use one of {', '.join(get_args(OnUpdate))}")
        if not self.datasets:
            raise ConfigError("datasets is empty; name at least one eval set")
        if len(set(self.datasets)) != len(self.datasets):
            raise ConfigError(f"datasets has a name twice: {', '.join(self.datasets)}; rename one")
        if unknown := sorted((set(self.eval_every) | set(self.job_timeouts)) - set(self.datasets)):
            raise ConfigError(f"eval_every or job_timeouts names {', '.join(unknown)}, which is no dataset")
        for name, every in self.eval_every.items():
            _at_least_one(f"eval_every of {name}", every)
        for name, timeout_s in self.job_timeouts.items():
            _positive(f"job_timeouts of {name}", timeout_s)
        if self.interval is not None:
            _at_least_one("interval", self.interval)
        if isinstance(self.engines_per_eval, int):
            _at_least_one("engines_per_eval", self.engines_per_eval)
        elif self.engines_per_eval not in ("all", "fair"):
            raise ConfigError(
                f"engines_per_eval is {self.engines_per_eval!r}; use all, fair or a number of engines"
            )
        _at_least_one("num_engines", self.num_engines)
        _at_least_one("queue_size", self.queue_size)
        _at_least_one("max_consecutive_cancels", self.max_consecutive_cancels)
        _at_least_one("max_attempts", self.max_attempts)
        _positive("job_timeout_s", self.job_timeout_s)
        _positive("abort_grace_s", self.abort_grace_s)
        if self.drain_timeout_s is not None:
            _positive("drain_timeout_s", self.drain_timeout_s)


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(f"{name} is {value}; it must be at least 1")


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(f"{name} is {value}; it must be more than 0 seconds")
