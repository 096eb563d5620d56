"""Jobs in the ledger, and their announcement once they are durable.

It turns what the scheduler decided and what the runner measured into ledger rows. Invariant:
nobody is told of a result before the ledger has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from live_eval.coordinator.comparisons import Comparisons
from live_eval.reasons import EndReason, JobStatus
from live_eval.results.reader import PRIORITIES
from live_eval.results.rows import VersionEvent
from live_eval.scheduling.reports import KnownJob
from live_eval.targets import CheckpointTarget, PolicyTarget
from protocol.messages import JobEvent, JobResult

if TYPE_CHECKING:
    from live_eval.evaluation.job import JobOutcomeDetail, Progress
    from live_eval.results.ledger import Ledger
    from live_eval.results.rows import JobRow
    from live_eval.scheduling.actions import EndJob, NewJob, RetryJob, RunJob
    from live_eval.store.records import DiscardRecord, VersionRecord

Announce = Callable[[JobEvent], None]
_LATE = ": due after rollout "
"""Follows the trigger in the reason of a job that was made for a due point without a sync of its own."""


@dataclass(slots=True)
class _Measured:
    """What is known of a job that has not ended in the ledger."""

    detail: JobOutcomeDetail | None = None
    explanation: str = ""


class JobRecords:
    """The ledger's jobs, as the coordinator sees them."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        num_expected: Mapping[str, int],
        announce: Announce,
        digest_of: Callable[[int], str],
        same_as: Callable[[int], int | None] = lambda _version: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`same_as` tells the earlier version whose digest a version has, if there is one."""
        self._ledger = ledger
        self._num_expected = num_expected
        self._announce = announce
        self._digest_of = digest_of
        self._same_as = same_as
        self._clock = clock
        self._measured: dict[str, _Measured] = {}
        self._comparisons = Comparisons(ledger)

    def known(self) -> list[KnownJob]:
        """Every job of the ledger, for a scheduler that starts again."""
        priorities = self._ledger.priorities()
        return [_known(row, priorities.get(row.target.key, 0)) for row in self._ledger.jobs()]

    def prioritise(self, target: CheckpointTarget, priority: int) -> None:
        """Keep how urgent a checkpoint is; written before its jobs, so that a restart knows it."""
        self._ledger.put(PRIORITIES + target.key, priority)

    def create(self, action: NewJob) -> None:
        """A job exists and waits."""
        self._ledger.create_jobs(
            action.target,
            [action.dataset],
            now=self._clock(),
            num_expected=self._num_expected,
            reason=_why(action),
        )
        self._tell(action.job_id)

    def start(self, job: RunJob) -> None:
        """The job runs."""
        self._ledger.start(job.job_id, now=self._clock(), attempt=job.attempt)
        if job.protected:
            self._ledger.protect(job.job_id)
        self._tell(job.job_id)

    def progress(self, job: RunJob, progress: Progress) -> None:
        """Some more samples are done."""
        self._ledger.progress(job.job_id, num_done=progress.num_done, num_expected=progress.num_expected)
        row = self._ledger.job(job.job_id)
        self._announce(_event(row, progress=progress))

    def measured(self, detail: JobOutcomeDetail) -> None:
        """Keep what a run of the job measured until the scheduler has decided what it ends as."""
        self._measured[detail.job_id] = _Measured(detail=detail, explanation=detail.detail)
        if detail.num_taken_up:
            self._ledger.taken_up(detail.job_id, detail.num_taken_up)

    def explain(self, job_ids: list[str], explanation: str) -> None:
        """Keep why these jobs could not be run."""
        for job_id in job_ids:
            self._measured[job_id] = _Measured(explanation=explanation)

    def retry(self, action: RetryJob) -> None:
        """The job waits again."""
        self._measured.pop(action.job_id, None)
        if self._ledger.job(action.job_id).status is JobStatus.RUNNING:
            self._ledger.requeue(action.job_id, now=self._clock(), reason=action.reason)
        self._tell(action.job_id)

    def end(self, action: EndJob) -> JobResult:
        """Write the job's one terminal state with what was measured, then announce it."""
        row = self._ledger.job(action.job_id)
        if action.protected and not row.protected:
            self._ledger.protect(action.job_id)
        measured = self._measured.pop(action.job_id, _Measured())
        result = self._ledger.outcome(
            action.job_id, status=action.status, reason=action.reason, now=self._clock()
        )
        result = self._with_measures(result, row, measured)
        self._ledger.finish(result)
        self._tell(action.job_id, result)
        return result

    def discarded(self, key: str, record: DiscardRecord) -> None:
        """A sync never became a version."""
        self._ledger.record_version(
            VersionEvent(
                key=key,
                state="discarded",
                reason=record.reason,
                detail=record.detail,
                policy_version=record.policy_version,
                weight_version=record.weight_version,
                rollout_id=record.rollout_id,
                train_step=record.train_step,
                at=record.ended_at,
                held_s=record.held_s,
            )
        )

    def sealed(self, record: VersionRecord) -> None:
        """A version is in the store."""
        self._version(record, "sealed", at=record.sealed_at or record.began_at)

    def lost(self, record: VersionRecord) -> None:
        """A version had to go before it was evaluated."""
        self._version(record, "dropped", at=record.ended_at or record.began_at)

    def _version(self, record: VersionRecord, state: str, *, at: float) -> None:
        self._ledger.record_version(
            VersionEvent(
                key=f"{state}/v{record.policy_version}",
                state=state,
                reason=record.reason if state == "dropped" else "",
                policy_version=record.policy_version,
                weight_version=record.weight_version,
                incarnation=record.incarnation,
                rollout_id=record.rollout_id,
                train_step=record.train_step,
                at=at,
                held_s=record.held_s,
            )
        )

    def _with_measures(self, result: JobResult, row: JobRow, measured: _Measured) -> JobResult:
        target = row.target
        if isinstance(target, PolicyTarget):
            version = target.policy_version
            explanation = _joined(measured.explanation, self._served_late(row, result.status))
            explanation = _joined(explanation, _warning(self._same_as(version)))
            result = msgspec.structs.replace(
                result, weight_digest=self._digest_of(version), detail=explanation
            )
        else:
            result = msgspec.structs.replace(result, detail=measured.explanation)
        detail = measured.detail
        if detail is None:
            return result
        succeeded = result.status == JobStatus.SUCCEEDED
        return msgspec.structs.replace(
            result,
            score=detail.score if succeeded else None,
            metrics=detail.metrics | self._compared(row, detail) if succeeded else {},
            partial=detail.partial,
            n_expected=detail.counts.n_expected,
            n_scored=detail.counts.n_scored,
            n_errored=detail.counts.n_errored,
            n_aborted=detail.counts.n_aborted,
            engine_versions=detail.engine_labels,
            samples_path=detail.samples_path,
        )

    def _served_late(self, row: JobRow, status: str) -> str:
        """That a score stands for a due point at which no sync was; read back, since a restart may lie
        between."""
        created = self._ledger.transitions(row.job_id)[0].reason
        _, late, due = created.partition(_LATE)
        if not late or status != JobStatus.SUCCEEDED or not isinstance(row.target, PolicyTarget):
            return ""
        rollout = row.target.rollout_id
        return f"was due after rollout {due}, whose first sync at or after it was that of rollout {rollout}"

    def _compared(self, row: JobRow, detail: JobOutcomeDetail) -> dict[str, float]:
        """What the version is against the one before it and the best one."""
        if not isinstance(row.target, PolicyTarget):
            return {}
        return self._comparisons.metrics(row.dataset, row.target.policy_version, detail)

    def _tell(self, job_id: str, result: JobResult | None = None) -> None:
        self._announce(_event(self._ledger.job(job_id), result=result))


