"""Records of what is scheduled: an evaluation is one target, with one job a dataset.

    waiting -> running -> succeeded | failed | timed_out | cancelled
    waiting -> superseded | dropped | cancelled | failed | timed_out
    running -> waiting                       (the run failed or was cut, and the job is run again)

Invariant: a job changes by Job.move alone, which refuses every other step, so a terminal job stays as
it is. The records know no policy and no order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from live_eval.reasons import EndReason, JobStatus
from live_eval.targets import PolicyTarget, Target

_NEXT = {
    JobStatus.WAITING: frozenset(JobStatus) - {JobStatus.WAITING, JobStatus.SUCCEEDED},
    JobStatus.RUNNING: frozenset(
        {JobStatus.WAITING, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.TIMED_OUT, JobStatus.CANCELLED}
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """A job was told to stop; this is what it ends as unless it succeeds first."""

    status: JobStatus
    reason: EndReason
    since: float


@dataclass(kw_only=True, slots=True)
class Job:
    """One target on one dataset."""

    job_id: str
    dataset: str
    status: JobStatus = JobStatus.WAITING
    reason: EndReason | None = None
    attempt: int = 1
    num_failed: int = 0
    """Runs that failed in this life of the service."""
    handed_out: bool = False
    """The shell has it in the present run and has not reported it."""
    started_at: float | None = None
    stop: Stop | None = None

    @property
    def ended(self) -> bool:
        """Whether the job is in its terminal state."""
        return self.status.terminal

    def move(self, status: JobStatus) -> None:
        """Go to `status`; RuntimeError if the job may not."""
        if status not in _NEXT.get(self.status, ()):
            raise RuntimeError(f"job {self.job_id} cannot go from {self.status} to {status}")
        self.status = status


@dataclass(kw_only=True, slots=True)
class Evaluation:
    """One target on its datasets; the unit that holds engines."""

    target: Target
    jobs: list[Job] = field(default_factory=list)
    run: int = 0
    """Number of times the jobs were handed out."""
    protected: bool = False
    priority: int = 0
    """Of a checkpoint's: which of those that wait is next."""
    begun: bool = False
    """Whether a job of it ever started."""
    quiet_since: float = 0.0
    """When the shell last took or reported something of it."""

    @property
    def key(self) -> str:
        """Name of the evaluation and owner of its pin."""
        return self.target.key

    @property
    def policy_version(self) -> int | None:
        """The version of a live evaluation, None for a checkpoint."""
        return self.target.policy_version if isinstance(self.target, PolicyTarget) else None

    @property
    def unfinished(self) -> list[Job]:
        """Jobs that have not ended, in the order of the datasets."""
        return [job for job in self.jobs if not job.ended]

    @property
    def in_hand(self) -> list[Job]:
        """Jobs that the shell has and has not reported."""
        return [job for job in self.jobs if job.handed_out]

    def ended_with(self, status: JobStatus, reason: EndReason) -> bool:
        """Whether some job ended as `status` for `reason`."""
        return any(job.status is status and job.reason is reason for job in self.jobs)
