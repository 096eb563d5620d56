"""Drives a scheduler as the coordinator would, with a clock of its own and no engines."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fakes.schedule_checker import ScheduleChecker

from live_eval.reasons import EndReason, JobStatus
from live_eval.scheduling.actions import Action, CancelRunning, NewJob, RunEvaluation
from live_eval.scheduling.config import SchedulerConfig
from live_eval.scheduling.reports import JobOutcome
from live_eval.scheduling.scheduler import Scheduler
from live_eval.targets import CheckpointTarget, PolicyTarget

SUCCEEDED = JobOutcome(status=JobStatus.SUCCEEDED)
STOPPED = JobOutcome(status=JobStatus.CANCELLED, reason=EndReason.INTERNAL)
"""What a runner reports that was told to stop; the scheduler knows why."""


def failed(reason: EndReason) -> JobOutcome:
    """A run that failed for `reason`."""
    return JobOutcome(status=JobStatus.FAILED, reason=reason)


class EvalShell:
    """A scheduler, its checker, and the engines' side of every run."""

    def __init__(self, **settings: Any) -> None:
        self.config = SchedulerConfig(**{"datasets": ("a",), **settings})
        self.scheduler = Scheduler(self.config)
        self.checker = ScheduleChecker(config=self.config)
        self.now = 0.0
        self.in_hand: dict[str, int] = {}
        """Jobs handed out and not reported, with their attempt."""
        self.told_to_stop: list[str] = []
        self.triggers: dict[str, str] = {}
        """Evaluation -> why, with the due rollout if there is one."""

    # --- events ---------------------------------------------------------------------------

    def seal(self, version: int, *, rollout_id: int | None = None, **fields: Any) -> list[Action]:
        """A version is sealed; its weight version is its policy version unless given."""
        fields = {"weight_version": version, **fields}
        target = PolicyTarget(policy_version=version, rollout_id=rollout_id, **fields)
        return self.take(self.scheduler.version_sealed(target, now=self.now))

    def submit(self, number: int, *datasets: str, priority: int = 0) -> list[Action]:
        """A user names a checkpoint."""
        target = CheckpointTarget(path=f"/ckpt/{number}", number=number)
        return self.take(
            self.scheduler.checkpoint_submitted(target, datasets, priority=priority, now=self.now)
        )

    def start(self, *job_ids: str) -> None:
        """The runner begins with jobs; without names, with all in hand."""
        for name in job_ids or tuple(self.in_hand):
            self.checker.started(name)
            self.take(self.scheduler.job_started(name, attempt=self.in_hand[name], now=self.now))

    def report(self, job_id: str, outcome: JobOutcome = SUCCEEDED) -> list[Action]:
        """The runner is done with one job."""
        attempt = self.in_hand.pop(job_id)
        return self.take(self.scheduler.job_finished(job_id, outcome, attempt=attempt, now=self.now))

    def release(self, reason: EndReason | None = None, *, evaluation: str | None = None) -> list[Action]:
        """The run is over, by default the one that began first."""
        run = self.checker.held[evaluation] if evaluation else self.checker.running
        assert run is not None
        self.checker.released(run.evaluation)
        for job in run.jobs:
            self.in_hand.pop(job.job_id, None)
        return self.take(
            self.scheduler.evaluation_ended(run.evaluation, run=run.run, now=self.now, reason=reason)
        )

    def complete(self, evaluation: str | None = None) -> list[Action]:
        """Run what is in hand of a run to its end: jobs told to stop as stopped, the others with success."""
        run = self.checker.held[evaluation] if evaluation else self.checker.running
        assert run is not None
        names = [job.job_id for job in run.jobs if job.job_id in self.in_hand]
        if names:
            self.start(*names)
        for name in names:
            self.report(name, STOPPED if name in self.told_to_stop else SUCCEEDED)
        return self.release(evaluation=run.evaluation)

    def complete_all(self) -> None:
        """Run evaluations until none is left."""
        while self.checker.running is not None:
            self.complete()

    def pass_time(self, seconds: float) -> list[Action]:
        """Let time go by, then tick."""
        self.now += seconds
        return self.take(self.scheduler.tick(now=self.now))

    def end_training(self) -> list[Action]:
        """The trainer is done."""
        return self.take(self.scheduler.training_ended(now=self.now))

    def restart(self, *, available: Collection[int], ended_incarnation: int = 0) -> list[Action]:
        """The service dies and comes back with what the ledger holds."""
        self.checker.crashed()
        self.in_hand.clear()
        self.told_to_stop.clear()
        self.scheduler = Scheduler(self.config)
        known = [record.known() for record in self.checker.records.values()]
        return self.take(
            self.scheduler.restore(
                known, available=available, ended_incarnation=ended_incarnation, now=self.now
            )
        )

    def take(self, actions: list[Action]) -> list[Action]:
        """Carry out an answer."""
        self.checker.take(actions)
        for action in actions:
            if isinstance(action, RunEvaluation):
                self.in_hand |= {job.job_id: job.attempt for job in action.jobs}
                self.told_to_stop = [name for name in self.told_to_stop if self._runs_beside(action, name)]
            elif isinstance(action, CancelRunning):
                self.told_to_stop += action.job_ids
            elif isinstance(action, NewJob):
                due = "" if action.due_rollout is None else f" {action.due_rollout}"
                self.triggers[action.evaluation] = f"{action.trigger}{due}"
        return actions

    def _runs_beside(self, run: RunEvaluation, job_id: str) -> bool:
        evaluation = self.checker.records[job_id].evaluation
        return evaluation != run.evaluation and evaluation in self.checker.held

    # --- what came of it ------------------------------------------------------------------

    @property
    def parts(self) -> dict[str, int | None]:
        """Evaluations that hold engines now, with how many; None: the whole group."""
        return {key: run.num_engines for key, run in self.checker.held.items()}

    @property
    def running(self) -> str | None:
        """Key of the evaluation that holds engines, and began first of these."""
        return None if self.checker.running is None else self.checker.running.evaluation

    @property
    def ran(self) -> list[str]:
        """Keys in the order of their runs."""
        return [run.evaluation for run in self.checker.runs]

    @property
    def protected(self) -> list[str]:
        """Keys of the protected runs."""
        return [run.evaluation for run in self.checker.runs if run.protected]

    @property
    def ends(self) -> dict[str, str]:
        """Job -> `status: reason` of those that ended."""
        return {
            name: f"{record.status}: {record.reason}"
            for name, record in self.checker.records.items()
            if record.status.terminal
        }

    @property
    def waiting(self) -> list[str]:
        """Evaluations that wait."""
        return list(dict.fromkeys(name.split("/")[0] for name in self.scheduler.waiting))
