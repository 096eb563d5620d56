"""An engine group without engines: leases that answer by a function and fail by a script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fakes.source import FakeGeneration, FakeSource

if TYPE_CHECKING:
    from live_eval.engines.pin import PinTarget
    from live_eval.evaluation.source import GenRequest

OnPin = Callable[["PinTarget"], Awaitable[None]]


@dataclass(kw_only=True)
class FakeGroup:
    """Stands in for an EngineGroup; `events` records what its leases were asked, in order."""

    make_source: Callable[[], FakeSource] = FakeSource
    """Makes what answers from one pin to the next; its label becomes that of the pin."""
    pins: list[Exception | None] = field(default_factory=list)
    """What the next pins raise, one a pin."""
    on_pin: OnPin | None = None
    """Awaited in the middle of each load."""
    on_lease: Exception | None = None
    """Raised instead of a lease."""
    on_release: Awaitable[None] | None = None
    """Awaited before a lease is given back, as a load that hangs is."""
    events: list[str] = field(default_factory=list)
    num_leases: int = 0
    """Leases that are out."""

    async def lease(self, owner: str, num_engines: int | None = None) -> FakeLease:
        self.events.append(f"lease {owner}" if num_engines is None else f"lease {owner} on {num_engines}")
        if self.on_lease is not None:
            raise self.on_lease
        assert self.num_leases == 0 or num_engines is not None, "a second lease while one is out"
        self.num_leases += 1
        return FakeLease(self)


class FakeLease:
    """Stands in for a Lease: after an abort it answers nothing until the next pin."""

    def __init__(self, group: FakeGroup) -> None:
        self._group = group
        self._source: FakeSource | None = None

    async def pin(self, target: PinTarget) -> str:
        group, self._source = self._group, None
        group.events.append(f"pin {target.label}")
        error = group.pins.pop(0) if group.pins else None
        if error is not None:
            raise error
        target.verify()
        if group.on_pin is not None:
            await group.on_pin(target)
        self._source = group.make_source()
        self._source.label = target.label
        return f"pinned {target.label}"

    async def generate(self, requests: Sequence[GenRequest]) -> Sequence[FakeGeneration]:
        return await self._pinned().generate(requests)

    async def check_after(self) -> None:
        await self._pinned().check_after()

    async def repin(self) -> None:
        await self._pinned().repin()

    async def abort(self) -> None:
        self._group.events.append("abort")
        if self._source is not None:
            await self._source.abort()

    async def release(self) -> None:
        if self._group.on_release is not None:
            await self._group.on_release
        self._group.events.append("release")
        self._group.num_leases -= 1

    def _pinned(self) -> FakeSource:
        assert self._source is not None, "asked on engines that hold nothing"
        return self._source
