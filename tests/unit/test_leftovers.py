"""The guard of the test suite itself: processes that a test leaves behind are found."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import leftovers


def start_sleeper(mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env={**os.environ, leftovers.MARK_NAME: mark},
        start_new_session=True,
    )


def test_a_process_in_a_session_of_its_own_is_found_and_ended() -> None:
    mark = uuid.uuid4().hex
    with start_sleeper(mark) as sleeper:
        found = leftovers.wait_until_gone(mark, patience_s=0.3)
        assert [leftover.pid for leftover in found] == [sleeper.pid]
        leftovers.end(found)
        sleeper.wait()
    assert leftovers.marked(mark) == []


def test_processes_of_other_runs_are_left_alone() -> None:
    with start_sleeper(uuid.uuid4().hex) as sleeper:
        assert leftovers.marked(uuid.uuid4().hex) == []
        sleeper.kill()


def test_one_that_is_dead_but_not_reaped_counts_as_gone() -> None:
    mark = uuid.uuid4().hex
    with start_sleeper(mark) as sleeper:
        sleeper.kill()
        assert leftovers.wait_until_gone(mark, patience_s=5.0) == []
