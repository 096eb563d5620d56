"""Who has which engines of a group: first come, first served, no engine to two at once.

    num_engines     gets
    None            all engines, once all are free
    N               N of them, those that can serve first; fewer where fewer are left

An engine that is given up (DEAD) is in no part, so a part waits for others to come free instead of failing
on it; only when all are given up someone gets them, to be told so by the pin. Nobody overtakes the one that
waits first, so whoever wants all engines is not kept waiting by those that want some.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from live_eval.engines.engine import EngineState

if TYPE_CHECKING:
    from live_eval.engines.engine import Engine


class Lending:
    """The free engines, and the line for them. Belongs to one event loop."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines
        self._free = set(engines)
        self._first_in_line = asyncio.Lock()
        self._changed = asyncio.Event()

    async def take(self, num_engines: int | None) -> tuple[Engine, ...]:
        """Engines for one user alone, in the group's order; waits for its turn."""
        async with self._first_in_line:
            while not (part := self._part(num_engines)):
                self._changed.clear()
                await self._changed.wait()
            self._free.difference_update(part)
            return part

    def give_back(self, engines: Iterable[Engine]) -> None:
        """These are free again."""
        self._free.update(engines)
        self._changed.set()

    def look_again(self) -> None:
        """An engine has another state."""
        self._changed.set()

    def _part(self, num_engines: int | None) -> tuple[Engine, ...]:
        """What can be taken now; empty: not yet."""
        if num_engines is None:
            return tuple(self._engines) if len(self._free) == len(self._engines) else ()
        left = [engine for engine in self._engines if engine.state is not EngineState.DEAD] or self._engines
        wanted = min(num_engines, len(left))
        free = sorted((each for each in left if each in self._free), key=lambda each: not each.usable)
        chosen = set(free[:wanted])
        return tuple(each for each in self._engines if each in chosen) if len(chosen) == wanted else ()
