"""A run on engines that live: what is asked, what is recorded, and when there is a score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.source import FakeGeneration, FakeSource

from live_eval.errors import ConfigError, RewardError
from live_eval.evaluation.datasets import EvalRow
from live_eval.evaluation.job import Progress, RunLimits, SampleCounts
from live_eval.evaluation.rewards import Grade, RewardSample
from live_eval.evaluation.runner import JobRun
from live_eval.evaluation.sample import Sample
from live_eval.evaluation.sample_log import read_samples
from live_eval.evaluation.sampling import SamplingParams
from live_eval.reasons import EndReason, JobStatus
from live_eval.targets import CheckpointTarget

if TYPE_CHECKING:
    from live_eval.evaluation.source import GenRequest

MakeRun = Callable[..., JobRun]


class PickyGrader:
    """Fails on the rows in `fails`, else 1.0."""

    def __init__(self, *fails: str) -> None:
        self.fails = fails

    async def grade(self, sample: RewardSample) -> Grade:
        if sample.row_id in self.fails:
            raise RewardError(f"{sample.where}: cannot")
        return Grade(reward=1.0)


def saved(run: JobRun) -> dict[tuple[str, int], Sample]:
    assert run.outcome is not None
    samples = read_samples(Path(run.outcome.samples_path))
    by_key = {(sample.row_id, sample.sample): sample for sample in samples}
    assert len(by_key) == len(samples) == run.outcome.counts.n_expected, "each sample is recorded once"
    return by_key


async def test_all_samples_are_asked_scored_and_saved(make_run: MakeRun) -> None:
    source = FakeSource(reply=lambda text: text.upper() if text != "a3" else "wrong")
    run = make_run(source)
    outcome = await run.result()
    assert (outcome.status, outcome.reason) == (JobStatus.SUCCEEDED, EndReason.COMPLETED)
    assert outcome.score == outcome.metrics["score"] == outcome.metrics["pass@1"] == 0.9
    assert outcome.counts == SampleCounts(n_expected=10, n_scored=10, n_errored=0, n_aborted=0)
    assert outcome.engine_labels == ("7",)
    assert (outcome.partial, outcome.withheld, outcome.detail) == ({}, False, "")
    assert not outcome.source_aborted
    assert 0 < outcome.started_at <= outcome.finished_at
    samples = saved(run)
    assert samples["r3", 0] == Sample(
        dataset="up",
        row_id="r3",
        sample=0,
        attempt=1,
        prompt="a3",
        label="A3",
        response="wrong",
        reward=0.0,
        status="scored",
        finish_reason="stop",
        num_tokens=3,
        engine="engine-0",
        engine_label="7",
        policy_version=7,
        request_id="v7/up@1/r3/0.1",
    )


async def test_the_engines_are_checked_after_the_last_sample(make_run: MakeRun) -> None:
    source = FakeSource()
    await make_run(source, num_rows=3, limits=RunLimits(chunk_size=1)).result()
    assert source.events == ["generate", "generate", "generate", "check"]


async def test_samples_are_asked_in_chunks_a_bounded_number_at_a_time(make_run: MakeRun) -> None:
    source = FakeSource()
    await make_run(source, num_rows=100, limits=RunLimits(chunk_size=8, num_in_flight=3)).result()
    assert [len(call) for call in source.calls] == [8] * 12 + [4]
    assert source.max_in_flight == 3


async def test_a_small_set_is_spread_over_all_calls(make_run: MakeRun) -> None:
    source = FakeSource()
    await make_run(source, num_rows=10, limits=RunLimits(chunk_size=32, num_in_flight=4)).result()
    assert [len(call) for call in source.calls] == [3, 3, 3, 1]


async def test_each_sample_of_a_row_is_a_request_of_its_own(make_run: MakeRun) -> None:
    source = FakeSource()
    run = make_run(source, num_rows=3, n=4, sampling=SamplingParams(temperature=1.0, seed=3))
    outcome = await run.result()
    assert outcome.counts.n_expected == 12
    assert set(outcome.metrics) >= {"avg@4", "pass@1", "pass@2", "pass@4"}
    assert len({request.request_id for request in source.asked}) == 12
    assert len({request.sampling["sampling_seed"] for request in source.asked}) == 12
    assert {number for _, number in saved(run)} == {0, 1, 2, 3}


async def test_the_sampling_of_the_dataset_reaches_the_engine(make_run: MakeRun) -> None:
    source = FakeSource()
    await make_run(source, sampling=SamplingParams(temperature=0.0, max_new_tokens=7)).result()
    assert {(r.sampling["temperature"], r.sampling["max_new_tokens"]) for r in source.asked} == {(0.0, 7)}


async def test_request_ids_of_two_attempts_at_a_job_differ(make_run: MakeRun) -> None:
    first, second = FakeSource(), FakeSource()
    await make_run(first).result()
    await make_run(second, attempt=2).result()
    assert not {r.request_id for r in first.asked} & {r.request_id for r in second.asked}


async def test_answers_are_matched_by_id_and_not_by_position(make_run: MakeRun) -> None:
    source = FakeSource(script=[lambda source, requests: source.answers(requests)[::-1]])
    assert (await make_run(source).result()).score == 1.0


async def test_text_is_sent_unless_token_ids_are_known(make_run: MakeRun) -> None:
    rows = (
        EvalRow(row_id="1", line=1, prompt="a", label="A"),
        EvalRow(row_id="2", line=2, prompt="b", label="B", input_ids=(5, 6)),
    )
    source = FakeSource()
    await make_run(source, rows=rows).result()
    assert [(r.text, r.input_ids) for r in source.asked] == [("a", None), (None, (5, 6))]


async def test_a_checkpoint_is_named_in_its_samples(make_run: MakeRun) -> None:
    run = make_run(FakeSource(), num_rows=1, target=CheckpointTarget(path="/ckpt/step_3", number=1))
    await run.result()
    sample = saved(run)["r0", 0]
    assert (sample.policy_version, sample.checkpoint) == (None, "/ckpt/step_3")


async def test_progress_goes_from_nothing_to_all_with_a_running_mean(make_run: MakeRun) -> None:
    seen: list[Progress] = []
    await make_run(FakeSource(), num_rows=250, on_progress=seen.append).result()
    assert seen[0] == Progress(num_done=0, num_expected=250, mean=None)
    assert seen[-1] == Progress(num_done=250, num_expected=250, mean=1.0)
    assert [p.num_done for p in seen] == sorted({p.num_done for p in seen})
    assert 50 < len(seen) < 150


# --- samples without a score ------------------------------------------------------------


async def test_an_error_of_a_grader_is_counted_and_never_a_wrong_answer(make_run: MakeRun) -> None:
    run = make_run(FakeSource(), grader=PickyGrader("r2"))
    outcome = await run.result()
    assert (outcome.status, outcome.score) == (JobStatus.SUCCEEDED, 1.0)
    assert outcome.counts == SampleCounts(n_expected=10, n_scored=9, n_errored=1, n_aborted=0)
    assert "1 of 10 samples have no score; first error: row r2" in outcome.detail
    sample = saved(run)["r2", 0]
    assert (sample.status, sample.reward, sample.response) == ("errored", None, "A2")
    assert sample.error == "dataset 'up', row r2, sample 0: cannot"


async def test_below_the_least_coverage_the_score_is_withheld(make_run: MakeRun) -> None:
    outcome = await make_run(FakeSource(), grader=PickyGrader("r2", "r3")).result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, EndReason.LOW_COVERAGE)
    assert (outcome.score, outcome.metrics, outcome.withheld) == (None, {}, True)
    assert outcome.partial["score"] == 1.0
    assert outcome.counts.coverage == 0.8
    assert "coverage 0.800 is below min_coverage 0.9" in outcome.detail


async def test_the_least_coverage_is_the_datasets_own(make_run: MakeRun) -> None:
    fails = PickyGrader("r1", "r2", "r3")
    assert (await make_run(FakeSource(), grader=fails, min_coverage=0.7).result()).score == 1.0
    assert (await make_run(FakeSource(), grader=PickyGrader("r1"), min_coverage=1.0).result()).score is None


async def test_when_nothing_can_be_scored_there_is_no_data_and_not_zero(make_run: MakeRun) -> None:
    outcome = await make_run(FakeSource(), num_rows=1, grader=PickyGrader("r0"), min_coverage=0.0).result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, EndReason.NO_DATA)
    assert (outcome.score, outcome.metrics) == (None, {})
    assert "cannot" in outcome.detail


async def test_a_dataset_without_rows_is_no_data(make_run: MakeRun) -> None:
    outcome = await make_run(FakeSource(), num_rows=0).result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, EndReason.NO_DATA)
    assert outcome.detail == "the dataset has no rows"


async def test_a_prompt_that_is_too_long_is_not_sent_and_counted_as_errored(make_run: MakeRun) -> None:
    rows = tuple(
        EvalRow(row_id=str(i), line=i, prompt="p", label="l", input_ids=(1,) * i) for i in range(1, 11)
    )
    source = FakeSource()
    run = make_run(source, rows=rows, max_prompt_tokens=9)
    outcome = await run.result()
    assert len(source.asked) == 9
    assert (outcome.counts.n_errored, outcome.counts.n_expected) == (1, 10)
    assert saved(run)["10", 0].error == ("skipped_too_long: the prompt has 10 tokens, max_prompt_tokens is 9")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("The input (99 tokens) is longer than the model's context length (64 tokens).", "skipped_too_long"),
        ("Input length (99 tokens) exceeds the maximum allowed length (64 tokens).", "skipped_too_long"),
        ("min_new_tokens must be in [0, max_new_tokens]", "refused"),
    ],
)
async def test_a_prompt_that_the_engine_refuses_is_errored_with_its_words(
    make_run: MakeRun, words: str, kind: str
) -> None:

    def refuse_first(source: FakeSource, requests: Sequence[GenRequest]) -> list[FakeGeneration]:
        refused = source.answers(requests[:1], finish_reason="refused", label="", detail=words)
        return [*refused, *source.answers(requests[1:])]

    run = make_run(FakeSource(script=[refuse_first]))
    outcome = await run.result()
    assert outcome.counts.n_errored == 1
    assert outcome.engine_labels == ("7",)
    assert saved(run)["r0", 0].error == f"{kind}: {words}"
    assert outcome.counts.n_scored == 9


async def test_an_aborted_answer_is_never_scored(make_run: MakeRun) -> None:
    source = FakeSource(
        script=[lambda source, requests: source.answers(requests, finish_reason="abort", label="")]
    )
    run = make_run(source, limits=RunLimits(chunk_size=5))
    outcome = await run.result()
    assert outcome.counts == SampleCounts(n_expected=10, n_scored=5, n_errored=0, n_aborted=5)
    assert outcome.reason == EndReason.LOW_COVERAGE
    assert outcome.partial["score"] == 1.0
    assert saved(run)["r0", 0].status == "aborted"


async def test_an_unknown_way_to_finish_is_an_error(make_run: MakeRun) -> None:
    source = FakeSource(script=[lambda source, requests: source.answers(requests, finish_reason="odd")])
    outcome = await make_run(source).result()
    assert outcome.counts.n_errored == 5
    assert "the engine ended it by 'odd'" in outcome.detail


# --- files ------------------------------------------------------------------------------


async def test_samples_are_on_disk_before_metrics_are_computed(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("metrics")

    monkeypatch.setattr("live_eval.evaluation.runner.compute_metrics", broken)
    path = tmp_path / "s.jsonl"
    with pytest.raises(ZeroDivisionError):
        await make_run(FakeSource(), path=path).result()
    assert len(read_samples(path)) == 10


async def test_a_file_that_cannot_be_made_fails_the_job_before_anything_is_asked(
    make_run: MakeRun, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    source = FakeSource()
    outcome = await make_run(source, path=tmp_path / "taken" / "s.jsonl").result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, EndReason.INTERNAL)
    assert "samples cannot be saved in" in outcome.detail
    assert source.asked == []
    assert outcome.counts.n_aborted == 10


@pytest.mark.parametrize("answer", ["short", "longer than a buffer" * 10_000])
async def test_a_full_disk_fails_the_job_and_gives_no_score(make_run: MakeRun, answer: str) -> None:
    source = FakeSource(reply=lambda text: answer)
    outcome = await make_run(source, path=Path("/dev/full")).result()
    assert (outcome.status, outcome.reason, outcome.score) == (JobStatus.FAILED, EndReason.INTERNAL, None)
    assert "No space left" in outcome.detail


@pytest.mark.parametrize("bad", [{"chunk_size": 0}, {"num_in_flight": 0}, {"max_engine_retries": -1}])
def test_limits_that_allow_no_work_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(bad))} {next(iter(bad.values()))}"):
        RunLimits(**bad)
