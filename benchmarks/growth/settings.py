"""What one run measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class GrowthSettings:
    """Amounts of each quantity, rising, and how often."""

    gigabytes: tuple[float, ...] = (0.0625, 0.125, 0.25, 0.5, 1.0)
    tensors: tuple[int, ...] = (300, 1_000, 10_000, 100_000)
    bytes_of_tensors: int = 102_400_000
    versions: tuple[int, ...] = (3, 6, 12, 25, 50, 100)
    bytes_of_version: int = 4_000_000
    datasets: tuple[int, ...] = (1, 4, 16, 64)
    num_rounds: int = 5


QUICK = GrowthSettings(
    gigabytes=(0.001, 0.002),
    tensors=(10, 20),
    bytes_of_tensors=20_000,
    versions=(2, 3),
    bytes_of_version=100_000,
    datasets=(1, 2),
    num_rounds=1,
)
"""A run of seconds that shows that all parts work; its figures mean nothing."""
