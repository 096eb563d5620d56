"""Rules of what the command line shows of a run."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from live_eval.errors import LedgerError, StoreError
from live_eval.reasons import DiscardReason, JobStatus
from live_eval.results.records import duration_s
from live_eval.results.tables import ALL, run_results, run_versions, show_versions
from live_eval.rundir import RunDir
from live_eval.store import Catalogue, DiscardRecord, VersionRecord, VersionState
from live_eval.targets import CheckpointTarget, PolicyTarget
from protocol.messages import JobResult

if TYPE_CHECKING:
    from live_eval.results.ledger import Ledger

Finish = Callable[..., JobResult]


def arguments(root: Path, *, as_json: bool = False, **changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"dir": root, "json": as_json, "export": None, "selection": ALL, **changes})


def printed(root: Path, width: int) -> list[str]:
    out = io.StringIO()
    assert run_results(arguments(root), Console(file=out, width=width, highlight=False)) == 0
    return out.getvalue().splitlines()


def fill(ledger: Ledger, finish: Finish) -> None:
    finish(10, score=0.75)
    finish(9, status=JobStatus.SUPERSEDED, reason="newer_version")
    finish(10, "add", status=JobStatus.FAILED, reason="mixed_version")
    finish(CheckpointTarget(path="/ckpt/step_200", number=1, train_step=200), score=0.25)
    ledger.create_jobs(PolicyTarget(policy_version=11), ["rev"], now=3.0)


def test_jobs_stand_by_version_then_checkpoints_with_a_line_of_totals(
    ledger: Ledger, finish: Finish, tmp_path: Path
) -> None:
    fill(ledger, finish)
    lines = printed(tmp_path, 160)
    words = [line.split() for line in lines]
    assert words[0][:5] == ["version", "dataset", "score", "status", "scored"]
    assert words[1][:4] == ["9", "rev", "superseded", "3/8"] and "newer_version" in words[1]
    assert words[2][:3] == ["10", "add", "failed"] and "mixed_version" in words[2]
    assert words[3][:4] == ["rev", "0.750", "succeeded", "8/8"] and "completed" not in words[3]
    assert words[4][:3] == ["11", "rev", "waiting"]
    assert words[5][:3] == ["c1", "step_200", "rev"]
    totals = "2 succeeded, 1 superseded, 0 cancelled, 1 failed, 0 timed_out, 0 dropped, 1 waiting"
    assert lines[6] == f"5 jobs: {totals}"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(
    ledger: Ledger, finish: Finish, tmp_path: Path, width: int
) -> None:
    fill(ledger, finish)
    lines = printed(tmp_path, width)
    assert max(map(len, lines)) <= width
    header = lines[0].split()
    assert {"version", "dataset", "score", "status"} <= set(header)
    assert ("rollout" in header) == (width >= 100)
    # Rows stay on one line each, below the header; the totals take what they need.
    assert [line.split()[0] for line in lines[6:7]] == ["5"]


def test_jobs_of_a_checkpoint_that_was_asked_for_twice_stay_together(
    ledger: Ledger, finish: Finish, tmp_path: Path
) -> None:
    for number in (9, 10):
        for dataset in ("rev", "sort"):
            target = CheckpointTarget(path="/ckpt/step_200", number=number, train_step=200)
            finish(target, dataset, status=JobStatus.CANCELLED, reason="user")
    rows = [line.split()[:3] for line in printed(tmp_path, 160)[1:5]]
    assert rows[0] == ["c9", "step_200", "rev"] and rows[1][0] == "sort"
    assert rows[2] == ["c10", "step_200", "rev"] and rows[3][0] == "sort"


def test_a_failed_job_says_what_went_wrong(ledger: Ledger, finish: Finish, tmp_path: Path) -> None:
    fault = "8 of 8 samples have no score; first error: row 3: mine.reward: ValueError: [boom]"
    for version in range(1, 8):
        finish(version, status=JobStatus.FAILED, reason="no_data", detail=fault)
    finish(8, status=JobStatus.CANCELLED, reason="user", detail="nobody needs to know")
    lines = printed(tmp_path, 160)
    assert lines[-6:-1] == [f"v{version}/rev failed: {fault}" for version in range(1, 6)]
    assert lines[-1] == "and 2 more, see --json"


def test_no_text_of_a_model_or_a_user_moves_the_terminal(
    ledger: Ledger, finish: Finish, tmp_path: Path
) -> None:
    title, turned = "\x1b]0;owned\x07", "\u202etxt"
    finish(5, title, status=JobStatus.FAILED, reason="no_data", detail=f"answer {title}\nline {turned}")
    shown = "\n".join(printed(tmp_path, 200))
    assert not any(each in shown for each in ("\x1b", "\x07", "\u202e"))
    assert "\\x1b]0;owned\\x07" in shown and "line \\u202etxt" in shown


def test_the_interval_is_explained_where_it_is_shown(ledger: Ledger, finish: Finish, tmp_path: Path) -> None:
    finish(10, score=0.75, metrics={"score/low": 0.7, "score/high": 0.8, "score/n_eff": 8.0})
    assert "Wilson" not in "\n".join(printed(tmp_path, 79))
    assert "95 %: Wilson" in "\n".join(printed(tmp_path, 80))


def test_json_has_every_field_and_every_transition(
    ledger: Ledger, finish: Finish, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(ledger, finish)
    ledger.ack("wandb", 2, now=1.0)
    ledger.note_dataset("rev", {"num_rows": 8}, now=1.0)
    run_results(arguments(tmp_path, as_json=True))
    report = json.loads(capsys.readouterr().out)
    assert report["run_id"] == "run"
    assert report["totals"]["succeeded"] == 2 and report["totals"]["waiting"] == 1
    assert report["datasets"] == {"rev": [{"since": 1.0, "description": {"num_rows": 8}}]}
    assert (report["sinks"], report["outbox_rows"]) == ({"wandb": 2}, 4)
    assert [job["job_id"] for job in report["jobs"]] == ["v10/rev", "v9/rev", "v10/add", "c1/rev", "v11/rev"]
    for job in report["jobs"]:
        assert set(JobResult.__struct_fields__) <= set(job)
        assert job["transitions"][-1]["to_status"] == job["status"]
        ran = [move for move in job["transitions"] if move["to_status"] == "running"]
        assert [each["attempt"] for each in job["attempts"]] == [move["attempt"] for move in ran]


def test_a_clock_that_is_set_back_makes_no_negative_duration() -> None:
    assert [duration_s(5.0, 3.0), duration_s(3.0, 5.0), duration_s(None, 5.0)] == [0.0, 2.0, None]


def test_a_sink_that_is_behind_is_named(ledger: Ledger, finish: Finish, tmp_path: Path) -> None:
    fill(ledger, finish)
    ledger.ack("jsonl", 4, now=1.0)
    ledger.ack("wandb", 2, now=1.0)
    assert printed(tmp_path, 160)[-1] == "Not yet told to every sink: wandb has 2 of 4 rows"


def test_an_export_writes_one_line_a_result(
    ledger: Ledger, finish: Finish, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(ledger, finish)
    run_results(arguments(tmp_path, export=tmp_path / "out.jsonl"))
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 4
    assert "4 results written" in capsys.readouterr().err


def test_a_run_without_evaluations_says_so(ledger: Ledger, tmp_path: Path) -> None:
    assert printed(tmp_path, 80) == ["Run run has no evaluations yet."]


def test_a_directory_without_a_run_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger at"):
        run_results(arguments(tmp_path))
    with pytest.raises(StoreError, match="no version store at"):
        run_versions(arguments(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_versions_are_read_from_the_store_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = RunDir(tmp_path).catalogue
    path.parent.mkdir()
    catalogue = Catalogue.open(path)
    assert run_versions(arguments(tmp_path)) == 0
    assert capsys.readouterr().out == "No weight sync has begun yet.\n"
    life = catalogue.register_incarnation("a", 1)
    catalogue.allocate(life, 1, train_step=10)
    catalogue.mark_discarded(1, DiscardReason.INCOMPLETE, "3 tensors missing")
    catalogue.sync_refused(
        incarnation_id="a", weight_version=1, reason=DiscardReason.BAD_WEIGHT_VERSION, detail="again"
    )
    catalogue.allocate(life, 2, train_step=20)
    run_versions(arguments(tmp_path))
    table = capsys.readouterr().out
    assert "incomplete" in table and "bad_weight_version" in table
    assert table.splitlines()[-1] == "3 syncs: 2 discarded, 1 receiving; 0 B kept"
    run_versions(arguments(tmp_path, as_json=True))
    report = json.loads(capsys.readouterr().out)
    assert [v["state"] for v in report["versions"]] == ["discarded", "receiving"]
    assert [d["detail"] for d in report["discarded"]] == ["3 tensors missing", "again"]
    assert report["versions"][1]["train_step"] == 20
    catalogue.close()


def version(number: int, state: VersionState, **fields: object) -> VersionRecord:
    values: dict[str, object] = {
        "policy_version": number,
        "incarnation": 1,
        "weight_version": number,
        "run_id": "run",
        "rollout_id": number - 1,
        "train_step": 10 * number,
        "state": state,
        "reason": "",
        "detail": "",
        "num_tensors": 26,
        "num_bytes": 3_500_000,
        "digest": "0123456789abcdef",
        "same_as": None,
        "began_at": 1.0,
        "sealed_at": 2.0,
        "ended_at": None,
    }
    return VersionRecord(**{**values, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [50, 80, 110, 130, 160])
def test_versions_show_state_reason_and_refused_syncs(width: int) -> None:
    empty: dict[str, object] = {"num_tensors": 0, "num_bytes": 0, "digest": "", "sealed_at": None}
    versions = [
        version(1, VersionState.COLLECTED, reason="retention"),
        version(2, VersionState.DISCARDED, reason="incomplete", **empty),
        version(3, VersionState.SEALED, same_as=1),
    ]
    refused = DiscardRecord(
        policy_version=None,
        incarnation_id="a",
        weight_version=0,
        rollout_id=None,
        train_step=None,
        reason="bad_weight_version",
        detail="",
        ended_at=3.0,
    )
    out = io.StringIO()
    show_versions(versions, [refused], Console(file=out, width=width, highlight=False))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    words = [line.split() for line in lines]
    assert [row[:2] for row in words[1:5]] == [
        ["1", "collected"],
        ["2", "discarded"],
        ["3", "sealed"],
        ["-", "discarded"],
    ]
    assert "0123456789ab" in words[3]
    totals = " ".join(word for line in words[5:] for word in line)
    assert totals == "4 syncs: 1 sealed, 1 collected, 2 discarded; 3.3 MiB kept"
    if width >= 80:
        assert "incomplete" in words[2] and "bad_weight_version" in words[4]
        assert lines[3].rstrip().endswith("same weights as 1") or width >= 150
