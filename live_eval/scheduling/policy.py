"""What a newer due version does to the running evaluation and to those that wait.

Each policy is a function of what is there; none of them changes anything. The guard of `cancel` is
here too: without it an evaluation that takes longer than the time between syncs would never score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from live_eval.reasons import EndReason, JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from live_eval.scheduling.config import OnUpdate
    from live_eval.scheduling.jobs import Evaluation


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What to do about a newly due version."""

    admit: bool
    """False: a newer one is known, so the newcomer itself is superseded."""
    cancel_running: bool = False
    supersede: tuple[Evaluation, ...] = ()
    """Waiting evaluations that the newcomer replaces."""


def on_newly_due(
    policy: OnUpdate,
    version: int,
    *,
    newest_due: int | None,
    running: Evaluation | None,
    waiting: Sequence[Evaluation],
) -> Verdict:
    """Decide for `version`; `newest_due` is the highest due version so far, `waiting` the live ones."""
    if policy == "queue":
        return Verdict(admit=True)
    if newest_due is not None and version < newest_due:
        return Verdict(admit=False)
    return Verdict(
        admit=True,
        cancel_running=policy == "cancel" and running is not None and may_cancel(running),
        supersede=tuple(waiting),
    )


def may_cancel(running: Evaluation) -> bool:
    """Whether a newer version may cancel this one: no checkpoint, and not protected by the guard."""
    return running.policy_version is not None and not running.protected


def overflow(waiting: Sequence[Evaluation], *, queue_size: int) -> tuple[Evaluation, ...]:
    """The oldest waiting live evaluations beyond the queue's bound."""
    return tuple(waiting[: max(len(waiting) - queue_size, 0)])


def keeps_ended_incarnations(policy: OnUpdate) -> bool:
    """Whether versions of an ended incarnation keep their place."""
    return policy == "queue"


class CancelGuard:
    """Counts evaluations cancelled in a row; protects the next one when there were too many.

    The count goes back to 0 only when a live evaluation that was not cancelled has scored something:
    one that failed leaves the guard where it is.
    """

    def __init__(self, *, max_consecutive_cancels: int) -> None:
        self._max = max_consecutive_cancels
        self._count = 0

    @property
    def protects(self) -> bool:
        """Whether a live evaluation that starts now is protected."""
        return self._count >= self._max

    def record(self, evaluation: Evaluation) -> None:
        """Take note of how a live evaluation ended."""
        if evaluation.policy_version is None:
            return
        if evaluation.ended_with(JobStatus.CANCELLED, EndReason.NEWER_VERSION):
            self._count += 1
        elif any(job.status is JobStatus.SUCCEEDED for job in evaluation.jobs):
            self._count = 0
