"""Watches a scheduler's actions and raises Violation at the first that breaks an invariant.

The checker keeps its own record of jobs, pins and cancels from the actions alone; it shares no code
with the scheduler. It is the ledger and the store of the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from live_eval.reasons import EndReason, JobStatus
from live_eval.scheduling.actions import (
    NEWEST,
    Action,
    CancelRunning,
    EndJob,
    Finished,
    NewJob,
    NotDue,
    Pin,
    RetryJob,
    RunEvaluation,
    Unpin,
)
from live_eval.scheduling.reports import KnownJob
from live_eval.targets import PolicyTarget, Target

if TYPE_CHECKING:
    from live_eval.scheduling.config import SchedulerConfig

S, R = JobStatus, EndReason

ALLOWED: dict[JobStatus, set[EndReason]] = {
    S.SUCCEEDED: {R.COMPLETED, R.EARLY_STOP},
    S.SUPERSEDED: {R.NEWER_VERSION, R.INCARNATION_ENDED},
    S.DROPPED: {R.QUEUE_FULL, R.STORE_FULL},
    S.TIMED_OUT: {R.JOB_TIMEOUT},
    S.CANCELLED: {R.NEWER_VERSION, R.USER, R.SHUTDOWN, R.DRAIN_TIMEOUT},
    S.FAILED: {
        R.LOAD_FAILED,
        R.CORRUPT_VERSION,
        R.PIN_MISMATCH,
        R.MIXED_VERSION,
        R.ENGINE_FAILED,
        R.NO_DATA,
        R.LOW_COVERAGE,
        R.VERSION_GONE,
        R.INTERNAL,
        R.STORE_FULL,
    },
}


class Violation(AssertionError):
    """An invariant of scheduling does not hold."""


@dataclass(kw_only=True)
class Record:
    """A job as a ledger would keep it."""

    job_id: str
    evaluation: str
    target: Target
    dataset: str
    status: JobStatus = S.WAITING
    reason: EndReason | None = None
    attempt: int = 1
    protected: bool = False
    stop: EndReason | None = None
    """The reason of the CancelRunning that named the job."""

    @property
    def version(self) -> int | None:
        return self.target.policy_version if isinstance(self.target, PolicyTarget) else None

    def known(self) -> KnownJob:
        """The row that a restarted service would read."""
        return KnownJob(
            job_id=self.job_id,
            target=self.target,
            dataset=self.dataset,
            status=self.status,
            attempt=self.attempt,
            reason=self.reason,
        )


@dataclass(kw_only=True)
class ScheduleChecker:
    """Feed every answer to `take`, tell `released` when engines come free, then call `at_the_end`."""

    config: SchedulerConfig
    records: dict[str, Record] = field(default_factory=dict)
    pins: set[tuple[int, str]] = field(default_factory=set)
    held: dict[str, RunEvaluation] = field(default_factory=dict)
    """Runs that have engines, by evaluation, in the order in which these began."""
    num_engines: int = 0
    """Of the group, less those that are given up; 0: as configured."""
    runs: list[RunEvaluation] = field(default_factory=list)
    not_due: list[int] = field(default_factory=list)
    cancels_in_a_row: int = 0
    counted: set[str] = field(default_factory=set)
    """Evaluations that `cancels_in_a_row` knows of."""
    finished: bool = False
    broken: bool = False
    """A violation was seen; nothing after it counts."""

    def __post_init__(self) -> None:
        self.num_engines = self.num_engines or self.config.num_engines

    @property
    def running(self) -> RunEvaluation | None:
        """The run that began first of those that have engines."""
        return next(iter(self.held.values()), None)

    def take(self, actions: list[Action]) -> None:
        """Check the actions of one answer, in their order."""
        # Only when all is over are engines given up that never came free.
        at_last = bool(actions) and isinstance(actions[-1], Finished)
        for action in actions:
            self.require(not self.finished, f"{action} after Finished")
            match action:
                case NewJob():
                    self._new_job(action)
                case Pin():
                    self.require((action.policy_version, action.owner) not in self.pins, f"second {action}")
                    self.pins.add((action.policy_version, action.owner))
                case Unpin():
                    self._unpin(action, at_last=at_last)
                case RunEvaluation():
                    self._run(action)
                case CancelRunning():
                    self._cancel(action)
                case RetryJob():
                    self._retry(action)
                case EndJob():
                    self._end(action)
                case NotDue():
                    self.require(not self._jobs_of(f"v{action.policy_version}"), f"{action} has jobs")
                    self.not_due.append(action.policy_version)
                case Finished():
                    self._finish()

    def started(self, job_id: str) -> None:
        """The shell began with a job."""
        if self.records[job_id].status is S.WAITING:
            self.records[job_id].status = S.RUNNING

    def released(self, evaluation: str) -> None:
        """The shell gave its engines back; call it before the report, since the answer may use them."""
        del self.held[evaluation]

    def crashed(self) -> None:
        """The service is gone; its ledger stays, and all engines are launched again."""
        self.held.clear()
        self.num_engines = self.config.num_engines
        for record in self.records.values():
            record.stop = None
        self.pins.clear()

    def open_jobs(self) -> list[Record]:
        return [record for record in self.records.values() if not record.status.terminal]

    def at_the_end(self) -> None:
        """Nothing is left open."""
        self.require(self.finished, "Finished never came")
        self.require(not self.open_jobs(), f"jobs without an end: {self.open_jobs()}")

    # --- one action each ------------------------------------------------------------------

    def _new_job(self, action: NewJob) -> None:
        self.require(action.job_id not in self.records, f"{action.job_id} was made twice")
        ran = any(run.evaluation == action.evaluation for run in self.runs)
        self.require(not ran, f"{action.evaluation} gets a job after it ran")
        self.records[action.job_id] = Record(
            job_id=action.job_id,
            evaluation=action.evaluation,
            target=action.target,
            dataset=action.dataset,
        )

    def _unpin(self, action: Unpin, *, at_last: bool) -> None:
        self.require((action.policy_version, action.owner) in self.pins, f"{action} without a Pin")
        self.pins.remove((action.policy_version, action.owner))
        if action.owner == NEWEST:
            return
        jobs = self._jobs_of(action.owner)
        self.require(all(job.status.terminal for job in jobs), f"{action} before the last EndJob")
        self.require(action.owner not in self.held or at_last, f"{action} while the engines are in use")

    def _run(self, action: RunEvaluation) -> None:
        self.require(action.evaluation not in self.held, f"{action.evaluation} runs twice at once")
        self._check_part(action)
        self.require(len(action.jobs) > 0, f"{action.evaluation} runs without jobs")
        left = {job.job_id for job in self._jobs_of(action.evaluation) if not job.status.terminal}
        self.require({job.job_id for job in action.jobs} == left, f"{action} is not what is left: {left}")
        for job in action.jobs:
            record = self.records[job.job_id]
            self.require(record.status is S.WAITING, f"{job.job_id} runs though it is {record.status}")
            self.require(job.attempt == record.attempt, f"{job.job_id} runs as attempt {job.attempt}")
            record.protected = job.protected
        if isinstance(action.target, PolicyTarget):
            pin = (action.target.policy_version, action.evaluation)
            self.require(pin in self.pins, f"{action.evaluation} runs without a pin")
            self._check_guard(action)
            if all(run.evaluation != action.evaluation for run in self.runs):
                self._check_turn(action.target.policy_version)
        self.held[action.evaluation] = action
        self.runs.append(action)

    def _check_part(self, action: RunEvaluation) -> None:
        """Who has the whole group has it alone, and parts fit into it; a run again keeps its part."""
        part, others = action.num_engines, [run.num_engines for run in self.held.values()]
        whole = isinstance(action.target, PolicyTarget) or self.config.engines_per_eval == "all"
        self.require((part is None) == whole, f"{action.evaluation} has a part of {part} engines")
        self.require(not others or (part is not None and None not in others), f"{action} beside {others}")
        earlier = [run for run in self.runs if run.evaluation == action.evaluation]
        if action.run > 1:
            self.require(part == earlier[-1].num_engines, f"{action} has another part than before")
        elif part is not None:
            size = part + sum(other or 0 for other in others)
            self.require(0 < size <= self.num_engines, f"{size} of {self.num_engines} engines are in use")

    @property
    def least_part(self) -> int:
        """Engines without which no checkpoint begins."""
        per_eval = self.config.engines_per_eval
        return min(per_eval, self.num_engines) if isinstance(per_eval, int) else 1

    @property
    def num_free(self) -> int:
        """Engines that a checkpoint could have; 0 beside one that has the whole group."""
        parts = [run.num_engines for run in self.held.values()]
        return 0 if None in parts else self.num_engines - sum(part or 0 for part in parts)

    def _check_turn(self, version: int) -> None:
        waiting = {job.version for job in self.open_jobs() if job.version is not None} - {version}
        if self.config.on_update == "queue":
            self.require(not waiting or version < min(waiting), f"v{version} runs before {waiting}")
        else:
            self.require(not waiting, f"v{version} runs while {waiting} wait")

    def _check_guard(self, action: RunEvaluation) -> None:
        self._count_cancels()
        guarded = self.config.on_update == "cancel" and (
            self.cancels_in_a_row >= self.config.max_consecutive_cancels
        )
        self.require(
            action.protected == guarded,
            f"protected is {action.protected} after {self.cancels_in_a_row} cancels in a row",
        )

    def _cancel(self, action: CancelRunning) -> None:
        running = self.held.get(action.evaluation)
        self.require(running is not None, f"{action} while it does not run")
        assert running is not None
        self.require(running.run == action.run, f"{action} is not for run {running.run}")
        for name in action.job_ids:
            self.require(self.records[name].stop is None, f"{name} is told to stop twice")
            self.records[name].stop = action.reason
        if action.reason is R.NEWER_VERSION:
            self._check_cancel_for_newer(running.target, protected=running.protected)

    def _check_cancel_for_newer(self, target: Target, *, protected: bool) -> None:
        self.require(self.config.on_update == "cancel", f"{target.key} is cancelled for a newer one")
        self.require(not protected, f"{target.key} is protected and cancelled for a newer one")
        self.require(isinstance(target, PolicyTarget), f"checkpoint {target.key} is cancelled for a version")
        self._require_newer(target)

    def _require_newer(self, target: Target) -> None:
        assert isinstance(target, PolicyTarget)
        newer = [
            job
            for job in self.records.values()
            if job.version is not None and job.version > target.policy_version
        ]
        self.require(bool(newer), f"{target.key} gives way to a newer due version that does not exist")

    def _retry(self, action: RetryJob) -> None:
        record = self.records[action.job_id]
        self.require(not record.status.terminal, f"{action.job_id} is retried after its end")
        self.require(record.stop is None, f"{action.job_id} is retried though it was told to stop")
        self.require(action.attempt == record.attempt + 1, f"{action} after attempt {record.attempt}")
        record.status, record.attempt = S.WAITING, action.attempt

    def _end(self, action: EndJob) -> None:
        record = self.records[action.job_id]
        self.require(not record.status.terminal, f"{action.job_id} ends twice: {record.status}, {action}")
        self.require(action.reason in ALLOWED.get(action.status, set()), f"{action} makes no sense")
        self.require(action.attempt == record.attempt, f"{action} in attempt {record.attempt}")
        obeys = record.stop is None or action.status is S.SUCCEEDED or action.reason is record.stop
        self.require(obeys, f"{action} of a job told to stop for {record.stop}")
        if action.status is S.SUPERSEDED:
            self.require(self.config.on_update != "queue", f"{action.job_id} superseded under queue")
            if action.reason is R.NEWER_VERSION:
                self._require_newer(record.target)
        if action.reason is R.QUEUE_FULL:
            self._check_queue_full(record)
        if (action.status, action.reason) == (S.CANCELLED, R.NEWER_VERSION):
            self._check_cancel_for_newer(record.target, protected=record.protected)
        record.status, record.reason = action.status, action.reason

    def _check_queue_full(self, record: Record) -> None:
        self.require(self.config.on_update == "queue", f"{record.job_id}: queue_full without a queue")
        waiting = {job.version for job in self.open_jobs() if job.version and job.evaluation not in self.held}
        self.require(record.version == min(waiting), f"{record.job_id} is not the oldest of {waiting}")
        self.require(len(waiting) > self.config.queue_size, f"the queue is not full: {waiting}")

    def _finish(self) -> None:
        self.require(not self.open_jobs(), f"Finished with open jobs: {self.open_jobs()}")
        self.require(not self.pins, f"Finished with pins {self.pins}")
        self.finished = True

    def _count_cancels(self) -> None:
        for evaluation in dict.fromkeys(job.evaluation for job in self.records.values()):
            jobs = self._jobs_of(evaluation)
            live, over = jobs[0].version is not None, all(job.status.terminal for job in jobs)
            if live and over and evaluation not in self.counted:
                self.counted.add(evaluation)
                self._count_cancel(jobs)

    def _count_cancel(self, jobs: list[Record]) -> None:
        if any((job.status, job.reason) == (S.CANCELLED, R.NEWER_VERSION) for job in jobs):
            self.cancels_in_a_row += 1
        elif any(job.status is S.SUCCEEDED for job in jobs):
            self.cancels_in_a_row = 0

    def _jobs_of(self, evaluation: str) -> list[Record]:
        return [record for record in self.records.values() if record.evaluation == evaluation]

    def require(self, holds: bool, message: str) -> None:
        """Raise Violation unless `holds`."""
        if not holds:
            self.broken = True
            raise Violation(message)
