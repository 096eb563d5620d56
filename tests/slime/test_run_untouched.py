"""Training is untouched: stock slime twice and live eval twice at one seed.

The trainer's losses, gradient norms and weights, and what was rolled out, differ between the kinds by no more
than within the stock pair.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.slime_run import LIMIT_S, LIVE, SlimeRun

pytestmark = pytest.mark.timeout(4 * LIMIT_S)
NUM_ROLLOUT = 4
# One request at a time: a batch of another composition rounds differently, on any run of any program.
SAME = ("--seed", "7", "--rollout-seed", "7", "--sglang-server-concurrency", "1")


def trained(folder: Path, *words: str, live: str) -> dict[str, list[float]]:
    """What the trainer saw, step by step."""
    folder.mkdir()
    run = SlimeRun(folder)
    debug = ("--save-debug-rollout-data", f"{folder}/rollout-{{rollout_id}}.pt")
    run.start("train.py", *SAME, *debug, *words, num_rollout=NUM_ROLLOUT, LIVE=live)
    assert run.wait() == 0
    steps = run.calls("train")
    return {
        "rollout_id": [step["rollout_id"] for step in steps],
        "samples": [step["samples"] for step in steps],
        "loss": [step["loss"] for step in steps],
        "grad_norm": [step["grad_norm"] for step in steps],
        "param_sum": [call["param_sum"] for call in run.calls("update_weights.end")],
        "tokens": [token for step in range(NUM_ROLLOUT) for token in tokens(folder / f"rollout-{step}.pt")],
    }


def tokens(path: Path) -> list[float]:
    saved: dict[str, Any] = torch.load(path, weights_only=False)
    return [token for sample in saved["samples"] for token in sample["tokens"]]


def apart(one: dict[str, list[float]], other: dict[str, list[float]]) -> dict[str, float]:
    """The largest difference of each series; infinite where one is longer."""
    return {
        name: max(abs(a - b) for a, b in zip(values, other[name], strict=True))
        if len(values) == len(other[name])
        else float("inf")
        for name, values in one.items()
    }


def test_losses_steps_and_data_are_those_of_stock_slime(tmp_path: Path) -> None:
    stock = [trained(tmp_path / f"stock-{n}", live="") for n in (1, 2)]
    live = [trained(tmp_path / f"live-{n}", *LIVE, live="1") for n in (1, 2)]
    assert stock[0]["rollout_id"] == list(range(NUM_ROLLOUT))
    spread = apart(*stock)
    for one in stock:
        for other in live:
            between = apart(one, other)
            assert all(between[name] <= spread[name] for name in spread), (between, spread)
