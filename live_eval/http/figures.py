"""Scores and their uncertainty, as the API tells them.

A metric's interval stands beside it in the ledger, under the metric's name with a suffix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean
from typing import Any

LOW, HIGH = "/low", "/high"
LEVEL = 0.95


def interval(metrics: Mapping[str, float], name: str) -> dict[str, Any] | None:
    """The interval of a metric, where the ledger has one."""
    low, high = metrics.get(name + LOW), metrics.get(name + HIGH)
    if low is None or high is None:
        return None
    return {"low": low, "high": high, "level": LEVEL, "method": ""}


def metric_items(metrics: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Every metric with its interval; ends of intervals are no metrics of their own."""
    return {
        name: {"value": value, "interval": interval(metrics, name)}
        for name, value in metrics.items()
        if not name.endswith((LOW, HIGH)) or name.rpartition("/")[0] not in metrics
    }


def paired_interval(differences: Mapping[str, Sequence[float]]) -> dict[str, Any] | None:
    """The 95 % interval of a mean difference: samples of one row are one observation, since they go
    together. By the normal distribution; None below two rows."""
    rows = [fmean(values) for values in differences.values()]
    if len(rows) < 2:
        return None
    mean = fmean(rows)
    spread = math.sqrt(sum((row - mean) ** 2 for row in rows) / (len(rows) - 1) / len(rows))
    reach = NormalDist().inv_cdf(0.5 + LEVEL / 2) * spread
    return {"low": mean - reach, "high": mean + reach, "level": LEVEL, "method": "paired, by row, normal"}
