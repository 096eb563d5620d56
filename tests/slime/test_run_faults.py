"""The real scripts while live-eval's own parts misbehave: training ends with the same steps in every row.

The faults are those of a further engine in slime's weight updates, with the receiver as the one that has
them (tests/slime_cpu/standin/slime_cpu/faults.py). docs/slime.md has the table.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.slime_run import (
    FULLY_ASYNC,
    LIMIT_S,
    LIVE,
    SlimeRun,
    check_every_update_has_an_end,
    check_training_was_whole,
)

from live_eval.store import VersionStore
from slime_patch.member import PROBE_TIMEOUT_S

pytestmark = pytest.mark.timeout(LIMIT_S + 120)
FAULTS = {
    2: "begin.raise",
    5: "bucket.raise",
    8: "bucket.die",
    11: "bucket.nonsense",
    14: "bucket.slow",
    32: "bucket.freeze",
}
MEMBER_FAULTS = {2: "begin.raise", 4: "begin.nonsense", 6: "bucket.refuse", 8: "begin.slow"}
DEADLINE_S = 2.0
NUM_ROLLOUT = 54  # so that what a late receiver costs is over before the last version
NUM_ROLLOUT_MEMBER = 30


@pytest.fixture
def run(tmp_path: Path) -> SlimeRun:
    return SlimeRun(tmp_path)


def durations(run: SlimeRun) -> list[float]:
    """Seconds of each weight update, as the trainer saw it."""
    begins = [call["t"] for call in run.calls("update_weights.begin")]
    ends = [call["t"] for call in run.calls("update_weights.end")]
    return [end - begin for begin, end in zip(begins, ends, strict=True)]


def test_a_receiver_with_every_fault_costs_versions_and_no_step(run: SlimeRun) -> None:
    words = (*LIVE, "--eval-sync-deadline-s", str(DEADLINE_S), "--rollout-function-path", FULLY_ASYNC)
    words += ("--eval-keep-versions", str(NUM_ROLLOUT + 1))  # so that all that was ever sealed is there
    faults = json.dumps({str(version): fault for version, fault in FAULTS.items()})
    run.start("train_async.py", *words, num_rollout=NUM_ROLLOUT, SLIME_CPU_FAULTS=faults)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=NUM_ROLLOUT)
    assert max(durations(run)) < DEADLINE_S + 3.0  # a loaded machine's own time for an update
    with VersionStore.open(run.run_dir.store, max_bytes=1 << 40, keep_newest=NUM_ROLLOUT + 1) as store:
        sealed = {record.weight_version for record in store.sealed()}
        reasons = {record.weight_version: record.reason for record in store.discarded()}
    lost = set(FAULTS) - {14, 32}  # what is only late may still arrive whole
    assert not sealed & lost
    assert set(reasons) >= lost
    assert sealed | set(reasons) == set(range(1, NUM_ROLLOUT + 2))
    (last,) = [each for each in run.results().values() if each.policy_version == NUM_ROLLOUT + 1]
    assert last.status == "succeeded"


def test_a_member_of_slimes_group_that_is_wrong_outside_a_broadcast_costs_versions_and_no_step(
    run: SlimeRun,
) -> None:
    words = (*LIVE, "--eval-transport", "nccl", "--rollout-function-path", FULLY_ASYNC)
    words += ("--eval-keep-versions", str(NUM_ROLLOUT_MEMBER + 1))
    faults = json.dumps({str(version): fault for version, fault in MEMBER_FAULTS.items()})
    run.start("train_async.py", *words, num_rollout=NUM_ROLLOUT_MEMBER, SLIME_CPU_FAULTS=faults)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=NUM_ROLLOUT_MEMBER)
    assert max(durations(run)) < 2 * PROBE_TIMEOUT_S + 3.0
    sealed = check_every_update_has_an_end(run, num_updates=NUM_ROLLOUT_MEMBER + 1)
    assert not sealed & set(MEMBER_FAULTS)
    assert {1, 3, 5, 7, NUM_ROLLOUT_MEMBER + 1} <= sealed  # it is taken in again after each


def test_a_member_that_dies_in_a_broadcast_ends_the_training_as_an_engine_would(run: SlimeRun) -> None:
    run.start("train_async.py", *LIVE, "--eval-transport", "nccl", SLIME_CPU_FAULTS='{"3": "bucket.die"}')
    assert run.wait() != 0
    assert max(call["rollout_id"] for call in run.calls("train")) <= 2
    assert len(run.calls("update_weights.end")) == 2
    assert run.left() == []


def test_a_receiver_that_does_not_start_is_an_error_before_any_training(run: SlimeRun) -> None:
    run.start("train.py", *LIVE, SLIME_CPU_FAULTS='{"0": "start.raise"}')
    assert run.wait() != 0
    assert "error: live eval does not start: the receiver" in run.said()
    assert run.calls("train") == []
    assert run.left() == []
