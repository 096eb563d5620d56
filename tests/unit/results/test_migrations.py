"""A ledger that an earlier live-eval wrote (tests/golden/ledger_v1.sql) goes on, and is read by all."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from live_eval.errors import LedgerError
from live_eval.results import schema
from live_eval.results.ledger import Ledger
from live_eval.results.migrations import STEPS
from live_eval.results.reader import LedgerReader
from live_eval.results.rows import AttemptRow

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A ledger of schema version 1 with a job of two attempts, one that runs, and a cancelled checkpoint."""
    path = tmp_path / "ledger.sqlite"
    db = sqlite3.connect(path)
    db.executescript((GOLDEN / "ledger_v1.sql").read_text())
    db.close()
    return path


def version_of(path: Path) -> int:
    db = sqlite3.connect(path)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.close()
    return version


def everything(ledger: LedgerReader) -> list[object]:
    return [
        ledger.run_id,
        ledger.jobs(),
        ledger.results(),
        ledger.transitions(),
        ledger.cursors(),
        [(row.seq, row.key, row.result, row.event) for row in ledger.outbox(limit=1000)],
        ledger.under(""),
    ]


def structure(path: Path) -> set[tuple[str, str, str]]:
    db = sqlite3.connect(path)
    rows = db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    db.close()
    return {(kind, name, " ".join(sql.split())) for kind, name, sql in rows}


def test_a_reader_takes_an_older_ledger_as_it_is(old: Path) -> None:
    with LedgerReader.open_readonly(old) as reader:
        assert [row.job_id for row in reader.jobs()] == ["v7/rev", "v7/add", "c1/rev"]
        assert [result.score for result in reader.results()] == [0.5, None]
        assert reader.attempt_rows() == []
    assert version_of(old) == 1


def test_a_service_goes_on_with_an_older_ledger_and_loses_nothing(old: Path) -> None:
    with LedgerReader.open_readonly(old) as reader:
        before = everything(reader)
    with Ledger.open(old, run_id="run") as ledger:
        assert everything(ledger) == before
        assert ledger.attempt_rows() == [
            AttemptRow(
                job_id="v7/rev",
                attempt=1,
                started_at=3.0,
                ended_at=4.0,
                reason="service_restarted",
                num_taken_up=0,
                num_done=0,
            ),
            AttemptRow(
                job_id="v7/rev",
                attempt=2,
                started_at=5.0,
                ended_at=6.0,
                reason="completed",
                num_taken_up=0,
                num_done=4,
            ),
            AttemptRow(
                job_id="v7/add",
                attempt=1,
                started_at=7.0,
                ended_at=None,
                reason="",
                num_taken_up=0,
                num_done=1,
            ),
        ]
    assert version_of(old) == schema.SCHEMA_VERSION


def test_an_older_ledger_becomes_what_a_new_one_is(old: Path, tmp_path: Path) -> None:
    Ledger.open(old).close()
    Ledger.open(tmp_path / "new.sqlite").close()
    assert structure(old) == structure(tmp_path / "new.sqlite")


def test_the_job_that_an_older_service_was_in_ends_as_any_other(old: Path) -> None:
    with Ledger.open(old) as ledger:
        ledger.requeue("v7/add", now=10.0, reason="service_restarted")
        ledger.start("v7/add", now=11.0)
        ledger.progress("v7/add", num_done=3, num_expected=4)
        ledger.taken_up("v7/add", 2)
        result = ledger.outcome("v7/add", status="succeeded", reason="completed", now=12.0)
        ledger.finish(msgspec.structs.replace(result, score=1.0, n_scored=4, n_expected=4))
        first, second = ledger.attempt_rows("v7/add")
    assert (first.ended_at, first.reason, first.num_done) == (10.0, "service_restarted", 1)
    assert (second.ended_at, second.reason) == (12.0, "completed")
    assert (second.num_taken_up, second.num_done) == (2, 4)


def test_a_kill_while_a_ledger_is_brought_up_leaves_it_as_it_was(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(old, tmp_path / "copy.sqlite")
    monkeypatch.setitem(STEPS, 1, STEPS[1] + "\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(LedgerError, match="no such table"):
        Ledger.open(old)
    assert version_of(old) == 1
    assert structure(old) == structure(tmp_path / "copy.sqlite")


def test_there_is_a_step_from_every_earlier_version() -> None:
    assert sorted(STEPS) == list(range(1, schema.SCHEMA_VERSION))


@pytest.mark.parametrize(
    "statement",
    ["UPDATE attempts SET num_taken_up = 9 WHERE job_id = 'v7/rev'", "DELETE FROM attempts"],
)
def test_an_attempt_that_ended_is_never_changed(old: Path, statement: str) -> None:
    Ledger.open(old).close()
    db = sqlite3.connect(old)
    with pytest.raises(sqlite3.IntegrityError, match="never"):
        db.execute(statement)
    db.close()
