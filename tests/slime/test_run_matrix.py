"""Script x policy x transport on slime's real scripts: what no other test of this folder runs.

Training begins when the first version is being evaluated, and that takes longer than some updates: the
policy decides about an eval that runs.

Elsewhere: train.py with finish over ray (test_run_untouched), with queue over ray (test_runs) and over disk
(test_run_weights); train_async.py, fully-async, with finish over ray (test_runs) and with queue over ray
(test_run_wandb).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.slime_log_probs import check_log_probs
from fakes.slime_run import (
    FULLY_ASYNC,
    LIMIT_S,
    SlimeRun,
    check_every_update_has_an_end,
    check_training_was_whole,
    check_versions_hold_what_the_trainer_had,
    live_with,
)

pytestmark = pytest.mark.timeout(LIMIT_S + 120)

CELLS = {
    "train.py": ("finish-nccl", "finish-disk", "cancel-ray", "cancel-nccl", "cancel-disk", "queue-nccl"),
    "train_async.py": (
        "finish-nccl", "finish-disk", "cancel-ray", "cancel-nccl", "cancel-disk", "queue-nccl", "queue-disk",
    ),
}  # fmt: skip
NUM_ROLLOUT = 3
FIRST_ENDS = {"finish": "succeeded", "cancel": "cancelled", "queue": "succeeded"}
OTHERS_MAY_END = {
    "finish": {"succeeded", "superseded"},
    "cancel": {"succeeded", "cancelled", "superseded"},
    "queue": {"succeeded"},
}
TRAINING_WAITS = ("--custom-rm-path", "slime_cpu.reward.once_an_eval_runs")


@pytest.fixture
def run(tmp_path: Path) -> SlimeRun:
    return SlimeRun(tmp_path)


@pytest.mark.parametrize(
    ("script", "cell"),
    [pytest.param(script, cell, id=f"{script}-{cell}") for script, cells in CELLS.items() for cell in cells],
)
def test_training_is_whole_and_each_score_is_of_the_version_that_it_names(
    run: SlimeRun, script: str, cell: str
) -> None:
    policy, transport = cell.split("-")
    words = (*live_with(run, "rm" if policy == "queue" else "unhurried"), *TRAINING_WAITS)
    fully_async = ("--rollout-function-path", FULLY_ASYNC) if script == "train_async.py" else ()
    flags = ("--eval-on-update", policy, "--eval-transport", transport)
    run.start(script, *words, *flags, *fully_async, num_rollout=NUM_ROLLOUT)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=NUM_ROLLOUT)
    check_versions_hold_what_the_trainer_had(run)
    check_every_update_has_an_end(run, num_updates=NUM_ROLLOUT + 1)
    results = run.results()
    assert results["v1/toy"].status == FIRST_ENDS[policy]
    assert {each.status for each in results.values()} <= OTHERS_MAY_END[policy]
    assert check_log_probs(run) >= 1
    assert run.left() == []
