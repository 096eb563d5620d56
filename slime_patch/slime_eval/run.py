"""One job by slime's eval function: the same outcome as live-eval's own runner gives.

    ask       the worker is asked for the dataset                    ends by: its answer, its death
    forward   the function's requests go to engines of the lease     ends by: answers, abort
    halt      abort on the engines, then kill the worker             unblocked by: cancel(), a time-out

Invariant: a score is given only if every answer that the gateway handed back, and every sample that
slime kept labels of, was made on the job's weights, and the engines still hold them afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from live_eval.errors import EngineError, LoadFailed, PinMismatch, StoreError
from live_eval.evaluation.ending import Ending
from live_eval.evaluation.job import JobOutcomeDetail, Progress, SampleCounts
from live_eval.evaluation.stoppable import StoppableRun
from live_eval.reasons import EndReason, JobStatus
from live_eval.targets import PolicyTarget
from slime_patch.slime_eval.child import WorkerChild, WorkerDied
from slime_patch.slime_eval.gateway import Gateway, refused
from slime_patch.slime_eval.plan import LOG_ENV

if TYPE_CHECKING:
    from live_eval.evaluation.datasets import EvalSet
    from live_eval.evaluation.job import JobSpec, RunLimits
    from live_eval.evaluation.rewards import Grader
    from live_eval.evaluation.run import Answer, PinnedEngines

logger = logging.getLogger(__name__)

GENERATING = frozenset({"/generate", "/v1/completions", "/v1/chat/completions"})
LABEL = re.compile(rb'"weight_version"\s*:\s*"([^"\\]*)"')
"""As SGLang writes it into an answer; the same words inside a text have escaped quotes and do not match."""
SEGMENTS = re.compile(rb'"weight_versions"\s*:\s*\[([^\]]*)\]')
SEGMENT = re.compile(rb'"version"\s*:\s*"([^"\\]*)"')
"""Newer servers say which tokens were made on which weights; the label alone is of the last ones."""

_UNTRUSTED = (EndReason.MIXED_VERSION, EndReason.PIN_MISMATCH)
"""Endings after which nobody knows what the scored samples were generated on."""


class SlimeRuns:
    """Makes runs; `async with` holds gateway and worker."""

    def __init__(self, plan: Path, *, log: Path | None = None, command: list[str] | None = None) -> None:
        self._plan = plan
        self._log = log or Path(os.environ.get(LOG_ENV, plan.with_suffix(".log")))
        self._command = command
        self._gateway = Gateway()
        self._worker: WorkerChild | None = None

    async def __aenter__(self) -> Self:
        await self._gateway.__aenter__()
        self._worker = WorkerChild(self._plan, port=self._gateway.port, log=self._log, command=self._command)
        self._worker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._worker is not None:
            await self._worker.kill()
        await self._gateway.__aexit__()

    def make(
        self,
        spec: JobSpec,
        eval_set: EvalSet,
        source: PinnedEngines,
        /,
        *,
        grader: Grader,
        limits: RunLimits,
        on_progress: Callable[[Progress], None],
    ) -> SlimeRun:
        """A run of one job; rewards are the eval function's own, not the grader's."""
        assert self._worker is not None, "enter the context first"
        return SlimeRun(
            spec,
            eval_set,
            source,
            worker=self._worker,
            gateway=self._gateway,
            limits=limits,
            on_progress=on_progress,
        )


class SlimeRun(StoppableRun):
    """See live_eval.evaluation.run.Run."""

    def __init__(
        self,
        spec: JobSpec,
        eval_set: EvalSet,
        engines: PinnedEngines,
        *,
        worker: WorkerChild,
        gateway: Gateway,
        limits: RunLimits,
        on_progress: Callable[[Progress], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(spec.job_id)
        self._spec, self._eval_set, self._engines = spec, eval_set, engines
        self._worker, self._gateway, self._limits = worker, gateway, limits
        self._on_progress, self._clock = on_progress, clock
        self._repinning = asyncio.Lock()
        self._num_repins = 0
        self._num_answers = 0
        self._labels: set[str] = set()
        self._aborted = False
        self._started_at = 0.0

    # --- the run ------------------------------------------------------------------------

    async def _run(self) -> JobOutcomeDetail:
        self._started_at = self._clock()
        self._tell()
        self._gateway.open(self._forward)
        work = asyncio.create_task(self._ask(), name=f"slime eval of {self._spec.job_id}")
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait(
                {work, stopped}, timeout=self._limits.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not work.done():
                self.cancel(EndReason.JOB_TIMEOUT, f"not done after {self._limits.timeout_s} s")
            if self._stop.stopped:
                await self._halt()
            else:
                await self._check_engines()
        finally:
            stopped.cancel()
            work.cancel()
            self._gateway.close()
        reply = work.result() if work.done() and not work.cancelled() else {}
        return self._conclude(reply)

    async def _ask(self) -> dict[str, Any]:
        """The worker's answer, judged; empty if there is none."""
        target = self._spec.target
        is_policy = isinstance(target, PolicyTarget)
        request = {
            "dataset": self._eval_set.name,
            "rollout_id": target.rollout_id or 0 if is_policy else 0,
            "samples_path": str(self._spec.samples_path),
            "n": self._eval_set.config.n,
            "pass_threshold": self._eval_set.config.pass_threshold,
            "policy_version": target.policy_version if is_policy else None,
            "checkpoint": "" if is_policy else target.path,
        }
        try:
            reply = await self._worker.ask(request)
        except WorkerDied as error:
            self._stop.fail(EndReason.INTERNAL, str(error))
            return {}
        if "error" in reply:
            self._stop.fail(EndReason.NO_DATA, f"slime's eval function failed: {reply['error']}")
            return {}
        for label in reply["labels"]:
            self._judge_label(label)
        return reply

    async def _halt(self) -> None:
        # Abort first, so that the engines are free however the process ends; then nothing asks them again.
        self._aborted = True
        try:
            async with asyncio.timeout(self._limits.abort_timeout_s):
                await self._engines.abort()
        except (EngineError, TimeoutError) as error:
            logger.warning("%s: abort failed: %s", self._spec.job_id, error)
        await self._worker.kill()
        self._worker.start()  # for the next job; loading slime takes many seconds

    async def _check_engines(self) -> None:
        for last in (False, True):
            try:
                await self._engines.check_after()
                return
            except PinMismatch as error:
                self._stop.fail(EndReason.PIN_MISMATCH, f"after the last sample: {error}")
                return
            except EngineError as error:
                if last or not await self._repin(self._num_repins, error):
                    self._stop.fail(EndReason.ENGINE_FAILED, f"cannot be checked afterwards: {error}")
                    return

    # --- requests of the function -------------------------------------------------------

    async def _forward(self, method: str, path: str, body: bytes, content_type: str) -> Answer:
        for _ in range(self._limits.max_engine_retries + 1):
            seen = self._num_repins
            try:
                answer = await self._engines.forward(method, path, body=body, content_type=content_type)
            except EngineError as error:
                if self._stop.stopped or not await self._repin(seen, error):
                    break
                continue
            if answer is None:
                break
            self._judge(path, answer)
            return answer
        else:
            self._stop.fail(EndReason.ENGINE_FAILED, "a request was lost with its engine again and again")
        return refused(503, "the job ends")

    async def _repin(self, seen: int, error: EngineError) -> bool:
        """Bring engines that died back, once for all requests that were lost together; whether it worked."""
        async with self._repinning:
            if self._num_repins != seen:
                return True
            logger.warning("%s: %s", self._spec.job_id, error)
            try:
                await self._engines.repin()
            except (EngineError, StoreError) as failed:
                self._stop.fail(_reason(failed), f"pinning again failed: {failed}")
                return False
            self._num_repins += 1
            return True

    def _judge(self, path: str, answer: Answer) -> None:
        if path not in GENERATING or answer.status != 200:
            return
        segments = b"".join(SEGMENTS.findall(answer.body))
        for label in {*LABEL.findall(answer.body), *SEGMENT.findall(segments)}:
            self._judge_label(label.decode("utf-8", "replace"), engine=answer.engine)
        self._num_answers += 1
        self._tell()

    def _judge_label(self, label: str, engine: str = "a sample") -> None:
        self._labels.add(label)
        if label != self._spec.label:
            detail = f"{engine} answered on weights {label!r} instead of {self._spec.label!r}"
            self._stop.fail(EndReason.MIXED_VERSION, detail)

    def _tell(self) -> None:
        expected = self._eval_set.num_expected
        if self._num_answers % max(1, expected // 100) == 0:
            done = min(self._num_answers, expected)
            self._on_progress(Progress(num_done=done, num_expected=expected, mean=None))

    # --- the end ------------------------------------------------------------------------

    def _conclude(self, reply: dict[str, Any]) -> JobOutcomeDetail:
        found = reply.get("counts", {})
        total = self._expected(sum(found.values()))
        counts = SampleCounts(
            n_expected=total,
            n_scored=found.get("scored", 0),
            n_errored=found.get("errored", 0),
            n_aborted=total - found.get("scored", 0) - found.get("errored", 0),
        )
        ending = self._stop.ending or self._completed(counts, reply)
        succeeded = ending.status == JobStatus.SUCCEEDED
        metrics = reply.get("metrics", {})
        return JobOutcomeDetail(
            job_id=self._spec.job_id,
            status=ending.status,
            reason=ending.reason,
            detail=ending.detail,
            counts=counts,
            score=metrics.get("score") if succeeded else None,
            metrics=metrics if succeeded else {},
            partial={} if succeeded or ending.reason in _UNTRUSTED else metrics,
            withheld=ending.reason == EndReason.LOW_COVERAGE,
            engine_labels=tuple(sorted(self._labels)),
            num_engine_retries=self._num_repins,
            source_aborted=self._aborted,
            samples_path=str(self._spec.samples_path) if found else "",
            pass_threshold=self._eval_set.config.pass_threshold,
            started_at=self._started_at,
            finished_at=self._clock(),
        )

    def _expected(self, num_returned: int) -> int:
        """What the function should return: rows times n, more where it makes more of a row, or one a row;
        so that samples which it leaves out do not make the whole smaller."""
        if num_returned == len(self._eval_set.rows):
            return num_returned
        return max(num_returned, self._eval_set.num_expected)

    def _completed(self, counts: SampleCounts, reply: dict[str, Any]) -> Ending:
        told = (
            ("samples aborted or not returned", counts.n_aborted),
            ("first error", reply.get("first_error")),
            ("the log function failed", reply.get("log_error")),
        )
        detail = "; ".join(f"{what}: {value}" for what, value in told if value)
        coverage = counts.coverage
        if not counts.n_scored or coverage is None:
            return Ending(
                status=JobStatus.FAILED, reason=EndReason.NO_DATA, detail=detail or "no sample was returned"
            )
        if coverage < (least := self._eval_set.config.min_coverage):
            below = f"coverage {coverage:.3f} is below min_coverage {least}"
            detail = f"{detail}; {below}".removeprefix("; ")
            return Ending(status=JobStatus.FAILED, reason=EndReason.LOW_COVERAGE, detail=detail)
        return Ending(status=JobStatus.SUCCEEDED, reason=EndReason.COMPLETED, detail=detail)


def _reason(error: EngineError | StoreError) -> EndReason:
    match error:
        case PinMismatch():
            return EndReason.PIN_MISMATCH
        case LoadFailed():
            return EndReason.LOAD_FAILED
        case EngineError():
            return EndReason.ENGINE_FAILED
        case _:
            return EndReason.CORRUPT_VERSION
