"""The exclusive use of some engines of a group: pin a version, generate on it, prove it again, give it back.

Owns the requests in flight. It knows no datasets and no scheduling; what it is told to pin it pins
on every engine that can serve, and it goes on with those that prove to hold it.

Invariant: no load starts while a request of this lease is in flight on that engine; after abort()
nothing is in flight; every request of generate() is answered, or named as lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from live_eval.engines.calls import Calls
from live_eval.engines.engine import EngineState
from live_eval.engines.fingerprint import distance, tolerance
from live_eval.engines.pin import EnginePin
from live_eval.engines.requests import RequestsLost
from live_eval.errors import EngineDied, EngineError, PinMismatch

if TYPE_CHECKING:
    from live_eval.engines.engine import Engine
    from live_eval.engines.group import EngineGroup
    from live_eval.engines.pin import PinTarget
    from live_eval.engines.requests import Forwarded, Generation, GenRequest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PinReport:
    """How a pin went, over all engines that hold the target now."""

    label: str
    digest: str
    labels: dict[str, str]
    """Engine -> the label that it reported after the load."""
    verify_s: float
    """Checking the files."""
    load_s: float
    """The slowest engine: becoming idle, blank weights and the target."""
    fingerprint_s: float
    """The slowest engine."""
    moved: float
    """Smallest distance to what an engine computed before, in nats; 0 if the outputs are the same."""
    known: bool
    """Whether an earlier load of the same digest was compared with, on every engine."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Engines that failed and are being launched again, with the reason."""


class Lease:
    """Exclusive use of engines until release(). Also an async context manager that releases."""

    def __init__(
        self, group: EngineGroup, engines: Sequence[Engine], *, owner: str, on_release: Callable[[], None]
    ) -> None:
        """`engines`: those of the group that nobody else uses meanwhile."""
        self.owner = owner
        self.report: PinReport | None = None
        """Of the last pin or repin."""
        self._group = group
        self._engines = tuple(engines)
        self._on_release = on_release
        self._target: PinTarget | None = None
        self._calls = Calls(self._engines, group.settings)
        self._pinning: asyncio.Task[PinReport] | None = None
        self._one_pin = asyncio.Lock()
        self._released = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    async def pin(self, target: PinTarget) -> PinReport:
        """Put the target on every engine that can serve, and prove it.

        CorruptVersion or another StoreError: the files are bad, and no engine has loaded them. If it is
        their content, and not their headers, what the engines held is gone.
        EngineError (LoadFailed, PinMismatch, ...): no engine holds the target; each that was
        tried is being killed and launched again. Requests still in flight are aborted first.
        If the caller is cancelled the load is not: release() waits for it.
        """
        self._check_open()
        await self._calls.abort()
        async with self._one_pin:
            for engine in self._engines:
                engine.unpinned()
            self._target = None
            report = await self._pin_shielded(target)
            self._target = target
            self._calls.open()
            return report

    async def repin(self) -> None:
        """Take engines that came back into the lease; waits for one only if none is left.

        Raises what pin() raises; engines that still hold the target go on undisturbed.
        """
        target = self._need_target()
        async with self._one_pin:
            if not self._pinned():
                await self._wait_usable()
            if any(engine.state is EngineState.READY for engine in self._engines):
                await self._pin_shielded(target)

    async def generate(
        self,
        requests: Sequence[GenRequest],
        *,
        on_done: Callable[[list[Generation]], None] | None = None,
    ) -> list[Generation]:
        """Answer all requests, in their order, on the engines that hold the target.

        Up to `max_prompts_per_call` prompts go to one engine in one call; more are spread.
        `on_done` is told the answers of each call as it ends. After abort() every answer that is
        not whole has finish_reason `abort`. RequestsLost (an EngineDied): engines died or hung
        with some of the requests; repin() and ask for those again.
        """
        self._check_open()
        self._need_target()
        done, lost = await self._calls.run(requests, on_done)
        if lost:
            raise RequestsLost(
                f"{len(lost)} of {len(requests)} requests are lost: {self._calls.last_loss}",
                done=done,
                lost=lost,
            )
        order = {request.request_id: number for number, request in enumerate(requests)}
        return sorted(done, key=lambda generation: order[generation.request_id])

    async def forward(self, method: str, path: str, *, body: bytes, content_type: str) -> Forwarded | None:
        """Hand one HTTP request to an engine that holds the target; None after abort().

        EngineError: it is lost with its engine; repin() and send it again.
        """
        self._check_open()
        self._need_target()
        return await self._calls.forward(
            method,
            path,
            body=body,
            content_type=content_type,
            timeout_s=self._group.settings.request_timeout_s,
        )

    async def check_after(self) -> None:
        """Prove that every engine of the lease still holds the target; PinMismatch if one does not.

        Call it when nothing is in flight. An engine that fails is quarantined.
        """
        target = self._need_target()
        if self._calls.num_running:
            raise EngineError(f"{self._calls.num_running} calls are in flight; the check needs idle engines")
        engines = self._pinned()
        if not engines:
            raise EngineError("no engine of the lease is left to check")
        found = await asyncio.gather(
            *(self._check_one(engine, target) for engine in engines), return_exceptions=True
        )
        for error in found:
            if isinstance(error, BaseException):
                raise error

    async def abort(self) -> None:
        """Stop sending, end what is in flight, wait until it is over: well under a second.

        Every generate() under way returns what it has; later ones answer `abort` until a new pin.
        """
        await self._calls.abort()

    async def release(self) -> None:
        """Give the engines back; aborts what is in flight. Harmless when called again."""
        if self._released:
            return
        self._released = True
        try:
            if self._pinning is not None:
                await asyncio.gather(self._pinning, return_exceptions=True)
            await self._calls.abort()
        finally:
            for engine in self._engines:
                engine.unpinned()
            self._on_release()

    def _check_open(self) -> None:
        if self._released:
            raise EngineError(f"the lease of {self.owner} is released")

    def _need_target(self) -> PinTarget:
        if self._target is None:
            raise EngineError("nothing is pinned: call pin() first")
        return self._target

    async def _wait_usable(self) -> None:
        await self._group.wait_usable(self._group.settings.usable_timeout_s, among=self._engines)

    def _pinned(self) -> list[Engine]:
        return [engine for engine in self._engines if engine.state is EngineState.PINNED]

    async def _pin_shielded(self, target: PinTarget) -> PinReport:
        self._pinning = asyncio.create_task(self._pin_ready(target), name=f"pin-{target.label}")
        self.report = report = await asyncio.shield(self._pinning)
        return report

    async def _pin_ready(self, target: PinTarget) -> PinReport:
        pinner = self._group.pinner
        headers_s = await pinner.check_headers(target)
        checking = asyncio.create_task(pinner.check_content(target))
        try:
            report = await self._pin_checked(target, checking)
            return replace(report, verify_s=headers_s + report.verify_s)
        finally:
            checking.cancel()  # it may go on where the pin was cancelled

    async def _pin_checked(self, target: PinTarget, checking: asyncio.Task[float]) -> PinReport:
        if not any(engine.usable for engine in self._engines):
            await checking  # nothing can be done beside it
        await self._wait_usable()
        lives = {engine: engine.life for engine in self._engines if engine.state is EngineState.READY}
        outcomes = await asyncio.gather(
            *(self._pin_one(engine, target, checking) for engine in lives), return_exceptions=True
        )
        found = dict(zip(lives, outcomes, strict=True))
        pins = {engine: pin for engine, pin in found.items() if isinstance(pin, EnginePin)}
        failed = {engine: error for engine, error in found.items() if isinstance(error, EngineError)}
        faults = [each for each in outcomes if not isinstance(each, (EnginePin, EngineError))]
        failed |= _disagreeing(pins, target)
        for engine, pin in list(pins.items()):
            if engine not in failed and not engine.pinned(pin, life=lives[engine]):
                failed[engine] = EngineDied(f"engine {engine.name} was lost right after the load")
        for engine, error in failed.items():
            logger.warning("engine %s is not pinned to %s: %s", engine.name, target.label, error)
            pins.pop(engine, None)
            engine.quarantine(error, life=lives[engine])
        verify_s = await checking  # bad files are no engine's fault
        if faults or not pins:
            raise next(iter((*faults, *failed.values())), EngineDied("all engines were lost before the load"))
        for engine, pin in pins.items():
            self._group.pinner.book.add(target.digest, engine.flavour, pin.held.vector)
            self._group.pinner.book.add_checksum(target.digest, engine.flavour, pin.held.checksum)
        return _report(target, pins, failed, verify_s=verify_s)

    async def _pin_one(self, engine: Engine, target: PinTarget, checking: asyncio.Task[float]) -> EnginePin:
        """The engine's pin; a server that dies meanwhile ends it at once, by an EngineDied."""
        before = engine.held
        if before is None:
            raise EngineDied(f"engine {engine.name} was lost before the load")
        self._group.load_began(engine, target.label)
        return await engine.while_alive(
            self._group.pinner.pin(
                engine.client, target, before=before, flavour=engine.flavour, checking=checking
            )
        )

    async def _check_one(self, engine: Engine, target: PinTarget) -> None:
        held, life = engine.held, engine.life
        if held is None:
            raise EngineDied(f"engine {engine.name} was lost before the check")
        try:
            await self._group.pinner.check(engine.client, target, held=held, flavour=engine.flavour)
        except EngineError as error:
            engine.quarantine(error, life=life)
            raise


