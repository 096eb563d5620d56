"""The benchmarks run with their real parts and write figures of the documented shape; never how fast."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from operator import eq
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from benchmarks.figures import Measured
from benchmarks.growth.chart import draw
from benchmarks.growth.curves import shown
from benchmarks.growth.queueing import by_datasets
from benchmarks.growth.settings import QUICK
from benchmarks.neighbour import Neighbour
from benchmarks.places import MEMORY_FOR_PROGRAMS, NoRoom, require_room
from benchmarks.weights import Weights
from live_eval.processes import STEPS_BACK
from live_eval.results.ledger import Ledger

ROOT = Path(__file__).parents[2]
NUM_RATIOS = 22 + 15
"""Of one size at two places; neighbours that write nothing are measured at one."""


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_a_quick_run_writes_every_figure_of_every_place(tmp_path: Path) -> None:
    out = tmp_path / "out" / "figures.json"
    shared_before = set(os.listdir("/dev/shm"))
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--out", str(out), "--disk", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(out.read_text())
    for figure in figures:
        assert list(figure) == ["figure", "value", "goal", "peer", "unit"]
        assert math.isfinite(figure["value"])
        assert figure["peer"]
    names = [figure["figure"] for figure in figures]
    assert len(names) == len(set(names)) == NUM_RATIOS + 2
    assert [figure["unit"] for figure in figures] == ["ratio"] * NUM_RATIOS + ["us a tensor"] * 2
    assert all(figure["value"] > 0 for figure in figures if figure["unit"] == "us a tensor")
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


def test_a_neighbour_does_its_work_beside_the_trainer_and_ends_with_it(tmp_path: Path) -> None:
    copies: list[int] = []
    with closing(Neighbour(lambda: copies.append(1), 1 << 20)) as neighbour:
        for update in (neighbour.computing(0.05), neighbour.moving(), neighbour.keeping(tmp_path / "kept")):
            update.run()
            assert len(copies) == 1, "the copy is over when the trainer goes on"
            update.finish()
            copies.clear()
        assert [file.stat().st_size for file in (tmp_path / "kept").iterdir()] == [1 << 20]
        process = psutil.Process(neighbour.pid)
        assert process.nice() == psutil.Process().nice() + STEPS_BACK
    assert not process.is_running()


def test_jobs_of_every_sealed_version_are_on_record_and_its_growth_is_drawn(tmp_path: Path) -> None:
    panel = by_datasets(QUICK, tmp_path)
    rows = list(shown([panel]))
    assert [row.figure.figure for row in rows] == [
        f"sealed -> jobs on record, {number} datasets, made as many jobs as ended"
        for number in QUICK.datasets
    ]
    assert all(row.figure.value > 0 and row.figure.unit == "ms" for row in rows)
    for number in QUICK.datasets:
        with Ledger.open(tmp_path / f"datasets-{number}" / "ledger.sqlite") as ledger:
            statuses = Counter(job.status.value for job in ledger.jobs())
        # The first version has the engines, the newest one waits, those in between are superseded.
        assert statuses == {"waiting": 2 * number, "superseded": (QUICK.num_rounds + 1) * number}
    draw(tmp_path / "growth.png", [panel])
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_many_small_tensors_have_names_and_memory_of_their_own_and_change_each_time() -> None:
    weights = Weights.many(1_500, 1_500 * 1_024)
    assert len({name for name, _ in weights.tensors}) == 1_500
    assert len({tensor.data_ptr() for _, tensor in weights.tensors}) == 1_500
    assert weights.num_bytes == 1_500 * 1_024
    before = [array.tobytes() for array in weights.arrays()]
    weights.change(7)
    assert not any(map(eq, before, (array.tobytes() for array in weights.arrays())))


def test_peers_that_keep_copies_are_left_out_where_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = MEMORY_FOR_PROGRAMS + 7 * 1_000
    monkeypatch.setattr("benchmarks.places.file_system", lambda _: "ext4")
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=free))
    assert require_room(tmp_path, 500)
    assert not require_room(tmp_path, 1_000)
    with pytest.raises(NoRoom, match="are needed"):
        require_room(tmp_path, 2_000)


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
