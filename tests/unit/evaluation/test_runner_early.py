"""Runs that end before their last sample with what they have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from fakes.source import FakeGeneration, FakeSource

from live_eval.errors import EngineDied, PinMismatch
from live_eval.evaluation.job import RunLimits, SampleCounts, limits_of
from live_eval.evaluation.runner import JobRun
from live_eval.evaluation.set_config import EvalSetConfig
from live_eval.reasons import EndReason, JobStatus

if TYPE_CHECKING:
    from pathlib import Path

    from live_eval.evaluation.source import GenRequest

MakeRun = Callable[..., JobRun]
TEN = SampleCounts(n_expected=10, n_scored=9, n_errored=0, n_aborted=1)


def limits(**changes: Any) -> RunLimits:
    return RunLimits(
        **{"chunk_size": 1, "num_in_flight": 2, "grace_s": 0.2, "abort_timeout_s": 0.2, **changes}
    )


def straggler(**changes: Any) -> FakeSource:
    """Answers all but a9, which takes for ever."""
    return FakeSource(hold=lambda requests: requests[0].text == "a9", **changes)


EARLY = {"early_stop_remaining": 2, "early_stop_idle_s": 0.05}


async def test_an_early_stop_gives_the_score_of_what_is_there_and_proves_the_weights(
    make_run: MakeRun,
) -> None:
    source = straggler()
    outcome = await make_run(source, limits=limits(), **EARLY).result()
    assert (outcome.status, outcome.reason, outcome.score) == (JobStatus.SUCCEEDED, EndReason.EARLY_STOP, 1.0)
    assert outcome.counts == TEN
    assert outcome.detail.startswith(
        "1 samples were left, and none was done for 0.05 s; 1 of 10 samples have"
    )
    assert source.events[-2:] == ["abort", "check"]
    assert outcome.source_aborted


async def test_more_samples_than_that_are_waited_for(make_run: MakeRun) -> None:
    source = FakeSource(hold=lambda requests: requests[0].text in ("a8", "a9"))
    outcome = await make_run(source, limits=limits(timeout_s=0.3), **EARLY).result()
    assert (outcome.status, outcome.reason) == (JobStatus.TIMED_OUT, EndReason.JOB_TIMEOUT)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"min_coverage": 0.95}, EndReason.LOW_COVERAGE),
        ({"min_samples": 10}, EndReason.LOW_COVERAGE),
        ({"min_coverage": 0.95, "min_samples": 9}, EndReason.EARLY_STOP),
    ],
)
async def test_too_few_samples_are_no_score(
    make_run: MakeRun, config: dict[str, Any], reason: EndReason
) -> None:
    outcome = await make_run(straggler(), limits=limits(), **EARLY, **config).result()
    assert outcome.reason == reason
    assert (outcome.score is None) == (reason is EndReason.LOW_COVERAGE)


@pytest.mark.parametrize(
    ("least", "status"), [(None, JobStatus.TIMED_OUT), (9, JobStatus.SUCCEEDED), (10, JobStatus.TIMED_OUT)]
)
async def test_a_time_limit_gives_a_score_only_with_enough_samples(
    make_run: MakeRun, least: int | None, status: JobStatus
) -> None:
    outcome = await make_run(straggler(), limits=limits(timeout_s=0.8), min_samples=least).result()
    assert (outcome.status, outcome.counts) == (status, TEN)
    assert "not done after 0.8 s" in outcome.detail


@pytest.mark.parametrize(
    ("error", "reason"),
    [(PinMismatch("other"), EndReason.PIN_MISMATCH), (EngineDied("gone"), EndReason.ENGINE_FAILED)],
)
async def test_weights_that_cannot_be_proved_afterwards_are_no_score(
    make_run: MakeRun, error: Exception, reason: EndReason
) -> None:
    outcome = await make_run(straggler(checks=[error]), limits=limits(), **EARLY).result()
    assert (outcome.status, outcome.reason, outcome.score) == (JobStatus.FAILED, reason, None)


async def test_an_answer_on_other_weights_in_the_last_moment_is_no_score(make_run: MakeRun) -> None:
    class LateMix(FakeSource):
        async def generate(self, requests: Sequence[GenRequest]) -> Sequence[FakeGeneration]:
            answers = await super().generate(requests)
            if requests[0].text != "a9":
                return answers
            return self.answers(requests, label="8")

    source = LateMix(hold=lambda requests: requests[0].text == "a9")
    outcome = await make_run(source, limits=limits(), **EARLY).result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, EndReason.MIXED_VERSION)


async def test_a_cancel_before_it_stays_a_cancel(make_run: MakeRun) -> None:
    source = straggler()
    run = make_run(source, limits=limits(), early_stop_remaining=2, early_stop_idle_s=30.0)
    waiting = asyncio.create_task(run.result())
    await source.held.wait()
    run.cancel(EndReason.NEWER_VERSION)
    assert (await waiting).status is JobStatus.CANCELLED


@pytest.mark.parametrize(
    ("config", "chunk", "calls"),
    [
        ({}, 32, 2),
        ({"concurrency": 16}, 16, 1),
        ({"concurrency": 70}, 32, 2),
        ({"early_stop_remaining": 3, "early_stop_idle_s": 1.0}, 1, 64),
        ({"early_stop_remaining": 3, "early_stop_idle_s": 1.0, "concurrency": 8}, 1, 8),
    ],
)
def test_a_datasets_own_limits_come_first(
    tmp_path: Path, config: dict[str, Any], chunk: int, calls: int
) -> None:
    found = limits_of(
        EvalSetConfig(name="a", path=tmp_path, timeout_s=9.0, **config), RunLimits(timeout_s=60.0)
    )
    assert (found.chunk_size, found.num_in_flight, found.timeout_s) == (chunk, calls, 9.0)
