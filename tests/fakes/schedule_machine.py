"""Random orders of everything that can happen to a scheduler, late and repeated events among it.

Every answer goes through the ScheduleChecker. At the end of each example training ends, or the service
is shut down, and what is left must drain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fakes.eval_shell import STOPPED, SUCCEEDED, EvalShell, failed
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from live_eval.reasons import EndReason, JobStatus
from live_eval.targets import PolicyTarget

if TYPE_CHECKING:
    from live_eval.scheduling.actions import Action, RunEvaluation
    from live_eval.scheduling.config import EnginesPerEval
    from live_eval.scheduling.reports import JobOutcome

RUN_FAULTS = (
    EndReason.ENGINE_FAILED,
    EndReason.LOAD_FAILED,
    EndReason.PIN_MISMATCH,
    EndReason.MIXED_VERSION,
    EndReason.NO_DATA,
    EndReason.LOW_COVERAGE,
)
OUTCOMES = (SUCCEEDED, SUCCEEDED, STOPPED, *map(failed, RUN_FAULTS))
BY_CHOICE = (EndReason.USER, EndReason.STORE_FULL, EndReason.INCARNATION_ENDED, EndReason.VERSION_GONE)
"""Why the last version may end without a run of its own."""

picks = st.integers(0, 10_000)


class ScheduleMachine(RuleBasedStateMachine):
    """One run of a trainer, a store, engines and users."""

    policies: ClassVar[tuple[str, ...]] = ("finish", "cancel", "queue")
    shell: EvalShell

    @initialize(
        policy=picks,
        interval=st.sampled_from([None, None, 1, 2, 3]),
        skip_first=st.booleans(),
        queue_size=st.integers(1, 3),
        cancels=st.integers(1, 2),
        attempts=st.integers(1, 3),
        datasets=st.sampled_from([("a",), ("a", "b")]),
        every=st.sampled_from([1, 1, 2, 3]),
        drain=st.sampled_from([None, 300.0]),
        engines=st.sampled_from([1, 1, 2, 3, 4]),
        per_eval=st.sampled_from(["all", "fair", 1, 2]),
    )
    def begin(
        self,
        policy: int,
        interval: int | None,
        skip_first: bool,
        queue_size: int,
        cancels: int,
        attempts: int,
        datasets: tuple[str, ...],
        every: int,
        drain: float | None,
        engines: int,
        per_eval: EnginesPerEval,
    ) -> None:
        self.shell = EvalShell(
            on_update=self.policies[policy % len(self.policies)],
            interval=interval,
            skip_first=skip_first,
            queue_size=queue_size,
            max_consecutive_cancels=cancels,
            max_attempts=attempts,
            datasets=datasets,
            eval_every={datasets[-1]: every},
            drain_timeout_s=drain,
            num_engines=engines,
            engines_per_eval=per_eval,
            job_timeout_s=100.0,
            abort_grace_s=10.0,
        )
        self.store: dict[int, PolicyTarget] = {}
        self.late: list[PolicyTarget] = []
        self.reported: list[PolicyTarget] = []
        self.last_version = 0
        self.incarnation, self.weight_version, self.rollouts = 1, 0, 0
        self.ended_incarnation = 0
        self.num_checkpoints = 0
        self.training_over = False
        self.cut_short = False
        self.stale: list[tuple[str, int]] = []
        self.past_runs: list[tuple[str, int]] = []

    # --- the trainer and the store --------------------------------------------------------

    @rule(rollouts=st.lists(st.integers(0, 3), min_size=1, max_size=4), late=st.integers(0, 15))
    def syncs(self, rollouts: list[int], late: int) -> None:
        for number, done in enumerate(rollouts):
            self.rollouts += done
            self._seal(late=number == late)

    @precondition(lambda self: self.late)
    @rule(pick=picks)
    def late_report(self, pick: int) -> None:
        self._report(self.late.pop(pick % len(self.late)))

    @precondition(lambda self: self.store)
    @rule(pick=picks)
    def drop(self, pick: int) -> None:
        version = list(self.store)[pick % len(self.store)]
        del self.store[version]
        self._tell("version_dropped", version)
        open_jobs = {job.job_id for job in self.shell.checker.open_jobs() if job.version == version}
        left = open_jobs - set(self.shell.told_to_stop)
        self.shell.checker.require(not left, f"{left} go on though their version is gone")

    @rule(discarded=st.booleans())
    def sync_begins(self, discarded: bool) -> None:
        self._tell("sync_began", self.last_version + 1)
        if discarded:
            self.last_version += 1
            self._tell("sync_ended", self.last_version)

    @rule(back=st.integers(0, 4))
    def trainer_restarts(self, back: int) -> None:
        self.incarnation += 1
        self.weight_version = 0
        self.rollouts = max(self.rollouts - back, 0)

    @precondition(lambda self: self.ended_incarnation + 1 < self.incarnation)
    @rule()
    def incarnation_ends(self) -> None:
        self.ended_incarnation = self.incarnation - 1
        self._tell("incarnation_ended", self.ended_incarnation)

    # --- users ----------------------------------------------------------------------------

    @rule(repeated=st.booleans())
    def checkpoint(self, repeated: bool) -> None:
        if not repeated or self.num_checkpoints == 0:
            self.num_checkpoints += 1
        self.shell.submit(self.num_checkpoints)

    @rule()
    def ask(self) -> None:
        self._tell("evaluate_latest")

    @rule(pick=picks)
    def user_cancels(self, pick: int) -> None:
        names = [*self.shell.checker.records, "v999/a"]
        self._tell("cancel", names[pick % len(names)])

    # --- the engines ----------------------------------------------------------------------

    @precondition(lambda self: self.shell.in_hand)
    @rule(pick=picks)
    def job_starts(self, pick: int) -> None:
        self.shell.start(self._in_hand(pick))

    @precondition(lambda self: self.shell.in_hand)
    @rule(pick=picks, outcome=st.sampled_from(OUTCOMES))
    def job_ends(self, pick: int, outcome: JobOutcome) -> None:
        name = self._in_hand(pick)
        stopped = name in self.shell.told_to_stop
        if outcome is STOPPED and not stopped:
            outcome = SUCCEEDED
        self.stale.append((name, self.shell.in_hand[name]))
        self.shell.report(name, outcome)

    @precondition(lambda self: self.shell.running)
    @rule(reason=st.sampled_from([None, EndReason.LOAD_FAILED, EndReason.CORRUPT_VERSION]), pick=picks)
    def run_ends(self, reason: EndReason | None, pick: int) -> None:
        run = self._note_run(pick)
        jobs = [job.job_id for job in run.jobs if job.job_id in self.shell.in_hand]
        self.stale += [(name, self.shell.in_hand[name]) for name in jobs]
        self.shell.release(reason, evaluation=run.evaluation)

    @precondition(lambda self: self.shell.running)
    @rule(times=st.integers(1, 3), pick=picks)
    def runs_complete(self, times: int, pick: int) -> None:
        for _ in range(times):
            if self.shell.running:
                self.shell.complete(self._note_run(pick).evaluation)

    @precondition(lambda self: self.shell.checker.num_engines > 1)
    @rule()
    def an_engine_is_given_up(self) -> None:
        self.shell.checker.num_engines -= 1
        self._tell("engines_left", self.shell.checker.num_engines)

    @rule(pick=picks, outcome=st.sampled_from(OUTCOMES))
    def events_come_again(self, pick: int, outcome: JobOutcome) -> None:
        scheduler, now = self.shell.scheduler, self.shell.now
        for target in self.reported:
            self._changes_nothing(scheduler.version_sealed(target, now=now))
        if self.stale:
            self._report_again(*self.stale[pick % len(self.stale)], outcome)
        for name, attempt in self.shell.in_hand.items():
            if attempt > 1:
                self._report_again(name, attempt - 1, outcome)
        for key, run in self.past_runs:
            present = self.shell.checker.held.get(key)
            if present is None or present.run != run:
                self._changes_nothing(scheduler.evaluation_ended(key, run=run, now=now))

    # --- the service ----------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 5.0, 50.0, 101.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.shell.pass_time(seconds)

    @precondition(lambda self: not self.shell.checker.finished and not self.cut_short)
    @rule()
    def service_restarts(self) -> None:
        self._restart()

    @precondition(lambda self: not self.shell.checker.finished and not self.cut_short)
    @rule(seals=st.booleans(), pick=picks)
    def service_dies_between_two_actions(self, seals: bool, pick: int) -> None:
        scheduler, now = self.shell.scheduler, self.shell.now
        run = self._held(pick) if self.shell.running else None
        if seals or run is None:
            answer = scheduler.version_sealed(self._make_version(), now=now)
        else:
            self.shell.checker.released(run.evaluation)
            answer = scheduler.evaluation_ended(run.evaluation, run=run.run, now=now)
        self.shell.take(answer[: pick % (len(answer) + 1)])
        if not self.shell.checker.finished:
            self._restart()

    def _restart(self) -> None:
        self.stale.clear()
        self.past_runs.clear()
        # Nothing tells a new service of a version that was not due and is not in the store.
        self.shell.checker.not_due = [
            version for version in self.shell.checker.not_due if version in self.store
        ]
        self.shell.restart(available=set(self.store), ended_incarnation=self.ended_incarnation)
        self.late.clear()
        self.reported.clear()
        for version in sorted(self.store):
            self._report(self.store[version])
        if self.training_over:
            self._tell("training_ended")

    @precondition(lambda self: self.last_version > 1)
    @rule(kind=st.integers(0, 5))
    def the_end_begins(self, kind: int) -> None:
        if kind == 0:
            self.cut_short = True
            self._tell("shutdown")
        elif kind == 1:
            self.training_over = True
            self._tell("training_ended")

    # --- what must hold -------------------------------------------------------------------

    @invariant()
    def views_agree(self) -> None:
        checker, scheduler = self.shell.checker, self.shell.scheduler
        open_jobs = {record.job_id for record in checker.open_jobs()}
        self.shell.checker.require(
            set(scheduler.running) | set(scheduler.waiting) == open_jobs, "views of open jobs"
        )
        self.shell.checker.require(scheduler.pins == checker.pins, "views of pins")
        held = {owner for _, owner in checker.pins}
        live = {job.evaluation for job in checker.open_jobs() if job.version is not None}
        self.shell.checker.require(live <= held, f"{live - held} are open and not pinned")
        idle = checker.running is None and not checker.finished
        self.shell.checker.require(not (idle and scheduler.waiting), "engines are idle while jobs wait")
        live_waits = any(name.startswith("v") for name in scheduler.waiting)
        room = checker.held and checker.num_free >= checker.least_part
        self.shell.checker.require(
            not (room and scheduler.waiting and not live_waits), "engines are idle while checkpoints wait"
        )

    def teardown(self) -> None:
        if not hasattr(self, "shell") or self.shell.checker.broken:
            return
        for target in self.late:
            self._report(target)
        self._tell("training_ended")
        self._tell("sync_ended", self.last_version + 1)
        for _ in range(100):
            if self.shell.checker.finished:
                break
            if self.shell.running:
                self.shell.complete()
            self.shell.pass_time(0.0)
        self.shell.checker.at_the_end()
        self._last_version_was_evaluated()

    def _last_version_was_evaluated(self) -> None:
        records = self.shell.checker.records.values()
        short = any(job.reason in (EndReason.SHUTDOWN, EndReason.DRAIN_TIMEOUT) for job in records)
        if short or self.cut_short or not self.before_the_end:
            return
        last = max(self.before_the_end)
        jobs = [job for job in records if job.version == last]
        self.shell.checker.require(bool(jobs), f"the last version {last} has no jobs")
        for job in jobs:
            ran = job.status in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.TIMED_OUT)
            self.shell.checker.require(ran or job.reason in BY_CHOICE, f"the last version ended as {job}")

    # --- helpers --------------------------------------------------------------------------

    @property
    def before_the_end(self) -> list[int]:
        """Versions of which the scheduler was told before it finished."""
        judged = {job.version for job in self.shell.checker.records.values() if job.version is not None}
        return sorted(judged | set(self.shell.checker.not_due))

    def _make_version(self) -> PolicyTarget:
        self.last_version += 1
        self.weight_version += 1
        first = self.weight_version == 1
        target = PolicyTarget(
            policy_version=self.last_version,
            incarnation=self.incarnation,
            weight_version=self.weight_version,
            rollout_id=None if first or self.rollouts == 0 else self.rollouts - 1,
        )
        self.store[target.policy_version] = target
        return target

    def _seal(self, *, late: bool) -> None:
        target = self._make_version()
        if late:
            self.late.append(target)
        else:
            self._report(target)

    def _report_again(self, name: str, attempt: int, outcome: JobOutcome) -> None:
        if self.shell.in_hand.get(name) != attempt:
            scheduler, now = self.shell.scheduler, self.shell.now
            self._changes_nothing(scheduler.job_started(name, attempt=attempt, now=now))
            self._changes_nothing(scheduler.job_finished(name, outcome, attempt=attempt, now=now))

    def _report(self, target: PolicyTarget) -> None:
        was_finished = self.shell.checker.finished
        self.shell.take(self.shell.scheduler.version_sealed(target, now=self.shell.now))
        self.reported.append(target)
        known = target.policy_version in self.before_the_end
        self.shell.checker.require(known or was_finished, f"{target.key} vanished")

    def _tell(self, event: str, *args: object) -> None:
        self.shell.take(getattr(self.shell.scheduler, event)(*args, now=self.shell.now))

    def _changes_nothing(self, answer: list[Action]) -> None:
        self.shell.checker.require(answer == [], f"an event that is not new was answered by {answer}")

    def _note_run(self, pick: int) -> RunEvaluation:
        run = self._held(pick)
        self.past_runs.append((run.evaluation, run.run))
        return run

    def _held(self, pick: int) -> RunEvaluation:
        held = list(self.shell.checker.held.values())
        return held[pick % len(held)]

    def _in_hand(self, pick: int) -> str:
        names = list(self.shell.in_hand)
        return names[pick % len(names)]
