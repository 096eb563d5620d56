"""What the shell tells the scheduler about jobs: how one went, and which ones a ledger knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from live_eval.reasons import EndReason, JobStatus

if TYPE_CHECKING:
    from live_eval.targets import Target

OUTCOMES = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.TIMED_OUT, JobStatus.CANCELLED)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOutcome:
    """How one run of a job went, as the runner saw it. ValueError if the status is none of OUTCOMES."""

    status: JobStatus
    reason: EndReason = EndReason.COMPLETED

    def __post_init__(self) -> None:
        if self.status not in OUTCOMES:
            raise ValueError(f"a run cannot end as {self.status}; use one of {', '.join(OUTCOMES)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownJob:
    """A job as the ledger has it when the service starts, terminal or not."""

    job_id: str
    target: Target
    dataset: str
    status: JobStatus
    attempt: int = 1
    reason: EndReason | None = None
    """Set for terminal jobs."""
    priority: int = 0
    """Of a checkpoint."""
