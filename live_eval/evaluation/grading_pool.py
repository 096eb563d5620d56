"""Worker processes for users' reward functions, with a deadline that holds.

Owns the processes. A function that loops, dies or ends its process costs one worker, which is
killed and made again; the number of workers that can be busy at once never shrinks. Workers die
with this process. One pool serves all datasets.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Self

from live_eval.errors import ConfigError, RewardError

if TYPE_CHECKING:
    from live_eval.evaluation.rewards import RewardSample

_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_REAP_S = 5.0
_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})

Value = float | dict[str, float]
"""What a reward function gives."""

CONCURRENT_SPARE_S = 5.0
"""A worker ends late calls itself; it is killed if it does not."""


class _WorkerGone(Exception):
    """The worker ended, or broke its pipe, instead of answering."""


class _Worker:
    """One worker process; it is used for one request at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._loaded: set[str] = set()
        self._busy = False

    @classmethod
    async def start(cls, log: IO[bytes] | int) -> _Worker:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "live_eval.evaluation.grading_worker",
            str(os.getpid()),
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
            limit=_MAX_ANSWER_BYTES,
        )
        return cls(process)

    @property
    def usable(self) -> bool:
        """Whether it lives and owes no answer."""
        return self._process.returncode is None and not self._busy

    def has_loaded(self, function: str) -> bool:
        return function in self._loaded

    async def ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        """Its answer; TimeoutError or _WorkerGone, after which it can only be killed."""
        assert self._process.stdin and self._process.stdout
        self._busy = True
        async with asyncio.timeout(deadline_s):
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
                answer = json.loads(line)
            except (OSError, ValueError) as error:
                raise _WorkerGone(str(error)) from error
        self._busy = False
        if "ok" in answer:
            self._loaded.add(request["function"])
        return answer

    async def exit_text(self) -> str:
        """How the process ended, given a moment for it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), 1.0)
        code = self._process.returncode
        if code is None:
            return "stopped answering"
        return f"exited with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdin:
            self._process.stdin.close()
        # It is dead at once. What asyncio waits for is the end of its pipe, which a process that left its
        # group may hold open for as long as it likes.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _REAP_S)


class GradingPool:
    """At most `num_workers` processes, started when needed; a call has `deadline_s`."""

    def __init__(
        self,
        *,
        num_workers: int = 2,
        deadline_s: float = 30.0,
        import_deadline_s: float = 120.0,
        log_path: Path | None = None,
    ) -> None:
        """What functions print goes to `log_path`, or nowhere. ConfigError if a number is not positive."""
        if num_workers < 1 or deadline_s <= 0 or import_deadline_s <= 0:
            raise ConfigError(
                f"num_workers {num_workers}, deadline_s {deadline_s} and import_deadline_s "
                f"{import_deadline_s} of the grading pool must all be above 0"
            )
        self._deadline_s = deadline_s
        self._import_deadline_s = import_deadline_s
        self._log_path = log_path
        self._free = asyncio.Semaphore(num_workers)
        self._idle: list[_Worker] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all idle workers. One in use ends with its call, which is the caller's to cancel first."""
        while self._idle:
            await self._idle.pop().kill()

    async def check(self, function: str) -> None:
        """Import `function` in a worker; ConfigError if it cannot be."""
        try:
            await self._call(function, None)
        except RewardError as error:
            raise ConfigError(f"reward {function}: {error}") from error

    async def call(
        self, function: str, sample: RewardSample, *, options: Mapping[str, Any] = _NO_OPTIONS
    ) -> Value:
        """The function's result for `sample`.

        RewardError, naming the sample: it raised, returned no number, took longer than the
        deadline, or ended its process.
        """
        work = {"sample": asdict(sample), "options": self._with_deadline(options)}
        try:
            answer = await self._call(function, work)
        except RewardError as error:
            raise RewardError(f"{sample.where}: {error}") from error
        return answer["value"]

    async def call_many(
        self,
        function: str,
        samples: Sequence[RewardSample],
        *,
        mode: str,
        options: Mapping[str, Any] = _NO_OPTIONS,
    ) -> list[Value | RewardError]:
        """The results of several samples in one process, in their order; a fault is its sample's alone
        where it can be told whose it is.

        Mode `batch`: one call with the list, within the deadline. `concurrent`: a call a sample, each with
        the deadline.
        """
        spare = CONCURRENT_SPARE_S if mode == "concurrent" else 0.0
        work = {
            "samples": [asdict(sample) for sample in samples],
            "mode": mode,
            "options": self._with_deadline(options),
        }
        try:
            answer = await self._call(function, work, deadline_s=self._deadline_s + spare)
        except RewardError as error:
            return [RewardError(f"{sample.where}: {error}") for sample in samples]
        return [
            result["value"]
            if "value" in result
            else RewardError(f"{sample.where}: {function}: {result['error']}")
            for sample, result in zip(samples, answer["results"], strict=True)
        ]

    def _with_deadline(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**options, "deadline_s": self._deadline_s}

    async def _call(
        self, function: str, work: dict[str, Any] | None, *, deadline_s: float | None = None
    ) -> dict[str, Any]:
        async with self._free:
            worker = await self._take()
            try:
                return await self._ask(worker, function, work, deadline_s or self._deadline_s)
            finally:
                if worker.usable:
                    self._idle.append(worker)
                else:
                    await worker.kill()

    async def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.usable:
                return worker
            await worker.kill()
        try:
            if self._log_path is None:
                return await _Worker.start(DEVNULL)
            with self._log_path.open("ab") as log:
                return await _Worker.start(log)
        except OSError as error:
            raise RewardError(f"no worker process could be started: {error}") from error

    async def _ask(
        self, worker: _Worker, function: str, work: dict[str, Any] | None, deadline_s: float
    ) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        # Importing has a deadline of its own: the first sample must not pay for a large library.
        if work is None or not worker.has_loaded(function):
            answer = await self._exchange(worker, {"function": function}, self._import_deadline_s, "import")
        if work is not None:
            answer = await self._exchange(worker, {"function": function, **work}, deadline_s, "end")
        return answer

    async def _exchange(
        self, worker: _Worker, request: dict[str, Any], deadline_s: float, what: str
    ) -> dict[str, Any]:
        function = request["function"]
        try:
            answer = await worker.ask(request, deadline_s)
        except TimeoutError as error:
            raise RewardError(f"{function} did not {what} within {deadline_s:g} s; it was killed") from error
        except _WorkerGone as error:
            raise RewardError(f"the process of {function} {await worker.exit_text()}") from error
        if "error" in answer:
            raise RewardError(f"{function}: {answer['error']}")
        return answer
