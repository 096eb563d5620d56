"""`live-eval eval` around its service: nothing left to do, and Ctrl-C while it starts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
from fakes.checkpoints import Model
from fakes.ended_service import EndedService

from live_eval import cli
from live_eval.commands import offline, serving
from live_eval.reasons import EndReason, JobStatus
from live_eval.results.ledger import Ledger
from live_eval.targets import CheckpointTarget, job_id

if TYPE_CHECKING:
    from live_eval.service import Service


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A command line on one checkpoint and one dataset."""
    base = tmp_path / "step_5"
    Model().write(base)
    data = tmp_path / "rev.jsonl"
    data.write_text('{"input": "ab", "label": "ba"}\n')
    given = ["--eval-prompt-data", "rev", str(data), "--label-key", "label", "--eval-max-response-len", "4"]
    return ["eval", "--checkpoint", str(base), "--out", str(tmp_path / "run"), *given]


def no_log(*_: object) -> None:
    """In place of what sets up the process's logging."""


def test_what_is_done_is_shown_without_a_service(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = CheckpointTarget(path=str(tmp_path / "step_5"), number=1)
    name = job_id(target, "rev")
    (tmp_path / "run").mkdir()
    with Ledger.open(tmp_path / "run/ledger.sqlite", run_id="eval-1", now=1.0) as ledger:
        ledger.create_jobs(target, ["rev"], now=2.0)
        ledger.start(name, now=3.0)
        outcome = ledger.outcome(name, status=JobStatus.SUCCEEDED, reason=EndReason.COMPLETED, now=4.0)
        ledger.finish(msgspec.structs.replace(outcome, score=0.625))
    monkeypatch.delattr(offline, "Service")
    assert cli.main(words) == 0
    assert "0.625" in capsys.readouterr().out


def test_ctrl_c_while_it_starts_is_exit_status_130(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(offline, "Service", EndedService)
    monkeypatch.setattr(offline, "log_to", no_log)
    assert cli.main(words) == 130
    told = capsys.readouterr()
    assert "stopped while starting" in told.err and told.out == ""


def test_a_second_ctrl_c_leaves_the_view_before_it_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    @contextmanager
    def view() -> Iterator[None]:
        try:
            yield
        finally:
            happened.append("the cursor is back")

    service = EndedService()
    service.cut = True
    monkeypatch.setattr(os, "kill", lambda pid, number: happened.append(signal.Signals(number).name))
    before = signal.getsignal(signal.SIGINT)
    try:
        serving.run_service(cast("Service", service), view=view())
    finally:
        signal.signal(signal.SIGINT, before)
    assert happened == ["the cursor is back", "SIGINT"]
