"""Brings back what a ledger knows after the service was started again.

Turns job rows into evaluations and says which of them a policy would have ended by now. The scheduler
puts them in their places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_eval.reasons import JobStatus
from live_eval.scheduling.jobs import Evaluation, Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from live_eval.scheduling.config import OnUpdate
    from live_eval.scheduling.reports import KnownJob

_SEEN_BY_AN_ENGINE = (JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.TIMED_OUT)


def rebuild(known: Iterable[KnownJob]) -> list[Evaluation]:
    """Evaluations in the order of their first job; a running job is still marked as running."""
    evaluations: dict[str, Evaluation] = {}
    for row in known:
        key = row.target.key
        evaluation = evaluations.setdefault(key, Evaluation(target=row.target, priority=row.priority))
        evaluation.jobs.append(
            Job(
                job_id=row.job_id,
                dataset=row.dataset,
                status=row.status,
                reason=row.reason,
                attempt=row.attempt,
            )
        )
        evaluation.begun = evaluation.begun or row.status in _SEEN_BY_AN_ENGINE or row.attempt > 1
    return list(evaluations.values())


def replaced(
    policy: OnUpdate, live: Sequence[Evaluation], *, protects: bool
) -> list[tuple[Evaluation, JobStatus]]:
    """Of unfinished live evaluations, oldest first, those that a newer one had replaced at the end.

    The decision was made before the service went down; only its record is missing. One that had begun
    completes under `finish`, and under `cancel` while the guard is up. One that had not begun counts as
    waiting, even if the engines were loading it, and of these the newest stays.
    """
    if policy == "queue":
        return []
    completes = policy == "finish" or protects
    out = [old for old in live[:-1] if not (old.begun and completes)]
    return [(old, JobStatus.CANCELLED if old.begun else JobStatus.SUPERSEDED) for old in out]
