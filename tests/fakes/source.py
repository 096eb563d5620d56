"""A SampleSource without engines: it answers by a function and fails by a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from live_eval.evaluation.source import GenRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class FakeGeneration:
    """An answer."""

    request_id: str
    text: str
    num_tokens: int = 3
    finish_reason: str = "stop"
    label: str = "7"
    engine: str = "engine-0"
    detail: str = ""


Step = Callable[["FakeSource", Sequence[GenRequest]], "Sequence[FakeGeneration]"]


@dataclass(kw_only=True)
class FakeSource:
    """Answers each request with `reply(text)` under `label`.

    `script` holds steps that take over the first calls of generate(), one a call; a step may
    answer by `self.answers(requests)`, change it, or raise. `hold` keeps calls in flight until
    abort(), as a slow engine would. `repins` and `checks` raise, one an call, what they hold.
    """

    reply: Callable[[str], str] = lambda text: text.upper()
    label: str = "7"
    script: list[Step | None] = field(default_factory=list)
    repins: list[Exception | None] = field(default_factory=list)
    checks: list[Exception | None] = field(default_factory=list)
    hold: Callable[[Sequence[GenRequest]], bool] = lambda requests: False
    abort_error: Exception | None = None
    abort_answers: bool = True
    """Whether abort() makes held calls return; if not, they hang until they are cancelled."""

    calls: list[list[GenRequest]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    num_in_flight: int = 0
    max_in_flight: int = 0
    _aborted: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a call is held."""

    def answers(self, requests: Sequence[GenRequest], **changes: object) -> list[FakeGeneration]:
        """What an engine in order answers, with `changes` in each answer."""
        made = [
            FakeGeneration(
                request_id=r.request_id, text=self.reply(r.text or str(r.input_ids)), label=self.label
            )
            for r in requests
        ]
        return [replace(answer, **changes) for answer in made]

    async def generate(self, requests: Sequence[GenRequest]) -> Sequence[FakeGeneration]:
        self.calls.append(list(requests))
        self.events.append("generate")
        step = self.script.pop(0) if self.script else None
        self.num_in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.num_in_flight)
        try:
            await asyncio.sleep(0)
            if self.hold(requests):
                self.held.set()
                await self._wait_for_abort()
                return self.answers(requests, finish_reason="abort")
            return step(self, requests) if step else self.answers(requests)
        finally:
            self.num_in_flight -= 1

    async def _wait_for_abort(self) -> None:
        await self._aborted.wait()
        if not self.abort_answers:
            await asyncio.Event().wait()

    async def check_after(self) -> None:
        self.events.append("check")
        assert self.num_in_flight == 0, "checked with a request in flight"
        error = self.checks.pop(0) if self.checks else None
        if error:
            raise error

    async def repin(self) -> None:
        self.events.append("repin")
        assert self.num_in_flight == 0, "pinned again with a request in flight"
        error = self.repins.pop(0) if self.repins else None
        if error:
            raise error

    async def abort(self) -> None:
        self.events.append("abort")
        self._aborted.set()
        if self.abort_error:
            raise self.abort_error

    @property
    def asked(self) -> list[GenRequest]:
        """All requests of all calls, in order."""
        return [request for call in self.calls for request in call]


def dies(error: Exception) -> Step:
    """A step that raises."""

    def step(source: FakeSource, requests: Sequence[GenRequest]) -> Sequence[FakeGeneration]:
        raise error

    return step
