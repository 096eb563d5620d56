"""Events in, actions out: which version is evaluated, what runs now, and how every job ends.

The scheduler owns no clock, no I/O and no tasks. Each event method returns the actions that follow, to
be carried out in their order before the next event is reported. `now` is in seconds, by one clock that
does not go back. Events may come late, twice or out of order; one that says nothing new returns [].

Invariants
 - a job that was made (NewJob) ends by exactly one EndJob;
 - one evaluation at most is between RunEvaluation and evaluation_ended;
 - a version is pinned before its jobs run and unpinned after the last of them ended;
 - one version gets one evaluation;
 - an evaluation that the guard protects, and a checkpoint, is never cancelled for a newer version;
 - the last version is evaluated, unless the drain runs out of time.

The meaning of every event and reason is in docs/semantics.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_eval.errors import ConfigError
from live_eval.reasons import EndReason, JobStatus
from live_eval.scheduling.actions import NEWEST, Action, Finished, NotDue, Trigger
from live_eval.scheduling.backlog import Backlog
from live_eval.scheduling.book import Book
from live_eval.scheduling.due import Due, DueRule
from live_eval.scheduling.jobs import Evaluation, Job, Stop
from live_eval.scheduling.policy import CancelGuard, keeps_ended_incarnations, on_newly_due, overflow
from live_eval.scheduling.restore import rebuild, replaced
from live_eval.scheduling.running import RunningEvaluation, end_job, retry_job
from live_eval.targets import CheckpointTarget, PolicyTarget, Target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from live_eval.scheduling.config import SchedulerConfig
    from live_eval.scheduling.reports import JobOutcome, KnownJob


class Scheduler:
    """All decisions of one run; see the module docstring."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._due = DueRule(interval=config.interval, skip_first=config.skip_first)
        self._guard = CancelGuard(max_consecutive_cancels=config.max_consecutive_cancels)
        self._book = Book()
        self._backlog = Backlog()
        self._current: RunningEvaluation | None = None
        self._seen: set[int] = set()
        self._gone: set[int] = set()
        self._newest: PolicyTarget | None = None
        """The stable version."""
        self._newest_due: int | None = None
        self._restored_up_to = 0
        """Versions below this one were judged before the service was started again."""
        self._ended_incarnation = 0
        self._syncing: int | None = None
        self._asked = False
        self._draining_since: float | None = None
        self._closing: EndReason | None = None
        self._closing_since = 0.0
        self._finished = False
        self._touched = False

    # --- what is so now -------------------------------------------------------------------

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the unfinished jobs of the evaluation that holds the engines."""
        return () if self._current is None else _ids(self._current.evaluation.unfinished)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of the jobs that wait for the engines: live ones by version, then checkpoints."""
        return tuple(name for evaluation in self._backlog.all for name in _ids(evaluation.unfinished))

    @property
    def pins(self) -> frozenset[tuple[int, str]]:
        """(policy version, owner) of all pins asked for and not yet given back."""
        return self._book.pins

    @property
    def stable_version(self) -> int | None:
        """The newest sealed version that was reported."""
        return None if self._newest is None else self._newest.policy_version

    @property
    def draining(self) -> bool:
        """Whether training ended or the end was ordered."""
        return self._draining_since is not None or self._closing is not None

    @property
    def finished(self) -> bool:
        """Whether Finished was sent; every later event returns []."""
        return self._finished

    # --- after a restart of the service ---------------------------------------------------

    def restore(
        self,
        known: Iterable[KnownJob],
        *,
        available: Collection[int],
        ended_incarnation: int = 0,
        now: float,
    ) -> list[Action]:
        """Go on from the ledger's jobs, in the order in which they were made; RuntimeError if not first.

        `available`: policy versions still in the store. Afterwards report all sealed versions as usual;
        those with jobs, and those judged before, get no second evaluation.
        """
        if self._touched:
            raise RuntimeError("restore comes after other events; call it first")
        actions: list[Action] = []
        self._ended_incarnation = ended_incarnation
        evaluations = rebuild(known)
        self._remember(evaluations, available)
        for evaluation in evaluations:
            if evaluation.unfinished:
                self._resume(evaluation, available, actions)
        for old, status in replaced(
            self._config.on_update, self._backlog.live, protects=self._guard.protects
        ):
            self._discard(old, status, EndReason.NEWER_VERSION, actions)
        interrupted = [evaluation for evaluation in self._backlog.all if evaluation.begun]
        if interrupted:
            self._backlog.remove(interrupted[0])
            self._start(interrupted[0], now, actions)
        self._settle(now, actions)
        return actions

    def _remember(self, evaluations: Sequence[Evaluation], available: Collection[int]) -> None:
        targets = [each.target for each in evaluations if isinstance(each.target, PolicyTarget)]
        for target in sorted(targets, key=lambda each: each.policy_version):
            self._due.note(target)
            self._seen.add(target.policy_version)
            self._newest_due = self._restored_up_to = target.policy_version
            if target.policy_version in available:
                self._newest = target
        for evaluation in evaluations:
            self._book.remember(evaluation)
            if not evaluation.unfinished:
                self._guard.record(evaluation)

    def _resume(self, evaluation: Evaluation, available: Collection[int], actions: list[Action]) -> None:
        version = evaluation.policy_version
        if version is not None and version not in available:
            self._book.end_unfinished(evaluation, JobStatus.FAILED, EndReason.VERSION_GONE, actions)
            return
        self._book.open(evaluation, actions)
        for job in evaluation.unfinished:
            if job.status is JobStatus.RUNNING:
                actions.append(retry_job(evaluation, job, EndReason.SERVICE_RESTARTED))
        self._backlog.add(evaluation)
        ended = self._is_of_ended_incarnation(evaluation.target) and not evaluation.begun
        if ended and not keeps_ended_incarnations(self._config.on_update):
            self._discard(evaluation, JobStatus.SUPERSEDED, EndReason.INCARNATION_ENDED, actions)

    # --- versions -------------------------------------------------------------------------

    def version_sealed(self, target: PolicyTarget, *, now: float) -> list[Action]:
        """A version is in the store. Report all of them, in version order where possible."""
        actions: list[Action] = []
        version = target.policy_version
        if not self._first_report(version):
            return actions
        if self._syncing is not None and version >= self._syncing:
            self._syncing = None
        if version < self._restored_up_to:
            self._pass_over(target, actions, hold=False)
            return actions
        is_newest = self._newest is None or version > self._newest.policy_version
        due = self._due.judge(target)
        if due is None and is_newest and self._draining_since is not None:
            due = Due(trigger=Trigger.LAST)
        if due is not None:
            self._admit(target, due, now, actions)
        else:
            self._pass_over(target, actions, hold=is_newest)
        if is_newest:
            self._set_newest(target, actions)
        self._settle(now, actions)
        return actions

    def version_dropped(self, policy_version: int, *, now: float) -> list[Action]:
        """The store has this version no more, to make room or because its files are lost."""
        actions: list[Action] = []
        self._gone.add(policy_version)
        self._book.unpin(policy_version, NEWEST, actions)
        for evaluation in self._backlog.live:
            if evaluation.policy_version == policy_version:
                self._discard(evaluation, JobStatus.DROPPED, EndReason.STORE_FULL, actions)
        current = self._current
        if current is not None and current.evaluation.policy_version == policy_version:
            actions += current.lost(now=now)
        self._settle(now, actions)
        return actions

    def sync_began(self, policy_version: int, *, now: float) -> list[Action]:
        """A sync is under way that will have this policy version if it is sealed."""
        if self._newest is None or policy_version > self._newest.policy_version:
            self._syncing = max(policy_version, self._syncing or 0)
        return []

    def sync_ended(self, policy_version: int, *, now: float) -> list[Action]:
        """The sync was discarded; for a sealed one version_sealed says it as well."""
        actions: list[Action] = []
        if self._syncing is not None and policy_version >= self._syncing:
            self._syncing = None
        self._settle(now, actions)
        return actions

    def evaluate_latest(self, *, now: float) -> list[Action]:
        """Someone asks for a score of the newest weights, due or not.

        The newest version is evaluated unless it has an evaluation. Under `queue`, while a sync is under
        way, the question waits for the end of that sync. Without any version it waits for the first one.
        """
        actions: list[Action] = []
        self._asked = self._closing is None and not self._finished
        self._settle(now, actions)
        return actions

    def incarnation_ended(self, number: int, *, now: float) -> list[Action]:
        """The trainer was started again: `number` and all before it send no more versions."""
        actions: list[Action] = []
        self._ended_incarnation = max(self._ended_incarnation, number)
        if not keeps_ended_incarnations(self._config.on_update):
            for evaluation in self._backlog.live:
                if self._is_of_ended_incarnation(evaluation.target):
                    self._discard(evaluation, JobStatus.SUPERSEDED, EndReason.INCARNATION_ENDED, actions)
        self._settle(now, actions)
        return actions

    # --- checkpoints and users ------------------------------------------------------------

    def checkpoint_submitted(
        self, target: CheckpointTarget, datasets: Sequence[str] = (), *, now: float
    ) -> list[Action]:
        """Evaluate a checkpoint on `datasets` (none: all). ConfigError if one is not configured."""
        actions: list[Action] = []
        unknown = [name for name in datasets if name not in self._config.datasets]
        if unknown:
            known = ", ".join(self._config.datasets)
            raise ConfigError(f"no dataset {', '.join(unknown)}; configured are: {known}")
        if self._finished or self._book.has(target.key):
            return actions
        self._touched = True
        names = tuple(dict.fromkeys(datasets)) or self._config.datasets
        evaluation = self._book.make(target, Due(trigger=Trigger.CHECKPOINT), names, actions)
        if self._closing is not None:
            self._book.end_unfinished(evaluation, JobStatus.CANCELLED, self._closing, actions)
        else:
            self._backlog.add(evaluation)
        self._settle(now, actions)
        return actions

    def cancel(self, name: str, *, now: float) -> list[Action]:
        """A user cancels the job with this id; one that is not there, or has ended, stays as it is."""
        actions: list[Action] = []
        found = self._book.find(name)
        if found is None or found[1].ended:
            return actions
        evaluation, job = found
        if self._current is not None and self._current.evaluation is evaluation:
            stop = Stop(status=JobStatus.CANCELLED, reason=EndReason.USER, since=now)
            actions += self._current.stop([job], stop)
        else:
            actions.append(end_job(evaluation, job, JobStatus.CANCELLED, EndReason.USER))
            if not evaluation.unfinished:
                self._discard(evaluation, JobStatus.CANCELLED, EndReason.USER, actions)
        self._settle(now, actions)
        return actions

    # --- reports about what runs ----------------------------------------------------------

    def job_started(self, name: str, *, attempt: int, now: float) -> list[Action]:
        """The shell began with a job of the present run."""
        job = self._job_in_run(name, attempt)
        if self._current is not None and job is not None:
            self._current.started(job, now=now)
        return []

    def job_finished(self, name: str, outcome: JobOutcome, *, attempt: int, now: float) -> list[Action]:
        """A job of the present run is over, in whatever way. The EndJob or RetryJob is in the answer."""
        job = self._job_in_run(name, attempt)
        if self._current is None or job is None:
            return []
        return self._current.reported(job, outcome, now=now)

    def evaluation_ended(
        self, evaluation: str, *, run: int, now: float, reason: EndReason | None = None
    ) -> list[Action]:
        """The run is over and the engines are free. `reason` says why jobs were not reported, if any."""
        actions: list[Action] = []
        current = self._current
        if current is None or (current.evaluation.key, current.evaluation.run) != (evaluation, run):
            return actions
        actions += current.run_over(reason, now=now)
        if current.evaluation.unfinished:
            actions.append(current.hand_out(now))
        else:
            self._release(current.evaluation, actions)
        self._settle(now, actions)
        return actions

    # --- time and end ---------------------------------------------------------------------

    def tick(self, *, now: float) -> list[Action]:
        """Look at the deadlines; about once a second is enough."""
        actions: list[Action] = []
        if self._current is not None:
            actions += self._current.expire(now=now)
        limit = self._config.drain_timeout_s
        if self._draining_since is not None and limit is not None and now - self._draining_since > limit:
            self._begin_closing(EndReason.DRAIN_TIMEOUT, now, actions)
        self._settle(now, actions)
        return actions

    def training_ended(self, *, now: float) -> list[Action]:
        """No sync will begin any more: evaluate the last version, then what waits, then Finished."""
        actions: list[Action] = []
        if self._draining_since is None:
            self._draining_since = now
        self._settle(now, actions)
        return actions

    def shutdown(self, *, now: float) -> list[Action]:
        """End everything now; Finished follows when the engines are free."""
        actions: list[Action] = []
        self._begin_closing(EndReason.SHUTDOWN, now, actions)
        self._settle(now, actions)
        return actions

    # --- how an evaluation comes and goes -------------------------------------------------

    def _first_report(self, version: int) -> bool:
        if self._finished or version in self._seen:
            return False
        self._touched = True
        self._seen.add(version)
        return True

    def _admit(self, target: PolicyTarget, due: Due, now: float, actions: list[Action]) -> None:
        """Make the evaluation of a due version and let the policy place it, or end it at once."""
        version = target.policy_version
        evaluation = self._book.make(target, due, self._config.datasets, actions)
        verdict = on_newly_due(
            self._config.on_update,
            version,
            newest_due=self._newest_due,
            running=None if self._current is None else self._current.evaluation,
            waiting=self._backlog.live,
        )
        end = self._end_at_once(target, due, admit=verdict.admit)
        if end is not None:
            self._book.end_unfinished(evaluation, *end, actions)
            return
        self._newest_due = max(version, self._newest_due or 0)
        for older in verdict.supersede:
            self._discard(older, JobStatus.SUPERSEDED, EndReason.NEWER_VERSION, actions)
        self._backlog.add(evaluation)
        if verdict.cancel_running:
            self._stop_current(EndReason.NEWER_VERSION, now, actions)

    def _end_at_once(
        self, target: PolicyTarget, due: Due, *, admit: bool
    ) -> tuple[JobStatus, EndReason] | None:
        if target.policy_version in self._gone:
            return JobStatus.DROPPED, EndReason.STORE_FULL
        if self._closing is not None:
            return JobStatus.CANCELLED, self._closing
        wanted = due.trigger in (Trigger.LAST, Trigger.ASKED)
        kept = wanted or keeps_ended_incarnations(self._config.on_update)
        if not kept and self._is_of_ended_incarnation(target):
            return JobStatus.SUPERSEDED, EndReason.INCARNATION_ENDED
        return None if admit else (JobStatus.SUPERSEDED, EndReason.NEWER_VERSION)

    def _pass_over(self, target: PolicyTarget, actions: list[Action], *, hold: bool) -> None:
        version = target.policy_version
        if hold and self._closing is None and version not in self._gone:
            self._book.pin(version, NEWEST, actions)
        next_due = self._due.next_due_rollout(target)
        actions.append(NotDue(policy_version=version, next_due_rollout=next_due))

    def _set_newest(self, target: PolicyTarget, actions: list[Action]) -> None:
        if self._newest is not None:
            self._book.unpin(self._newest.policy_version, NEWEST, actions)
        self._newest = target

    def _evaluate_newest(self, trigger: Trigger, now: float, actions: list[Action]) -> None:
        newest = self._newest
        if newest is None or self._book.has(newest.key):
            return
        self._due.note(newest)
        self._admit(newest, Due(trigger=trigger), now, actions)
        self._book.unpin(newest.policy_version, NEWEST, actions)

    def _discard(
        self, evaluation: Evaluation, status: JobStatus, reason: EndReason, actions: list[Action]
    ) -> None:
        self._backlog.remove(evaluation)
        self._book.end_unfinished(evaluation, status, reason, actions)

    def _release(self, evaluation: Evaluation, actions: list[Action]) -> None:
        """The current evaluation is over."""
        self._current = None
        self._guard.record(evaluation)
        self._backlog.record(evaluation)
        self._book.close(evaluation, actions)

    def _stop_current(self, reason: EndReason, now: float, actions: list[Action]) -> None:
        if self._current is None:
            return
        stop = Stop(status=JobStatus.CANCELLED, reason=reason, since=now)
        actions += self._current.stop(self._current.evaluation.unfinished, stop)

    # --- after every event ----------------------------------------------------------------

    def _settle(self, now: float, actions: list[Action]) -> None:
        """Do what became possible: answer who asked, choose the last version, start the next, finish."""
        self._touched = True
        if self._finished:
            return
        if self._asked and self._newest is not None and not self._waits_for_sync():
            self._asked = False
            self._evaluate_newest(Trigger.ASKED, now, actions)
        if self._draining_since is not None and self._syncing is None:
            self._evaluate_newest(Trigger.LAST, now, actions)
        self._start_next(now, actions)
        for oldest in overflow(self._backlog.live, queue_size=self._config.queue_size):
            self._discard(oldest, JobStatus.DROPPED, EndReason.QUEUE_FULL, actions)
        self._finish_if_done(now, actions)

    def _waits_for_sync(self) -> bool:
        return self._config.on_update == "queue" and self._syncing is not None

    def _start_next(self, now: float, actions: list[Action]) -> None:
        if self._current is not None or self._closing is not None:
            return
        evaluation = self._backlog.pop_next()
        if evaluation is not None:
            self._start(evaluation, now, actions)

    def _start(self, evaluation: Evaluation, now: float, actions: list[Action]) -> None:
        guarded = self._config.on_update == "cancel" and evaluation.policy_version is not None
        evaluation.protected = guarded and self._guard.protects
        self._current = RunningEvaluation(evaluation, self._config)
        actions.append(self._current.hand_out(now))

    def _begin_closing(self, reason: EndReason, now: float, actions: list[Action]) -> None:
        if self._closing is not None or self._finished:
            return
        self._closing, self._closing_since, self._asked = reason, now, False
        if self._draining_since is not None:
            # The last version is due even if there is no time left for it: its jobs end on the record.
            self._evaluate_newest(Trigger.LAST, now, actions)
        for evaluation in self._backlog.all:
            self._discard(evaluation, JobStatus.CANCELLED, reason, actions)
        self._stop_current(reason, now, actions)

    def _finish_if_done(self, now: float, actions: list[Action]) -> None:
        if not self.draining:
            return
        self._give_up_on_silent_shell(now, actions)
        waits_for_sync = self._syncing is not None and self._closing is None
        if self._current is not None or self._backlog.all or waits_for_sync:
            return
        if self._newest is not None:
            self._book.unpin(self._newest.policy_version, NEWEST, actions)
        self._finished = True
        actions.append(Finished())

    def _give_up_on_silent_shell(self, now: float, actions: list[Action]) -> None:
        """When all must end, jobs that ended do not wait for ever for engines that never come free."""
        over = self._closing is not None and now - self._closing_since > self._config.abort_grace_s
        if over and self._current is not None and not self._current.evaluation.unfinished:
            self._release(self._current.evaluation, actions)

    # --- small helpers --------------------------------------------------------------------

    def _is_of_ended_incarnation(self, target: Target) -> bool:
        return isinstance(target, PolicyTarget) and target.incarnation <= self._ended_incarnation

    def _job_in_run(self, name: str, attempt: int) -> Job | None:
        found = self._book.find(name)
        if found is None or self._current is None or found[0] is not self._current.evaluation:
            return None
        return found[1] if found[1].attempt == attempt else None


def _ids(jobs: Sequence[Job]) -> tuple[str, ...]:
    return tuple(job.job_id for job in jobs)
