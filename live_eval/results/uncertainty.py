"""Intervals and differences of results as people read them."""

from __future__ import annotations

from collections.abc import Mapping

METHODS = {
    "wilson": "Wilson's score interval on the effective number of samples, by prompt (rewards 0 and 1)",
    "t": "Student's t with the standard error clustered by prompt (other rewards)",
    "bonett_price": "adjusted Wald for paired proportions (Bonett and Price 2012; rewards 0 and 1)",
    "paired_t": "Student's t over the prompts' differences (other rewards)",
}
"""The intervals' methods in words; docs/evaluation.md names the sources."""
MARKS = "▲ ▼: the paired 95 % interval, on the prompts that both versions scored, leaves 0 out"


def interval(low: float | None, high: float | None) -> str:
    """`0.710..0.830`; empty where there is none."""
    return "" if low is None or high is None else f"{low:.3f}..{high:.3f}"


def signed(value: float | None, low: float | None, high: float | None) -> str:
    """`▲ +0.040`: with a mark if the interval leaves 0 out; empty without a value."""
    if value is None:
        return ""
    mark = "▲ " if low is not None and low > 0 else "▼ " if high is not None and high < 0 else ""
    return f"{mark}{value:+.3f}"


def difference(metrics: Mapping[str, float], name: str) -> str:
    """`▲ +0.040 (+0.010..+0.070) v6`: a difference with its interval and the version; empty without one."""
    found, low, high = (metrics.get(f"{name}/{key}") for key in ("diff", "low", "high"))
    if found is None:
        return ""
    bounds = "" if low is None or high is None else f" ({low:+.3f}..{high:+.3f})"
    return f"{signed(found, low, high)}{bounds} v{metrics[f'{name}/version']:.0f}"
