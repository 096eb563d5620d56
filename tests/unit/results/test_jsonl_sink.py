"""Rules of results.jsonl."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from live_eval.reasons import JobStatus
from live_eval.results.jsonl_sink import JsonlSink
from live_eval.results.rows import VersionEvent
from protocol.messages import JobResult

if TYPE_CHECKING:
    from live_eval.results.ledger import Ledger

Finish = Callable[..., JobResult]


def feed(ledger: Ledger, sink: JsonlSink) -> None:
    position = sink.open(ledger)
    if rows := ledger.outbox(after=position):
        sink.write(rows)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_every_result_is_one_line_with_all_fields(ledger: Ledger, finish: Finish, tmp_path: Path) -> None:
    finish(5, metrics={"pass@1": 0.5})
    finish(6, status=JobStatus.SUPERSEDED, reason="newer_version")
    JsonlSink(tmp_path / "results.jsonl").open(ledger)
    done, superseded = lines(tmp_path / "results.jsonl")
    assert set(done) == set(superseded) >= set(JobResult.__struct_fields__) | {"attempt", "duration_s"}
    assert (done["score"], done["metrics"], done["duration_s"]) == (0.5, {"pass@1": 0.5}, 6.0)
    assert (superseded["score"], superseded["reason"], superseded["duration_s"]) == (
        None,
        "newer_version",
        None,
    )


def test_results_that_come_later_are_appended(ledger: Ledger, finish: Finish, tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "results.jsonl")
    finish(5)
    position = sink.open(ledger)
    ledger.record_version(VersionEvent(key="a", state="discarded"))
    finish(6)
    sink.write(ledger.outbox(after=position))
    assert [line["job_id"] for line in lines(tmp_path / "results.jsonl")] == ["v5/rev", "v6/rev"]


@pytest.mark.parametrize("damage", [b"", b'{"job_id": "v5/r', b'\xff\x00\n{"a": 1}\n{"a": 1}\n'])
def test_a_new_life_heals_a_lost_torn_or_foreign_file(
    ledger: Ledger, finish: Finish, tmp_path: Path, damage: bytes
) -> None:
    path = tmp_path / "results.jsonl"
    sink = JsonlSink(path)
    finish(5)
    feed(ledger, sink)
    whole = path.read_bytes()
    path.write_bytes(damage)
    feed(ledger, JsonlSink(path))
    assert path.read_bytes() == whole


def test_a_rewrite_that_fails_leaves_the_old_file_and_no_rubbish(
    ledger: Ledger, finish: Finish, tmp_path: Path
) -> None:
    finish(5)
    target = tmp_path / "taken"
    target.mkdir()
    with pytest.raises(OSError, match="taken"):
        JsonlSink(target).open(ledger)
    assert sorted(path.name for path in tmp_path.glob(".*")) == []
    assert target.is_dir()
