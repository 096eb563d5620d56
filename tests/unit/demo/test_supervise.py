"""Children of the driver: started again after an error, ended by group, gone with their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from live_eval.demo.supervise import Child, last_words


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `child_program` that the children run; tests write it."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    return tmp_path / "child_program.py"


def child(tmp_path: Path, **options: Any) -> Child:
    return Child("child", "child_program", [str(tmp_path)], log_path=tmp_path / "log", **options)


async def test_a_child_that_ends_well_is_not_started_again(module: Path, tmp_path: Path) -> None:
    module.write_text("print('hello')")
    one = child(tmp_path, max_restarts=3)
    await one.start()
    await one.wait(20)
    assert (one.ended, one.status, one.num_restarts) == (True, 0, 0)
    assert (tmp_path / "log").read_text() == "hello\n"


async def test_a_child_that_fails_is_started_again_until_it_ends_well(module: Path, tmp_path: Path) -> None:
    module.write_text(
        "import pathlib, sys\n"
        "lives = pathlib.Path(sys.argv[1]) / 'lives'\n"
        "lives.write_text(lives.read_text() + 'x' if lives.exists() else 'x')\n"
        "sys.exit(0 if len(lives.read_text()) == 3 else 7)"
    )
    one = child(tmp_path, max_restarts=5)
    await one.start()
    await one.wait(30)
    assert (one.status, one.num_restarts) == (0, 2)


async def test_restarts_end_when_they_are_spent(module: Path, tmp_path: Path) -> None:
    module.write_text("import sys; sys.exit(7)")
    one = child(tmp_path, max_restarts=1)
    await one.start()
    await one.wait(30)
    assert (one.status, one.num_restarts) == (7, 1)


async def test_a_child_that_would_end_as_before_is_not_started_again(module: Path, tmp_path: Path) -> None:
    module.write_text("import sys; sys.exit(2)")
    one = child(tmp_path, max_restarts=5, is_final=lambda status: status == 2)
    await one.start()
    await one.wait(20)
    assert (one.status, one.num_restarts) == (2, 0)


def test_the_last_words_of_a_log_are_its_last_line_without_the_time(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    assert last_words(log) == ""
    log.write_text("\n")
    assert last_words(log) == ""
    log.write_text("x" * 20_000 + "\n2026-01-02 03:04:05,678 __main__ cannot serve: Address taken\n\n")
    assert last_words(log) == "cannot serve: Address taken"
    log.write_text("Traceback (most recent call last):\nValueError: no")
    assert last_words(log) == "ValueError: no"


async def test_stop_ends_a_child_that_ignores_sigterm_and_what_it_started(
    module: Path, tmp_path: Path
) -> None:
    module.write_text(
        "import pathlib, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "grandchild = subprocess.Popen(['sleep', '100'])\n"
        "pathlib.Path(sys.argv[1], 'pid').write_text(str(grandchild.pid))\n"
        "time.sleep(100)"
    )
    one = child(tmp_path, max_restarts=3)
    await one.start()
    pid_file = tmp_path / "pid"
    async with asyncio.timeout(20):
        while not (pid_file.exists() and pid_file.read_text()):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.05)
    grandchild = psutil.Process(int(pid_file.read_text()))
    await one.stop(grace_s=0.5)
    assert one.num_restarts == 0
    assert _gone(grandchild)


def test_a_child_whose_parent_is_killed_ends_itself(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys, time\n"
        "code = 'import time; from live_eval.processes import end_with_parent; end_with_parent(1.0); '\n"
        "code += \"print('up', flush=True); time.sleep(100)\"\n"
        "kid = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)\n"
        "kid.stdout.readline()\n"
        "print(kid.pid, flush=True)\n"
        "time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        kid = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
    assert _gone(kid)


def _gone(process: psutil.Process) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False
