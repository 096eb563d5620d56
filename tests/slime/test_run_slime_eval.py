"""slime's own eval function on the eval engines, beside a fully-async training, which refuses to evaluate."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.slime_run import FULLY_ASYNC, LIMIT_S, LIVE, SlimeRun, check_training_was_whole

from live_eval.evaluation.sample_log import read_samples

pytestmark = pytest.mark.timeout(LIMIT_S + 120)


@pytest.fixture
def run(tmp_path: Path) -> SlimeRun:
    return SlimeRun(tmp_path)


def test_slimes_eval_function_scores_each_version_in_the_background(run: SlimeRun) -> None:
    words = (*LIVE, "--eval-runner", "slime", "--eval-on-update", "queue", "--log-passrate")
    run.start("train_async.py", *words, "--rollout-function-path", FULLY_ASYNC)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    results = run.results()
    assert set(results) == {f"v{version}/toy" for version in range(1, 5)}
    for result in results.values():
        assert (result.status, result.n_scored, result.engine_versions) == (
            "succeeded", 8, (str(result.policy_version),),
        )  # fmt: skip
        assert result.metrics["slime/eval/toy"] == pytest.approx(result.score)
        assert "slime/eval/toy/response_len/mean" in result.metrics
        assert "slime/eval/toy-pass@1" in result.metrics
        samples = read_samples(Path(result.samples_path))
        assert {sample.engine_label for sample in samples} == {str(result.policy_version)}
        assert sum(sample.reward or 0.0 for sample in samples) / 8 == pytest.approx(result.score)
    assert run.left() == []


def test_newer_weights_cancel_slimes_eval_function_within_seconds(run: SlimeRun) -> None:
    words = [
        *LIVE,
        "--eval-runner",
        "slime",
        "--eval-on-update",
        "cancel",
        "--eval-max-consecutive-cancels",
        "99",
    ]
    words[words.index("--n-samples-per-eval-prompt") + 1] = "24"
    words[words.index("--eval-max-response-len") + 1] = "400"
    run.start("train_async.py", *words, "--eval-interval", "12", num_rollout=48)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=48)
    results = run.results()
    cancelled = [each for each in results.values() if each.status == "cancelled"]
    assert cancelled and {each.reason for each in cancelled} == {"newer_version"}
    assert all(each.score is None for each in cancelled)
    assert results["v49/toy"].status == "succeeded"
    assert run.left() == []
