"""Main program of an engine's process: SGLang's own server, which ends when its starter ends.

Run by path as `python -P serve.py --parent PID [--fork-workers] [--append-path DIR]... -- SGLANG_ARGS`. It
imports only the standard library before it hands over to `sglang.launch_server`, so the process is a
plain SGLang server with one more thread.

Invariant: when the process that started it is gone, by whatever death, the whole process group
is killed within a second and its shared memory is removed. PR_SET_PDEATHSIG is not enough: it
watches the thread that forked, not its process, and an SGLang worker that is still importing
when its own parent is killed never hears of it. All workers are in this process' group, so one
signal ends them.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

WATCH_INTERVAL_S = 0.5
SHARED_MEMORY = Path("/dev/shm")
SHARED_PREFIXES = ("sglang_loads_", "sem.mp-")
"""What SGLang and its multiprocessing leave behind when they are killed."""


def group_members(group: int) -> list[int]:
    """Ids of the processes of a process group, zombies left out; empty where there is no /proc."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The command name is in parentheses and may hold anything; state, ppid, pgrp follow it.
            state, _ppid, pgrp = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(pgrp) == group and state != "Z":
                members.append(int(stat.parent.name))
    return members


def shared_files(group: int) -> set[Path]:
    """Shared memory files that the processes of the group map, by inode: a semaphore is renamed."""
    inodes = set()
    for pid in group_members(group):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and fields[5].startswith(f"{SHARED_MEMORY}/"):
                    inodes.add(int(fields[4]))
    if not inodes:
        return set()
    with os.scandir(SHARED_MEMORY) as entries:
        return {Path(e.path) for e in entries if e.name.startswith(SHARED_PREFIXES) and e.inode() in inodes}


def remove_all(files: set[Path], private_dir: Path | None) -> None:
    """Remove what a killed group left; what is gone already is no error."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()
    if private_dir is not None:
        shutil.rmtree(private_dir, ignore_errors=True)


def end_with(parent: int, private_dir: Path | None) -> None:
    """Clear up and kill this process group as soon as `parent` is not our parent. Never returns."""
    while os.getppid() == parent:
        time.sleep(WATCH_INTERVAL_S)
    group = os.getpgrp()
    remove_all(shared_files(group), private_dir)
    os.killpg(group, signal.SIGKILL)


def fork_workers() -> None:
    """Let workers begin as copies of this process, where SGLang asks for fresh ones.

    A fresh one imports all of SGLang again, and two of them at once take two thirds of the start on a
    small machine. Not where there is a GPU: CUDA does not survive a fork.
    """
    choose = multiprocessing.set_start_method

    def choose_fork(method: str | None, force: bool = False) -> None:
        gc.freeze()  # a collection in a worker would copy the pages of all that was imported
        choose("fork" if method == "spawn" else method, force=force)

    multiprocessing.set_start_method = choose_fork


def main(arguments: list[str]) -> None:
    """Start the watch, complete the import path, become `python -m sglang.launch_server`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--private-dir", type=Path)
    parser.add_argument("--fork-workers", action="store_true")
    parser.add_argument("--append-path", action="append", default=[])
    parser.add_argument("sglang", nargs="+")
    options = parser.parse_args(arguments)
    if os.getpgrp() != os.getpid():
        raise SystemExit("serve.py must be started in a process group of its own, which it may kill")
    watch = threading.Thread(
        target=end_with, args=(options.parent, options.private_dir), name="parent-watch", daemon=True
    )
    watch.start()
    if options.fork_workers:
        fork_workers()
    # At the end of the path a stand-in is found only where no real package is installed.
    sys.path.extend(options.append_path)
    sys.argv = ["sglang.launch_server", *options.sglang]
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
