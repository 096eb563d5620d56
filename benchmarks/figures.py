"""Figures: a ratio, what it is held against, and how it is shown and kept.

Knows nothing of how a figure came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from rich.table import Table


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, as it is written to the file of results."""

    figure: str
    """What was measured, of which size, where."""
    value: float
    goal: float | None
    """Not more than this; None where there is no goal and the figure is to be known."""
    peer: str
    """What it is divided by, with its threads and what it took."""
    unit: str = "ratio"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A figure and its row of the table."""

    figure: Figure
    what: str
    size: str
    place: str
    absolute: str
    """The measured time, its rate, and how far the measurements lie apart."""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without one."""
        return None if self.figure.goal is None else self.figure.value <= self.figure.goal


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Several measurements of one time, in seconds."""

    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """The middle one."""
        ordered = sorted(self.seconds)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    @property
    def middle_half(self) -> tuple[float, float]:
        """The quartiles, as measured values."""
        ordered = sorted(self.seconds)
        quarter = len(ordered) // 4
        return ordered[quarter], ordered[-1 - quarter]

    def describe(self, num_bytes: int) -> str:
        """Median and its rate, the middle half, and the best."""
        low, high = self.middle_half
        rate = f"{num_bytes / self.median / 1e9:.1f} GB/s" if self.median > 0 else "no rate"
        return f"{_ms(self.median)} ms, {rate} ({_ms(low)} to {_ms(high)}, best {_ms(min(self.seconds))})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g}" if abs(seconds) < 1 else f"{seconds * 1000:.0f}"


def table(rows: Sequence[Shown], *, title: str, caption: str) -> Table:
    """All figures, for people."""
    from rich.table import Table

    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for column in ("figure", "size", "place"):
        table.add_column(column)
    table.add_column("value", justify="right")
    table.add_column("goal", justify="right")
    table.add_column("peer")
    table.add_column("unit")
    table.add_column("absolute")
    for number, row in enumerate(rows):
        figure = row.figure
        style = {True: "green", False: "red", None: ""}[row.met]
        table.add_row(
            row.what,
            row.size,
            row.place,
            f"{figure.value:.2f}",
            "" if figure.goal is None else f"<= {figure.goal:g}",
            figure.peer,
            figure.unit,
            row.absolute,
            style=style,
            end_section=number + 1 < len(rows) and (row.size, row.place) != _group(rows[number + 1]),
        )
    return table


def _group(row: Shown) -> tuple[str, str]:
    return row.size, row.place


def write(path: Path, rows: Sequence[Shown]) -> None:
    """The figures as a JSON list."""
    data = msgspec.json.encode([row.figure for row in rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(data, indent=1) + b"\n")