def _why(action: NewJob) -> str:
    """The trigger; with the due point that the version serves where it is not the version's own rollout."""
    due = action.due_rollout
    own = isinstance(action.target, PolicyTarget) and due == action.target.rollout_id
    return action.trigger.value if due is None or own else f"{action.trigger.value}{_LATE}{due}"


def _warning(same_as: int | None) -> str:
    return "" if same_as is None else f"warning: the weights are those of version {same_as}, bit for bit"


def _joined(explanation: str, more: str) -> str:
    return "; ".join(filter(None, (explanation, more)))


def _known(row: JobRow, priority: int) -> KnownJob:
    reason = EndReason(row.reason) if row.status.terminal else None
    return KnownJob(
        job_id=row.job_id,
        target=row.target,
        dataset=row.dataset,
        status=row.status,
        attempt=row.attempt,
        reason=reason,
        priority=priority,
    )


def _event(row: JobRow, *, result: JobResult | None = None, progress: Progress | None = None) -> JobEvent:
    target = row.target
    checkpoint = isinstance(target, CheckpointTarget)
    return JobEvent(
        job_id=row.job_id,
        dataset=row.dataset,
        status=row.status,
        policy_version=None if checkpoint else target.policy_version,
        checkpoint=target.path if checkpoint else "",
        reason=row.reason,
        num_done=row.num_done if result is None else result.n_scored + result.n_errored,
        num_expected=row.num_expected if result is None else result.n_expected,
        **_score(result, progress),
    )


def _score(result: JobResult | None, progress: Progress | None) -> dict[str, Any]:
    """What an event says of the score: that of the result, or of the samples so far."""
    if result is not None:
        low, high = result.metrics.get("score/low"), result.metrics.get("score/high")
        return {
            "score": result.score,
            "score_low": low,
            "score_high": high,
            "num_scored": result.n_scored,
        }
    if progress is None:
        return {}
    return {
        "score": progress.mean,
        "score_low": progress.low,
        "score_high": progress.high,
        "num_scored": progress.num_scored,
    }
