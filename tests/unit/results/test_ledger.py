"""Rules of the ledger, most of them held by the database itself."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from live_eval.errors import LedgerError
from live_eval.reasons import EndReason, JobStatus
from live_eval.results import schema
from live_eval.results.ledger import Ledger
from live_eval.results.reader import LedgerReader
from live_eval.results.rows import RESULT_COLUMNS, VersionEvent
from live_eval.targets import CheckpointTarget, PolicyTarget

if TYPE_CHECKING:
    from protocol.messages import JobResult

V7 = PolicyTarget(policy_version=7, incarnation=2, weight_version=3, rollout_id=6, train_step=70)
TERMINAL = [status for status in JobStatus if status.terminal]


def succeed(ledger: Ledger, job: str, *, now: float = 9.0) -> JobResult:
    ledger.start(job, now=now - 1)
    result = msgspec.structs.replace(
        ledger.outcome(job, status=JobStatus.SUCCEEDED, reason=EndReason.COMPLETED, now=now),
        score=0.75,
        metrics={"pass@1": 0.75, "mean": 0.1 + 0.2},
        n_expected=8,
        n_scored=8,
        engine_versions=("7",),
        weight_digest="ab",
        samples_path="samples/v7.jsonl",
    )
    ledger.finish(result)
    return result


def test_a_result_reads_back_as_it_was_written(ledger: Ledger) -> None:
    ledger.create_jobs(V7, ["rev"], now=2.0)
    result = succeed(ledger, "v7/rev")
    assert ledger.result("v7/rev") == result
    assert ledger.results() == [result]
    assert result.result_id == "run/v7/rev"
    assert (result.policy_version, result.train_step, result.rollout_id) == (7, 70, 6)


@pytest.mark.parametrize("target", [V7, CheckpointTarget(path="/c", number=1)])
def test_what_the_database_cannot_hold_is_an_error_and_changes_nothing(
    ledger: Ledger, target: PolicyTarget | CheckpointTarget
) -> None:
    with pytest.raises(LedgerError, match="surrogates"):
        ledger.create_jobs(target, ["good", "half \ud800"], now=1.0)
    with pytest.raises(LedgerError, match="too large"):
        ledger.create_jobs(replace(target, train_step=2**64), ["good"], now=1.0)
    assert ledger.jobs() == []


def test_the_results_table_has_a_column_for_every_field(ledger: Ledger) -> None:
    with sqlite3.connect(ledger.path) as db:
        columns = tuple(row[1] for row in db.execute("PRAGMA table_info(results)"))
    db.close()
    assert columns == RESULT_COLUMNS


def test_every_change_of_state_is_a_transition_with_time_and_reason(ledger: Ledger) -> None:
    ledger.create_jobs(V7, ["rev"], now=2.0, reason="due")
    ledger.start("v7/rev", now=3.0)
    assert ledger.requeue("v7/rev", now=4.0, reason="engine_failed") == 2
    succeed(ledger, "v7/rev", now=9.0)
    seen = [(t.from_status, t.to_status, t.attempt, t.reason, t.at) for t in ledger.transitions("v7/rev")]
    assert seen == [
        ("", "waiting", 1, "due", 2.0),
        ("waiting", "running", 1, "", 3.0),
        ("running", "waiting", 2, "engine_failed", 4.0),
        ("waiting", "running", 2, "", 8.0),
        ("running", "succeeded", 2, "completed", 9.0),
    ]


@pytest.mark.parametrize("second", TERMINAL)
def test_a_second_terminal_state_is_refused_and_changes_nothing(ledger: Ledger, second: JobStatus) -> None:
    ledger.create_jobs(V7, ["rev"], now=2.0)
    first = succeed(ledger, "v7/rev")
    with pytest.raises(LedgerError, match="ended already"):
        ledger.finish(ledger.outcome("v7/rev", status=second, reason="user", now=10.0))
    assert ledger.results() == [first]
    assert ledger.job("v7/rev").status is JobStatus.SUCCEEDED
    assert len(ledger.outbox()) == 1


def test_an_ended_job_cannot_be_started_requeued_or_protected(ledger: Ledger) -> None:
    ledger.create_jobs(V7, ["rev"], now=2.0)
    succeed(ledger, "v7/rev")
    for action in (
        lambda: ledger.start("v7/rev", now=10.0),
        lambda: ledger.requeue("v7/rev", now=10.0, reason="again"),
        lambda: ledger.protect("v7/rev"),
    ):
        with pytest.raises(LedgerError):
            action()
    ledger.progress("v7/rev", num_done=1, num_expected=99)
    assert ledger.job("v7/rev").num_done == 8


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE jobs SET status = 'succeeded', finished_at = 5.0",
        "UPDATE jobs SET dataset = 'other'",
        "DELETE FROM jobs",
        "DELETE FROM transitions",
        "UPDATE transitions SET reason = ''",
        "INSERT INTO jobs SELECT 'x', dataset, policy_version, incarnation, weight_version, checkpoint,"
        " checkpoint_number, rollout_id, train_step, attempt, 'succeeded', reason, protected, requested_at,"
        " started_at, 5.0, changed_at, num_done, num_expected FROM jobs",
    ],
)
def test_the_database_refuses_what_would_break_its_rules(ledger: Ledger, statement: str) -> None:
    ledger.create_jobs(V7, ["rev"], now=2.0)
    other = sqlite3.connect(ledger.path)
    with pytest.raises(sqlite3.IntegrityError):
        other.execute(statement)
    other.close()
    assert ledger.job("v7/rev").status is JobStatus.WAITING


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM results", "UPDATE results SET score = 1", "DELETE FROM outbox", "UPDATE outbox SET at = 0"],
)
def test_a_result_never_changes(ledger: Ledger, statement: str) -> None:
    ledger.create_jobs(V7, ["rev"], now=2.0)
    result = succeed(ledger, "v7/rev")
    other = sqlite3.connect(ledger.path)
    with pytest.raises(sqlite3.IntegrityError):
        other.execute(statement)
    other.close()
    assert ledger.results() == [result]


@pytest.mark.parametrize(
    "changes",
    [
        {"policy_version": 8},
        {"dataset": "add"},
        {"checkpoint": "/ckpt/x"},
        {"result_id": "run/other"},
        {"job_id": "v8/rev", "result_id": "run/v8/rev"},
        {"status": "running"},
        {"finished_at": None},
        {"score": math.nan},
        {"score": math.inf},
        {"metrics": {"mean": math.nan}},
        {"partial": {"mean": math.inf}},
        {"score": 0.5},
        {"metrics": {"mean": 0.5}},
    ],
)
def test_a_result_that_does_not_fit_its_job_is_refused(ledger: Ledger, changes: dict[str, object]) -> None:
    ledger.create_jobs(V7, ["rev"], now=2.0)
    ledger.start("v7/rev", now=3.0)
    good = ledger.outcome("v7/rev", status=JobStatus.FAILED, reason="no_data", now=4.0)
    with pytest.raises(LedgerError):
        ledger.finish(msgspec.structs.replace(good, **changes))
    assert ledger.results() == [] and ledger.outbox() == []
    assert ledger.job("v7/rev").status is JobStatus.RUNNING


def test_what_an_unfinished_job_measured_is_kept_apart_from_scores(ledger: Ledger) -> None:
    ledger.create_jobs(V7, ["rev"], now=2.0)
    ledger.start("v7/rev", now=3.0)
    result = msgspec.structs.replace(
        ledger.outcome("v7/rev", status="cancelled", reason="newer_version", now=4.0),
        partial={"score": 0.25},
        detail="a newer version is due",
        n_scored=3,
    )
    ledger.finish(result)
    assert ledger.result("v7/rev") == result
    assert (result.score, result.metrics) == (None, {})


def test_a_job_that_never_ran_cannot_succeed_but_can_end(ledger: Ledger) -> None:
    ledger.create_jobs(V7, ["rev"], now=2.0)
    with pytest.raises(LedgerError, match="only a running job"):
        ledger.finish(ledger.outcome("v7/rev", status="succeeded", reason="completed", now=3.0))
    ledger.finish(ledger.outcome("v7/rev", status="superseded", reason="newer_version", now=3.0))
    result = ledger.result("v7/rev")
    assert result is not None and result.started_at is None and result.score is None


def test_jobs_of_one_target_are_created_all_or_none(ledger: Ledger) -> None:
    ledger.create_jobs(V7, ["rev"], now=2.0)
    with pytest.raises(LedgerError):
        ledger.create_jobs(V7, ["add", "rev"], now=3.0)
    assert [row.job_id for row in ledger.jobs()] == ["v7/rev"]


def test_a_checkpoint_job_keeps_its_target(ledger: Ledger) -> None:
    target = CheckpointTarget(path="/ckpt/step_200", number=ledger.next_checkpoint_number(), train_step=200)
    (row,) = ledger.create_jobs(target, ["rev"], now=2.0, protected=True, num_expected={"rev": 64})
    assert (row.target, row.protected, row.num_expected) == (target, True, 64)
    result = ledger.outcome("c1/rev", status="cancelled", reason="user", now=3.0)
    ledger.finish(result)
    assert (result.policy_version, result.checkpoint, result.train_step) == (None, "/ckpt/step_200", 200)


def test_restart_finds_unfinished_jobs_and_never_repeats_a_number(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        run_id = ledger.run_id
        ledger.create_jobs(V7, ["rev", "add"], now=2.0)
        ledger.start("v7/add", now=3.0)
        ledger.finish(ledger.outcome("v7/rev", status="dropped", reason="store_full", now=4.0))
        assert ledger.next_checkpoint_number() == 1
        ledger.put("fingerprint/ab", [0.1, -2.5])
    with Ledger.open(path) as ledger:
        assert ledger.run_id == run_id
        assert [(row.job_id, row.status) for row in ledger.unfinished()] == [("v7/add", JobStatus.RUNNING)]
        assert ledger.next_checkpoint_number() == 2
        assert ledger.under("fingerprint/") == {"ab": [0.1, -2.5]}
        assert ledger.totals().of(JobStatus.DROPPED) == 1


def test_a_version_event_is_told_once_in_order_with_the_results(ledger: Ledger) -> None:
    event = VersionEvent(key="sync-a", state="discarded", reason="incomplete", weight_version=4, at=1.0)
    assert ledger.record_version(event)
    assert not ledger.record_version(event)
    ledger.create_jobs(V7, ["rev"], now=2.0)
    result = succeed(ledger, "v7/rev")
    rows = ledger.outbox()
    assert [row.event for row in rows] == [event, None]
    assert [row.result for row in rows] == [None, result]
    assert ledger.outbox(after=rows[0].seq) == rows[1:]


def test_a_cursor_never_moves_back(ledger: Ledger) -> None:
    assert ledger.cursor("wandb") == 0
    ledger.ack("wandb", 5, now=1.0)
    ledger.ack("wandb", 3, now=2.0)
    assert ledger.cursors() == {"wandb": 5}


def test_a_second_writer_is_refused_and_told_whom_to_stop(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match=r"written by process \d+"):
        Ledger.open(ledger.path)


def test_another_run_is_refused(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.sqlite", run_id="a").close()
    with pytest.raises(LedgerError, match="belongs to run 'a'"):
        Ledger.open(tmp_path / "ledger.sqlite", run_id="b")
    Ledger.open(tmp_path / "ledger.sqlite", run_id="a").close()


def test_a_reader_sees_what_a_live_writer_committed(ledger: Ledger) -> None:
    with LedgerReader.open_readonly(ledger.path) as reader:
        ledger.create_jobs(V7, ["rev"], now=2.0)
        assert [row.job_id for row in reader.unfinished()] == ["v7/rev"]
        result = succeed(ledger, "v7/rev")
        assert reader.results() == [result]


def test_a_reader_cannot_write(ledger: Ledger) -> None:
    reader = schema.connect_reader(ledger.path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("INSERT INTO kv VALUES ('a', '1')")
    reader.close()


@pytest.mark.parametrize("opener", [Ledger.open, LedgerReader.open_readonly])
def test_a_foreign_or_unknown_file_is_refused_untouched(tmp_path: Path, opener: object) -> None:
    assert callable(opener)
    text, foreign, future = (tmp_path / name for name in ("text", "foreign", "future"))
    text.write_bytes(b"not a database at all, only some text" * 100)
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    Ledger.open(future).close()
    with sqlite3.connect(future) as db:
        db.execute(f"PRAGMA user_version={schema.SCHEMA_VERSION + 1}")
    db.close()
    for path, words in (
        (text, "not a ledger"),
        (foreign, "another program"),
        (future, "knows 1 to 2"),
    ):
        before = path.read_bytes()
        with pytest.raises(LedgerError, match=words):
            opener(path)
        assert path.read_bytes() == before


def test_a_missing_or_empty_ledger_is_a_clear_answer_to_a_reader(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger at"):
        LedgerReader.open_readonly(tmp_path / "ledger.sqlite")
    (tmp_path / "ledger.sqlite").touch()
    with pytest.raises(LedgerError, match="is empty"):
        LedgerReader.open_readonly(tmp_path / "ledger.sqlite")


def test_a_value_that_is_not_json_is_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="JSON"):
        ledger.put("x", {"a": math.nan})
    assert ledger.get("x", "absent") == "absent"


def test_a_dataset_is_noted_once_and_again_when_it_is_another(ledger: Ledger) -> None:
    assert ledger.note_dataset("rev", {"file_sha256": "a", "stop": ("x",)}, now=1.0)
    assert not ledger.note_dataset("rev", {"file_sha256": "a", "stop": ("x",)}, now=2.0)
    assert ledger.note_dataset("rev", {"file_sha256": "b", "stop": ()}, now=3.0)
    assert ledger.note_dataset("add", {}, now=3.0)
    assert ledger.datasets() == {
        "add": [{"since": 3.0, "description": {}}],
        "rev": [
            {"since": 1.0, "description": {"file_sha256": "a", "stop": ["x"]}},
            {"since": 3.0, "description": {"file_sha256": "b", "stop": []}},
        ],
    }
