"""slime's eval function as a runner: its scores, its faults, and an end within a second."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.slime_engines import FakeEngines

from live_eval.errors import EngineDied, EngineError, PinMismatch
from live_eval.evaluation.datasets import EvalSet, EvalSetConfig, load_eval_sets
from live_eval.evaluation.job import JobOutcomeDetail, JobSpec, Progress, RunLimits
from live_eval.evaluation.sample_log import read_samples
from live_eval.reasons import EndReason, JobStatus
from live_eval.targets import PolicyTarget
from slime_patch.slime_eval.plan import SlimeEvalPlan
from slime_patch.slime_eval.run import SlimeRun, SlimeRuns

ROOT = Path(__file__).resolve().parents[3]
FUNCTIONS = "slime.rollout.sglang_rollout."


class Bench:
    """One eval set of three rows, two samples each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.progress: list[Progress] = []
        rows = [{"prompt": word, "label": "yes"} for word in ("one", "two", "three")]
        (folder / "toy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = EvalSetConfig(name="toy", path=folder / "toy.jsonl", n=2, label_key="label")
        self.eval_set: EvalSet = load_eval_sets([config])["toy"]

    @asynccontextmanager
    async def runs(self, function: str, **arguments: Any) -> AsyncIterator[SlimeRuns]:
        plan = SlimeEvalPlan(
            function=FUNCTIONS + function,
            arguments={
                "sglang_server_concurrency": 2, "rollout_num_engines": 1,
                "custom_eval_rollout_log_function_path": None, **arguments,
            },
            datasets={"toy": {"name": "toy", "path": "toy.jsonl", "n_samples_per_eval_prompt": 2}},
        )  # fmt: skip
        plan.write(self.folder / "plan.json")
        command = [sys.executable, "-m", "slime_patch.slime_eval.worker"]
        async with SlimeRuns(self.folder / "plan.json", command=command) as runs:
            yield runs

    def run(self, runs: SlimeRuns, engines: FakeEngines, *, timeout_s: float = 30.0) -> SlimeRun:
        target = PolicyTarget(policy_version=7, weight_version=7, rollout_id=5, train_step=6)
        spec = JobSpec(
            job_id="v7/toy", target=target, label="7", samples_path=self.folder / "samples" / "toy.jsonl"
        )
        limits = RunLimits(timeout_s=timeout_s, max_engine_retries=2)
        return runs.make(
            spec, self.eval_set, engines, grader=None, limits=limits, on_progress=self.progress.append
        )  # type: ignore[arg-type]

    async def outcome(self, function: str, engines: FakeEngines, **arguments: Any) -> JobOutcomeDetail:
        async with self.runs(function, **arguments) as runs:
            return await self.run(runs, engines).result()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    paths = [str(ROOT / "tests" / "fakes" / "slime_rollout"), str(ROOT)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return Bench(tmp_path)


async def test_a_job_scores_what_slime_would_and_says_what_slime_would_log(bench: Bench) -> None:
    engines = FakeEngines()
    detail = await bench.outcome("generate_rollout", engines)
    assert (detail.status, detail.reason) == (JobStatus.SUCCEEDED, EndReason.COMPLETED)
    assert detail.score == pytest.approx(1 / 3)
    assert detail.metrics["slime/eval/toy"] == pytest.approx(1 / 3)
    assert "slime/eval/step" not in detail.metrics
    assert (detail.counts.n_expected, detail.counts.n_scored) == (6, 6)
    assert detail.engine_labels == ("7",)
    assert engines.max_in_flight == 2  # the eval engines' number, not the rollout engines'
    assert engines.events == ["check"]
    assert [each.num_done for each in bench.progress] == [0, 1, 2, 3, 4, 5, 6]
    samples = read_samples(Path(detail.samples_path))
    assert [(each.row_id, each.sample) for each in samples] == [(str(i // 2), i % 2) for i in range(6)]
    assert {(each.policy_version, each.engine_label, each.finish_reason) for each in samples} == {
        (7, "7", "stop")
    }
    assert "a word of slime's own" in (bench.folder / "plan.log").read_text()


async def test_what_passes_is_the_datasets_own(bench: Bench) -> None:
    config = replace(bench.eval_set.config, pass_threshold=-0.5)
    bench.eval_set = replace(bench.eval_set, config=config)
    detail = await bench.outcome("generate_rollout", FakeEngines())
    assert (detail.metrics["pass@1"], detail.metrics["score"]) == (1.0, pytest.approx(1 / 3))
    assert detail.pass_threshold == -0.5


async def test_the_process_serves_one_job_after_another_and_the_users_log_function_is_called(
    bench: Bench,
) -> None:
    log = {"custom_eval_rollout_log_function_path": FUNCTIONS + "log_itself"}
    async with bench.runs("generate_rollout", **log) as runs:
        for _ in range(2):
            detail = await bench.run(runs, FakeEngines()).result()
            assert detail.status is JobStatus.SUCCEEDED
            assert detail.metrics["slime/eval/mine"] == 3.0
            assert not any("table" in name for name in detail.metrics)


async def test_a_cancel_frees_the_engines_first_and_ends_the_process_within_a_second(bench: Bench) -> None:
    engines = FakeEngines(hold=True)
    async with bench.runs("generate_rollout") as runs:
        run = bench.run(runs, engines)
        task = asyncio.create_task(run.result())
        await engines.two_asked.wait()
        assert runs._worker is not None and runs._worker._process is not None
        pid = runs._worker._process.pid
        began = time.monotonic()
        run.cancel(EndReason.NEWER_VERSION)
        detail = await task
        # No second, but for a machine that is busy; an abort that is not answered would take 5.
        assert time.monotonic() - began < 4.0
        assert not Path(f"/proc/{pid}").exists()
        assert (detail.status, detail.reason) == (JobStatus.CANCELLED, EndReason.NEWER_VERSION)
        assert (detail.source_aborted, detail.score, detail.partial) == (True, None, {})
        assert engines.events == ["abort"]
        # The next job finds a new process.
        assert (await bench.run(runs, FakeEngines()).result()).status is JobStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("function", "reason", "said"),
    [
        ("raises", EndReason.NO_DATA, "slime's eval function failed: ValueError: the user's own fault"),
        ("dies", EndReason.INTERNAL, "the eval process ended with status 7"),
        ("missing", EndReason.INTERNAL, "the eval process ended with status 1"),
    ],
)
async def test_a_function_that_fails_fails_its_job(
    bench: Bench, function: str, reason: EndReason, said: str
) -> None:
    detail = await bench.outcome(function, FakeEngines())
    assert (detail.status, detail.reason) == (JobStatus.FAILED, reason)
    assert said in detail.detail


async def test_a_function_that_hangs_is_timed_out(bench: Bench) -> None:
    async with bench.runs("hangs") as runs:
        detail = await bench.run(runs, FakeEngines(), timeout_s=0.2).result()
    assert (detail.status, detail.reason) == (JobStatus.TIMED_OUT, EndReason.JOB_TIMEOUT)


async def test_rewards_without_samples_are_scores_and_what_is_no_number_is_an_error(bench: Bench) -> None:
    detail = await bench.outcome("only_rewards", FakeEngines())
    assert (detail.counts.n_expected, detail.counts.n_scored, detail.counts.n_errored) == (3, 1, 2)
    assert detail.status is JobStatus.FAILED and detail.reason is EndReason.LOW_COVERAGE
    assert "gave the reward None" in detail.detail and "the log function failed: TypeError" in detail.detail


async def test_samples_that_are_aborted_or_left_out_do_not_make_the_whole_smaller(bench: Bench) -> None:
    detail = await bench.outcome("leaves_out", FakeEngines())
    counts = detail.counts
    assert (counts.n_expected, counts.n_scored, counts.n_errored, counts.n_aborted) == (6, 4, 0, 2)
    assert (detail.status, detail.reason) == (JobStatus.FAILED, EndReason.LOW_COVERAGE)
    assert detail.detail.startswith("samples aborted or not returned: 2; first error: aborted within")
    assert detail.detail.endswith("coverage 0.667 is below min_coverage 0.9")
    assert (detail.score, detail.metrics, detail.partial["score"]) == (None, {}, 0.25)
    statuses = [each.status for each in read_samples(Path(detail.samples_path))]
    assert statuses == ["aborted", *["scored"] * 4]
    config = replace(bench.eval_set.config, min_coverage=0.5)
    bench.eval_set = replace(bench.eval_set, config=config)
    detail = await bench.outcome("leaves_out", FakeEngines())
    assert (detail.status, detail.score, detail.counts) == (JobStatus.SUCCEEDED, 0.25, counts)


@pytest.mark.parametrize("engines", [{"label": "8"}, {"segments": ("8", "7")}])
async def test_an_answer_on_other_weights_fails_the_job(bench: Bench, engines: dict[str, Any]) -> None:
    detail = await bench.outcome("generate_rollout", FakeEngines(**engines))
    assert (detail.status, detail.reason) == (JobStatus.FAILED, EndReason.MIXED_VERSION)
    assert "answered on weights '8' instead of '7'" in detail.detail
    assert (detail.score, detail.metrics) == (None, {})


@pytest.mark.parametrize(
    ("repin", "check", "status", "reason"),
    [
        (None, None, JobStatus.SUCCEEDED, EndReason.COMPLETED),
        (EngineError("gone for good"), None, JobStatus.FAILED, EndReason.ENGINE_FAILED),
        (None, PinMismatch("other weights"), JobStatus.FAILED, EndReason.PIN_MISMATCH),
    ],
)
async def test_requests_of_a_lost_engine_are_sent_again_after_one_repin(
    bench: Bench, repin: Exception | None, check: Exception | None, status: JobStatus, reason: EndReason
) -> None:
    lost = [EngineDied("killed"), EngineDied("killed")]
    engines = FakeEngines(losses=list(lost), repins=[repin], checks=[check])
    detail = await bench.outcome("generate_rollout", engines)
    assert (detail.status, detail.reason) == (status, reason)
    assert engines.events.count("repin") == 1
