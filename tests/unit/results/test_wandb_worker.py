"""Rules of the process in which wandb lives that need no wandb."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from live_eval.results.wandb_worker import wait_for_new_second


def test_a_start_in_the_second_of_an_earlier_one_waits_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    taken = {time.strftime("%Y%m%d_%H%M%S", time.localtime(now + ahead)) for ahead in (0, 1)}
    for stamp in taken:
        (tmp_path / f"offline-run-{stamp}-ours").mkdir()
        (tmp_path / f"offline-run-{stamp}-other").mkdir()
    wait_for_new_second(tmp_path, "ours")
    assert time.strftime("%Y%m%d_%H%M%S") not in taken
    (tmp_path / f"offline-run-{time.strftime('%Y%m%d_%H%M%S')}-other").mkdir()
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits for nobody"))
    wait_for_new_second(tmp_path, "new")


def test_a_worker_whose_input_closes_while_another_one_writes_begins_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "wandb"
    folder.mkdir()
    with (folder / "live-eval-writer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        worker = subprocess.Popen(
            [sys.executable, "-m", "live_eval.results.wandb_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        start = {"op": "start", "run_id": "ours", "dir": str(tmp_path), "finish_timeout_s": 30.0}
        out, _ = worker.communicate(json.dumps(start).encode() + b"\n", timeout=60.0)
    assert (worker.returncode, out) == (0, b"")
    assert [path.name for path in folder.iterdir()] == ["live-eval-writer.lock"]
