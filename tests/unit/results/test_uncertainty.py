"""Intervals and differences as people read them."""

from __future__ import annotations

import pytest

from live_eval.results.uncertainty import difference, interval


def test_an_interval() -> None:
    assert interval(0.5, 0.75) == "0.500..0.750"
    assert interval(None, 0.5) == ""


@pytest.mark.parametrize(
    ("diff", "low", "high", "text"),
    [
        (0.1, 0.05, 0.15, "▲ +0.100 (+0.050..+0.150) v6"),
        (-0.1, -0.15, -0.05, "▼ -0.100 (-0.150..-0.050) v6"),
        (0.1, -0.05, 0.25, "+0.100 (-0.050..+0.250) v6"),
        (0.1, None, None, "+0.100 v6"),
    ],
)
def test_a_difference_is_marked_only_where_its_interval_leaves_0_out(
    diff: float, low: float | None, high: float | None, text: str
) -> None:
    values = {"diff": diff, "low": low, "high": high, "version": 6.0}
    metrics = {f"vs_previous/{name}": value for name, value in values.items() if value is not None}
    assert difference(metrics, "vs_previous") == text
    assert difference(metrics, "vs_best") == ""
