"""By which way weights come, and what the eval engines then hold: slime's real scripts on a CPU.

The driver's trainer overwrites its parameters in place the moment update_weights returns.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from fakes.slime_log_probs import check_log_probs
from fakes.slime_run import LIMIT_S, LIVE, SlimeRun, check_training_was_whole

pytestmark = pytest.mark.timeout(LIMIT_S + 120)


@pytest.fixture
def run(tmp_path: Path) -> SlimeRun:
    return SlimeRun(tmp_path)


@pytest.mark.parametrize("transport", ["ray", "nccl", "disk"])
def test_an_engine_holds_what_the_trainer_had_at_that_update(run: SlimeRun, transport: str) -> None:
    words = (*LIVE, "--eval-on-update", "queue", "--eval-transport", transport)
    run.start("train_async.py", *words, "--update-weight-buffer-size", "65536")
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    assert check_log_probs(run) == 4


def disk_words(run: SlimeRun) -> list[str]:
    where = ["--update-weight-transport", "disk", "--update-weight-disk-dir", str(run.folder / "shared")]
    return [*LIVE, "--eval-on-update", "queue", *where]


def test_full_checkpoints_are_linked_before_slime_deletes_them(run: SlimeRun) -> None:
    run.start("train.py", *disk_words(run))
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    assert check_log_probs(run) == 4
    assert not list((run.folder / "shared").glob("weight_v*"))


def test_trainers_that_are_released_after_each_update_leave_their_versions_behind(run: SlimeRun) -> None:
    run.start("train.py", *disk_words(run), "--release-train", "--save", str(run.folder / "save"))
    assert run.wait() == 0
    assert check_log_probs(run) == 4
    found = {name: (each.rollout_id, each.train_step) for name, each in run.results().items()}
    assert found == {"v1/toy": (None, 0), "v2/toy": (0, 1), "v3/toy": (1, 2), "v4/toy": (2, 3)}


def test_deltas_are_applied_and_the_first_version_is_that_of_the_first_rollout(run: SlimeRun) -> None:
    local = ["--update-weight-local-checkpoint-dir", str(run.folder / "local")]
    run.start("train.py", *disk_words(run), "--update-weight-mode", "delta", *local)
    assert run.wait() == 0
    assert check_log_probs(run) == 3
    found = {name: (each.rollout_id, each.train_step) for name, each in run.results().items()}
    assert found == {"v1/toy": (0, 1), "v2/toy": (1, 2), "v3/toy": (2, 3)}


def test_a_receiver_that_dies_between_updates_leaves_the_group_and_comes_back(run: SlimeRun) -> None:
    run.start("train_async.py", *LIVE, "--eval-transport", "nccl", num_rollout=6)
    run.until(lambda: len(run.calls("train")) >= 2 and _is_between_updates(run))
    pid = run.process("ray::RayFacade")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=6)
    assert run.results()["v7/toy"].status == "succeeded"
    check_log_probs(run)


def _is_between_updates(run: SlimeRun) -> bool:
    return len(run.calls("update_weights.begin")) == len(run.calls("update_weights.end"))
