"""How a job ends: by Ctrl-C, once and twice, and by an eval that failed. Nothing is left behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fakes.slime_run import LIMIT_S, SlimeRun, check_training_was_whole, live_with

pytestmark = pytest.mark.timeout(LIMIT_S + 120)


@pytest.fixture
def run(tmp_path: Path) -> SlimeRun:
    return SlimeRun(tmp_path)


def until_an_eval_runs_after_training(run: SlimeRun) -> None:
    run.until(lambda: "training has ended; waiting for v" in run.said())


def test_ctrl_c_while_the_last_evals_run_cancels_them(run: SlimeRun) -> None:
    run.start("train.py", *live_with(run, "slow"), num_rollout=2)
    until_an_eval_runs_after_training(run)
    began = time.monotonic()
    run.interrupt()
    assert run.wait() == 0
    assert time.monotonic() - began < 40  # Ray's end and the look at what is left included
    check_training_was_whole(run, num_rollout=2)
    assert "live-eval: interrupted; what is left is cancelled" in run.said()
    ends = {(each.status, each.reason) for each in run.results().values()}
    assert ends <= {("cancelled", "shutdown"), ("superseded", "newer_version")}
    assert ("cancelled", "shutdown") in ends
    assert run.left() == []


def test_ctrl_c_twice_ends_it_at_once_and_leaves_nothing(run: SlimeRun) -> None:
    run.start("train.py", *live_with(run, "slow"), num_rollout=2)
    until_an_eval_runs_after_training(run)
    began = time.monotonic()
    run.interrupt()
    time.sleep(0.3)
    run.interrupt()
    run.wait()
    assert time.monotonic() - began < 30
    assert run.left() == []


def test_ctrl_c_in_the_training_ends_both(run: SlimeRun) -> None:
    run.start("train_async.py", *live_with(run, "slow"), num_rollout=500)
    run.until(lambda: len(run.calls("update_weights.end")) >= 3)
    run.interrupt()
    assert run.wait() != 0
    assert run.left() == []


def test_a_failed_eval_stops_the_training_between_two_steps(run: SlimeRun) -> None:
    run.start("train.py", *live_with(run, "broken"), "--eval-on-failure", "stop", num_rollout=500)
    assert run.wait() != 0
    assert "EvalFailed: v1/toy ended as failed" in run.said()
    assert "no reward for" in run.said()
    steps = [call["rollout_id"] for call in run.calls("train")]
    assert 0 < len(steps) < 500
    assert len(run.calls("update_weights.end")) == len(steps) + 1  # each step that began is whole
    assert run.left() == []
