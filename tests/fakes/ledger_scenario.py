"""A service's life with its ledger, killed by SIGKILL at one SQL statement after the other.

    python -m fakes.ledger_scenario DIR    -> prints the number of kill points

For point n the scenario runs in a fork of its own with DIR/n/ledger.sqlite and dies at the n-th
statement that SQLite begins (statements inside triggers count). What it announces, and only after
`finish` has returned, is in DIR/n/announced. The last directory holds a life that was not killed.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from live_eval.results.ledger import Ledger
from live_eval.results.rows import VersionEvent
from live_eval.targets import PolicyTarget


def play(directory: Path) -> None:
    """Three versions on two datasets: succeeded, failed after a retry, superseded; one discarded sync."""
    announce = os.open(directory / "announced", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ledger = Ledger.open(directory / "ledger.sqlite", run_id="run", now=1.0)

    def end(job: str, status: str, score: float | None = None) -> None:
        result = ledger.outcome(job, status=status, reason="completed", now=9.0)
        measured = "partial" if score is None else "metrics"
        result = msgspec.structs.replace(result, score=score, **{measured: {"pass@1": 0.5}}, n_expected=4)
        ledger.finish(result)
        os.write(announce, f"{result.result_id}\n".encode())

    for version in (1, 2, 3):
        ledger.create_jobs(PolicyTarget(policy_version=version), ["add", "rev"], now=2.0)
    ledger.record_version(VersionEvent(key="sync-4", state="discarded", reason="incomplete"))
    ledger.start("v1/add", now=3.0)
    ledger.progress("v1/add", num_done=2, num_expected=4)
    end("v1/add", "succeeded", 0.5)
    ledger.start("v1/rev", now=3.0)
    ledger.requeue("v1/rev", now=4.0, reason="engine_failed")
    ledger.start("v1/rev", now=5.0, attempt=2)
    end("v1/rev", "failed")
    ledger.put("fingerprint/ab", [0.5])
    ledger.ack("jsonl", 2, now=6.0)
    ledger.next_checkpoint_number()
    end("v2/add", "superseded")
    end("v2/rev", "superseded")
    ledger.protect("v3/add")
    ledger.start("v3/add", now=7.0)
    end("v3/add", "succeeded", 1.0)
    ledger.close()


def main(root: Path) -> int:
    """Play with a kill at every statement, until a life comes to its end."""
    connect = sqlite3.connect
    point = 0
    while True:
        directory = root / str(point)
        directory.mkdir()
        child = os.fork()
        if child == 0:
            sqlite3.connect = _killing(connect, at=point)  # type: ignore[assignment]
            play(directory)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            print(point)
            return os.WEXITSTATUS(status)
        assert os.WTERMSIG(status) == signal.SIGKILL
        point += 1


def _killing(connect: Callable[..., sqlite3.Connection], *, at: int) -> Callable[..., sqlite3.Connection]:
    seen = 0

    def on_statement(statement: str) -> None:
        nonlocal seen
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1

    def traced(*args: object, **options: object) -> sqlite3.Connection:
        db = connect(*args, **options)
        db.set_trace_callback(on_statement)
        return db

    return traced


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
