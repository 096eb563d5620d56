"""The requests in flight: spread over pinned engines, bounded per engine, abortable as a whole.

Knows engines only as something to send a call to; chooses the least busy one. Invariant: after
abort() returns no call is running, and each request given to run() ends in exactly one answer, or
in the list of the lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from live_eval.engines.client import EngineRefused
from live_eval.engines.engine import EngineState
from live_eval.engines.requests import Generation
from live_eval.errors import EngineDied, EngineError, EngineTimeout

if TYPE_CHECKING:
    from live_eval.engines.engine import Engine
    from live_eval.engines.group import GroupSettings
    from live_eval.engines.requests import Forwarded, GenRequest

logger = logging.getLogger(__name__)

ABORT_INTERVAL_S = 0.1
"""An abort reaches only what has arrived, so it is repeated until nothing runs."""

PROMPT_REFUSED = (400, 413, 422)
"""Statuses that say something of the prompts: too long, too large, not to be understood. Any other error
status (503 `no available workers`, 429, 404) is of the engine or of what stands before it."""

OnDone = Callable[[list[Generation]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Alone:
    """One request of a refused call, sent on its own under an id that the engine does not know yet."""

    request_id: str
    text: str | None
    input_ids: Sequence[int] | None
    sampling: dict[str, Any]


class Calls:
    """All calls of one lease."""

    def __init__(self, engines: Sequence[Engine], settings: GroupSettings) -> None:
        self.last_loss = ""
        """Why requests were lost last."""
        self._engines = engines
        self._settings = settings
        self._running: Counter[str] = Counter()
        """Calls, by engine."""
        self._prompts: Counter[str] = Counter()
        """Prompts of those calls, by engine."""
        self._turn = asyncio.Condition()
        self._stopped = True

    @property
    def num_running(self) -> int:
        """Calls in flight."""
        return self._running.total()

    def open(self) -> None:
        """Send again, after a pin."""
        self._stopped = False

    async def run(
        self, requests: Sequence[GenRequest], on_done: OnDone | None
    ) -> tuple[list[Generation], list[str]]:
        """Answers, and the ids of requests that were lost with their engine."""
        done: list[Generation] = []
        lost: list[str] = []
        async with asyncio.TaskGroup() as group:
            for call in self._split(requests):
                group.create_task(self._one(call, done, lost, on_done))
        return done, lost

    async def forward(
        self, method: str, path: str, *, body: bytes, content_type: str, timeout_s: float
    ) -> Forwarded | None:
        """One engine's answer to one HTTP request, unchanged; None after abort().

        Sent at once: whoever asks bounds how much is in flight. EngineError: it is lost with its engine.
        """
        pinned = [engine for engine in self._engines if engine.state is EngineState.PINNED]
        if self._stopped:
            return None
        if not pinned:
            raise EngineDied(self.last_loss or "no engine holds the target")
        engine = min(pinned, key=lambda engine: self._running[engine.name])
        life = engine.life
        self._running[engine.name] += 1
        try:
            request = engine.client.forward(
                method, path, body=body, content_type=content_type, timeout_s=timeout_s
            )
            return await engine.while_alive(request)
        except EngineError as error:
            self.last_loss = str(error)
            engine.quarantine(error, life=life)
            raise
        finally:
            self._running[engine.name] -= 1
            async with self._turn:
                self._turn.notify_all()

    async def abort(self) -> None:
        """Send nothing more and end what runs; an engine that does not give it up is quarantined."""
        self._stopped = True
        timeout_s = self._settings.limits.flush_s
        deadline = time.monotonic() + timeout_s
        while self.num_running:
            busy = [engine for engine in self._engines if self._running[engine.name]]
            if time.monotonic() > deadline:
                for engine in busy:
                    error = EngineTimeout(f"engine {engine.name} did not abort in {timeout_s:g} s")
                    engine.quarantine(error, life=engine.life)
            else:
                await asyncio.gather(*(self._abort_one(engine) for engine in busy))
            async with self._turn:
                self._turn.notify_all()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ABORT_INTERVAL_S):
                        await self._turn.wait_for(lambda: not self.num_running)

    def _split(self, requests: Sequence[GenRequest]) -> list[Sequence[GenRequest]]:
        """Calls of one kind of prompt each, not longer than allowed."""
        kinds = (
            [r for r in requests if r.input_ids is not None],
            [r for r in requests if r.input_ids is None],
        )
        size = self._settings.max_prompts_per_call
        return [kind[i : i + size] for kind in kinds for i in range(0, len(kind), size)]

    async def _one(
        self, call: Sequence[GenRequest], done: list[Generation], lost: list[str], on_done: OnDone | None
    ) -> None:
        engine = await self._take(len(call))
        if engine is None:
            if self._stopped:
                done += [_not_sent(request) for request in call]
            else:
                self.last_loss = self.last_loss or "no engine holds the target"
                lost += [request.request_id for request in call]
            return
        life = engine.life
        try:
            answers = await self._send(engine, call)
        except EngineError as error:
            self.last_loss = str(error)
            lost += [request.request_id for request in call]
            engine.quarantine(error, life=life)
        else:
            done += answers
            if on_done is not None:
                on_done(answers)
        finally:
            self._running[engine.name] -= 1
            self._prompts[engine.name] -= len(call)
            async with self._turn:
                self._turn.notify_all()

    async def _take(self, num_prompts: int) -> Engine | None:
        """The least busy pinned engine with room for a call, waited for; None if there will be none."""
        room = self._settings.max_calls_per_engine * self._settings.max_prompts_per_call
        async with self._turn:
            while not self._stopped:
                pinned = [engine for engine in self._engines if engine.state is EngineState.PINNED]
                if not pinned:
                    return None
                engine = min(pinned, key=lambda engine: self._prompts[engine.name])
                if self._prompts[engine.name] + num_prompts <= room:
                    self._running[engine.name] += 1
                    self._prompts[engine.name] += num_prompts
                    return engine
                # Every engine is at its limit, so a call will end and notify.
                await self._turn.wait()
        return None

    async def _send(self, engine: Engine, call: Sequence[GenRequest]) -> list[Generation]:
        timeout_s = self._settings.request_timeout_s
        try:
            return await engine.while_alive(engine.client.generate(call, timeout_s=timeout_s))
        except EngineRefused as error:
            if error.status not in PROMPT_REFUSED:
                raise
            if len(call) == 1:
                return [_refused(call[0], engine.name, error.body)]
        # One bad prompt spoils a call, so each is asked alone: not a repetition, a narrower question.
        answers = await asyncio.gather(*(self._send_alone(engine, request) for request in call))
        return list(answers)

    async def _send_alone(self, engine: Engine, request: GenRequest) -> Generation:
        alone = _Alone(
            # The refused call may have left the id with the engine, which refuses an id twice.
            request_id=f"{request.request_id}:alone",
            text=request.text,
            input_ids=request.input_ids,
            sampling=request.sampling,
        )
        if self._stopped:
            return _not_sent(request)
        (answer,) = await self._send(engine, [alone])
        return replace(answer, request_id=request.request_id)

    async def _abort_one(self, engine: Engine) -> None:
        life = engine.life
        try:
            await engine.client.abort_all()
        except EngineError as error:
            engine.quarantine(error, life=life)


def _not_sent(request: GenRequest) -> Generation:
    return Generation(
        request_id=request.request_id, text="", num_tokens=0, finish_reason="abort", label="", engine=""
    )


def _refused(request: GenRequest, engine: str, body: str) -> Generation:
    return Generation(
        request_id=request.request_id,
        text="",
        num_tokens=0,
        finish_reason="refused",
        label="",
        engine=engine,
        detail=body,
    )
