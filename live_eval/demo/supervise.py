"""The driver's child processes: started in a session of their own, watched, started again, ended.

Invariant: whatever way the driver goes, its children go: on a normal end they are stopped
by group, and a child whose parent is gone ends itself (end_with_parent).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

logger = logging.getLogger(__name__)

RESTART_PAUSE_S = 0.5
STOP_GRACE_S = 15.0
LAST_WORDS_BYTES = 8192
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \S+ ")
"""Time and logger's name, with which a line of a log begins."""


class Child:
    """One child process, restarted up to `max_restarts` times when it ends with an error."""

    def __init__(
        self,
        name: str,
        module: str,
        arguments: list[str],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        max_restarts: int = 0,
        on_restart: Callable[[str, int], None] | None = None,
        is_final: Callable[[int], bool] = lambda status: False,
    ) -> None:
        """`is_final`: whether another life would end as this one did, by the status with which it ended."""
        self.name = name
        self.num_restarts = 0
        self._argv = [sys.executable, "-m", module, *arguments]
        self._log_path = log_path
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self._max_restarts = max_restarts
        self._on_restart = on_restart
        self._is_final = is_final
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._watch: asyncio.Task[int] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the current life, None before the start."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process and watch it."""
        await self._spawn()
        self._watch = asyncio.create_task(self._run(), name=f"watch-{self.name}")

    @property
    def ended(self) -> bool:
        """Whether the last life is over."""
        return self._watch is not None and self._watch.done()

    @property
    def status(self) -> int | None:
        """Exit status of the last life: 0, or that after which it was not started again; None before."""
        return self._watch.result() if self._watch is not None and self.ended else None

    async def wait(self, timeout_s: float) -> None:
        """Return when the last life is over, or after `timeout_s`."""
        if self._watch is None:
            raise RuntimeError(f"{self.name} was not started")
        await asyncio.wait([self._watch], timeout=timeout_s)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """SIGTERM to the process, SIGKILL to its group after `grace_s`; returns when it is gone."""
        self._stopping = True
        process = self._process
        if process is None or self._watch is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(asyncio.shield(self._watch), grace_s)
            except TimeoutError:
                logger.warning("%s did not end within %.0f s of SIGTERM: killed", self.name, grace_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await self._watch

    async def _spawn(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,
            )

    async def _run(self) -> int:
        while True:
            assert self._process is not None
            status = await self._process.wait()
            if self._stopping or status == 0 or self.num_restarts >= self._max_restarts:
                return status
            if self._is_final(status):
                return status
            self.num_restarts += 1
            logger.info(
                "%s ended with status %d, started again (%d of %d); see %s",
                self.name,
                status,
                self.num_restarts,
                self._max_restarts,
                self._log_path,
            )
            await asyncio.sleep(RESTART_PAUSE_S)
            if self._stopping:
                return status
            await self._spawn()
            if self._on_restart is not None:
                self._on_restart(self.name, status)


def last_words(log: Path) -> str:
    """The last line of a log, without its time and its logger's name; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LAST_WORDS_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    told = [line.strip() for line in lines if line.strip()]
    return _STAMP.sub("", told[-1]) if told else ""


def end_on_sigterm() -> None:
    """Let SIGTERM cancel the running task, so that everything is ended as after Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
