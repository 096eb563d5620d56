"""An evaluation that holds engines, from RunEvaluation to evaluation_ended.

Owns what happens to its jobs: reports, retries, stops and timeouts. Knows no policy and no order. A job
that was told to stop ends when the shell reports it; it succeeds if it was done before the stop came
through. A report about a job that is not in the shell's hand, or about an earlier attempt, changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_eval.reasons import EndReason, JobStatus
from live_eval.scheduling.actions import Action, CancelRunning, EndJob, RetryJob, RunEvaluation, RunJob
from live_eval.scheduling.jobs import Evaluation, Job, Stop

if TYPE_CHECKING:
    from live_eval.scheduling.config import SchedulerConfig
    from live_eval.scheduling.reports import JobOutcome

RETRYABLE = frozenset({EndReason.ENGINE_FAILED, EndReason.LOAD_FAILED})
"""Faults of an engine, not of the version or the eval set: another run may do better."""


def end_job(evaluation: Evaluation, job: Job, status: JobStatus, reason: EndReason) -> EndJob:
    """Move `job` to its terminal state; RuntimeError if it has one."""
    job.move(status)
    job.reason = reason
    job.handed_out = False
    return EndJob(
        job_id=job.job_id,
        evaluation=evaluation.key,
        status=status,
        reason=reason,
        attempt=job.attempt,
        protected=evaluation.protected,
    )


class RunningEvaluation:
    """Wraps an Evaluation that runs on its part of the engines."""

    def __init__(
        self, evaluation: Evaluation, config: SchedulerConfig, *, num_engines: int | None = None
    ) -> None:
        """`num_engines`: None for the whole group."""
        self.evaluation = evaluation
        self._config = config
        self._num_engines = num_engines

    def hand_out(self, now: float) -> RunEvaluation:
        """Start the next run with every job that has not ended."""
        evaluation = self.evaluation
        evaluation.run += 1
        evaluation.quiet_since = now
        for job in evaluation.unfinished:
            job.handed_out = True
        return RunEvaluation(
            evaluation=evaluation.key,
            run=evaluation.run,
            target=evaluation.target,
            jobs=tuple(self._run_job(job) for job in evaluation.unfinished),
            protected=evaluation.protected,
            num_engines=self._num_engines,
        )

    def started(self, job: Job, *, now: float) -> None:
        """The shell began with `job`."""
        if not job.handed_out or job.status is not JobStatus.WAITING:
            return
        job.move(JobStatus.RUNNING)
        job.started_at = now
        self.evaluation.begun = True
        self.evaluation.quiet_since = now

    def reported(self, job: Job, outcome: JobOutcome, *, now: float) -> list[Action]:
        """The shell is done with `job` in this run."""
        if not job.handed_out:
            return []
        if outcome.status is JobStatus.SUCCEEDED:
            self.started(job, now=now)  # a report that overtook job_started implies it
        self.evaluation.quiet_since = now
        if outcome.status is not JobStatus.SUCCEEDED and job.stop is not None:
            return [self._end_stopped(job, job.stop)]
        if outcome.status is JobStatus.FAILED:
            return [self._failed(job, outcome.reason)]
        return [end_job(self.evaluation, job, outcome.status, outcome.reason)]

    def run_over(self, reason: EndReason | None, *, now: float) -> list[Action]:
        """The shell gave the engines back; jobs it never reported failed with `reason`, or stopped."""
        actions: list[Action] = []
        for job in self.evaluation.in_hand:
            if job.stop is not None:
                actions.append(self._end_stopped(job, job.stop))
            elif reason is EndReason.STORE_FULL and job.status is JobStatus.WAITING:
                actions.append(end_job(self.evaluation, job, JobStatus.DROPPED, reason))
            else:
                actions.append(self._failed(job, reason or EndReason.INTERNAL))
        self.evaluation.quiet_since = now
        return actions

    def stop(self, jobs: list[Job], stop: Stop) -> list[Action]:
        """Stop `jobs`: those in the shell's hand by asking it, the others at once. A first stop stands."""
        actions: list[Action] = []
        told: list[str] = []
        for job in jobs:
            if not job.handed_out:
                actions.append(end_job(self.evaluation, job, stop.status, stop.reason))
            elif job.stop is None:
                job.stop = stop
                told.append(job.job_id)
        if told:
            actions.append(self._cancel(told, stop.reason))
        return actions

    def lost(self, *, now: float) -> list[Action]:
        """The store has the version no more."""
        evaluation = self.evaluation
        if evaluation.begun:
            stop = Stop(status=JobStatus.FAILED, reason=EndReason.VERSION_GONE, since=now)
            return self.stop(evaluation.unfinished, stop)
        # Nothing began, so the store dropped a waiting version just as its turn came.
        left = [job for job in evaluation.unfinished if job.stop is None]
        told = [job.job_id for job in left if job.handed_out]
        reason = EndReason.STORE_FULL
        actions: list[Action] = [end_job(evaluation, job, JobStatus.DROPPED, reason) for job in left]
        return [*actions, self._cancel(told, reason)] if told else actions

    def expire(self, *, now: float) -> list[Action]:
        """Stop jobs that are over their time, and end those whose stop nobody confirmed."""
        actions: list[Action] = []
        for job in self.evaluation.in_hand:
            if job.stop is not None and now - job.stop.since > self._config.abort_grace_s:
                actions.append(self._end_stopped(job, job.stop))
        late = [job for job in self.evaluation.in_hand if job.stop is None and self._is_late(job, now)]
        stop = Stop(status=JobStatus.TIMED_OUT, reason=EndReason.JOB_TIMEOUT, since=now)
        return [*actions, *self.stop(late, stop)]

    def _is_late(self, job: Job, now: float) -> bool:
        limit = self._config.job_timeouts.get(job.dataset, self._config.job_timeout_s)
        if job.status is JobStatus.RUNNING:
            return job.started_at is not None and now - job.started_at > limit
        # A job may wait for the ones before it in the run; if none runs, the load is what takes so long.
        some_run = any(other.status is JobStatus.RUNNING for other in self.evaluation.in_hand)
        return not some_run and now - self.evaluation.quiet_since > limit

    def _failed(self, job: Job, reason: EndReason) -> Action:
        job.num_failed += 1
        if reason not in RETRYABLE or job.num_failed >= self._config.max_attempts:
            return end_job(self.evaluation, job, JobStatus.FAILED, reason)
        return retry_job(self.evaluation, job, reason)

    def _end_stopped(self, job: Job, stop: Stop) -> EndJob:
        return end_job(self.evaluation, job, stop.status, stop.reason)

    def _cancel(self, job_ids: list[str], reason: EndReason) -> CancelRunning:
        evaluation = self.evaluation
        return CancelRunning(
            evaluation=evaluation.key, run=evaluation.run, job_ids=tuple(job_ids), reason=reason
        )

    def _run_job(self, job: Job) -> RunJob:
        return RunJob(
            job_id=job.job_id,
            evaluation=self.evaluation.key,
            target=self.evaluation.target,
            dataset=job.dataset,
            attempt=job.attempt,
            protected=self.evaluation.protected,
        )


def retry_job(evaluation: Evaluation, job: Job, reason: EndReason) -> RetryJob:
    """Put `job` back to waiting for its next attempt."""
    if job.status is JobStatus.RUNNING:
        job.move(JobStatus.WAITING)
    job.handed_out = False
    job.started_at = None
    job.attempt += 1
    return RetryJob(job_id=job.job_id, evaluation=evaluation.key, attempt=job.attempt, reason=reason)
