"""Which versions are due, as a range over rollout ids.

A due point lies after every `interval` rollouts. A version is due if a due point lies between the last
due version and itself, so a due point whose rollout has no sync of its own is served by the first
version at or after it, and a counter that skips values skips no evaluation. The rule knows neither
policies nor what became of a due version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from live_eval.scheduling.actions import Trigger

if TYPE_CHECKING:
    from live_eval.targets import PolicyTarget


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """Why a version is due."""

    trigger: Trigger
    due_rollout: int | None = None
    """Rollout id of the last due point that the version serves."""


class DueRule:
    """Judges versions in the order in which they come; one instance a run."""

    def __init__(self, *, interval: int | None, skip_first: bool) -> None:
        self._interval = interval
        self._skip_first = skip_first
        self._incarnation = 0
        self._base = 0
        """Rollouts done by the last due version."""
        self._restarted = False
        """A new incarnation has shown no rollout id yet."""

    def judge(self, target: PolicyTarget) -> Due | None:
        """Say whether `target` is due, and if so count from it from now on."""
        first = self._is_first_push(target)
        self._follow(target)
        due = self._first(target) if first else self._later(target)
        if due is not None:
            self._count_from(target)
        return due

    def note(self, target: PolicyTarget) -> None:
        """Count from `target`, which is evaluated for another reason than this rule."""
        self._follow(target)
        self._count_from(target)

    def next_due_rollout(self, target: PolicyTarget) -> int | None:
        """Rollout id of the first due point after `target`; None where nothing can be counted."""
        if self._interval is None or target.rollout_id is None:
            return None
        return (_rollouts_done(target) // self._interval + 1) * self._interval - 1

    def _is_first_push(self, target: PolicyTarget) -> bool:
        new_life = target.incarnation > self._incarnation
        return target.weight_version == 1 or (target.rollout_id is None and new_life)

    def _follow(self, target: PolicyTarget) -> None:
        """A trainer restarted from an older checkpoint passes its due points again with other weights."""
        if target.incarnation > self._incarnation:
            self._restarted = self._incarnation > 0
            self._incarnation = target.incarnation
        if self._restarted and target.rollout_id is not None and target.incarnation == self._incarnation:
            self._base = min(self._base, max(_rollouts_done(target) - 1, 0))
            self._restarted = False

    def _first(self, target: PolicyTarget) -> Due | None:
        if self._skip_first:
            self._count_from(target)
            return None
        return Due(trigger=Trigger.FIRST_PUSH)

    def _later(self, target: PolicyTarget) -> Due | None:
        if self._interval is None:
            return Due(trigger=Trigger.EVERY)
        if target.rollout_id is None:
            return Due(trigger=Trigger.UNNUMBERED)
        points = _rollouts_done(target) // self._interval
        if points <= self._base // self._interval:
            return None
        return Due(trigger=Trigger.INTERVAL, due_rollout=points * self._interval - 1)

    def _count_from(self, target: PolicyTarget) -> None:
        # A version of an earlier life that comes late must not move the count of the present one.
        if target.rollout_id is not None and target.incarnation == self._incarnation:
            self._base = max(self._base, _rollouts_done(target))


def _rollouts_done(target: PolicyTarget) -> int:
    return 0 if target.rollout_id is None else target.rollout_id + 1
