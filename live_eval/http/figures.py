"""Scores and their uncertainty, as the API tells them: docs/evaluation.md says how they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from live_eval.evaluation.intervals import estimate_difference, is_binary

LEVEL = 0.95
_PARTS = ("/low", "/high", "/se", "/n_eff")
"""What stands beside a metric to say how sure it is."""
_DIFF = "/diff"


def interval(metrics: Mapping[str, float], name: str) -> dict[str, Any] | None:
    """The interval of a metric, where there is one."""
    base = name.removesuffix(_DIFF)
    low, high = metrics.get(f"{base}/low"), metrics.get(f"{base}/high")
    if low is None or high is None:
        return None
    method = "paired" if name.endswith(_DIFF) else "wilson" if f"{base}/n_eff" in metrics else "t"
    return {"low": low, "high": high, "level": LEVEL, "method": method}


def metric_items(metrics: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Every metric with its interval; parts of intervals are no metrics of their own."""
    return {
        name: {"value": value, "interval": interval(metrics, name)}
        for name, value in metrics.items()
        if not name.endswith(_PARTS)
    }


def paired_interval(
    differences: Mapping[str, Sequence[float]], rewards: Sequence[float]
) -> dict[str, Any] | None:
    """The 95 % interval of a mean difference: samples of one row are one observation, since they go
    together. `rewards`: all that were compared. None below two rows."""
    rows = [fmean(values) for values in differences.values()]
    found = estimate_difference(rows, binary=is_binary(rewards)) if len(rows) > 1 else None
    if found is None or found.low is None or found.high is None:
        return None
    return {"low": found.low, "high": found.high, "level": LEVEL, "method": found.method}
