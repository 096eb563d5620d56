"""Real SGLang servers for whole jobs: one that outlives services, and those that a service launched."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from live_eval.engines.launch import EngineProcess, launch_settings

START_TIMEOUT_S = 280.0
"""Ten times what two idle cores need."""


@contextmanager
def real_engine(model_path: Path, log: Path) -> Iterator[EngineProcess]:
    """A ready server of `model_path` that belongs to this process."""
    process = EngineProcess.start(launch_settings(model_path, device="cpu"), log=log)
    try:
        asyncio.run(process.wait_ready(START_TIMEOUT_S))
        yield process
    finally:
        asyncio.run(process.stop())


def servers_of(service_pid: int) -> list[int]:
    """Process groups of the servers that this service launched and that live."""
    found = []
    for child in psutil.Process(service_pid).children():
        try:
            if any(part.endswith("engines/serve.py") for part in child.cmdline()):
                found.append(child.pid)
        except psutil.Error:  # gone meanwhile
            continue
    return found


def kill_server(group: int) -> None:
    """kill -9 to every process of a server."""
    os.killpg(group, signal.SIGKILL)
