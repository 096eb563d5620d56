"""Events in, actions out: which version is evaluated, what runs now, and how every job ends.

The scheduler owns no clock, no I/O and no tasks. Each event method returns the actions that follow, to
be carried out in their order before the next event is reported. `now` is in seconds, by one clock that
does not go back. Events may come late, twice or out of order; one that says nothing new returns [].

Invariants
 - a job that was made (NewJob) ends by exactly one EndJob;
 - between RunEvaluation and evaluation_ended are at most one evaluation that has the whole engine group, or
   several of checkpoints whose parts together fit into it;
 - a version is pinned before its jobs run and unpinned after the last of them ended;
 - one version gets one evaluation;
 - an evaluation that the guard protects, or of a checkpoint, is never cancelled for a newer version;
 - the last version is evaluated, unless the drain runs out of time.

docs/semantics.md says what each event, policy and reason means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_eval.errors import ConfigError
from live_eval.reasons import EndReason, JobStatus
from live_eval.scheduling.actions import NEWEST, Action, Finished, NotDue, Trigger
from live_eval.scheduling.desk import Desk
from live_eval.scheduling.due import Due, DueRule
from live_eval.scheduling.policy import keeps_ended_incarnations
from live_eval.scheduling.restore import rebuild
from live_eval.targets import CheckpointTarget, PolicyTarget

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from live_eval.scheduling.config import SchedulerConfig
    from live_eval.scheduling.jobs import Evaluation
    from live_eval.scheduling.reports import JobOutcome, KnownJob


class Scheduler:
    """All decisions of one run; see the module docstring."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._due = DueRule(interval=config.interval, skip_first=config.skip_first)
        self._desk = Desk(config)
        self._seen: set[int] = set()
        self._gone: set[int] = set()
        self._newest: PolicyTarget | None = None
        """The stable version."""
        self._judged_before = 0
        """Versions below this one were judged before the service was started again."""
        self._ended_incarnation = 0
        self._syncing: int | None = None
        self._asked = False
        self._draining_since: float | None = None
        self._closing: EndReason | None = None
        self._closing_since = 0.0
        self._finished = False
        self._fresh = True
        """No event yet."""

    # --- what is so now -------------------------------------------------------------------

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the unfinished jobs of the evaluations that hold engines."""
        return self._desk.running

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of the jobs that wait for the engines: live ones by version, then checkpoints."""
        return self._desk.waiting

    @property
    def pins(self) -> frozenset[tuple[int, str]]:
        """(policy version, owner) of all pins asked for and not yet given back."""
        return self._desk.book.pins

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

    # --- the start ------------------------------------------------------------------------

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
        if not self._fresh:
            raise RuntimeError("restore comes after other events; call it first")
        actions: list[Action] = []
        evaluations = rebuild(known)
        self._ended_incarnation = ended_incarnation
        self._remember(evaluations)
        self._desk.resume(evaluations, available, ended_incarnation, now, actions)
        return self._settle(now, actions)

    # --- versions -------------------------------------------------------------------------

    def version_sealed(self, target: PolicyTarget, *, now: float) -> list[Action]:
        """A version is in the store. Report all of them, in version order where possible.

        Once the answer is carried out, the pin that the store gave the version at birth may go.
        """
        actions: list[Action] = []
        version = target.policy_version
        if self._finished or version in self._seen:
            return actions
        self._seen.add(version)
        if version < self._judged_before:
            self._pass_over(target, actions, hold=False)
            return self._settle(now, actions)
        self._sync_is_over(version)
        is_newest = self._newest is None or version > self._newest.policy_version
        due = self._due.judge(target)
        if due is not None and not self._desk.has_turn(due):
            due = None
        if due is None and is_newest and self._draining_since is not None:
            due = Due(trigger=Trigger.LAST)
        if due is not None:
            self._admit(target, due, now, actions)
        else:
            self._pass_over(target, actions, hold=is_newest)
        if is_newest:
            self._release_newest(actions)
            self._newest = target
        return self._settle(now, actions)

    def version_dropped(self, policy_version: int, *, now: float) -> list[Action]:
        """The store has this version no more: it made room, or the files are lost."""
        actions: list[Action] = []
        self._gone.add(policy_version)
        self._desk.book.unpin(policy_version, NEWEST, actions)
        self._desk.lose(policy_version, now, actions)
        return self._settle(now, actions)

    def sync_began(self, policy_version: int, *, now: float) -> list[Action]:
        """A sync is under way that will have this policy version if it is sealed."""
        if self._newest is None or policy_version > self._newest.policy_version:
            self._syncing = max(policy_version, self._syncing or 0)
        return self._settle(now, [])

    def sync_ended(self, policy_version: int, *, now: float) -> list[Action]:
        """The sync was discarded; for a sealed one version_sealed says it as well."""
        self._sync_is_over(policy_version)
        return self._settle(now, [])

    def evaluate_latest(self, *, now: float) -> list[Action]:
        """Someone asks for a score of the newest weights, due or not.

        The newest version is evaluated unless it has an evaluation. Under `queue`, while a sync is under
        way, the question waits for the end of that sync. Without any version it waits for the first one.
        """
        self._asked = self._closing is None
        return self._settle(now, [])

    def incarnation_ended(self, number: int, *, now: float) -> list[Action]:
        """The trainer was started again: `number` and all before it send no more versions."""
        actions: list[Action] = []
        self._ended_incarnation = max(self._ended_incarnation, number)
        self._desk.leave_incarnation(self._ended_incarnation, actions)
        return self._settle(now, actions)

    # --- checkpoints and users ------------------------------------------------------------

    def check_datasets(self, datasets: Sequence[str]) -> None:
        """ConfigError if one of them is not configured."""
        unknown = [name for name in datasets if name not in self._config.datasets]
        if unknown:
            known = ", ".join(self._config.datasets)
            raise ConfigError(f"no dataset {', '.join(unknown)}; configured are: {known}")

    def checkpoint_submitted(
        self, target: CheckpointTarget, datasets: Sequence[str] = (), *, priority: int = 0, now: float
    ) -> list[Action]:
        """Evaluate a checkpoint on `datasets` (none: all). ConfigError if one is not configured.

        Of the checkpoints that wait the one of the highest `priority` is next, of equal ones the first.
        """
        self.check_datasets(datasets)
        actions: list[Action] = []
        if self._finished or self._desk.book.has(target.key):
            return actions
        names = tuple(dict.fromkeys(datasets)) or self._config.datasets
        self._desk.submit(target, Due(trigger=Trigger.CHECKPOINT), names, actions, priority=priority)
        if self._closing is not None:
            self._desk.clear(self._closing, now, actions)
        return self._settle(now, actions)

    def cancel(self, name: str, *, now: float) -> list[Action]:
        """A user cancels the job with this id; one that is not there, or has ended, stays as it is."""
        actions: list[Action] = []
        self._desk.cancel_job(name, now, actions)
        return self._settle(now, actions)

    # --- reports about what runs ----------------------------------------------------------

    def job_started(self, name: str, *, attempt: int, now: float) -> list[Action]:
        """The shell began with a job of the present run."""
        if (found := self._desk.job_in_run(name, attempt)) is not None:
            run, job = found
            run.started(job, now=now)
        return []

    def job_finished(self, name: str, outcome: JobOutcome, *, attempt: int, now: float) -> list[Action]:
        """A job of the present run is over, in whatever way. The EndJob or RetryJob is in the answer."""
        if (found := self._desk.job_in_run(name, attempt)) is None:
            return []
        run, job = found
        return run.reported(job, outcome, now=now)

    def evaluation_ended(
        self, evaluation: str, *, run: int, now: float, reason: EndReason | None = None
    ) -> list[Action]:
        """The run is over and its engines are free. `reason` says why jobs were not reported, if any."""
        actions: list[Action] = []
        self._desk.run_over(evaluation, run, reason, now, actions)
        return self._settle(now, actions)

    def engines_left(self, num_engines: int, *, now: float) -> list[Action]:
        """So many engines of the group are not given up; what runs on more goes on."""
        self._desk.resize(num_engines)
        return self._settle(now, [])

    # --- time and end ---------------------------------------------------------------------

    def tick(self, *, now: float) -> list[Action]:
        """Look at the deadlines; about once a second is enough."""
        actions: list[Action] = []
        self._desk.expire(now, actions)
        limit = self._config.drain_timeout_s
        if self._draining_since is not None and limit is not None and now - self._draining_since > limit:
            self._begin_closing(EndReason.DRAIN_TIMEOUT, now, actions)
        if self._closing is not None and now - self._closing_since > self._config.abort_grace_s:
            # All jobs have ended by now; engines that never come free must not hold up the end.
            self._desk.give_up_runs(actions)
        return self._settle(now, actions)

    def training_ended(self, *, now: float) -> list[Action]:
        """No sync will begin any more: evaluate the last version, then what waits, then Finished."""
        if self._draining_since is None:
            self._draining_since = now
        return self._settle(now, [])

    def shutdown(self, *, now: float) -> list[Action]:
        """End everything now; Finished follows when the engines are free."""
        actions: list[Action] = []
        self._begin_closing(EndReason.SHUTDOWN, now, actions)
        return self._settle(now, actions)

    # --- inside ---------------------------------------------------------------------------

    def _settle(self, now: float, actions: list[Action]) -> list[Action]:
        """Do what became possible: answer who asked, choose the last version, start the next, finish."""
        self._fresh = False
        if self._finished:
            return actions
        if self._asked and self._newest is not None and not self._waits_for_sync():
            self._asked = False
            self._evaluate_newest(Trigger.ASKED, now, actions)
        if self._draining_since is not None and self._syncing is None:
            self._evaluate_newest(Trigger.LAST, now, actions)
        if self._closing is None:
            self._desk.start_next(now, actions)
            self._desk.keep_bound(actions)
        if self.draining and self._desk.idle and (self._syncing is None or self._closing is not None):
            self._release_newest(actions)
            self._finished = True
            actions.append(Finished())
        return actions

    def _admit(self, target: PolicyTarget, due: Due, now: float, actions: list[Action]) -> None:
        end = self._end_at_once(target, due)
        if end is None:
            self._desk.admit(target, due, now, actions)
        else:
            self._desk.turn_away(target, due, *end, actions)

    def _end_at_once(self, target: PolicyTarget, due: Due) -> tuple[JobStatus, EndReason] | None:
        if target.policy_version in self._gone:
            return JobStatus.DROPPED, EndReason.STORE_FULL
        if self._closing is not None:
            return JobStatus.CANCELLED, self._closing
        wanted = due.trigger in (Trigger.LAST, Trigger.ASKED)
        if wanted or keeps_ended_incarnations(self._config.on_update):
            return None
        if target.incarnation <= self._ended_incarnation:
            return JobStatus.SUPERSEDED, EndReason.INCARNATION_ENDED
        return None

    def _pass_over(self, target: PolicyTarget, actions: list[Action], *, hold: bool) -> None:
        version = target.policy_version
        if hold and self._closing is None and version not in self._gone:
            self._desk.book.pin(version, NEWEST, actions)
        next_due = self._due.next_due_rollout(target)
        actions.append(NotDue(policy_version=version, next_due_rollout=next_due))

    def _evaluate_newest(self, trigger: Trigger, now: float, actions: list[Action]) -> None:
        newest = self._newest
        if newest is None or self._desk.book.has(newest.key):
            return
        self._due.note(newest)
        self._admit(newest, Due(trigger=trigger), now, actions)
        self._release_newest(actions)

    def _release_newest(self, actions: list[Action]) -> None:
        if self._newest is not None:
            self._desk.book.unpin(self._newest.policy_version, NEWEST, actions)

    def _sync_is_over(self, policy_version: int) -> None:
        if self._syncing is not None and policy_version >= self._syncing:
            self._syncing = None

    def _waits_for_sync(self) -> bool:
        return self._config.on_update == "queue" and self._syncing is not None

    def _begin_closing(self, reason: EndReason, now: float, actions: list[Action]) -> None:
        if self._closing is not None or self._finished:
            return
        self._closing, self._closing_since, self._asked = reason, now, False
        if self._draining_since is not None:
            # The last version is due even if there is no time left for it: its jobs end on the record.
            self._evaluate_newest(Trigger.LAST, now, actions)
        self._desk.clear(reason, now, actions)

    def _remember(self, evaluations: Sequence[Evaluation]) -> None:
        targets = [each.target for each in evaluations if isinstance(each.target, PolicyTarget)]
        for target in sorted(targets, key=lambda each: each.policy_version):
            self._due.note(target)
            self._seen.add(target.policy_version)
            self._judged_before = target.policy_version
            self._newest = target
