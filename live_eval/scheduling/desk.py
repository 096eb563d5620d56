"""Where evaluations are placed: which wait, which run, and which a policy sends away.

The desk carries out the policy for evaluations that are made, and hands the engines out: to one evaluation
at a time, or to several checkpoints in parts. It does not know which versions are due, what the store or
the trainer do, or when a run ends. Every method adds the actions that follow to the list that it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_eval.reasons import EndReason, JobStatus
from live_eval.scheduling.actions import Trigger
from live_eval.scheduling.backlog import Backlog
from live_eval.scheduling.book import Book
from live_eval.scheduling.cycle import DatasetCycle
from live_eval.scheduling.jobs import Evaluation, Job, Stop
from live_eval.scheduling.policy import CancelGuard, keeps_ended_incarnations, on_newly_due, overflow
from live_eval.scheduling.restore import replaced
from live_eval.scheduling.running import RunningEvaluation, end_job, retry_job
from live_eval.scheduling.shares import Shares
from live_eval.targets import CheckpointTarget, PolicyTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from live_eval.scheduling.actions import Action
    from live_eval.scheduling.config import SchedulerConfig
    from live_eval.scheduling.due import Due

_WHOLE = (Trigger.FIRST_PUSH, Trigger.ASKED, Trigger.LAST)
"""A version that is due for one of these is evaluated on all datasets."""


class Desk:
    """The backlog, the running evaluations, and the book of both."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.book = Book()
        self._runs: dict[str, RunningEvaluation] = {}
        """By key, in the order in which they began."""
        self._shares = Shares(config.num_engines, config.engines_per_eval)
        self._config = config
        self._backlog = Backlog()
        self._guard = CancelGuard(max_consecutive_cancels=config.max_consecutive_cancels)
        self._newest_due = 0
        self._cycle = DatasetCycle(config.datasets, config.eval_every, config.on_update)

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the unfinished jobs of the running evaluations."""
        return tuple(name for run in self._runs.values() for name in _ids(run.evaluation.unfinished))

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of the jobs that wait: live ones by version, then checkpoints."""
        return tuple(name for each in self._backlog.all for name in _ids(each.unfinished))

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not self._runs and not self._backlog.all

    @property
    def _live(self) -> RunningEvaluation | None:
        """The policy version that runs, if one does: it has all engines."""
        live = (run for run in self._runs.values() if run.evaluation.policy_version is not None)
        return next(live, None)

    # --- evaluations come -----------------------------------------------------------------

    def admit(self, target: PolicyTarget, due: Due, now: float, actions: list[Action]) -> None:
        """Make the evaluation of a due version and let the policy place it."""
        evaluation = self.book.make(target, due, self._turn(due), actions)
        self._cycle.made(evaluation)
        live = self._live
        verdict = on_newly_due(
            self._config.on_update,
            target.policy_version,
            newest_due=self._newest_due,
            running=None if live is None else live.evaluation,
            waiting=self._backlog.live,
        )
        if not verdict.admit:
            status, reason = JobStatus.SUPERSEDED, EndReason.NEWER_VERSION
            self.book.end_unfinished(evaluation, status, reason, actions)
            return
        self._newest_due = max(target.policy_version, self._newest_due)
        for older in verdict.supersede:
            self._discard(older, JobStatus.SUPERSEDED, EndReason.NEWER_VERSION, actions)
        self._backlog.add(evaluation)
        if verdict.cancel_running and live is not None:
            _stop_all(live, EndReason.NEWER_VERSION, now, actions)

    def has_turn(self, due: Due) -> bool:
        """Whether some dataset is to be evaluated on a due version; one with none counts as passed."""
        if self._turn(due):
            return True
        self._cycle.passed()
        return False

    def _turn(self, due: Due) -> tuple[str, ...]:
        running = None if self._live is None else self._live.evaluation
        return self._cycle.turn(running=running, everything=due.trigger in _WHOLE)

    def turn_away(
        self, target: PolicyTarget, due: Due, status: JobStatus, reason: EndReason, actions: list[Action]
    ) -> None:
        """Make the evaluation of a due version that cannot run any more, and end it."""
        evaluation = self.book.make(target, due, self._config.datasets, actions)
        self.book.end_unfinished(evaluation, status, reason, actions)

    def submit(
        self,
        target: CheckpointTarget,
        due: Due,
        datasets: Sequence[str],
        actions: list[Action],
        *,
        priority: int = 0,
    ) -> None:
        """Make the evaluation of a checkpoint and let it wait."""
        self._backlog.add(self.book.make(target, due, datasets, actions, priority=priority))

    def resume(
        self,
        evaluations: Sequence[Evaluation],
        available: Collection[int],
        ended_incarnation: int,
        now: float,
        actions: list[Action],
    ) -> None:
        """Take over evaluations of an earlier life; those that an engine had begun go first."""
        for evaluation in evaluations:
            self.book.remember(evaluation)
            self._newest_due = max(evaluation.policy_version or 0, self._newest_due)
            if evaluation.unfinished:
                self._resume(evaluation, available, actions)
            if evaluation.policy_version is not None:
                self._cycle.made(evaluation)
            if not evaluation.unfinished:
                self._guard.record(evaluation)
        live, policy = self._backlog.live, self._config.on_update
        for old, status in replaced(policy, live, protects=self._guard.protects):
            self._discard(old, status, EndReason.NEWER_VERSION, actions)
            self._guard.record(old)
        begun = [evaluation for evaluation in self._backlog.all if evaluation.begun]
        while begun and self._shares.has_room(begun[0]):
            self._backlog.remove(begun[0])
            self._start(begun[0], now, actions, num_waiting=len(begun))
            del begun[0]
        self.leave_incarnation(ended_incarnation, actions)

    def _resume(self, evaluation: Evaluation, available: Collection[int], actions: list[Action]) -> None:
        version = evaluation.policy_version
        if version is not None and version not in available:
            self.book.end_unfinished(evaluation, JobStatus.FAILED, EndReason.VERSION_GONE, actions)
            return
        self.book.open(evaluation, actions)
        for job in evaluation.unfinished:
            if job.dataset not in self._config.datasets:
                actions.append(end_job(evaluation, job, JobStatus.FAILED, EndReason.NO_DATA))
            elif job.status is JobStatus.RUNNING:
                actions.append(retry_job(evaluation, job, EndReason.SERVICE_RESTARTED))
        if version is not None:
            # The service may have died between the first and the last job that it made.
            self.book.complete(evaluation, self._cycle.turn(running=None, everything=False), actions)
        if evaluation.unfinished:
            self._backlog.add(evaluation)
        else:
            self.book.close(evaluation, actions)

    # --- evaluations go without running ---------------------------------------------------

    def lose(self, version: int, now: float, actions: list[Action]) -> None:
        """The store has the version no more."""
        self._discard_live(
            lambda target: target.policy_version == version,
            JobStatus.DROPPED,
            EndReason.STORE_FULL,
            actions,
        )
        if self._live is not None and self._live.evaluation.policy_version == version:
            actions += self._live.lost(now=now)

    def leave_incarnation(self, number: int, actions: list[Action]) -> None:
        """Versions of the incarnations up to `number` are of no more interest, unless under `queue`."""
        if not keeps_ended_incarnations(self._config.on_update):
            self._discard_live(
                lambda target: target.incarnation <= number,
                JobStatus.SUPERSEDED,
                EndReason.INCARNATION_ENDED,
                actions,
            )

    def keep_bound(self, actions: list[Action]) -> None:
        """Drop the oldest live versions beyond the queue's bound."""
        for oldest in overflow(self._backlog.live, queue_size=self._config.queue_size):
            self._discard(oldest, JobStatus.DROPPED, EndReason.QUEUE_FULL, actions)

    def cancel_job(self, name: str, now: float, actions: list[Action]) -> None:
        """A user wants this job no more; one that has ended stays as it is."""
        found = self.book.find(name)
        if found is None or found[1].ended:
            return
        evaluation, job = found
        if (run := self._runs.get(evaluation.key)) is not None:
            stop = Stop(status=JobStatus.CANCELLED, reason=EndReason.USER, since=now)
            actions += run.stop([job], stop)
            return
        actions.append(end_job(evaluation, job, JobStatus.CANCELLED, EndReason.USER))
        if not evaluation.unfinished:
            self._discard(evaluation, JobStatus.CANCELLED, EndReason.USER, actions)

    def clear(self, reason: EndReason, now: float, actions: list[Action]) -> None:
        """Cancel all that waits and what runs."""
        for evaluation in self._backlog.all:
            self._discard(evaluation, JobStatus.CANCELLED, reason, actions)
        for run in self._runs.values():
            _stop_all(run, reason, now, actions)

    def _discard_live(
        self,
        which: Callable[[PolicyTarget], bool],
        status: JobStatus,
        reason: EndReason,
        actions: list[Action],
    ) -> None:
        for evaluation in self._backlog.live:
            if isinstance(evaluation.target, PolicyTarget) and which(evaluation.target):
                self._discard(evaluation, status, reason, actions)

    def _discard(
        self, evaluation: Evaluation, status: JobStatus, reason: EndReason, actions: list[Action]
    ) -> None:
        self._backlog.remove(evaluation)
        self.book.end_unfinished(evaluation, status, reason, actions)

    # --- those that run -------------------------------------------------------------------

    def resize(self, num_engines: int) -> None:
        """The group has so many engines now."""
        self._shares.resize(num_engines)

    def start_next(self, now: float, actions: list[Action]) -> None:
        """Give engines to the next evaluations while there is room; none overtakes the next one."""
        while (evaluation := self._backlog.next()) is not None and self._shares.has_room(evaluation):
            num_waiting = max(self._backlog.num_checkpoints, 1)
            self._backlog.remove(evaluation)
            self._start(evaluation, now, actions, num_waiting=num_waiting)

    def job_in_run(self, name: str, attempt: int) -> tuple[RunningEvaluation, Job] | None:
        """The job and its run, if this attempt of it belongs to an evaluation that runs."""
        found = self.book.find(name)
        run = None if found is None else self._runs.get(found[0].key)
        if found is None or run is None or found[1].attempt != attempt:
            return None
        return run, found[1]

    def run_over(
        self, key: str, run: int, reason: EndReason | None, now: float, actions: list[Action]
    ) -> None:
        """The evaluation's engines are free: run what is left of it again, or let it go."""
        over = self._runs.get(key)
        if over is None or over.evaluation.run != run:
            return
        actions += over.run_over(reason, now=now)
        if over.evaluation.unfinished:
            actions.append(over.hand_out(now))
        else:
            self._release(over.evaluation, actions)

    def expire(self, now: float, actions: list[Action]) -> None:
        """Stop jobs that are over their time, and end those whose stop nobody confirmed."""
        for run in self._runs.values():
            actions += run.expire(now=now)

    def give_up_runs(self, actions: list[Action]) -> None:
        """Let running evaluations go whose jobs have all ended, though their engines are not free."""
        for run in list(self._runs.values()):
            if not run.evaluation.unfinished:
                self._release(run.evaluation, actions)

    def _start(
        self, evaluation: Evaluation, now: float, actions: list[Action], *, num_waiting: int = 1
    ) -> None:
        guarded = self._config.on_update == "cancel" and evaluation.policy_version is not None
        evaluation.protected = guarded and self._guard.protects
        part = self._shares.take(evaluation, num_waiting=num_waiting)
        run = RunningEvaluation(evaluation, self._config, num_engines=part)
        self._runs[evaluation.key] = run
        actions.append(run.hand_out(now))

    def _release(self, evaluation: Evaluation, actions: list[Action]) -> None:
        del self._runs[evaluation.key]
        self._shares.give_back(evaluation)
        self._guard.record(evaluation)
        self._backlog.record(evaluation)
        self.book.close(evaluation, actions)


def _stop_all(run: RunningEvaluation, reason: EndReason, now: float, actions: list[Action]) -> None:
    stop = Stop(status=JobStatus.CANCELLED, reason=reason, since=now)
    actions += run.stop(run.evaluation.unfinished, stop)


def _ids(jobs: Sequence[Job]) -> tuple[str, ...]:
    return tuple(job.job_id for job in jobs)
