"""Fifty random faults a transport, damaged messages, and a bench that notices when a guard is off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[2]
SEED = 7
NUM_SYNCS = 50
MAX_NOT_SPRUNG = 10
"""Faults whose step the sync never came to; more would mean that probes are missing."""
NUM_MESSAGES = 3000
LIMIT_S = 240.0


def bench(*arguments: object, out: Path) -> tuple[int, Any, str]:
    """Run a program of the bench; its exit status, what it wrote, what it printed."""
    argv = [sys.executable, "-m", *map(str, arguments), "--json", str(out)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        argv, cwd=REPO, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        printed, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # it ends what it has started
        printed, _ = process.communicate()
        pytest.fail(f"not over after {LIMIT_S:g} s:\n{printed[-4000:]}")
    return process.returncode, json.loads(out.read_text()) if out.exists() else None, printed


@pytest.mark.parametrize("transport", ["disk", "nccl", pytest.param("ray", marks=pytest.mark.ray)])
def test_nothing_torn_mixed_or_mislabelled_is_sealed(tmp_path: Path, transport: str) -> None:
    status, figures, printed = bench(
        "benchmarks.faults",
        "--transport",
        transport,
        "--syncs",
        NUM_SYNCS,
        "--seed",
        SEED,
        out=tmp_path / "out.json",
    )
    assert status == 0, printed
    value = {row["figure"].partition(": ")[2]: row["value"] for row in figures}
    assert value["syncs"] >= NUM_SYNCS
    assert value["share sealed"] >= 0.3
    zeros = ("torn", "mixed", "mislabelled", "unfaulted not sealed", "troubles")
    assert {name: value[name] for name in zeros} == dict.fromkeys(zeros, 0)
    assert value["faults whose step never came"] <= MAX_NOT_SPRUNG
    if transport != "nccl":
        assert value["exceptions in the trainer"] == 0


def test_damaged_messages_are_answered_and_cost_nothing(tmp_path: Path) -> None:
    status, figures, printed = bench(
        "benchmarks.faults.malformed", "--messages", NUM_MESSAGES, out=tmp_path / "out.json"
    )
    assert status == 0, printed
    value = {row["figure"].partition(": ")[2]: row["value"] for row in figures}
    assert value["messages"] == NUM_MESSAGES
    assert value["share that passes framing"] >= 0.5


def test_each_guard_that_is_switched_off_is_missed(tmp_path: Path) -> None:
    status, found, printed = bench("benchmarks.faults.mutants", out=tmp_path / "out.json")
    assert status == 0, printed
    assert found["digest_check"].partition(": ")[2].startswith("torn")
    assert found["completeness_check"].partition(": ")[2].startswith("torn")
    assert "still open" in found["deadline"]
    assert found["rename_last"].partition(": ")[2].startswith("torn")
