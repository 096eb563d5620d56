"""slime's real scripts with live eval, on a CPU: real SGLang, real Ray, slime unedited.

Each run takes some minutes. SETUP_DIR is the folder that tests/slime_cpu/setup.sh made.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from fakes.slime_run import (
    FULLY_ASYNC,
    LIMIT_S,
    LIVE,
    SlimeRun,
    check_training_was_whole,
    check_versions_hold_what_the_trainer_had,
)

from live_eval.engines.launch import EngineProcess, launch_settings

pytestmark = pytest.mark.timeout(LIMIT_S + 120)


@pytest.fixture
def run(tmp_path: Path) -> SlimeRun:
    return SlimeRun(tmp_path)


def test_fully_async_training_under_finish(run: SlimeRun) -> None:
    run.start("train_async.py", *LIVE, "--rollout-function-path", FULLY_ASYNC)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    check_versions_hold_what_the_trainer_had(run)
    last = run.results()["v4/toy"]
    assert (last.status, last.rollout_id, last.train_step) == ("succeeded", 2, 3)
    assert last.score is not None and last.n_scored == 8
    assert set(run.results()) == {f"v{version}/toy" for version in range(1, 5)}


def test_synchronous_training_under_queue_scores_every_version(run: SlimeRun) -> None:
    run.start("train.py", *LIVE, "--eval-on-update", "queue")
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    check_versions_hold_what_the_trainer_had(run)
    found = {name: (each.status, each.rollout_id, each.train_step) for name, each in run.results().items()}
    assert found == {
        "v1/toy": ("succeeded", None, 0),
        "v2/toy": ("succeeded", 0, 1),
        "v3/toy": ("succeeded", 1, 2),
        "v4/toy": ("succeeded", 2, 3),
    }
    assert run.calls("eval") == []  # slime's own, which would have stopped the training


def test_a_killed_receiver_costs_versions_and_no_training(run: SlimeRun) -> None:
    run.start("train_async.py", *LIVE, num_rollout=6)
    run.until(lambda: len(run.calls("update_weights.end")) >= 2)
    pid = run.process("ray::RayReceiver")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=6)
    check_versions_hold_what_the_trainer_had(run)
    assert run.results()["v7/toy"].status == "succeeded"


def test_a_killed_service_comes_back(run: SlimeRun) -> None:
    run.start("train.py", *LIVE, "--eval-on-update", "queue")
    run.until(lambda: len(run.calls("update_weights.end")) >= 2)
    pid = run.process("ray::ServiceActor")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    assert {each.status for each in run.results().values()} == {"succeeded"}


def test_checkpoints_are_evaluated_while_training_goes_on(run: SlimeRun) -> None:
    base = Path(os.environ["SETUP_DIR"]) / "tiny"
    words = [word if word != "latest-synced" else "checkpoint" for word in LIVE]
    run.start("train.py", *words, "--eval-checkpoint", str(base))
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    assert {name: each.status for name, each in run.results().items()} == {"c1/toy": "succeeded"}


async def test_running_engines_can_be_attached(run: SlimeRun) -> None:
    settings = launch_settings(Path(os.environ["SETUP_DIR"]) / "tiny", device="cpu")
    engine = EngineProcess.start(settings, log=run.folder / "engine.log")
    try:
        await engine.wait_ready()
        words = [*LIVE[: LIVE.index("--eval-num-gpus")], "--eval-engine-addrs", engine.url]
        words += LIVE[LIVE.index("--eval-num-gpus") + 2 :]
        run.start("train_async.py", *words, "--eval-on-update", "cancel")
        assert await asyncio.to_thread(run.wait) == 0
        assert engine.returncode is None
    finally:
        await engine.stop()
    check_training_was_whole(run, num_rollout=3)
    assert run.results()["v4/toy"].status == "succeeded"


def test_two_trainers_two_engines_and_several_buckets(run: SlimeRun) -> None:
    words = (*LIVE, "--eval-snapshot", "all", "--eval-interval", "2", "--update-weight-buffer-size", "65536")
    run.start("train_async.py", *words, TRAIN_GPUS="2", ROLLOUT_GPUS="2")
    assert run.wait() == 0
    assert len(run.calls("update_weights.end")) == 2 * 4
    check_versions_hold_what_the_trainer_had(run)
    assert set(run.sums()) == {1, 2, 3, 4}
    evaluated = {name for name, each in run.results().items() if each.status != "superseded"}
    assert evaluated <= {"v1/toy", "v3/toy", "v4/toy"}
    assert "v4/toy" in evaluated


def test_without_the_flags_the_engines_and_the_trainer_are_asked_the_same(tmp_path: Path) -> None:
    asked = []
    for live in ("", "1"):
        run = SlimeRun(tmp_path / f"live-{live or 0}")
        run.folder.mkdir()
        run.start("train.py", num_rollout=2, LIVE=live)
        assert run.wait() == 0
        kinds = ("trainer", "engine")
        asked.append([(call["who"], call["method"]) for call in run.log() if call["who"].startswith(kinds)])
    assert asked[0] == asked[1]
