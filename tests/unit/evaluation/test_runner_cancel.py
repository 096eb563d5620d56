"""Runs that are told to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.source import FakeGeneration, FakeSource, dies

from live_eval.errors import EngineDied
from live_eval.evaluation.datasets import EvalRow
from live_eval.evaluation.grading_pool import GradingPool
from live_eval.evaluation.job import Progress, RunLimits, SampleCounts
from live_eval.evaluation.rewards import FunctionGrader
from live_eval.evaluation.runner import JobRun
from live_eval.evaluation.sample_log import read_samples
from live_eval.reasons import EndReason, JobStatus

if TYPE_CHECKING:
    from live_eval.evaluation.source import GenRequest

MakeRun = Callable[..., JobRun]
LIMITS = RunLimits(chunk_size=3, num_in_flight=1, grace_s=0.2, abort_timeout_s=0.2)


def holding_source(**changes: Any) -> FakeSource:
    """Answers r0, r1, r2; the next call is held."""
    return FakeSource(hold=lambda requests: requests[0].text == "a3", **changes)


async def test_cancel_aborts_and_keeps_what_is_scored_apart(make_run: MakeRun) -> None:
    source = holding_source()
    seen: list[Progress] = []
    run = make_run(source, limits=LIMITS, on_progress=seen.append)
    waiting = asyncio.create_task(run.result())
    await source.held.wait()
    run.cancel(EndReason.NEWER_VERSION, "version 8 is there")
    outcome = await waiting
    assert (outcome.status, outcome.reason) == (JobStatus.CANCELLED, EndReason.NEWER_VERSION)
    assert outcome.detail == "version 8 is there"
    assert outcome.counts == SampleCounts(n_expected=10, n_scored=3, n_errored=0, n_aborted=7)
    assert (outcome.score, outcome.metrics, outcome.partial["score"]) == (None, {}, 1.0)
    assert source.events == ["generate", "generate", "abort"]
    samples = {sample.row_id: sample for sample in read_samples(Path(outcome.samples_path))}
    assert len(samples) == 10
    assert samples["r3"].error == "aborted by the engine"
    assert (samples["r9"].error, samples["r9"].attempt) == ("the job ended before: newer_version", 0)
    assert outcome.source_aborted
    assert run.outcome is outcome
    assert [progress.num_done for progress in seen][-1] == 3, "aborted samples are not progress"


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (EndReason.JOB_TIMEOUT, JobStatus.TIMED_OUT),
        (EndReason.DRAIN_TIMEOUT, JobStatus.TIMED_OUT),
        (EndReason.USER, JobStatus.CANCELLED),
        (EndReason.SHUTDOWN, JobStatus.CANCELLED),
    ],
)
async def test_the_reason_decides_between_timed_out_and_cancelled(
    make_run: MakeRun, reason: EndReason, status: JobStatus
) -> None:
    run = make_run(FakeSource())
    run.cancel(reason)
    assert (await run.result()).status == status


async def test_a_run_that_is_cancelled_before_it_starts_asks_nothing(make_run: MakeRun) -> None:
    source = FakeSource()
    run = make_run(source)
    run.cancel(EndReason.USER)
    outcome = await run.result()
    assert source.asked == []
    assert outcome.counts.n_aborted == 10
    assert outcome.partial == {}


async def test_cancel_after_the_end_changes_nothing(make_run: MakeRun) -> None:
    run = make_run(FakeSource())
    outcome = await run.result()
    run.cancel(EndReason.USER)
    assert await run.result() is outcome
    assert outcome.status == JobStatus.SUCCEEDED


async def test_a_run_that_takes_too_long_is_timed_out_with_what_it_has(make_run: MakeRun) -> None:
    limits = RunLimits(chunk_size=3, num_in_flight=1, timeout_s=0.8)
    outcome = await make_run(holding_source(), limits=limits).result()
    assert (outcome.status, outcome.reason) == (JobStatus.TIMED_OUT, EndReason.JOB_TIMEOUT)
    assert (outcome.counts.n_scored, outcome.counts.n_aborted) == (3, 7)
    assert outcome.detail == "not done after 0.8 s"


@pytest.mark.parametrize("changes", [{"abort_answers": False}, {"abort_error": EngineDied("gone")}])
async def test_engines_that_do_not_abort_hold_nothing_up(make_run: MakeRun, changes: dict[str, Any]) -> None:
    source = holding_source(**changes)
    run = make_run(source, limits=LIMITS)
    waiting = asyncio.create_task(run.result())
    await source.held.wait()
    run.cancel(EndReason.USER)
    outcome = await asyncio.wait_for(waiting, 20)
    assert (outcome.counts.n_scored, outcome.counts.n_aborted) == (3, 7)
    assert source.num_in_flight == 0


async def test_an_engine_that_dies_while_it_is_aborted_is_not_asked_again(make_run: MakeRun) -> None:
    class DiesWhenAborted(FakeSource):
        async def generate(self, requests: Sequence[GenRequest]) -> Sequence[FakeGeneration]:
            answers = await super().generate(requests)
            if answers[0].finish_reason == "abort":
                raise EngineDied("gone")
            return answers

    source = DiesWhenAborted(hold=lambda requests: requests[0].text == "a3")
    run = make_run(source, limits=LIMITS)
    waiting = asyncio.create_task(run.result())
    await source.held.wait()
    run.cancel(EndReason.USER)
    assert (await waiting).status == JobStatus.CANCELLED
    assert source.events == ["generate", "generate", "abort"]


async def test_when_the_waiting_task_is_cancelled_the_partial_outcome_is_kept_and_the_cancel_goes_on(
    make_run: MakeRun,
) -> None:
    source = holding_source()
    run = make_run(source, limits=LIMITS)
    waiting = asyncio.create_task(run.result())
    await source.held.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert run.outcome is not None
    assert (run.outcome.status, run.outcome.reason) == (JobStatus.CANCELLED, EndReason.SHUTDOWN)
    assert run.outcome.counts.n_scored == 3
    assert "abort" in source.events
    assert len(read_samples(Path(run.outcome.samples_path))) == 10


async def test_a_second_cancel_ends_the_run_at_once(make_run: MakeRun) -> None:
    source = holding_source(abort_answers=False)
    run = make_run(source, limits=RunLimits(chunk_size=3, num_in_flight=1, grace_s=60))
    waiting = asyncio.create_task(run.result())
    await source.held.wait()
    waiting.cancel()
    await asyncio.sleep(0.05)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 20)
    for _ in range(2000):
        if source.num_in_flight == 0:
            break
        await asyncio.sleep(0.01)
    assert source.num_in_flight == 0
    assert run.outcome is None


async def test_rewards_that_take_longer_than_the_grace_are_given_up_and_say_so(make_run: MakeRun) -> None:
    async with GradingPool(num_workers=1, deadline_s=600) as pool:
        await pool.check("fakes.graders.faulty")
        labels = ["loop", *["fine"] * 9]
        rows = tuple(
            EvalRow(row_id=f"r{i}", line=i + 1, prompt=f"a{i}", label=label) for i, label in enumerate(labels)
        )
        source = holding_source()
        run = make_run(
            source, rows=rows, grader=FunctionGrader("fakes.graders.faulty", pool=pool), limits=LIMITS
        )
        waiting = asyncio.create_task(run.result())
        await source.held.wait()
        began = time.monotonic()
        run.cancel(EndReason.NEWER_VERSION)
        outcome = await waiting
        assert time.monotonic() - began < 30
        samples = {sample.row_id: sample for sample in read_samples(Path(outcome.samples_path))}
        assert (samples["r0"].status, samples["r0"].response) == ("aborted", "A0")
        assert samples["r0"].error == "answered, but not graded before the job ended"
        assert outcome.counts.n_scored + outcome.counts.n_aborted == 10


async def test_a_fault_of_the_source_that_nobody_foresaw_is_raised_and_what_was_done_is_saved(
    make_run: MakeRun, tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    run = make_run(FakeSource(script=[None, dies(ZeroDivisionError("bug"))]), limits=LIMITS, path=path)
    with pytest.raises(ExceptionGroup):
        await run.result()
    assert [sample.status for sample in read_samples(path)].count("scored") == 3
