"""A run is never left behind by who waited for it, whoever carries the run out."""

from __future__ import annotations

import asyncio
import logging

import pytest

from live_eval.evaluation.job import JobOutcomeDetail, SampleCounts
from live_eval.evaluation.stoppable import StoppableRun
from live_eval.reasons import EndReason, JobStatus


class Run(StoppableRun):
    """Waits for its stop, and then for leave to end."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("v1/toy")
        self.error = error
        self.may_end = asyncio.Event()
        self.interrupted = False

    async def _run(self) -> JobOutcomeDetail:
        try:
            await self._stop.wait()
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.interrupted = True
            raise
        if self.error:
            raise self.error
        ending = self._stop.ending
        assert ending is not None
        counts = SampleCounts(n_expected=0, n_scored=0, n_errored=0, n_aborted=0)
        return JobOutcomeDetail(job_id="v1/toy", status=ending.status, reason=ending.reason, counts=counts)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (EndReason.JOB_TIMEOUT, JobStatus.TIMED_OUT),
        (EndReason.DRAIN_TIMEOUT, JobStatus.TIMED_OUT),
        (EndReason.NEWER_VERSION, JobStatus.CANCELLED),
    ],
)
async def test_the_first_reason_counts(reason: EndReason, status: JobStatus) -> None:
    run = Run()
    run.cancel(reason)
    run.cancel(EndReason.SHUTDOWN)
    run.may_end.set()
    outcome = await run.result()
    assert (outcome.status, outcome.reason) == (status, reason)
    assert await run.result() is outcome


async def test_who_is_cancelled_waits_for_the_end_of_the_run() -> None:
    run = Run()
    waiter = asyncio.create_task(run.result())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.sleep(0.01)
    assert not waiter.done()
    run.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert not run.interrupted


async def test_who_is_cancelled_twice_interrupts_the_run() -> None:
    run = Run()
    waiter = asyncio.create_task(run.result())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.sleep(0.01)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    await asyncio.sleep(0.01)
    assert run.interrupted


async def test_a_failure_while_it_was_cancelled_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(error=RuntimeError("no space"))
    waiter = asyncio.create_task(run.result())
    await asyncio.sleep(0)
    run.may_end.set()
    waiter.cancel()
    with caplog.at_level(logging.ERROR), pytest.raises(asyncio.CancelledError):
        await waiter
    assert "v1/toy failed while it was cancelled" in caplog.text
