from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_eval.errors import DatasetError
from live_eval.evaluation.job import sample_file
from live_eval.evaluation.sample import Sample
from live_eval.evaluation.sample_log import SampleLog, encode_sample, read_samples


def sample(**changes: Any) -> Sample:
    values: dict[str, Any] = {
        "dataset": "set",
        "row_id": "1",
        "sample": 0,
        "attempt": 1,
        "prompt": "p",
        "label": 72,
        "response": "r",
        "reward": 1.0,
        "rewards": {"acc": 1.0},
        "status": "scored",
        "policy_version": 7,
    }
    return Sample(**{**values, **changes})


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    samples = [
        sample(prompt="a\nb\r\n\u2028\u2029\x85\x0b\x1c", response="\ud800 half"),
        sample(row_id="2", label=["a", None, True], response=None, reward=None, status="errored", error="x"),
        sample(row_id="3", prompt="\u4f60\u597d"),
    ]
    log = SampleLog(tmp_path / "v7" / "set.jsonl")
    for each in samples:
        log.append(each)
    log.close()
    assert read_samples(tmp_path / "v7" / "set.jsonl") == samples


@given(st.text(st.characters(codec=None), max_size=40))
def test_every_reader_sees_one_line_a_sample(text: str) -> None:
    line = encode_sample(sample(prompt=text, response=text, label=text))
    assert len(line.decode().splitlines()) == 1
    assert line.endswith(b"\n")
    assert json.loads(line)["prompt"] == text


def test_readable_text_stays_readable() -> None:
    assert "\u4f60\u597d".encode() in encode_sample(sample(prompt="\u4f60\u597d"))


def test_a_half_written_last_line_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(encode_sample(sample()) + encode_sample(sample(row_id="2"))[:-5])
    assert read_samples(path) == [sample()]
    assert "the last line was not written to its end" in caplog.text


def test_a_bad_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(encode_sample(sample()) + b"{}\n" + encode_sample(sample()))
    with pytest.raises(DatasetError, match=r"set\.jsonl:2: not a sample"):
        read_samples(path)


def test_fields_of_another_version_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(json.dumps({**json.loads(encode_sample(sample())), "later": 1}).encode() + b"\n")
    assert read_samples(path) == [sample()]


def test_an_interrupted_runs_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(b"old")
    SampleLog(path).close()
    assert path.read_bytes() == b""


def test_closing_puts_all_samples_and_the_files_name_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        info = os.fstat(descriptor)
        synced.append(-1 if stat.S_ISDIR(info.st_mode) else info.st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    log = SampleLog(tmp_path / "v7" / "set.jsonl")
    log.append(sample())
    log.close()
    assert synced == [len(encode_sample(sample())), -1, -1]


def test_sample_files_of_different_jobs_and_attempts_differ() -> None:
    names = [
        sample_file("v7/rev"),
        sample_file("v7/rev", attempt=2),
        sample_file("v7/" + "\N{GRINNING FACE}" * 80),
        sample_file("v7/" + "\N{GRINNING FACE}" * 79),
        sample_file("v7/" + "\N{GRINNING FACE}" * 80, attempt=2),
        sample_file("v7/rev@2"),
        sample_file("v7/a/b"),
        sample_file("v7/a_b"),
        sample_file("v7/.."),
        sample_file("v7/a b"),
        sample_file("c7/rev"),
    ]
    assert names[:2] == ["v7/rev.jsonl", "v7/rev@2.jsonl"]
    assert len(set(names)) == len(names)
    assert all(name.count("/") == 1 and "/../" not in name for name in names)
    assert all(len(name.partition("/")[2]) < 230 for name in names), "a file system takes 255"
