"""An engine group that is launched when its first user says with which checkpoint.

For a service that was told no model: until someone names a checkpoint nobody knows what to launch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from live_eval.engines.engine import Engine
    from live_eval.engines.group import EngineGroup
    from live_eval.engines.lease import Lease


class EnginesOnDemand:
    """Makes its group at the first lease; then it is that group."""

    def __init__(self, make: Callable[[str], Awaitable[EngineGroup]]) -> None:
        """`make` starts a group for the owner of the first lease; what it raises the lease raises."""
        self._make = make
        self._group: EngineGroup | None = None
        self._lock = asyncio.Lock()

    @property
    def engines(self) -> tuple[Engine, ...]:
        """None yet, or the group's."""
        return self._group.engines if self._group is not None else ()

    async def lease(self, owner: str, num_engines: int | None = None) -> Lease:
        """Engines for one user alone, all or so many; the first one waits until they have started."""
        async with self._lock:
            if self._group is None:
                self._group = await self._make(owner)
        return await self._group.lease(owner, num_engines)
