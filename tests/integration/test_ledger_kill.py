"""The ledger after kill -9 at every statement of a service's life, and after a torn log."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from live_eval.errors import LedgerError
from live_eval.results.ledger import Ledger
from live_eval.results.reader import LedgerReader

REPO = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One directory a kill point; the last life was not killed."""
    root = tmp_path_factory.mktemp("lives")
    command = [sys.executable, "-m", "fakes.ledger_scenario", str(root)]
    env = {**os.environ, "PYTHONPATH": f"{REPO}:{REPO / 'tests'}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [root / str(point) for point in range(int(done.stdout) + 1)]


def check(ledger: LedgerReader) -> None:
    """No half rows: states, transitions, results and outbox tell one story."""
    results = {result.job_id: result for result in ledger.results()}
    jobs = {row.job_id: row for row in ledger.jobs()}
    assert len(results) == len(ledger.results())
    assert set(results) == {name for name, row in jobs.items() if row.status.terminal}
    for name, row in jobs.items():
        history = ledger.transitions(name)
        assert [a.to_status for a in history[:-1]] == [b.from_status for b in history[1:]]
        assert history[0].from_status == "" and history[-1].to_status == row.status
        assert sum(t.to_status not in ("waiting", "running") for t in history) == (name in results)
        if name in results:
            assert results[name].status == row.status and results[name].metrics | results[name].partial == {
                "pass@1": 0.5
            }
    told = [row.result for row in ledger.outbox(limit=1000) if row.result is not None]
    assert told == ledger.results()


def announced(directory: Path) -> list[str]:
    path = directory / "announced"
    return path.read_text().split() if path.exists() else []


def result_names(ledger: LedgerReader) -> list[str]:
    return [result.result_id for result in ledger.results()]


def test_every_announced_result_is_there_whatever_the_kill_point(lives: list[Path], tmp_path: Path) -> None:
    assert len(lives) > 60
    counts = []
    for life in lives:
        directory = shutil.copytree(life, tmp_path / life.name)
        with Ledger.open(directory / "ledger.sqlite", run_id="run") as ledger:
            check(ledger)
            names, told = result_names(ledger), announced(directory)
        # At most the one whose announcement the kill prevented is there beyond those announced.
        assert names[: len(told)] == told and len(names) - len(told) in (0, 1)
        counts.append(len(names))
    assert counts == sorted(counts) and counts[-1] == 5


def test_a_reader_needs_no_new_life_of_the_writer(lives: list[Path], tmp_path: Path) -> None:
    num_read = 0
    for life in lives:
        directory = shutil.copytree(life, tmp_path / life.name)
        try:
            reader = LedgerReader.open_readonly(directory / "ledger.sqlite")
        except LedgerError:
            assert announced(directory) == []
            continue
        with reader:
            check(reader)
            assert set(announced(directory)) <= set(result_names(reader))
        num_read += 1
    assert num_read > 40


def test_the_database_is_sound_and_a_new_life_can_end_what_was_left(
    lives: list[Path], tmp_path: Path
) -> None:
    for life in lives:
        directory = shutil.copytree(life, tmp_path / life.name)
        with Ledger.open(directory / "ledger.sqlite", run_id="run") as ledger:
            for row in ledger.unfinished():
                ledger.finish(ledger.outcome(row.job_id, status="cancelled", reason="shutdown", now=20.0))
            assert ledger.unfinished() == []
        db = sqlite3.connect(directory / "ledger.sqlite")
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        db.close()


def test_a_log_that_was_torn_by_a_power_failure_gives_a_whole_earlier_state(tmp_path: Path) -> None:
    from fakes.ledger_scenario import play

    (tmp_path / "life").mkdir()
    kept = Ledger.open(tmp_path / "life" / "ledger.sqlite", run_id="run", now=1.0)
    kept.close()
    # A reader that stays keeps SQLite from folding the log into the database at the end of the life.
    reader = LedgerReader.open_readonly(tmp_path / "life" / "ledger.sqlite")
    assert reader.results() == []
    play(tmp_path / "life")
    log = (tmp_path / "life" / "ledger.sqlite-wal").read_bytes()
    page = 32 + 24 + 4096
    cuts = sorted({0, 31, len(log), *range(32, len(log), 4 * (page - 32)), *range(2000, len(log), 9973)})
    counts = []
    for cut in cuts:
        copy = tmp_path / f"cut{cut}"
        copy.mkdir()
        shutil.copy(tmp_path / "life" / "ledger.sqlite", copy)
        (copy / "ledger.sqlite-wal").write_bytes(log[:cut])
        with Ledger.open(copy / "ledger.sqlite", run_id="run") as ledger:
            check(ledger)
            counts.append(len(ledger.results()))
    reader.close()
    assert counts[0] == 0 and counts[-1] == 5
    assert all(a <= b for a, b in pairwise(counts)) and len(set(counts)) > 3
