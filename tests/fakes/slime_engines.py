"""A lease's engines for slime's eval function: they answer generate requests as SGLang does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

from live_eval.engines.requests import Forwarded


@dataclass(kw_only=True)
class FakeEngines:
    """`losses`, `repins` and `checks` raise, one a call, what they hold; `hold` waits for abort()."""

    label: str = "7"
    segments: tuple[str, ...] = ()
    """Weights of each token of an answer, as newer servers tell; none: as older ones."""
    hold: bool = False
    losses: list[Exception] = field(default_factory=list)
    repins: list[Exception | None] = field(default_factory=list)
    checks: list[Exception | None] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    max_in_flight: int = 0
    _in_flight: int = 0
    _aborted: asyncio.Event = field(default_factory=asyncio.Event)

    two_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def forward(self, method: str, path: str, *, body: bytes, content_type: str) -> Forwarded | None:
        self.asked.append((method, path))
        if len(self.asked) >= 2:
            self.two_asked.set()
        self._in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self._in_flight)
        try:
            return await self._answer(body)
        finally:
            self._in_flight -= 1

    async def _answer(self, body: bytes) -> Forwarded | None:
        await asyncio.sleep(0.002)
        if self.losses:
            await self.two_asked.wait()  # both are under way when the first is lost
            raise self.losses.pop(0)
        if self.hold:
            await self._aborted.wait()
        if self._aborted.is_set():
            return None
        runs = [{"version": name, "start": at, "end": at + 1} for at, name in enumerate(self.segments)]
        answer = {
            "text": json.loads(body)["text"].upper() + ' "weight_version": "fake"',
            "meta_info": {
                "weight_version": self.label,
                "finish_reason": {"type": "stop"},
                "completion_tokens": 3,
            }
            | ({"weight_versions": runs} if runs else {}),
        }
        return Forwarded(
            status=200, content_type="application/json", body=json.dumps(answer).encode(), engine="eval-0"
        )

    async def generate(self, requests: object) -> list[object]:
        raise AssertionError("slime's function sends its own requests")

    async def check_after(self) -> None:
        self.events.append("check")
        if self.checks and (error := self.checks.pop(0)) is not None:
            raise error

    async def repin(self) -> None:
        self.events.append("repin")
        if self.repins and (error := self.repins.pop(0)) is not None:
            raise error

    async def abort(self) -> None:
        self.events.append("abort")
        self._aborted.set()
