"""What the demo checks before it starts, and what it tells at its end."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from live_eval.demo.main import check_writable, is_there, results_command
from live_eval.errors import ConfigError


def test_the_line_that_shows_the_results_can_be_pasted_into_a_shell() -> None:
    root = Path("/runs/my run's [best]")
    line = results_command(root, program=".venv/bin/live-eval")
    assert shlex.split(line) == [".venv/bin/live-eval", "results", str(root)]


def test_a_program_of_another_name_is_told_by_its_own() -> None:
    assert results_command(Path("/runs/a"), program="/x/cli.py") == "live-eval results /runs/a"


def test_a_report_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write --json"):
        check_writable(tmp_path)
    check_writable(tmp_path / "new" / "report.json")
    assert (tmp_path / "new").is_dir()


def test_only_what_a_run_left_is_listed(tmp_path: Path) -> None:
    assert not is_there(tmp_path / "results.jsonl")
    assert not is_there(tmp_path)
    (tmp_path / "results.jsonl").touch()
    assert is_there(tmp_path / "results.jsonl")
    assert is_there(tmp_path)
