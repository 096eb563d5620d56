"""Results as files for other programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from live_eval.errors import ConfigError
from live_eval.reasons import JobStatus
from live_eval.results.exports import export
from live_eval.results.tables import job_records
from live_eval.targets import CheckpointTarget
from protocol.messages import JobResult

if TYPE_CHECKING:
    from live_eval.results.ledger import Ledger

Finish = Callable[..., JobResult]


@pytest.fixture
def records(ledger: Ledger, finish: Finish) -> list[dict[str, Any]]:
    finish(5, 'a, "b"\n', metrics={"score/low": 0.4, "score/high": 0.6, "score/n_eff": 8.0})
    finish(6, status=JobStatus.SUPERSEDED, reason="newer_version")
    finish(CheckpointTarget(path="/ckpt/ü", number=1))
    return job_records(ledger)


def read(path: Path) -> list[dict[str, Any]]:
    match path.suffix:
        case ".jsonl":
            return [json.loads(line) for line in path.read_text().splitlines()]
        case ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                return list(csv.DictReader(file))
        case _:
            return pyarrow.parquet.read_table(path).to_pylist()


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet", ".CSV"])
def test_every_kind_has_every_result(records: list[dict[str, Any]], tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    export(records, path)
    rows = read(path.rename(tmp_path / f"read{suffix.lower()}"))
    assert [row["job_id"] for row in rows] == ['v5/a, "b"\n', "v6/rev", "c1/rev"]
    assert [row["checkpoint"] for row in rows] == ["", "", "/ckpt/ü"]
    assert set(JobResult.__struct_fields__) - {"metrics", "partial"} <= set(rows[0])


def test_numbers_stay_numbers_and_what_is_missing_stays_missing(
    records: list[dict[str, Any]], tmp_path: Path
) -> None:
    export(records, tmp_path / "out.parquet")
    first, superseded, checkpoint = read(tmp_path / "out.parquet")
    assert (first["score"], first["score_low"], first["metrics.score/low"]) == (0.5, 0.4, 0.4)
    assert (first["policy_version"], first["interval_method"]) == (5, "wilson")
    assert (superseded["score"], superseded["metrics.score/low"], superseded["status"]) == (
        None, None, "superseded",
    )  # fmt: skip
    assert checkpoint["policy_version"] is None
    export(records, tmp_path / "out.csv")
    assert read(tmp_path / "out.csv")[1]["score"] == ""


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_text_is_a_formula_in_a_spreadsheet_and_other_files_have_it_as_it_is(
    ledger: Ledger, finish: Finish, tmp_path: Path, name: str
) -> None:
    finish(5, name, score=-0.5)
    for suffix, expected in (("csv", f"'{name}"), ("jsonl", name), ("parquet", name)):
        path = tmp_path / f"out.{suffix}"
        export(job_records(ledger), path)
        (row,) = read(path)
        assert (row["dataset"], float(row["score"])) == (expected, -0.5)


def test_no_results_are_an_empty_file(tmp_path: Path) -> None:
    for suffix in ("jsonl", "csv", "parquet"):
        export([], tmp_path / f"out.{suffix}")
        assert read(tmp_path / f"out.{suffix}") == []


def test_another_kind_is_refused_and_a_failed_write_leaves_nothing(
    records: list[dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"out\.xlsx: give a name that ends in \.jsonl, \.csv, \.parquet"):
        export(records, tmp_path / "out.xlsx")
    (tmp_path / "taken.csv").mkdir()
    (tmp_path / "file").touch()
    for place in ("taken.csv", "nowhere/out.csv", "nowhere/out.parquet", "file/out.jsonl"):
        with pytest.raises(ConfigError, match=rf"cannot write .*{place}: .*; give another file"):
            export(records, tmp_path / place)
    assert sorted(path.name for path in tmp_path.glob(".*")) == []
