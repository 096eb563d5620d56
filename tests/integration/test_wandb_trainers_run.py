"""live-eval's rows in the trainer's own W&B run, by the real wandb: what is drawn against what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import fakes.wandb_trainer

from live_eval.results.wandb_readback import read_run
from live_eval.results.wandb_sink import worker_env


def test_updates_are_by_slimes_step_and_scores_by_slimes_or_by_version(tmp_path: Path) -> None:
    script = Path(fakes.wandb_trainer.__file__)
    command = [sys.executable, str(script), str(tmp_path), "trainer"]
    subprocess.run(command, check=True, timeout=120, env=worker_env())
    run = read_run(tmp_path / "wandb", "trainer")

    def drawn(key: str, against: str) -> list[tuple[Any, Any]]:
        assert run.step_metric(key) == against
        return [(row[against], row[key]) for row in run.rows if key in row]

    assert drawn("live_eval/held_s", "rollout/step") == [(0, 0.5), (0, 5.0), (1, 0.25)]
    assert drawn("live_eval/sealed", "rollout/step") == [(0, 1), (0, 1), (1, 2)]
    assert drawn("live_eval/discarded", "rollout/step") == [(0, 0), (0, 1), (1, 1)]
    assert drawn("live_eval/discarded/publisher_deadline", "rollout/step") == [(0, 1), (1, 1)]
    assert drawn("eval/aime", "eval/step") == [(0, 0.25), (1, 0.75)]
    assert drawn("live_eval/aime/score", "live_eval/policy_version") == [(1, 0.25), (3, 0.75)]
