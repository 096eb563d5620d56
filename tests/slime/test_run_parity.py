"""slime's own eval function and live-eval's runner on one checkpoint: 200 prompts, 4 samples, greedy."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.slime_run import LIMIT_S, LIVE, SlimeRun

from live_eval.evaluation.sample_log import read_samples

if TYPE_CHECKING:
    from live_eval.evaluation.sample import Sample

pytestmark = pytest.mark.timeout(2 * LIMIT_S + 120)
NUM_PROMPTS, N = 200, 4


def evaluated(folder: Path, data: Path, *words: str) -> tuple[float | None, dict[str, float], list[Sample]]:
    """The score, the metrics and the samples of the tiny model, evaluated beside a short training."""
    run = SlimeRun(folder)
    line = [word if word != "latest-synced" else "checkpoint" for word in LIVE]
    line[line.index("toy") + 1] = str(data)
    line[line.index("--n-samples-per-eval-prompt") + 1] = str(N)
    checkpoint = str(Path(os.environ["SETUP_DIR"]) / "tiny")
    run.start(
        "train.py", *line, "--eval-checkpoint", checkpoint, "--eval-temperature", "0", *words, num_rollout=1
    )
    assert run.wait() == 0
    result = run.results()["c1/toy"]
    assert (result.status, result.n_scored) == ("succeeded", NUM_PROMPTS * N)
    return result.score, dict(result.metrics), read_samples(Path(result.samples_path))


def answers(samples: list[Sample]) -> dict[tuple[str, int], tuple[str | None, float | None]]:
    return {(sample.prompt, sample.sample): (sample.response, sample.reward) for sample in samples}


def test_both_runners_give_the_same_answers_and_scores(tmp_path: Path) -> None:
    data = tmp_path / "eval.jsonl"
    rows = [
        {"prompt": f"What is {i}+{i * i % 97}? Answer: ", "label": str(i + i * i % 97)}
        for i in range(NUM_PROMPTS)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    score, metrics, samples = evaluated(tmp_path / "ours", data)
    their_score, their_metrics, their_samples = evaluated(tmp_path / "theirs", data, "--eval-runner", "slime")
    assert answers(samples) == answers(their_samples)
    assert score == pytest.approx(their_score, abs=1e-12)
    for name in ("score", "score/low", "score/high", f"avg@{N}", "pass@1", "pass@4", "response_tokens"):
        assert metrics[name] == pytest.approx(their_metrics[name], abs=1e-12), name
