"""Rules of reading wandb's files, on bytes laid out here as its format says."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live_eval.results.wandb_readback import DefinedMetric, ReadRun, records, result_ids, run_directories

HEADER = b":W&B\xe1\xbe\x00"
BLOCK = 32768


def write_log(payloads: list[bytes]) -> bytes:
    """A file with these records, split over blocks as LevelDB's log does."""
    out = bytearray(HEADER)
    for payload in payloads:
        rest, first = payload, True
        while True:
            left = BLOCK - len(out) % BLOCK
            if left < 7:
                out += bytes(left)
                left = BLOCK
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if not rest else 2) if first else (4 if not rest else 3)
            out += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            first = False
            if not rest:
                break
    return bytes(out)


SIZES = st.lists(st.integers(0, 200) | st.integers(32_700, 32_800) | st.integers(70_000, 90_000), max_size=6)


@settings(deadline=None)
@given(SIZES)
def test_records_of_any_size_read_back(sizes: list[int]) -> None:
    payloads = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
    assert list(records(write_log(payloads))) == payloads


@settings(deadline=None)
@given(SIZES, st.floats(0, 1))
def test_a_file_cut_anywhere_gives_the_records_before_the_cut(sizes: list[int], where: float) -> None:
    payloads = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
    data = write_log(payloads)
    read = list(records(data[: int(len(data) * where)]))
    assert read == payloads[: len(read)]


@pytest.mark.parametrize("tail", [b"", bytes(100), bytes(BLOCK)])
def test_a_tail_of_zeros_is_the_end(tail: bytes) -> None:
    assert list(records(write_log([b"one", b"two"]) + tail)) == [b"one", b"two"]


def test_a_damaged_record_ends_the_reading(caplog: pytest.LogCaptureFixture) -> None:
    data = bytearray(write_log([b"one", b"two", b"three"]))
    data[data.index(b"two")] ^= 1
    assert list(records(bytes(data))) == [b"one"]
    assert "damaged" in caplog.text


def test_another_file_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    assert list(records(b"SQLite format 3")) == []
    assert list(records(b"")) == []
    assert "not a wandb file" in caplog.text


def test_an_exact_definition_goes_before_a_glob() -> None:
    run = ReadRun(run_id="x")
    run.metrics = [
        DefinedMetric(glob="live_eval/*", step_metric="live_eval/policy_version"),
        DefinedMetric(name="live_eval/policy_version"),
    ]
    assert run.step_metric("live_eval/rev/score") == "live_eval/policy_version"
    assert run.step_metric("live_eval/policy_version") == ""
    assert run.step_metric("other") == ""


def test_a_row_is_named_by_the_result_in_whichever_family() -> None:
    rows = [{"live_eval/result_id": "a"}, {"checkpoint_eval/result_id": "b"}, {"_step": 3}]
    assert result_ids(rows) == ["a", "b"]


def test_a_runs_directories_are_found_in_the_order_of_their_start(tmp_path: Path) -> None:
    ours = [
        "offline-run-20260101_000001-ours",
        "offline-run-20260101_000001-ours-1",
        "offline-run-20260101_000001-ours-2",
        "run-20260101_000001-ours-10",
        "offline-run-20260102_000000-ours",
    ]
    for name in [
        *ours,
        "offline-run-20260101_000001-ours2",
        "offline-run-20260101_000001-yours",
        "latest-run",
    ]:
        (tmp_path / name).mkdir()
    (tmp_path / "offline-run-20260103_000000-ours").touch()
    assert [path.name for path in run_directories(tmp_path, "ours")] == ours
