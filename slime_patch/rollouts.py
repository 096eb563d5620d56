"""Which rollout and train step a weight update belongs to, and whether it is wanted.

slime's engines and updaters never learn of rollouts; its driver does. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from live_eval.scheduling.actions import Trigger
from live_eval.scheduling.due import DueRule
from live_eval.targets import PolicyTarget
from slime_patch.tap import SyncNote


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """What the driver knows when training begins."""

    start_rollout_id: int
    num_rollout: int
    steps_per_rollout: int | None
    update_weights_interval: int
    """Rollouts between two updates."""
    interval: int | None
    skip_first: bool
    keep_all: bool
    """Whether updates that are not due are wanted too."""
    critic_only_steps: int = 0
    """Rollouts of a new run that train the critic alone."""
    first_push_has_version: bool = True
    """Whether the first update sends weights."""


class SyncCounter:
    """Told of each training and of updates that came to nothing, asked before each update."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._rule = DueRule(interval=schedule.interval, skip_first=schedule.skip_first)
        # A resumed run's first push holds the weights after the last rollout of the run before it.
        self._rollout_id = schedule.start_rollout_id - 1 if schedule.start_rollout_id > 0 else None
        self._num_syncs = 0
        self._num_updates = 0
        self._trained = True
        """Whether the weights are others than at the update before."""
        self._due_after: set[int] = set()
        """Rollouts whose updates have a due point."""
        self._owed = False
        """Whether such an update never became a version, and none has taken its place."""

    def given_up(self, rollout_id: int | None) -> None:
        """The update after this rollout never became a version: a due point that it had is the next one's.

        May be called from another thread than the others.
        """
        if rollout_id in self._due_after:
            self._owed = True

    def trained(self, rollout_id: int) -> None:
        """The trainer was told to train on this rollout."""
        self._rollout_id = rollout_id
        self._trained = True

    def next_sync(self) -> SyncNote:
        """The update that comes now."""
        self._num_updates += 1
        if self._num_updates == 1 and not self._schedule.first_push_has_version:
            return SyncNote(rollout_id=self._rollout_id, train_step=self._train_step(), wanted=False)
        self._num_syncs += 1
        trained, self._trained = self._trained, False
        if not trained:  # a step of the critic alone: what is sent again is a version already
            return SyncNote(rollout_id=self._rollout_id, train_step=self._train_step(), wanted=False)
        rollout_id = self._rollout_id
        target = PolicyTarget(
            policy_version=self._num_syncs, weight_version=self._num_syncs, rollout_id=rollout_id
        )
        due = self._rule.judge(target)
        owed, self._owed = self._owed, False
        if rollout_id is not None and (owed or (due is not None and due.trigger is Trigger.INTERVAL)):
            self._due_after.add(rollout_id)
        return SyncNote(
            rollout_id=rollout_id,
            train_step=self._train_step(),
            wanted=due is not None or owed or self._schedule.keep_all or self._is_last(),
        )

    def _train_step(self) -> int | None:
        steps = self._schedule.steps_per_rollout
        done = 0 if self._rollout_id is None else self._rollout_id + 1
        return None if steps is None else max(done - self._schedule.critic_only_steps, 0) * steps

    def _is_last(self) -> bool:
        schedule = self._schedule
        every = schedule.update_weights_interval
        last = schedule.num_rollout // every * every - 1
        return self._rollout_id is not None and self._rollout_id >= last