def _disagreeing(pins: dict[Engine, EnginePin], target: PinTarget) -> dict[Engine, EngineError]:
    """Engines of one flavour must compute the same; where they do not, none of them is believed."""
    failed: dict[Engine, EngineError] = {}
    by_flavour: dict[str, list[Engine]] = {}
    for engine in pins:
        by_flavour.setdefault(engine.flavour, []).append(engine)
    for flavour, engines in by_flavour.items():
        near = tolerance(flavour.split("/")[1])
        first = engines[0]
        apart = max(distance(pins[first].held.vector, pins[other].held.vector) for other in engines)
        if apart > near:
            names = ", ".join(engine.name for engine in engines)
            error = PinMismatch(
                f"engines {names} compute different log-probs after loading {target.label!r}: {apart:.3g} "
                f"apart (allowed {near:g})"
            )
            failed |= dict.fromkeys(engines, error)
        checksums = {engine.name: pins[engine].held.checksum for engine in engines}
        if len(set(checksums.values())) > 1:
            listed = ", ".join(f"{name} {checksum or 'none'}" for name, checksum in checksums.items())
            error = PinMismatch(f"engines' checksums differ after loading {target.label!r}: {listed}")
            failed |= dict.fromkeys(engines, error)
    return failed


def _report(
    target: PinTarget, pins: dict[Engine, EnginePin], failed: dict[Engine, EngineError], *, verify_s: float
) -> PinReport:
    return PinReport(
        label=target.label,
        digest=target.digest,
        labels={engine.name: pin.label for engine, pin in pins.items()},
        verify_s=verify_s,
        load_s=max(pin.load_s for pin in pins.values()),
        fingerprint_s=max(pin.fingerprint_s for pin in pins.values()),
        moved=min(pin.moved for pin in pins.values()),
        known=all(pin.known for pin in pins.values()),
        dropped={engine.name: str(error) for engine, error in failed.items()},
    )
