"""Files of rows in every form that slime takes, and gzip."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from live_eval.errors import DatasetError
from live_eval.evaluation.datasets import EvalSet, EvalSetConfig
from live_eval.evaluation.row_files import read_rows, split_path

ROWS = [{"prompt": f"p{i}", "label": str(i)} for i in range(5)]
LINES = b"\n".join(json.dumps(row).encode() for row in ROWS) + b"\n"


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def prompts(path: Path) -> list[str]:
    return [row["prompt"] for _, row in read_rows(path).rows]


@pytest.fixture(params=["jsonl", "jsonl.gz", "parquet", "parquet.gz"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"rows.{request.param}"
    plain = LINES
    if "parquet" in request.param:
        plain = parquet(tmp_path / "plain", ROWS).read_bytes()
    path.write_bytes(gzip.compress(plain) if request.param.endswith(".gz") else plain)
    return path


def test_every_form_has_the_same_rows_with_their_numbers(file: Path) -> None:
    found = EvalSet.load(EvalSetConfig(name="set", path=file))
    assert [(row.line, row.row_id, row.prompt, row.label) for row in found.rows] == [
        (i + 1, str(i + 1), f"p{i}", str(i)) for i in range(5)
    ]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("[0:2]", "p0 p1"),
        ("[3:]", "p3 p4"),
        ("[:1]", "p0"),
        ("[:]", "p0 p1 p2 p3 p4"),
        ("[-2:]", "p3 p4"),
        ("[1:-2]", "p1 p2"),
        ("[9:12]", ""),
    ],
)
def test_a_slice_takes_rows_and_keeps_their_numbers(file: Path, part: str, expected: str) -> None:
    rows = list(read_rows(Path(f"{file}@{part}")).rows)
    assert " ".join(row["prompt"] for _, row in rows) == expected
    assert all(row["prompt"] == f"p{line - 1}" for line, row in rows)


def test_only_what_looks_like_a_slice_is_one() -> None:
    assert split_path(Path("a@[1:2]")) == (Path("a"), slice(1, 2))
    for name in ("a@[1]", "a@[x:2]", "a[1:2]", "a@[1:2:3]"):
        assert split_path(Path(name)) == (Path(name), slice(None))


def test_a_slice_of_nothing_is_no_dataset(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(LINES)
    with pytest.raises(DatasetError, match=r"rows\.jsonl@\[9:\] has no rows"):
        EvalSet.load(EvalSetConfig(name="set", path=Path(f"{path}@[9:]")))


def test_values_of_parquet_become_json_values_or_are_refused(tmp_path: Path) -> None:
    row = {
        "chat": [{"role": "user", "content": "hi"}],
        "when": datetime.datetime(2026, 1, 2, 3, 4, 5),
        "price": decimal.Decimal("2.50"),
        "whole": decimal.Decimal("3"),
        "missing": float("nan"),
    }
    ((_, found),) = read_rows(parquet(tmp_path / "a.parquet", [row])).rows
    assert found == {
        "chat": [{"role": "user", "content": "hi"}], "when": "2026-01-02T03:04:05", "price": 2.5, "whole": 3,
        "missing": None,
    }  # fmt: skip
    kind = pyarrow.map_(pyarrow.string(), pyarrow.list_(pyarrow.int8()))
    table = pyarrow.table({"m": pyarrow.array([[("a", [1])]], type=kind)})
    pyarrow.parquet.write_table(table, tmp_path / "map.parquet")
    assert list(read_rows(tmp_path / "map.parquet").rows) == [(1, {"m": {"a": [1]}})]
    picture = parquet(tmp_path / "b.parquet", [{"image": b"\x89PNG"}])
    with pytest.raises(DatasetError, match=r"b\.parquet:1: holds a bytes.*only text"):
        list(read_rows(picture).rows)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl.gz", gzip.compress(LINES)[:-9], "no whole gzip file"),
        ("a.jsonl.gz", LINES, "no whole gzip file"),
        ("a.parquet", b"PAR1 and rubbish", "no whole Parquet file"),
        ("a.parquet", b"", "no whole Parquet file"),
    ],
)
def test_files_that_are_cut_or_of_another_kind_are_refused(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DatasetError, match=message):
        list(read_rows(tmp_path / name).rows)


@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array([2**30], type=pyarrow.date32()),
        pyarrow.array([b"\xff\xfe"]).view(pyarrow.string()),
    ],
    ids=["a date beyond the calendar", "a text that is no UTF-8"],
)
def test_a_value_of_parquet_that_cannot_be_read_is_refused(tmp_path: Path, column: pyarrow.Array) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"x": column}), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match=r"a\.parquet: holds a value that cannot be read"):
        list(read_rows(tmp_path / "a.parquet").rows)


def test_a_rows_metadata_is_under_the_datasets_overrides(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"prompt": "p", "label": "l", "m": {"a": 1, "b": 2}}\n{"prompt": "p", "label": "l", "m": 3}\n'
    )
    config = EvalSetConfig(name="set", path=path, metadata_key="m", metadata_overrides={"b": 9})
    assert [row.metadata for row in EvalSet.load(config).rows] == [{"a": 1, "b": 9}, {"b": 9}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"metadata": {"rm_type": "nope"}, "label": "l"}, "rm_type is 'nope', which is no rule"),
        ({"metadata": {"rm_type": "dapo"}, "label": "3"}, "rule dapo needs reward_key"),
        ({"metadata": {"rm_type": "remote_rm"}, "label": "l"}, "rule remote_rm needs reward_url"),
        ({"metadata": {"rm_type": "math"}}, "rule math needs a label"),
        ({}, "rule exact_match needs a label"),
        ({"metadata": {"rm_type": "dapo"}, "label": "34.5"}, "rule dapo .*'34.5' is no whole number"),
        ({"metadata": {"rm_type": "boxed_dapo"}, "label": "east"}, "'east' is no whole number"),
        ({"metadata": {"rm_type": "gpqa", "choices": ["x", "y"]}, "label": 2}, "the label 2 names no choice"),
        ({"metadata": {"rm_type": "gpqa"}, "label": 0.5}, "the label 0.5 names no choice"),
        ({"metadata": {"rm_type": "gpqa"}}, "the label None names no choice"),
    ],
)
def test_a_row_whose_rule_cannot_work_is_refused_when_the_file_is_read(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": "p", **row}))
    config = EvalSetConfig(
        name="set", path=path, reward_by_row=True, label_key="label" if "label" in row else None
    )
    with pytest.raises(DatasetError, match=f":1: .*{message}"):
        EvalSet.load(config)
