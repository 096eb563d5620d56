"""Stands before a real SGLang server and holds, drops or relabels what a test names.

It runs in a thread of its own, so that tests may be plain functions. Everything that no test asked
about is forwarded as it is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
from fakes.engine_http import Hangup, HttpServer, Reply

WAIT_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One request on its way to the engine."""

    path: str
    body: Any
    num_before: int = 0
    """Calls of this kind that have been forwarded since the hold was set."""

    @property
    def texts(self) -> list[str]:
        """The prompts, where they are texts: fingerprints are not."""
        return list(self.body.get("text") or ()) if isinstance(self.body, dict) else []

    @property
    def kind(self) -> str:
        """The dataset that is asked for, else the path."""
        return self.texts[0].partition(":")[0] if self.texts else self.path


Match = Callable[[Call], bool]


def attaches(call: Call) -> bool:
    """Somebody asks what the engine is."""
    return call.path == "/model_info"


def loads(label: str) -> Match:
    """The engine is told to load this version."""
    return lambda call: call.path == "/update_weights_from_disk" and call.body.get("weight_version") == label


def asks(dataset: str, *, after: int = 0) -> Match:
    """Prompts of a dataset (they begin with its name), `after` calls of them have been let through."""
    return lambda call: call.kind == dataset and call.num_before >= after


@dataclass
class _Hold:
    match: Match
    answers: bool
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: bool = False
    num_passed: dict[str, int] = field(default_factory=dict)


class EngineGate:
    """Forwards to `target`; use it as a context manager, `url` is its address."""

    def __init__(self, target: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine-gate", daemon=True)
        self._server = HttpServer(self._forward)
        self._target = target
        self._http: httpx.AsyncClient | None = None
        self._hold: _Hold | None = None
        self._held = threading.Event()
        self.relabel: Callable[[str], str | None] = lambda request_id: None
        """Another label for the answer to a request, or None for its own."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._server.url

    def hold(self, match: Match) -> None:
        """Keep back what matches, from now on, until `release` or `drop`."""
        self._held.clear()
        self._hold = _Hold(match, answers=False)

    def slow(self, match: Match) -> None:
        """Let the engine work, but keep the answers back until `release`, or each until the next abort."""
        self._held.clear()
        self._hold = _Hold(match, answers=True)

    def wait_held(self) -> None:
        """Return once something is kept back."""
        assert self._held.wait(WAIT_S), "nothing came that was to be held"

    def release(self) -> None:
        """Forward what is held, and hold no more."""
        self._open_hold(dropped=False)

    def drop(self) -> None:
        """End the connections of what is held without an answer, and hold no more."""
        self._open_hold(dropped=True)

    def _open_hold(self, *, dropped: bool) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.dropped = dropped
            self._loop.call_soon_threadsafe(hold.opened.set)

    async def _forward(self, method: str, path: str, body: Any) -> Reply:
        hold = self._hold
        holds = hold is not None and self._matches(hold, path, body)
        if hold is not None and holds and not hold.answers:
            await self._wait(hold)
        assert self._http is not None
        try:
            response = await self._http.request(method, path, json=body)
        except httpx.TransportError as error:  # the engine is gone, and so is the gate
            raise Hangup from error
        if path == "/abort_request":
            self._let_answers_go()
        if hold is not None and holds and hold.answers:
            await self._wait(hold)
        try:
            answer = response.json()
        except ValueError:
            return response.status_code, response.text
        for part in answer if isinstance(answer, list) else []:
            self._relabel(part.get("meta_info", {}))
        return response.status_code, answer

    def _matches(self, hold: _Hold, path: str, body: Any) -> bool:
        kind = Call(path=path, body=body).kind
        num_before = hold.num_passed.get(kind, 0)
        if hold.match(Call(path=path, body=body, num_before=num_before)):
            return True
        hold.num_passed[kind] = num_before + 1
        return False

    async def _wait(self, hold: _Hold) -> None:
        self._held.set()
        await hold.opened.wait()
        if hold.dropped:
            raise Hangup

    def _let_answers_go(self) -> None:
        hold = self._hold
        if hold is not None and hold.answers:
            self._held.clear()
            self._hold = _Hold(hold.match, answers=True)
            hold.opened.set()

    def _relabel(self, meta: dict[str, Any]) -> None:
        label = self.relabel(str(meta.get("id", "")))
        if label is not None:
            meta["weight_version"] = label

    async def _open(self) -> None:
        # The server closes a connection that was idle for 5 s.
        limits = httpx.Limits(keepalive_expiry=2.0)
        self._http = httpx.AsyncClient(base_url=self._target, timeout=None, trust_env=False, limits=limits)
        await self._server.start()

    async def _close(self) -> None:
        await self._server.stop()
        if self._http is not None:
            await self._http.aclose()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)
