"""The life of a run, whoever carries it out: started once, ended soon when told, never left behind.

Invariant: whoever waits in `result()` and is cancelled leaves no run behind that nobody waits for.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from live_eval.evaluation.ending import StopSignal
from live_eval.reasons import EndReason, JobStatus

if TYPE_CHECKING:
    from live_eval.evaluation.job import JobOutcomeDetail

logger = logging.getLogger(__name__)

_TIME_OUTS = (EndReason.JOB_TIMEOUT, EndReason.DRAIN_TIMEOUT)


class StoppableRun(ABC):
    """One run of one job; see live_eval.evaluation.run.Run.

    If the task that waits in result() is cancelled, the run ends as by cancel(SHUTDOWN) and
    CancelledError goes on; cancelled once more, it ends at once and without an outcome.
    """

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._stop = StopSignal()
        self._task: asyncio.Task[JobOutcomeDetail] | None = None

    @abstractmethod
    async def _run(self) -> JobOutcomeDetail:
        """All of it; ends soon once `_stop` is set."""

    def cancel(self, reason: EndReason, detail: str = "") -> None:
        """End the run soon, as timed_out for JOB_TIMEOUT and DRAIN_TIMEOUT, else as cancelled.

        The first reason to end counts, a failure among them; after the end it does nothing.
        """
        status = JobStatus.TIMED_OUT if reason in _TIME_OUTS else JobStatus.CANCELLED
        self._stop.end(status, reason, detail)

    async def result(self) -> JobOutcomeDetail:
        """Run the job, on the first call, and wait for its outcome."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"job {self._job_id}")
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            self.cancel(EndReason.SHUTDOWN, "the task that waited for the job was cancelled")
            await self._settle(self._task)
            raise

    async def _settle(self, task: asyncio.Task[JobOutcomeDetail]) -> None:
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.cancelled() and (error := task.exception()):
            logger.error("%s failed while it was cancelled", self._job_id, exc_info=error)
