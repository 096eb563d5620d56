"""The process in which wandb lives: `python -m live_eval.results.wandb_worker`, fed by WandbSink.

Reads one JSON message a line (start, log), answers each with one line. When its input closes, also
because the service was killed, it lets wandb write out what it has and ends, within the finish
deadline. Knows nothing of the ledger.

Invariant: at most one of these, and one wandb-core, writes a run: a lock that the kernel holds lets
one in at a time; the next one waits for the one before, and kills it if it does not end. One whose
input closes while it waits begins nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

from live_eval.results.wandb_extras import RESULT_COLUMNS, RESULTS_KEY, SAMPLE_COLUMNS, sample_cells
from live_eval.results.wandb_readback import FAMILIES, read_run, result_ids, run_directories

_log = logging.getLogger(__name__)

_WRITER = "live-eval-writer.json"
"""Names the processes that write the run, in wandb's folder."""

_LOCK = "live-eval-writer.lock"
"""Held by the one of these processes that may write, for as long as it lives."""

_GONE_S = 15.0
"""How long a writer of an earlier life may take to end before it is killed."""


class _Worker:
    """The run, from start to finish."""

    def __init__(self) -> None:
        self._run: Any = None
        self._finish_timeout_s = 30.0
        self._begins = threading.Lock()
        self._begun = False

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["op"] == "start":
            return self._start(message)
        samples = {each["result_id"]: each for each in message.get("samples", ())}
        for row in message["rows"]:
            (name,) = result_ids([row])
            # Never with step=: W&B drops a row whose step is behind the last one.
            self._run.log(row | _sample_table(row, samples.get(name)))
        self._run.summary.update(message["summary"])
        try:
            self._tell_extras(message)
        except _trouble() as error:  # the rows are what counts; the next table has everything
            _log.warning("a table or an alert is not told: %s: %s", type(error).__name__, error)
        return {"ok": True}

    def _tell_extras(self, message: dict[str, Any]) -> None:
        if table := message.get("table"):
            self._run.summary[RESULTS_KEY] = _table(RESULT_COLUMNS, table)
        for alert in message.get("alerts", ()):
            self._run.alert(alert["title"], alert["text"], level=alert["level"], wait_duration=1)

    def finish(self) -> None:
        """Let wandb write everything out."""
        if self._run is not None:
            self._run.finish()

    def end_soon(self) -> None:
        """The process ends at the finish deadline, whatever wandb does and wherever it hangs.

        At once if it has not begun: what it would write is fed to the next one.
        """
        with self._begins:
            if not self._begun:
                os._exit(0)
        timer = threading.Timer(self._finish_timeout_s, os._exit, args=(1,))
        timer.daemon = True
        timer.start()

    def _start(self, message: dict[str, Any]) -> dict[str, Any]:
        folder = Path(message["dir"]) / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        self._finish_timeout_s = message["finish_timeout_s"]
        _be_the_only_one(folder)
        _wait_for_earlier_writer(folder / _WRITER)
        _write_writer(folder / _WRITER, [psutil.Process()])
        with self._begins:
            self._begun = True
        present = result_ids(read_run(folder, message["run_id"]).rows)
        wait_for_new_second(folder, message["run_id"])
        self._run = _begin_run(message)
        _write_writer(folder / _WRITER, [psutil.Process(), *psutil.Process().children(recursive=True)])
        for definition in message["definitions"]:
            self._run.define_metric(
                definition["name"],
                step_metric=definition["step_metric"] or None,
                hidden=definition["hidden"] or None,
                # wandb's own summary keeps what came last, which need not be the newest version.
                summary="none",
            )
        return {"ok": True, "present": sorted(present), "run_dir": str(Path(self._run.dir).parent)}


def _trouble() -> tuple[type[Exception], ...]:
    """What a table or an alert may fail with; whatever a row fails with is the sink's answer."""
    import wandb

    return (wandb.Error, OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)


