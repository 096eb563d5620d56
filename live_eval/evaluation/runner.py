"""One job: ask for every sample, grade it, keep it, and say what came out.

    asking    calls the source, a few calls at a time     waits for: engines
    grading   one task a sample, as answers come          waits for: grading workers
    halt      abort, grace, cancel                        unblocked by: cancel(), a time-out, a failure

Invariant: the samples are on disk before metrics are computed, and a score is given only if the
whole dataset was asked on the right weights, was checked afterwards, and enough of it was scored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from live_eval.errors import EngineError, PinMismatch
from live_eval.evaluation.asking import TOO_LONG, Ask, Asker
from live_eval.evaluation.comparison import prompt_scores
from live_eval.evaluation.early_end import completed, ended_early, until_idle
from live_eval.evaluation.grading import Grading
from live_eval.evaluation.job import JobOutcomeDetail, JobSpec, Progress, RunLimits, SampleCounts
from live_eval.evaluation.metrics import compute_metrics, count_samples, with_data
from live_eval.evaluation.recorder import Recorder
from live_eval.evaluation.sample import Sample
from live_eval.evaluation.stoppable import StoppableRun
from live_eval.evaluation.taking_up import basis_of, taken_up
from live_eval.reasons import EndReason, JobStatus
from live_eval.targets import PolicyTarget

if TYPE_CHECKING:
    from live_eval.evaluation.datasets import EvalRow, EvalSet
    from live_eval.evaluation.ending import Ending
    from live_eval.evaluation.rewards import Grader
    from live_eval.evaluation.source import SampleSource

logger = logging.getLogger(__name__)

_UNTRUSTED = (EndReason.MIXED_VERSION, EndReason.PIN_MISMATCH)
"""Endings after which nobody knows what the scored samples were generated on."""

CHECK_TIMEOUT_S = 60.0
"""For the proof after an early end."""


class JobRun(StoppableRun):
    """One run of one job.

    `result()` gives the outcome, whatever happened to engines, graders or the disk; only a fault
    of live-eval itself is raised. `cancel()` makes result() return soon, with what was scored so
    far kept apart as partial. If the task that waits in result() is cancelled, the run ends as by
    cancel(SHUTDOWN), its outcome is in `outcome`, and CancelledError goes on; cancelled once more,
    it ends at once and without an outcome.
    """

    def __init__(
        self,
        spec: JobSpec,
        eval_set: EvalSet,
        source: SampleSource,
        *,
        grader: Grader,
        limits: RunLimits | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing happens before result(). `on_progress` is called in the event loop, about 100 times."""
        super().__init__(spec.job_id)
        self._spec = spec
        self._eval_set = eval_set
        self._source = source
        self._grader = grader
        self._limits = limits or RunLimits()
        self._clock = clock
        self._started_at = 0.0
        self._source_aborted = False
        self._timed_out = False
        self._outcome: JobOutcomeDetail | None = None
        self._taken_up: list[Sample] = []
        self._basis = basis_of(spec, eval_set)
        self._recorder = Recorder(
            spec.samples_path,
            [self._draft(row, sample) for row in eval_set.rows for sample in range(eval_set.config.n)],
            stop=self._stop,
            on_progress=on_progress,
        )

    @property
    def outcome(self) -> JobOutcomeDetail | None:
        """The outcome once there is one; its samples are on disk by then."""
        return self._outcome

    # --- the run ------------------------------------------------------------------------

    async def _run(self) -> JobOutcomeDetail:
        self._started_at = self._clock()
        self._taken_up = await asyncio.to_thread(self._read_earlier)
        self._recorder.open(self._taken_up)
        grading = Grading(self._grader, self._recorder)
        asker = Asker(
            self._asks(),
            self._source,
            label=self._spec.label,
            limits=self._limits,
            stop=self._stop,
            sink=grading,
        )
        work = asyncio.create_task(_work(asker, grading), name=f"samples of {self._spec.job_id}")
        try:
            await self._supervise(work)
        finally:
            work.cancel()
            await self._recorder.close()
        self._outcome = self._conclude(asker)
        return self._outcome

    async def _supervise(self, work: asyncio.Task[None]) -> None:
        stopped = asyncio.create_task(self._stop.wait(), name=f"stop of {self._spec.job_id}")
        idle = asyncio.create_task(until_idle(self._eval_set.config, self._recorder))
        try:
            await asyncio.wait(
                {work, stopped, idle}, timeout=self._limits.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            words = idle.result() if idle.done() else ""
        finally:
            stopped.cancel()
            idle.cancel()
        if not work.done():
            self._end_early(words)
            await self._halt(work)
            await self._check_early()
        if not work.cancelled():
            await work

    def _end_early(self, words: str) -> None:
        """End the run, if nobody has: as early where what it has may be enough, else as timed out."""
        self._timed_out = not words
        words = words or f"not done after {self._limits.timeout_s} s"
        if self._timed_out and self._eval_set.config.min_samples is None:
            self.cancel(EndReason.JOB_TIMEOUT, words)
        else:
            self._stop.end(JobStatus.SUCCEEDED, EndReason.EARLY_STOP, words)

    @property
    def _ended_early(self) -> bool:
        return self._stop.ending is not None and self._stop.ending.status is JobStatus.SUCCEEDED

    async def _check_early(self) -> None:
        """A run that may succeed early proves what one that asked for everything proves."""
        if not self._ended_early:
            return
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await self._source.check_after()
        except PinMismatch as mismatch:
            self._stop.fail(EndReason.PIN_MISMATCH, f"after an early end: {mismatch}")
        except (EngineError, TimeoutError) as error:
            self._stop.fail(EndReason.ENGINE_FAILED, f"the engines could not be checked afterwards: {error}")

    async def _halt(self, work: asyncio.Task[None]) -> None:
        # Abort first: calls in flight then end by themselves, with what they have, and no loop sends
        # another. Grace comes after it, for answers that only lack their reward.
        self._source_aborted = True
        try:
            async with asyncio.timeout(self._limits.abort_timeout_s):
                await self._source.abort()
        except (EngineError, TimeoutError) as error:
            logger.warning("%s: abort failed: %s", self._spec.job_id, error)
        await asyncio.wait({work}, timeout=self._limits.grace_s)
        if not work.done():
            work.cancel()
            await asyncio.wait({work})

    # --- samples ------------------------------------------------------------------------

    def _read_earlier(self) -> list[Sample]:
        n = self._eval_set.config.n
        expected = {(row.row_id, sample) for row in self._eval_set.rows for sample in range(n)}
        spec = self._spec
        found = taken_up(spec.earlier, basis=self._basis, label=spec.label, expected=expected)
        if found:
            logger.info("%s: %d of %d samples are done already", spec.job_id, len(found), len(expected))
        return found

    def _asks(self) -> list[Ask]:
        config = self._eval_set.config
        asks = []
        for row in self._eval_set.rows:
            too_long = self._too_long(row)
            for sample in range(config.n):
                if not self._recorder.is_open(row.row_id, sample):
                    continue  # an earlier attempt made it
                if too_long:
                    draft = self._recorder.draft(row.row_id, sample)
                    self._recorder.record(replace(draft, status="errored", error=too_long))
                    continue
                identity = f"{config.name}\n{row.row_id}\n{sample}"
                sampling = config.sampling.for_sample(identity, sample=sample)
                name = f"{self._spec.job_id}@{self._spec.attempt}/{row.row_id}/{sample}"
                asks.append(Ask(row=row, sample=sample, name=name, sampling=sampling))
        return asks

    def _too_long(self, row: EvalRow) -> str:
        limit = self._eval_set.config.max_prompt_tokens
        if limit is None or row.input_ids is None or len(row.input_ids) <= limit:
            return ""
        return f"{TOO_LONG}: the prompt has {len(row.input_ids)} tokens, max_prompt_tokens is {limit}"

    def _draft(self, row: EvalRow, sample: int) -> Sample:
        target = self._spec.target
        is_policy = isinstance(target, PolicyTarget)
        return Sample(
            dataset=self._eval_set.name,
            row_id=row.row_id,
            sample=sample,
            attempt=0,
            prompt=row.prompt,
            label=row.label,
            status="aborted",
            run=self._spec.attempt,
            basis=self._basis,
            policy_version=target.policy_version if is_policy else None,
            checkpoint="" if is_policy else target.path,
        )

    # --- the end ------------------------------------------------------------------------

    def _ending(self, counts: SampleCounts) -> Ending:
        config, first_error, ending = self._eval_set.config, self._recorder.first_error, self._stop.ending
        if ending is None:
            return completed(config, counts, first_error)
        if self._ended_early:
            return ended_early(config, counts, first_error, early=ending, timed_out=self._timed_out)
        return ending

    def _conclude(self, asker: Asker) -> JobOutcomeDetail:
        config = self._eval_set.config
        samples = self._recorder.samples
        counts = count_samples(samples, n_expected=self._eval_set.num_expected)
        metrics = with_data(compute_metrics(samples, n=config.n, pass_threshold=config.pass_threshold))
        ending = self._ending(counts)
        succeeded = ending.status == JobStatus.SUCCEEDED
        return JobOutcomeDetail(
            job_id=self._spec.job_id,
            status=ending.status,
            reason=ending.reason,
            detail=ending.detail,
            counts=counts,
            score=metrics["score"] if succeeded else None,
            metrics=metrics if succeeded else {},
            partial={} if succeeded or ending.reason in _UNTRUSTED else metrics,
            withheld=ending.reason == EndReason.LOW_COVERAGE,
            engine_labels=tuple(sorted(asker.labels | _labels(self._taken_up))),
            num_taken_up=len(self._taken_up),
            num_engine_retries=asker.num_repins,
            source_aborted=self._source_aborted,
            samples_path=str(self._spec.samples_path),
            prompt_scores=prompt_scores(samples, pass_threshold=config.pass_threshold) if succeeded else {},
            pass_threshold=config.pass_threshold,
            started_at=self._started_at,
            finished_at=self._clock(),
        )


def _labels(samples: list[Sample]) -> set[str]:
    return {sample.engine_label for sample in samples if sample.engine_label}


async def _work(asker: Asker, grading: Grading) -> None:
    async with grading:
        await asker.run()
