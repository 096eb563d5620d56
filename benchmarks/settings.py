"""What one run of the benchmarks measures; knows nothing of how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MIN_ROUNDS = 5
"""A median of fewer says little."""
NUM_ROUNDS = 11
"""Unless the user says otherwise: single steps differ by as much as a copy takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """One run: sizes, places and how often."""

    gigabytes: tuple[float, ...] = (0.25, 1.0)
    """Sizes of the weights, 10^9 bytes."""
    places: tuple[Path, ...]
    """Directories below which stores and exports are written."""
    num_small: int = 100_000
    """Small tensors of a sync whose cost is counted by the tensor; 0: no such sync."""
    num_threads: int = 1
    """Threads of the training step, of the staging copy and of the memcpy beside it."""
    num_rounds: int = NUM_ROUNDS
    """Times that each kind of step is measured; figures are medians of them."""
    small_gb: float = 0.5
    """Below this size half as often again: steps are short, and what a sync costs is less of them."""
    min_step_s: float = 0.5
    """A training step is at least as long as this, and longer than what a sync takes in the background."""
    max_step_s: float = 8.0

    def rounds_of(self, gigabytes: float) -> int:
        """How often weights of this size are measured."""
        return self.num_rounds * 3 // 2 if gigabytes < self.small_gb else self.num_rounds


def quick(settings: Settings) -> Settings:
    """A run of seconds that shows that all parts work; its figures mean nothing."""
    return Settings(
        gigabytes=(0.004,),
        places=settings.places,
        num_threads=settings.num_threads,
        num_small=min(settings.num_small, 500),
        num_rounds=1,
        small_gb=0.0,
        min_step_s=0.05,
        max_step_s=0.1,
    )
