"""A service that ended before it did anything: told to by a first Ctrl-C, or cut by a second."""

from __future__ import annotations

from typing import Any


class EndedService:
    """In place of `live_eval.service.Service`."""

    stopped = True
    cut = False
    """Whether its run is cut by a second Ctrl-C."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    async def run(self) -> None:
        """Nothing, or KeyboardInterrupt."""
        if self.cut:
            raise KeyboardInterrupt
