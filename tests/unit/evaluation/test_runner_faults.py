"""Engines that die, answer on other weights, or do not hold what they should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.source import FakeGeneration, FakeSource, dies

from live_eval.errors import (
    CorruptVersion,
    EngineDied,
    EngineTimeout,
    LoadFailed,
    NoSuchVersion,
    PinMismatch,
    StoreError,
)
from live_eval.evaluation.job import JobOutcomeDetail, RunLimits
from live_eval.evaluation.runner import JobRun
from live_eval.evaluation.sample_log import read_samples
from live_eval.reasons import EndReason, JobStatus

if TYPE_CHECKING:
    from live_eval.evaluation.source import GenRequest

MakeRun = Callable[..., JobRun]
ONE_AT_A_TIME = RunLimits(chunk_size=4, num_in_flight=1)


def attempts(outcome: JobOutcomeDetail) -> list[int]:
    return sorted(sample.attempt for sample in read_samples(Path(outcome.samples_path)))


@pytest.mark.parametrize("error", [EngineDied("gone"), EngineTimeout("late")])
async def test_only_lost_samples_are_asked_again_after_one_repin(make_run: MakeRun, error: Exception) -> None:
    source = FakeSource(script=[None, dies(error)])
    outcome = await make_run(source, num_rows=12, limits=ONE_AT_A_TIME).result()
    assert (outcome.status, outcome.score, outcome.num_engine_retries) == (JobStatus.SUCCEEDED, 1.0, 1)
    assert source.events == ["generate", "generate", "repin", "generate", "generate", "check"]
    assert attempts(outcome) == [1] * 8 + [2] * 4
    ids = [request.request_id for request in source.asked]
    assert len(set(ids)) == len(ids) == 16


async def test_nothing_is_pinned_again_while_other_calls_are_in_flight(make_run: MakeRun) -> None:
    """FakeSource.repin asserts it; here three calls die in three different turns."""
    source = FakeSource(script=[dies(EngineDied("gone")), None, dies(EngineDied("gone")), None])
    limits = RunLimits(chunk_size=2, num_in_flight=4)
    outcome = await make_run(source, num_rows=20, limits=limits).result()
    assert (outcome.score, source.events.count("repin")) == (1.0, 1)
    assert attempts(outcome) == [1] * 16 + [2] * 4


async def test_answers_that_an_error_brings_along_are_kept(make_run: MakeRun) -> None:
    class PartlyLost(EngineDied):
        done: Sequence[FakeGeneration] = ()

    def step(source: FakeSource, requests: Sequence[GenRequest]) -> list[FakeGeneration]:
        error = PartlyLost("gone")
        error.done = source.answers(requests)[:3]
        raise error

    outcome = await make_run(FakeSource(script=[step]), num_rows=4, limits=ONE_AT_A_TIME).result()
    assert attempts(outcome) == [1, 1, 1, 2]
    assert outcome.score == 1.0


async def test_a_request_that_comes_back_without_an_answer_is_asked_again(make_run: MakeRun) -> None:
    source = FakeSource(script=[lambda source, requests: source.answers(requests)[1:]])
    outcome = await make_run(source, num_rows=4).result()
    assert (outcome.score, attempts(outcome)) == (1.0, [1, 1, 1, 2])


async def test_a_sample_lost_too_often_fails_the_job_and_keeps_what_is_done(make_run: MakeRun) -> None:
    dead = dies(EngineDied("out of memory"))
    source = FakeSource(script=[None, dead, dead, dead])
    outcome = await make_run(source, num_rows=12, limits=ONE_AT_A_TIME).result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, EndReason.ENGINE_FAILED)
    assert "3 times, last: out of memory" in outcome.detail
    assert (outcome.score, outcome.metrics, outcome.partial["score"]) == (None, {}, 1.0)
    assert (outcome.counts.n_scored, outcome.counts.n_errored, outcome.counts.n_aborted) == (4, 4, 4)
    assert source.events.count("repin") == 2
    assert len(read_samples(Path(outcome.samples_path))) == 12


async def test_no_retries_means_the_first_loss_fails_the_job(make_run: MakeRun) -> None:
    source = FakeSource(script=[dies(EngineDied("gone"))])
    outcome = await make_run(source, limits=RunLimits(max_engine_retries=0)).result()
    assert outcome.reason == EndReason.ENGINE_FAILED
    assert "repin" not in source.events


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EngineDied("x"), EndReason.ENGINE_FAILED),
        (EngineTimeout("x"), EndReason.ENGINE_FAILED),
        (LoadFailed("x"), EndReason.LOAD_FAILED),
        (PinMismatch("x"), EndReason.PIN_MISMATCH),
        (CorruptVersion("x"), EndReason.CORRUPT_VERSION),
        (NoSuchVersion("x"), EndReason.VERSION_GONE),
        (StoreError("x"), EndReason.INTERNAL),
    ],
)
async def test_a_repin_that_fails_ends_the_job_with_its_reason(
    make_run: MakeRun, error: Exception, reason: EndReason
) -> None:
    source = FakeSource(script=[None, dies(EngineDied("gone"))], repins=[error])
    outcome = await make_run(source, num_rows=12, limits=ONE_AT_A_TIME).result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, reason)
    assert outcome.detail == "pinning again failed: x"
    assert (outcome.score, outcome.counts.n_scored, outcome.counts.n_expected) == (None, 4, 12)
    assert [sample.status for sample in read_samples(Path(outcome.samples_path))].count("scored") == 4
    assert "check" not in source.events


async def test_one_answer_on_other_weights_fails_the_job_as_mixed(make_run: MakeRun) -> None:
    def other_label(source: FakeSource, requests: Sequence[GenRequest]) -> list[FakeGeneration]:
        return [*source.answers(requests[:2]), *source.answers(requests[2:3], label="6")]

    source = FakeSource(script=[None, other_label])
    outcome = await make_run(source, num_rows=9, limits=RunLimits(chunk_size=3, num_in_flight=1)).result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, EndReason.MIXED_VERSION)
    assert (outcome.score, outcome.metrics, outcome.partial) == (None, {}, {})
    assert outcome.engine_labels == ("6", "7")
    assert "answered on weights '6' instead of '7' (v7/up@1/r5/0.1)" in outcome.detail
    samples = {sample.row_id: sample for sample in read_samples(Path(outcome.samples_path))}
    assert (samples["r5"].status, samples["r5"].engine_label, samples["r5"].response) == (
        "errored",
        "6",
        "A5",
    )
    assert (samples["r4"].status, samples["r8"].status) == ("scored", "aborted")


async def test_the_label_default_of_a_fresh_engine_is_other_weights(make_run: MakeRun) -> None:
    assert (await make_run(FakeSource(label="default")).result()).reason == EndReason.MIXED_VERSION


async def test_a_mixed_answer_ends_the_calls_in_flight(make_run: MakeRun) -> None:
    source = FakeSource(
        hold=lambda requests: requests[0].text != "a0",
        script=[lambda source, requests: source.answers(requests, label="6")],
    )
    limits = RunLimits(chunk_size=1, num_in_flight=4)
    outcome = await make_run(source, limits=limits).result()
    assert outcome.reason == EndReason.MIXED_VERSION
    assert "abort" in source.events
    assert source.num_in_flight == 0


async def test_content_that_differs_afterwards_fails_the_job(make_run: MakeRun) -> None:
    outcome = await make_run(FakeSource(checks=[PinMismatch("fingerprint differs")])).result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, EndReason.PIN_MISMATCH)
    assert outcome.detail == "after the last sample: fingerprint differs"
    assert (outcome.score, outcome.metrics, outcome.partial) == (None, {}, {})
    assert outcome.counts.n_scored == 10


async def test_an_engine_that_dies_after_the_last_sample_is_pinned_and_checked_again(
    make_run: MakeRun,
) -> None:
    source = FakeSource(checks=[EngineDied("gone")])
    outcome = await make_run(source).result()
    assert outcome.score == 1.0
    assert source.events[-3:] == ["check", "repin", "check"]


async def test_engines_that_can_never_be_checked_fail_the_job(make_run: MakeRun) -> None:
    source = FakeSource(checks=[EngineDied("gone")] * 3)
    outcome = await make_run(source).result()
    assert (outcome.reason, outcome.score) == (EndReason.ENGINE_FAILED, None)
    assert outcome.detail == "the engines could not be checked afterwards: gone"
