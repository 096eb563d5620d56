"""The real scripts with W&B offline: dashboards of slime's eval stay filled, training's rows are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes.slime_run import FULLY_ASYNC, LIMIT_S, LIVE, SlimeRun, check_training_was_whole

from live_eval.results.wandb_readback import ReadRun, read_run

pytestmark = pytest.mark.timeout(LIMIT_S + 120)


@pytest.fixture
def run(tmp_path: Path) -> SlimeRun:
    return SlimeRun(tmp_path)


def trainers_run(folder: Path) -> ReadRun:
    """All writers of the trainer's run together."""
    ids = {path.name.rsplit("-", 1)[1] for path in (folder / "wandb").glob("offline-run-*")}
    assert len(ids) == 1
    return read_run(folder / "wandb", ids.pop())


def by_version(rows: list[dict[str, Any]], key: str) -> dict[int, dict[str, Any]]:
    return {int(row[key]): row for row in rows if key in row}


@pytest.mark.parametrize("where", ["own", "attach"])
def test_scores_reach_the_trainers_run_as_they_come(run: SlimeRun, where: str) -> None:
    wandb_dir = run.folder / "trainer"
    words = f"--use-wandb --wandb-mode offline --wandb-project p --wandb-group g --wandb-dir {wandb_dir} "
    words += f"--disable-wandb-random-suffix --eval-on-update queue --eval-wandb-run {where}"
    run.start("train_async.py", *LIVE, *words.split(), "--rollout-function-path", FULLY_ASYNC)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    scores = {each.policy_version: each.score for each in run.results().values()}
    assert set(scores) == {1, 2, 3, 4}

    trainers = trainers_run(wandb_dir)
    shown = by_version(trainers.rows, "eval/toy/policy_version")
    assert {version: row["eval/toy"] for version, row in shown.items()} == scores
    assert {version: row["eval/step"] for version, row in shown.items()} == {1: 0, 2: 0, 3: 1, 4: 2}
    assert trainers.step_metric("eval/toy") == "eval/step"
    assert [row["train/step"] for row in trainers.rows if "train/loss" in row] == [0, 1, 2]

    updates = [row for row in trainers.rows if "live_eval/held_s" in row]
    assert sorted(row["rollout/step"] for row in updates) == [0, 0, 1, 2]
    assert all(0 < row["live_eval/held_s"] < 5.0 for row in updates)
    assert sorted(row["live_eval/sealed"] for row in updates) == [1, 2, 3, 4]
    assert {row["live_eval/discarded"] for row in updates} == {0}
    assert trainers.step_metric("live_eval/held_s") == "rollout/step"

    attached = by_version(trainers.rows, "live_eval/policy_version")
    own = list((run.run_dir.root / "wandb").glob("offline-run-*"))
    if where == "attach":
        assert {version: row["live_eval/toy/score"] for version, row in attached.items()} == scores
        assert own == []
    else:
        assert attached == {}
        assert len(own) == 1
