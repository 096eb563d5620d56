"""How long syncs held the trainer, from a file that the trainer is writing."""

from __future__ import annotations

from pathlib import Path

from live_eval.results.held_times import HeldTimes


def test_each_question_reads_on_from_where_the_last_one_stopped(tmp_path: Path) -> None:
    path = tmp_path / "trainer.jsonl"
    held = HeldTimes(path)
    assert (held.of(1), held.total()) == (None, None)
    path.write_text('{"weight_version": 1, "held_s": 0.25}\nnot json\n{"weight_version": 2}\n{"weight_ver')
    assert (held.of(1), held.of(2)) == (0.25, None)
    with path.open("a") as file:
        file.write('sion": 3, "held_s": 0.5}\n{"weight_version": 1, "held_s": 0.75}\n')
    assert (held.of(3), held.of(1)) == (0.5, 0.75)
    assert held.total() == 0.25 + 0.5 + 0.75
