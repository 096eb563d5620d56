"""The benchmarks run with their real parts and write figures of the documented shape; never how fast."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import Measured

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


def test_figures_of_an_eval_engine_are_over_its_own_load_and_rate() -> None:
    from benchmarks.evals.__main__ import figures
    from benchmarks.evals.measure import Found

    found = Found(
        load=Measured(seconds=[0.5, 0.4, 0.6]),
        first_token=Measured(seconds=[0.9, 0.75, 0.6]),
        cancelled=Measured(seconds=[1.5, 1.25, 1.0]),
        saturated=Measured(seconds=[10.0, 10.0, 11.0]),
        continuous=Measured(seconds=[10.5, 10.5, 12.0]),
    )
    rows = list(figures(found, 100_000_000))
    assert [(row.figure.value, row.figure.unit, row.met) for row in rows] == [
        (1.5, "ratio", False),
        (0.75, "s", True),
        (1.05, "ratio", True),
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
