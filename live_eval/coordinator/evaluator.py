"""Runs evaluations: lease engines, pin the target, run its jobs one after the other.

It decides nothing: what to run and what to stop come from the scheduler, and how each job went
is reported to whoever asked. Invariant: every job of a run is either reported as finished, or
covered by the reason that `run` returns; the lease is always given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from live_eval.coordinator.checkpoints import files_of
from live_eval.engines.pin import PinTarget
from live_eval.errors import (
    CorruptVersion,
    EngineError,
    LiveEvalError,
    LoadFailed,
    NoSuchVersion,
    PinMismatch,
    StoreError,
)
from live_eval.evaluation.job import JobSpec, limits_of, sample_file
from live_eval.evaluation.runner import JobRun
from live_eval.reasons import EndReason
from live_eval.store.checkpoint import check_complete
from live_eval.targets import CheckpointTarget

if TYPE_CHECKING:
    from live_eval.engines.lease import Lease
    from live_eval.evaluation.datasets import EvalSet
    from live_eval.evaluation.job import JobOutcomeDetail, Progress, RunLimits
    from live_eval.evaluation.rewards import Grader
    from live_eval.evaluation.run import MakeRun, Run
    from live_eval.scheduling.actions import RunEvaluation, RunJob
    from live_eval.store.store import VersionStore
    from live_eval.targets import Target

logger = logging.getLogger(__name__)


class Engines(Protocol):
    """Who lends engines."""

    async def lease(self, owner: str, num_engines: int | None = None) -> Lease:
        """All of them, or so many, for one user alone; waits until they are free."""
        ...


class Reports(Protocol):
    """Who is told how a run goes; all methods return at once."""

    def job_started(self, job: RunJob) -> None:
        """The job's first sample is about to be asked for."""
        ...

    def job_progress(self, job: RunJob, progress: Progress) -> None:
        """Some more samples of the job are done."""
        ...

    def job_finished(self, job: RunJob, detail: JobOutcomeDetail) -> None:
        """The job is over; its samples are on disk."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnd:
    """How a run ended for the jobs that were not reported."""

    reason: EndReason | None = None
    """None if all were reported."""
    detail: str = ""


class Evaluator:
    """Runs evaluations, each by itself; several may run at once, on a lease of their own."""

    def __init__(
        self,
        *,
        group: Engines,
        store: VersionStore,
        eval_sets: Mapping[str, EvalSet],
        grader_of: Callable[[str], Grader],
        samples_dir: Path,
        limits: RunLimits,
        make_run: MakeRun | None = None,
    ) -> None:
        """`grader_of`: makes the grader of a run on this dataset; evaluations that run at once share
        none. `make_run`: None for live-eval's own runner."""
        self._group = group
        self._store = store
        self._eval_sets = eval_sets
        self._grader_of = grader_of
        self._samples_dir = samples_dir
        self._limits = limits
        self._stops: dict[str, EndReason] = {}
        """Jobs to be stopped in the runs that are handed out, whether these have begun or not."""
        self._make_run: MakeRun = make_run or JobRun
        self._running: dict[str, Run] = {}
        """By job."""
        self._weights: dict[str, str] = {}
        """Names what was pinned last, by evaluation."""

    def cancel(self, job_ids: tuple[str, ...], reason: EndReason) -> None:
        """Stop these jobs of a run that is handed out, begun or not."""
        for job_id in job_ids:
            self._stops.setdefault(job_id, reason)
            if (run := self._running.get(job_id)) is not None:
                run.cancel(reason)

    async def run(self, evaluation: RunEvaluation, reports: Reports) -> RunEnd:
        """Run the jobs; returns when its engines are free again."""
        try:
            return await self._run_leased(evaluation, reports)
        finally:
            # Not at the start: a cancel may come before this task has had its first turn.
            for job in evaluation.jobs:
                self._stops.pop(job.job_id, None)
            self._weights.pop(evaluation.evaluation, None)

    async def _run_leased(self, evaluation: RunEvaluation, reports: Reports) -> RunEnd:
        try:
            lease = await self._group.lease(evaluation.evaluation, evaluation.num_engines)
        except LiveEvalError as error:  # engines that are started on demand, and did not come up
            logger.warning("evaluation %s: no engines: %s", evaluation.evaluation, error)
            return RunEnd(reason=reason_of(error), detail=str(error))
        try:
            pinned = False
            for job in evaluation.jobs:
                if not pinned and job.job_id not in self._stops:
                    if (end := await self._pin(lease, evaluation)) is not None:
                        return end
                    pinned = True
                if job.job_id not in self._stops:  # it may have been stopped during the load
                    aborted = await self._run_job(lease, job, reports)
                    pinned = not aborted  # after an abort engines serve only what is pinned anew
            return RunEnd()
        finally:
            await lease.release()

    async def _pin(self, lease: Lease, evaluation: RunEvaluation) -> RunEnd | None:
        """Load and prove the target; None if it worked, else why not."""
        try:
            target = self._pin_target(evaluation.target, evaluation.evaluation)
            weights = target.digest or await asyncio.to_thread(files_of, target.path)
            self._weights[evaluation.evaluation] = weights
            report = await lease.pin(target)
        except LiveEvalError as error:
            logger.warning("evaluation %s: cannot be pinned: %s", evaluation.evaluation, error)
            dropped = self._was_dropped(evaluation.target)
            return RunEnd(reason=EndReason.STORE_FULL if dropped else reason_of(error), detail=str(error))
        logger.info("evaluation %s: pinned: %s", evaluation.evaluation, report)
        return None

    def _pin_target(self, target: Target, owner: str) -> PinTarget:
        if isinstance(target, CheckpointTarget):
            path = Path(target.path)
            return PinTarget(
                label=label_of(target),
                path=path,
                verify=lambda: void(check_complete(path, check_finite=True)),
            )
        version = target.policy_version
        if not self._store.upgrade(version, owner):
            raise NoSuchVersion(f"policy version {version} was given up before its evaluation could begin")
        manifest = self._store.manifest(version)
        return PinTarget(
            label=label_of(target),
            path=self._store.path(version),
            digest=manifest.digest,
            verify=lambda: void(self._store.verify(version)),
        )

    def _was_dropped(self, target: Target) -> bool:
        """Whether the store gave the version up for its bytes, as its turn came."""
        if isinstance(target, CheckpointTarget):
            return False
        return any(record.policy_version == target.policy_version for record in self._store.dropped())

    async def _run_job(self, lease: Lease, job: RunJob, reports: Reports) -> bool:
        """Run one job and report it; whether its requests had to be aborted."""
        spec = JobSpec(
            job_id=job.job_id,
            target=job.target,
            label=label_of(job.target),
            samples_path=self._sample_path(job, job.attempt),
            attempt=job.attempt,
            earlier=tuple(self._sample_path(job, attempt) for attempt in range(1, job.attempt)),
            weights=self._weights[job.evaluation],
        )
        run = self._make_run(
            spec,
            self._eval_sets[job.dataset],
            lease,
            grader=self._grader_of(job.dataset),
            limits=limits_of(self._eval_sets[job.dataset].config, self._limits),
            on_progress=lambda progress: reports.job_progress(job, progress),
        )
        reports.job_started(job)
        self._running[job.job_id] = run
        try:
            detail = await run.result()
        finally:
            del self._running[job.job_id]
        reports.job_finished(job, detail)
        return detail.source_aborted

    def _sample_path(self, job: RunJob, attempt: int) -> Path:
        return self._samples_dir / sample_file(job.job_id, attempt=attempt)


def label_of(target: Target) -> str:
    """The weight label that engines carry while they hold `target`."""
    return f"ckpt-{target.key}" if isinstance(target, CheckpointTarget) else str(target.policy_version)


def reason_of(error: LiveEvalError) -> EndReason:
    """Why a job ends when this error kept its target from the engines."""
    for kind, reason in (
        (NoSuchVersion, EndReason.VERSION_GONE),
        (CorruptVersion, EndReason.CORRUPT_VERSION),
        (StoreError, EndReason.VERSION_GONE),
        (LoadFailed, EndReason.LOAD_FAILED),
        (PinMismatch, EndReason.PIN_MISMATCH),
        (EngineError, EndReason.ENGINE_FAILED),
    ):
        if isinstance(error, kind):
            return reason
    return EndReason.INTERNAL


def void(_: object) -> None:
    """Drop a report that the caller has no use for."""
