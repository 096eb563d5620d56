"""What is drawn: panels of curves of measured times. Knows nothing of how they came about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Shown

if TYPE_CHECKING:
    from benchmarks.figures import Measured

HELD, SEALED, QUEUED, MEMCPY = "trainer held", "commit -> sealed", "sealed -> jobs on record", "memcpy"


@dataclass(frozen=True, slots=True)
class Panel:
    """Times over one quantity, all else being equal."""

    quantity: str
    """What grows, as the axis says it."""
    constant: str
    """What stays as it is."""
    curves: dict[str, list[tuple[float, Measured]]] = field(default_factory=dict)
    """Name -> amount of the quantity and times, by rising amount."""

    def add(self, name: str, amount: float, times: Measured) -> None:
        """One more point of a curve."""
        self.curves.setdefault(name, []).append((amount, times))


def shown(panels: Sequence[Panel]) -> Iterator[Shown]:
    """Every point as a figure."""
    for panel in panels:
        for name, points in panel.curves.items():
            for amount, times in points:
                size = f"{amount:g} {panel.quantity}"
                figure = Figure(
                    figure=f"{name}, {size}, {panel.constant}",
                    value=round(times.median * 1000, 4),
                    goal=None,
                    peer="",
                    unit="ms",
                )
                low, high = times.middle_half
                yield Shown(
                    figure=figure,
                    what=name,
                    size=size,
                    place=panel.constant,
                    absolute=f"{low * 1000:.3g} to {high * 1000:.3g} ms",
                )
