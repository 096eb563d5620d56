"""The evaluations that wait: live versions in version order, checkpoints by priority, then order of asking.

Run order: when both kinds wait, a live version goes first unless the last evaluation that ended was
live and ran its course, in which case a checkpoint goes first. So a live version waits for at most one
checkpoint (or those that run side by side), and checkpoints are not starved: at most one live evaluation
runs its course before one. The backlog knows no policy; who may wait is decided elsewhere.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from live_eval.reasons import EndReason, JobStatus

if TYPE_CHECKING:
    from live_eval.scheduling.jobs import Evaluation


class Backlog:
    """Two lines and the rule which of them is next."""

    def __init__(self) -> None:
        self._live: list[Evaluation] = []
        self._checkpoints: list[Evaluation] = []
        self._checkpoint_turn = False

    @property
    def live(self) -> tuple[Evaluation, ...]:
        """Waiting live evaluations, oldest version first."""
        return tuple(self._live)

    @property
    def num_checkpoints(self) -> int:
        """Evaluations of checkpoints that wait."""
        return len(self._checkpoints)

    @property
    def all(self) -> tuple[Evaluation, ...]:
        """All that wait: live ones, then checkpoints."""
        return (*self._live, *self._checkpoints)

    def add(self, evaluation: Evaluation) -> None:
        """Let `evaluation` wait."""
        if evaluation.policy_version is None:
            insort(self._checkpoints, evaluation, key=lambda other: -other.priority)
        else:
            insort(self._live, evaluation, key=lambda other: other.policy_version or 0)

    def remove(self, evaluation: Evaluation) -> None:
        """Take out an evaluation that will not run; ValueError if it does not wait."""
        line = self._checkpoints if evaluation.policy_version is None else self._live
        line.remove(evaluation)

    def next(self) -> Evaluation | None:
        """What runs next; None if nothing waits. It stays in the line until it is removed."""
        checkpoint_first = self._checkpoint_turn or not self._live
        line = self._checkpoints if checkpoint_first and self._checkpoints else self._live
        return line[0] if line else None

    def record(self, evaluation: Evaluation) -> None:
        """Take note of what ended; a live one cancelled for a newer version leaves the turn to that one."""
        cancelled = evaluation.ended_with(JobStatus.CANCELLED, EndReason.NEWER_VERSION)
        self._checkpoint_turn = evaluation.policy_version is not None and not cancelled
