"""One look at everything that could grow, and the file in which looks are kept, a line each."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from live_eval.errors import LedgerError
from live_eval.results.reader import LedgerReader

if TYPE_CHECKING:
    from benchmarks.soak.site import SoakSite
    from live_eval.rundir import RunDir

SYNC_KEYS = ("syncs", "sealed", "discarded", "faults", "held_s", "max_held_s")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One of them; sizes in bytes."""

    at_s: float
    """Since the first one."""
    memory: dict[str, int]
    """Of each part, without what it maps of shared memory."""
    files: dict[str, int]
    threads: dict[str, int]
    processes: dict[str, int]
    cpu_s: dict[str, float]
    """So far."""
    object_store: int
    """Blocks of Ray's shared memory."""
    store: int
    """Blocks of the version store."""
    ledger: int
    """With its write-ahead log."""
    rest: int
    """Blocks of all else in the run's directory, but for the start's checkpoint: samples, results, logs."""
    syncs: dict[str, float]
    jobs: dict[str, int]
    """By state."""


class Looks:
    """Takes looks at a site and writes them down at once, so that a run that is cut has its figures too."""

    def __init__(self, site: SoakSite, file: Path) -> None:
        self._site = site
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        self._began = time.monotonic()

    def take(self) -> Look:
        """One look."""
        run_dir = self._site.run_dir
        counts = {name: _counts(pid) for name, pid in self._site.pids.items()}
        look = Look(
            at_s=round(time.monotonic() - self._began, 2),
            memory={name: int(found["memory"]) for name, found in counts.items()},
            files={name: int(found["files"]) for name, found in counts.items()},
            threads={name: int(found["threads"]) for name, found in counts.items()},
            processes={name: int(found["processes"]) for name, found in counts.items()},
            cpu_s={name: round(found["cpu_s"], 2) for name, found in counts.items()},
            object_store=_plasma(self._site.raylet),
            store=_blocks(run_dir.store),
            ledger=sum(_blocks(path) for path in run_dir.root.glob(run_dir.ledger.name + "*")),
            rest=sum(_blocks(path) for path in run_dir.root.iterdir() if not _is_counted(run_dir, path)),
            syncs=_syncs(run_dir.trainer_records),
            jobs=_jobs(run_dir.ledger),
        )
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(look) + b"\n")
        return look


def read(file: Path) -> list[Look]:
    """The looks of a file."""
    return [msgspec.json.decode(line, type=Look) for line in file.read_bytes().splitlines()]


def _counts(pid: int) -> Counter[str]:
    """Of a process with all that it has started."""
    total: Counter[str] = Counter()
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return total
    for process in family:
        try:
            status = _status(process.pid)
            cpu = process.cpu_times()
            total.update(
                memory=status.get("RssAnon", 0) + status.get("RssFile", 0),
                files=process.num_fds(),
                threads=process.num_threads(),
                processes=1,
            )
            total["cpu_s"] += cpu.user + cpu.system  # pyright: ignore[reportArgumentType]
        except (psutil.NoSuchProcess, OSError):
            continue
    return total


def _status(pid: int) -> dict[str, int]:
    """The sizes of /proc/PID/status, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines if line.endswith(" kB"))
    return {name: int(value.split()[0]) << 10 for name, value in pairs}


def _plasma(raylet: int) -> int:
    """What the object store's files take; they have no names any more."""
    found: dict[int, int] = {}
    for file in Path(f"/proc/{raylet}/fd").iterdir():
        try:
            if "plasma" in str(file.readlink()):
                stat = file.stat()
                found[stat.st_ino] = stat.st_blocks * 512
        except OSError:  # closed meanwhile
            continue
    return sum(found.values())


def _is_counted(run_dir: RunDir, path: Path) -> bool:
    return path in (run_dir.store, run_dir.base) or path.name.startswith(run_dir.ledger.name)


def _blocks(top: Path) -> int:
    """What a file, or the files below a directory, take; links to one file count once."""
    seen: dict[int, int] = {}
    for path in (top, *top.rglob("*")):
        try:
            stat = path.lstat()
        except OSError:  # collected meanwhile
            continue
        seen[stat.st_ino] = stat.st_blocks * 512
    return sum(seen.values())


def _syncs(file: Path) -> dict[str, float]:
    lines = file.read_text().splitlines() if file.exists() else []
    if not lines:
        return {}
    found = {key.removeprefix("live_eval/"): value for key, value in json.loads(lines[-1]).items()}
    return {key: found[key] for key in SYNC_KEYS if key in found}


def _jobs(ledger: Path) -> dict[str, int]:
    try:
        with LedgerReader.open_readonly(ledger) as reader:
            return dict(reader.totals().by_status)
    except LedgerError:
        return {}