def _sample_table(row: dict[str, Any], wanted: dict[str, Any] | None) -> dict[str, Any]:
    """The table of a result's samples under its dataset's key; {} if none is wanted, or to be had."""
    if wanted is None:
        return {}
    family = next(name for name in FAMILIES if f"{name}/result_id" in row)
    try:
        table = _table(SAMPLE_COLUMNS, sample_cells(Path(wanted["path"]), limit=wanted["limit"]))
    except _trouble() as error:
        _log.warning("no table of samples for %s: %s", wanted["result_id"], error)
        return {}
    return {f"{family}/{wanted['key']}/samples": table}


def _table(columns: Sequence[str], cells: list[list[Any]]) -> Any:
    import wandb

    rows: Any = cells
    return wandb.Table(columns=list(columns), data=rows, allow_mixed_types=True)


def _begin_run(message: dict[str, Any]) -> Any:
    # Tables are staged in these before they are the run's; by default below the user's home.
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_ARTIFACT_DIR"):
        os.environ.setdefault(name, str(Path(message["dir"]) / "wandb" / "staging"))
    import wandb

    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        save_code=False,
        x_disable_stats=True,
        x_disable_machine_info=True,
        init_timeout=message["init_timeout_s"],
    )
    return wandb.init(
        dir=message["dir"],
        id=message["run_id"],
        mode=message["mode"],
        resume="allow",
        project=message["project"],
        group=message["group"],
        entity=message["entity"],
        name=message["name"],
        job_type="live-eval",
        config=message["config"],
        settings=settings,
    )


def _be_the_only_one(folder: Path) -> None:
    """Take the lock; who holds it for too long is killed."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _GONE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.05)
        if time.monotonic() > deadline:
            deadline += _GONE_S
            _wait_for_earlier_writer(folder / _WRITER, patience_s=0.0)


def _wait_for_earlier_writer(record: Path, *, patience_s: float = _GONE_S) -> None:
    """Until the processes of an earlier life are gone: one that still writes would be read too early."""
    try:
        known = json.loads(record.read_text())
    except (FileNotFoundError, ValueError):
        return
    earlier = [process for entry in known if (process := _same_process(entry)) is not None]
    _, alive = psutil.wait_procs(earlier, timeout=patience_s)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=_GONE_S)


def _same_process(entry: dict[str, Any]) -> psutil.Process | None:
    """The process that was recorded, not a later one with its number."""
    try:
        process = psutil.Process(entry["pid"])
        return process if process.create_time() == entry["created"] else None
    except psutil.NoSuchProcess:
        return None


def _write_writer(record: Path, processes: Iterable[psutil.Process]) -> None:
    entries = [{"pid": process.pid, "created": process.create_time()} for process in processes]
    partial = record.with_suffix(".partial")
    partial.write_text(json.dumps(entries))
    partial.replace(record)


def wait_for_new_second(folder: Path, run_id: str) -> None:
    """wandb names a directory by the second: a start in the same one would write over the files."""
    while any(
        time.strftime("%Y%m%d_%H%M%S") in directory.name for directory in run_directories(folder, run_id)
    ):
        time.sleep(0.05)


def _listen(stream: IO[str], messages: queue.SimpleQueue[dict[str, Any] | None], worker: _Worker) -> None:
    """Put what comes in the queue, None at the end; heard also while wandb hangs in the main thread."""
    for line in stream:
        messages.put(json.loads(line))
    worker.end_soon()
    messages.put(None)


def main() -> int:
    """Serve until the input closes."""
    # Answers go to a private copy of stdout: what wandb prints must not be taken for one.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = _Worker()
    messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, messages, worker), daemon=True).start()
    while (message := messages.get()) is not None:
        try:
            answer = worker.handle(message)
        except Exception as error:  # whatever wandb raises is the sink's answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(BrokenPipeError):  # nobody listens any more: the end of the input is near
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    worker.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
