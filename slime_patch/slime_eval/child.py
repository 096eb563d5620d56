"""The worker process, as the service sees it: started ahead, asked one thing at a time, killed at once.

Invariant: after `kill` nothing of it runs; the next `ask` finds a new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from live_eval.errors import LiveEvalError

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 600.0
"""For slime's modules to load, and the user's."""
MAX_REPLY = 64 << 20


class WorkerDied(LiveEvalError):
    """The process that runs slime's eval function ended, or did not start."""

    code = "worker_died"


class WorkerChild:
    """One worker over all its lives. Belongs to one event loop."""

    def __init__(self, plan: Path, *, port: int, log: Path, command: Sequence[str] | None = None) -> None:
        """`command`: without the parent's id, the plan and the port; for tests."""
        module = [sys.executable, "-m", "slime_patch.slime_eval.worker"]
        self._argv = [*(command or module), str(os.getpid()), str(plan), str(port)]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[asyncio.subprocess.Process] | None = None

    def start(self) -> None:
        """Begin to start it, if it is not there: loading slime takes many seconds."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="slime-eval-worker")
            self._starting.add_done_callback(_seen)

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's answer; WorkerDied if it ends before. Unbounded: whoever waits sets the limit."""
        self.start()
        assert self._starting is not None
        process = await asyncio.shield(self._starting)
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
        except OSError as error:
            raise WorkerDied(f"the eval process is gone: {error}; see {self._log}") from error
        return await self._reply(process)

    async def kill(self) -> None:
        """End it and all that it started, now."""
        starting, self._starting = self._starting, None
        if starting is not None and not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # As in slime, whose eval function sees no GPU: the engines need theirs whole.
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                start_new_session=True,
                limit=MAX_REPLY,
            )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._reply(process)
        except TimeoutError as error:
            raise WorkerDied(
                f"slime's eval function did not load in {START_TIMEOUT_S:.0f} s; see {self._log}"
            ) from error
        return process

    async def _reply(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
        except ValueError as error:
            raise WorkerDied(f"the eval process answered more than {MAX_REPLY} bytes") from error
        if line.endswith(b"\n"):
            return json.loads(line)
        status = await process.wait()
        if process is self._process:
            self._process = self._starting = None
        raise WorkerDied(f"the eval process ended with status {status}; see {self._log}")


def _seen(task: asyncio.Task[Any]) -> None:
    """A start that failed ahead of its first use is raised by the next ask, or tried again."""
    if not task.cancelled() and (error := task.exception()):
        logger.warning("slime's eval function is not ready: %s", error)
