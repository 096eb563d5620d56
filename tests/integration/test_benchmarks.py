"""The benchmarks run with their real parts and write figures of the documented shape; never how fast."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.ray
def test_a_quick_run_writes_every_figure_of_every_place(tmp_path: Path) -> None:
    out = tmp_path / "out" / "figures.json"
    shared_before = set(os.listdir("/dev/shm"))
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--out", str(out), "--disk", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(out.read_text())
    for figure in figures:
        assert list(figure) == ["figure", "value", "goal", "peer", "unit"]
        assert math.isfinite(figure["value"])
        assert figure["unit"] == "ratio"
        assert figure["peer"]
    names = [figure["figure"] for figure in figures]
    assert len(names) == len(set(names)) == 18
    goals = [(figure["figure"].split(",")[0], figure["goal"]) for figure in figures if figure["goal"]]
    assert sorted(goals) == sorted(
        [
            ("last bucket stored -> sealed", 1.25),
            ("sync held_s", 1.2),
            ("sync step cost", 1.2),
        ]
        * 2
    )
    assert not list(tmp_path.glob("live-eval-bench-*"))
    assert not [
        name for name in set(os.listdir("/dev/shm")) - shared_before if name.startswith("live-eval-bench")
    ]


def test_sizes_and_counts_that_say_nothing_are_refused() -> None:
    for options in (["--rounds", "3"], ["--gb", "0"], ["--threads", "0"]):
        ran = subprocess.run(
            [sys.executable, "-m", "benchmarks", *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 2
        assert "--rounds must be at least 5" in ran.stderr


def test_weights_that_fit_nowhere_are_refused_before_anything_is_started() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--gb", "1000000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2
    assert "are needed" in ran.stderr
