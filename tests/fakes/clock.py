"""A clock that moves when it is told to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FakeClock:
    """Callable like time.time and time.monotonic."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def elapse(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
