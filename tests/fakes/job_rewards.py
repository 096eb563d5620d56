"""A reward that a random model gets some of: no two versions are likely to have the same mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from live_eval.evaluation.rewards import RewardSample


def spread(sample: RewardSample) -> float:
    """Between 0 and 1, by the characters of the answer."""
    return sum(map(ord, sample.response)) % 101 / 100
