"""What the looks of a run say: how fast each thing grows, and whether that is flat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from benchmarks.soak.samples import Look

WARM_SHARE = 0.25
"""Of the run: caches, pools and the store fill in it."""
OURS = ("trainer", "receiver", "service")
MIB = 1 << 20
MEMORY_GOAL = 8 * MIB
"""Growth over the rest of the run; an allocator's own ups and downs are of this order."""
COUNT_GOAL = 1.0
"""Files or processes."""
THREADS_GOAL = 4.0
"""A pool has another thread when more comes at once than ever before, up to its size."""
HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """One thing over the part of the run behind the warm-up."""

    what: str
    unit: str
    slope: float
    """Of the least-squares line, per hour."""
    growth: float
    """Along that line."""
    last: float
    goal: float | None
    """Largest growth that counts as flat; None: it may grow."""

    @property
    def is_flat(self) -> bool | None:
        """None where it may grow."""
        return None if self.goal is None else self.growth <= self.goal

    @property
    def verdict(self) -> str:
        """In a word."""
        return {True: "flat", False: "GROWS", None: ""}[self.is_flat]


def trends(looks: Sequence[Look], *, version_bytes: int) -> list[Trend]:
    """Everything that was looked at; ValueError for fewer than three looks."""
    measured = steady(looks)
    if len(measured) < 3:
        raise ValueError(f"{len(looks)} looks say nothing of a trend")
    found: list[Trend] = []

    def add(what: str, unit: str, goal: float | None, value: Callable[[Look], float]) -> None:
        points = [(look.at_s, value(look)) for look in measured]
        slope = _slope(points)
        growth = slope * (points[-1][0] - points[0][0])
        found.append(
            Trend(what=what, unit=unit, slope=slope * HOUR_S, growth=growth, last=points[-1][1], goal=goal)
        )

    for name in measured[-1].memory:
        goal = MEMORY_GOAL if name in OURS else None
        add(f"memory of the {name}", "B", goal, lambda look, name=name: look.memory[name])
    for name in OURS:
        add(f"open files of the {name}", "", COUNT_GOAL, lambda look, name=name: look.files[name])
        add(f"threads of the {name}", "", THREADS_GOAL, lambda look, name=name: look.threads[name])
        add(f"processes of the {name}", "", COUNT_GOAL, lambda look, name=name: look.processes[name])
    add("Ray's object store", "B", MEMORY_GOAL, lambda look: look.object_store)
    add("version store", "B", version_bytes, lambda look: look.store)
    add("ledger", "B", None, lambda look: look.ledger)
    add("samples, results, logs", "B", None, lambda look: look.rest)
    return found


def steady(looks: Sequence[Look]) -> Sequence[Look]:
    """Those behind the warm-up."""
    return [look for look in looks if look.at_s >= WARM_SHARE * looks[-1].at_s]


def figures(looks: Sequence[Look], found: Sequence[Trend]) -> Iterator[Figure]:
    """As all benchmarks write them."""
    minutes = looks[-1].at_s / 60
    peer = f"{minutes:.0f} minutes, growth behind the first quarter"
    for trend in found:
        yield Figure(
            figure=f"soak: {trend.what}",
            value=round(trend.growth, 2),
            goal=trend.goal,
            peer=f"{peer}; {trend.slope:.4g} per hour, {trend.last:.4g} at the end",
            unit=trend.unit,
        )
    last = looks[-1]
    for what, value, goal, unit in (
        ("syncs", last.syncs.get("syncs", 0.0), None, ""),
        ("syncs not sealed", last.syncs.get("discarded", 0.0), 0.0, ""),
        ("errors kept from the trainer", last.syncs.get("faults", 0.0), 0.0, ""),
        ("longest hold", last.syncs.get("max_held_s", 0.0), None, "s"),
        ("evals that succeeded", float(last.jobs.get("succeeded", 0)), None, ""),
        ("evals that failed", float(last.jobs.get("failed", 0) + last.jobs.get("timed_out", 0)), 0.0, ""),
        ("ledger a finished eval", _per_eval(looks, lambda look: look.ledger), None, "B"),
        ("samples, results, logs a finished eval", _per_eval(looks, lambda look: look.rest), None, "B"),
        ("share of a core, all parts", cpu_share(looks), None, ""),
    ):
        yield Figure(figure=f"soak: {what}", value=round(value, 4), goal=goal, peer=peer, unit=unit)


def cpu_share(looks: Sequence[Look]) -> float:
    """Of one core, behind the warm-up."""
    first, last = steady(looks)[0], looks[-1]
    return (sum(last.cpu_s.values()) - sum(first.cpu_s.values())) / max(last.at_s - first.at_s, 1e-9)


def _per_eval(looks: Sequence[Look], value: Callable[[Look], float]) -> float:
    first, last = steady(looks)[0], looks[-1]
    number = last.jobs.get("succeeded", 0) - first.jobs.get("succeeded", 0)
    return (value(last) - value(first)) / max(number, 1)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
