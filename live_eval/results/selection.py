"""Which results somebody wants to see: by dataset, version and state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from live_eval.errors import ConfigError
from live_eval.reasons import JobStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """All jobs, unless something is named."""

    datasets: tuple[str, ...] = ()
    first_version: int | None = None
    last_version: int | None = None
    """Policy versions, both included; with either, checkpoints are left out."""
    statuses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = [status.value for status in JobStatus]
        if unknown := sorted(set(self.statuses) - set(known)):
            raise ConfigError(f"status {', '.join(unknown)} is none of {', '.join(known)}")

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self == Selection()

    def holds(self, job: dict[str, Any]) -> bool:
        """Whether a job's record is wanted."""
        if self.datasets and job["dataset"] not in self.datasets:
            return False
        if self.statuses and job["status"] not in self.statuses:
            return False
        if self.first_version is None and self.last_version is None:
            return True
        version = job["policy_version"]
        if version is None:
            return False
        low = version if self.first_version is None else self.first_version
        high = version if self.last_version is None else self.last_version
        return low <= version <= high

    def of(self, jobs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The wanted ones, in their order; ConfigError for a dataset that no job has."""
        listed = list(jobs)
        known = {job["dataset"] for job in listed}
        if unknown := sorted(set(self.datasets) - known):
            names = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"no job is of dataset {', '.join(unknown)}; datasets of this run: {names}")
        return [job for job in listed if self.holds(job)]


def version_range(text: str) -> tuple[int | None, int | None]:
    """`7`, `3:7`, `3:` or `:7` as first and last version; ConfigError for anything else."""
    first, colon, last = text.partition(":")
    bounds = (first, last) if colon else (first, first)
    if not any(bounds) or not all(bound.isdigit() or not bound for bound in bounds):
        raise ConfigError(f"versions {text!r}: give a version (7) or a range (3:7, 3:, :7)")
    low, high = (int(bound) if bound else None for bound in bounds)
    if low is not None and high is not None and low > high:
        raise ConfigError(f"versions {text!r}: the first is above the last")
    return low, high
