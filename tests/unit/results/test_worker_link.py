"""Rules of talking to a helper process: every wait is bounded, nothing is left behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from live_eval.results.sinks import SinkError
from live_eval.results.worker_link import WorkerLink

ECHO = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    print(json.dumps({"error": "no"} if message["op"] == "fail" else {"size": len(line)}), flush=True)
"""


def start(code: str, tmp_path: Path) -> WorkerLink:
    return WorkerLink([sys.executable, "-c", code], env=os.environ, log=tmp_path / "log" / "worker.log")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_messages_larger_than_a_pipe_are_answered(tmp_path: Path) -> None:
    link = start(ECHO, tmp_path)
    assert link.ask({"op": "a", "text": "x" * 300_000}, timeout_s=10.0)["size"] > 300_000
    assert link.ask({"op": "b"}, timeout_s=10.0)["size"] < 100
    assert link.end(timeout_s=10.0)
    assert is_gone(link.pid)


@pytest.mark.parametrize("message", [{"op": "a"}, {"op": "a", "text": "x" * 300_000}])
def test_a_process_that_hangs_is_killed_at_the_deadline(tmp_path: Path, message: dict[str, str]) -> None:
    link = start("import time; time.sleep(1000)", tmp_path)
    began = time.monotonic()
    with pytest.raises(SinkError, match=r"no answer to 'a' within 0\.2 s"):
        link.ask(message, timeout_s=0.2)
    assert time.monotonic() - began < 30.0
    assert is_gone(link.pid)


def test_a_process_that_dies_is_an_error_that_names_its_log(tmp_path: Path) -> None:
    link = start("import sys; sys.stderr.write('reason'); sys.exit(3)", tmp_path)
    with pytest.raises(SinkError, match=r"worker\.log"):
        link.ask({"op": "a"}, timeout_s=10.0)
    assert (tmp_path / "log" / "worker.log").read_text() == "reason"


def test_an_error_as_answer_ends_the_process(tmp_path: Path) -> None:
    link = start(ECHO, tmp_path)
    with pytest.raises(SinkError, match=r"^no$"):
        link.ask({"op": "fail"}, timeout_s=10.0)
    assert is_gone(link.pid)


def test_a_process_that_does_not_end_is_killed(tmp_path: Path) -> None:
    link = start("import time; time.sleep(1000)", tmp_path)
    assert not link.end(timeout_s=0.1)
    assert is_gone(link.pid)


def test_a_command_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="cannot start"):
        WorkerLink([str(tmp_path / "missing")], env={}, log=tmp_path / "worker.log")
