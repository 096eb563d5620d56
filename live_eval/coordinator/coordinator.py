"""The service's one loop: what happened goes into the scheduler, what it decides is carried out.

                    StoreChanged / each second
    catalogue --feed--> events ---+
    jobs of a run ----------------+--> scheduler --> actions --> ledger, pins, evaluator
    TrainingEnded, checkpoints ---+
    each second: tick ------------+

Everything here runs in one event loop and carries out the actions of one event, in order and
without a pause, before the next event is seen. Beside it are the evaluations, each a task, and the
removal of what the store need not keep, in a thread.

    who waits            for what                                     who ends the wait
    the loop             a poke, or a second                          anything that happened
    an evaluation        its lease, the engines, graders              those, or cancel()
    run()                the scheduler's Finished                     the end of training, or shutdown

Invariant: a store, engine or job that fails ends up in a job's reason; what ends the loop is a
fault of live-eval itself, wherever it shows, and it is raised. From then on nothing more is
recorded, so that the next life takes up what the ledger has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.coordinator.checkpoints import check_name, train_step_of
from live_eval.coordinator.collecting import Collecting
from live_eval.coordinator.evaluator import Evaluator, RunEnd
from live_eval.coordinator.feed import (
    IncarnationEnded,
    SyncAbandoned,
    SyncBegan,
    SyncDiscarded,
    VersionLost,
    VersionSealed,
    VersionsFeed,
)
from live_eval.errors import AlreadyEnded, ConfigError, LiveEvalError, NoSuchVersion
from live_eval.reasons import EndReason
from live_eval.scheduling.actions import (
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
from live_eval.scheduling.reports import JobOutcome
from live_eval.store.checkpoint import check_complete
from live_eval.store.records import FRESH_OWNER, PinKind
from live_eval.targets import CheckpointTarget, PolicyTarget, job_id
from protocol.messages import ServiceStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from live_eval.coordinator.feed import Change
    from live_eval.coordinator.records import JobRecords
    from live_eval.evaluation.job import JobOutcomeDetail, Progress
    from live_eval.reasons import JobStatus
    from live_eval.results.ledger import Ledger
    from live_eval.scheduling.actions import Action, RunJob
    from live_eval.scheduling.config import SchedulerConfig
    from live_eval.scheduling.scheduler import Scheduler
    from live_eval.store.records import VersionRecord
    from live_eval.store.store import VersionStore

logger = logging.getLogger(__name__)

TICK_S = 1.0
MAX_PRIORITY = 100
END_TIMEOUT_S = 10.0
"""Longest wait for engines at the end; a load that hangs is ended with them."""


class Coordinator:
    """Runs until the scheduler has finished. All methods belong to one event loop."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        config: SchedulerConfig,
        store: VersionStore,
        ledger: Ledger,
        records: JobRecords,
        evaluator: Evaluator,
        clock: Callable[[], float] = time.monotonic,
        end_timeout_s: float = END_TIMEOUT_S,
    ) -> None:
        self._scheduler = scheduler
        self._config = config
        self._store = store
        self._ledger = ledger
        self._records = records
        self._evaluator = evaluator
        self._clock = clock
        self._end_timeout_s = end_timeout_s
        self._feed = VersionsFeed(store)
        self._collecting = Collecting(store, on_fault=self._fail)
        self._poked = asyncio.Event()
        self._finished = asyncio.Event()
        self._evaluations: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._ended = False

    # --- what others tell it --------------------------------------------------------------

    def poke(self) -> None:
        """Something may have changed in the store: look now."""
        self._poked.set()

    def training_ended(self) -> None:
        """No sync comes any more: evaluate what is left, then run() returns."""
        with self._loud():
            self._look()
            self._apply(self._scheduler.training_ended(now=self._clock()))

    def shutdown(self) -> None:
        """End all jobs now; run() returns when the engines are free."""
        self._apply(self._scheduler.shutdown(now=self._clock()))

    def submit_checkpoint(
        self, path: str, datasets: Sequence[str] = (), *, priority: int = 0, checked: bool = False
    ) -> tuple[str, ...]:
        """Let a checkpoint be evaluated; the ids of its jobs.

        Of the checkpoints that wait the one of the highest `priority` is next. `checked`: the caller has
        seen that the directory is whole, in a thread, since a slow file system must not hold the loop.
        CorruptVersion if the directory is no whole safetensors checkpoint, ConfigError if a dataset is
        not configured or the path is no text, LiveEvalError if all is finished; nothing is recorded then.
        """
        if self._scheduler.finished:
            raise LiveEvalError(f"the service has finished and takes no more work; {path} is not evaluated")
        if not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
            raise ConfigError(f"priority is {priority}: give {-MAX_PRIORITY} to {MAX_PRIORITY}")
        directory = Path(path).absolute()
        check_name(directory)
        if not checked:
            check_complete(directory)
        self._scheduler.check_datasets(datasets)
        number = self._ledger.next_checkpoint_number()
        target = CheckpointTarget(path=str(directory), number=number, train_step=train_step_of(directory))
        actions = self._scheduler.checkpoint_submitted(target, datasets, priority=priority, now=self._clock())
        with self._loud():
            if priority:
                self._records.prioritise(target, priority)
            self._apply(actions)
        return tuple(job_id(target, name) for name in dict.fromkeys(datasets or self._config.datasets))

    def engines_left(self, num_engines: int) -> None:
        """So many of the engines are not given up."""
        self._report(lambda: self._apply(self._scheduler.engines_left(num_engines, now=self._clock())))

    def cancel(self, job_id: str) -> JobStatus:
        """A user wants this job no more: a waiting one ends at once, a running one within a second.

        What it was until now. NoSuchJob, or AlreadyEnded.
        """
        row = self._ledger.job(job_id)
        if row.status.terminal:
            raise AlreadyEnded(f"{job_id} has ended: {row.status} ({row.reason})")
        self._apply(self._scheduler.cancel(job_id, now=self._clock()))
        return row.status

    def status(self) -> ServiceStatus:
        """What the scheduler sees now."""
        scheduler = self._scheduler
        state = "finished" if scheduler.finished else "draining" if scheduler.draining else "serving"
        return ServiceStatus(
            state=state,
            running=scheduler.running,
            waiting=scheduler.waiting,
            stable_version=scheduler.stable_version,
            num_finished=sum(self._ledger.totals().by_status.values())
            - len(scheduler.running)
            - len(scheduler.waiting),
        )

    # --- the loop -------------------------------------------------------------------------

    async def run(self) -> None:
        """Take up what the ledger knows, then follow the store until all is done."""
        try:
            self._restore()
            while not self._finished.is_set():
                self._look()
                self._apply(self._scheduler.tick(now=self._clock()))
                await self._wait()
        finally:
            await self._end_evaluations()
        if self._fault is not None:  # the last removal's
            raise self._fault

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._poked.wait(), TICK_S)
        self._poked.clear()
        if self._fault is not None:
            raise self._fault

    def _restore(self) -> None:
        sealed = {record.policy_version for record in self._store.sealed()}
        ended = max((each.number for each in self._store.incarnations()), default=1) - 1
        self._apply(
            self._scheduler.restore(
                self._records.known(), available=sealed, ended_incarnation=ended, now=self._clock()
            )
        )
        # Claims of a life that ended are claims of nobody, unless the scheduler took them up again.
        ours = self._scheduler.pins
        for pin in self._store.pins():
            claim = (pin.policy_version, pin.owner)
            if pin.kind in (PinKind.WAITING, PinKind.RUNNING) and claim not in ours:
                self._store.unpin(*claim)

    def _look(self) -> None:
        for change in self._feed.poll():
            self._see(change)

    def _see(self, change: Change) -> None:
        now = self._clock()
        match change:
            case SyncBegan(version):
                self._apply(self._scheduler.sync_began(version, now=now))
            case SyncAbandoned(version):
                logger.warning("no receiver is left to end the sync of policy version %d", version)
                self._apply(self._scheduler.sync_ended(version, now=now))
            case SyncDiscarded(record, key):
                self._records.discarded(key, record)
                if record.policy_version is not None:
                    self._apply(self._scheduler.sync_ended(record.policy_version, now=now))
            case VersionSealed(record):
                self._records.sealed(record)
                self._apply(self._scheduler.version_sealed(_target(record), now=now))
                # Whoever needs the version has its own pin by now.
                self._store.unpin(record.policy_version, FRESH_OWNER)
                self._collecting.ask()
            case VersionLost(record):
                self._records.lost(record)
                self._apply(self._scheduler.version_dropped(record.policy_version, now=now))
            case IncarnationEnded(number):
                self._apply(self._scheduler.incarnation_ended(number, now=now))

    # --- actions --------------------------------------------------------------------------

    def _apply(self, actions: list[Action]) -> None:
        with self._loud():
            for action in actions:
                self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case NewJob():
                self._records.create(action)
            case Pin(policy_version=version, owner=owner):
                # A version that went in this moment is reported as lost by the next look.
                with contextlib.suppress(NoSuchVersion):
                    self._store.pin(version, owner, PinKind.WAITING)
            case Unpin(policy_version=version, owner=owner):
                self._store.unpin(version, owner)
                self._collecting.ask()
            case RunEvaluation():
                task = asyncio.create_task(self._evaluate(action), name=f"eval-{action.evaluation}")
                self._evaluations.add(task)
                task.add_done_callback(self._evaluations.discard)
            case CancelRunning(job_ids=job_ids, reason=reason):
                self._evaluator.cancel(job_ids, reason)
            case RetryJob():
                self._records.retry(action)
            case EndJob():
                self._records.end(action)
            case NotDue(policy_version=version, next_due_rollout=next_due):
                logger.info("policy version %d is not due; the next due rollout is %s", version, next_due)
            case Finished():
                self._finished.set()
                self._poked.set()

    async def _evaluate(self, action: RunEvaluation) -> None:
        """Task supervisor of one evaluation: whatever it raises ends in a reason, or ends the loop."""
        end = RunEnd(reason=EndReason.INTERNAL)
        try:
            end = await self._evaluator.run(action, self)
        except Exception as error:  # one evaluation's fault must not end the service in silence
            logger.exception("evaluation %s failed", action.evaluation)
            end = RunEnd(reason=EndReason.INTERNAL, detail=f"{type(error).__name__}: {error}")
        finally:
            self._report(lambda: self._evaluation_over(action, end))

    def _evaluation_over(self, action: RunEvaluation, end: RunEnd) -> None:
        if end.detail:
            unreported = [job.job_id for job in action.jobs if job.job_id in self._scheduler.running]
            self._records.explain(unreported, end.detail)
        self._apply(
            self._scheduler.evaluation_ended(
                action.evaluation, run=action.run, reason=end.reason, now=self._clock()
            )
        )

    async def _end_evaluations(self) -> None:
        """Free the engines; jobs that still run stay so in the ledger, for the next life."""
        self._ended = True
        tasks = list(self._evaluations)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._end_timeout_s)
        await self._collecting.close(self._end_timeout_s)

    # --- reports of the evaluator ---------------------------------------------------------

    def job_started(self, job: RunJob) -> None:
        """The job's first sample is about to be asked for."""

        def started() -> None:
            self._records.start(job)
            self._apply(self._scheduler.job_started(job.job_id, attempt=job.attempt, now=self._clock()))

        self._report(started)

    def job_progress(self, job: RunJob, progress: Progress) -> None:
        """Some more samples of the job are done."""
        self._report(lambda: self._records.progress(job, progress))

    def job_finished(self, job: RunJob, detail: JobOutcomeDetail) -> None:
        """The job is over; its samples are on disk."""

        def finished() -> None:
            self._records.measured(detail)
            outcome = JobOutcome(status=detail.status, reason=detail.reason)
            self._apply(
                self._scheduler.job_finished(job.job_id, outcome, attempt=job.attempt, now=self._clock())
            )

        self._report(finished)

    def _report(self, report: Callable[[], None]) -> None:
        """Carry a report out; what fails here fails the loop, not the evaluation that reported."""
        if self._fault is not None or self._ended:
            return
        try:
            report()
        except BaseException as error:  # raised by the loop, whose supervisor is the service
            self._fail(error)

    @contextlib.contextmanager
    def _loud(self) -> Iterator[None]:
        """What fails inside ends the loop, and not only what its caller was at."""
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self._fault = self._fault or error
        self._poked.set()


def _target(record: VersionRecord) -> PolicyTarget:
    return PolicyTarget(
        policy_version=record.policy_version,
        incarnation=record.incarnation,
        weight_version=record.weight_version,
        rollout_id=record.rollout_id,
        train_step=record.train_step,
    )
