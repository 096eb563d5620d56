"""Draws the figures: one panel a size, one pair of bars a ratio, goals as marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.figures import Shown

COLOURS = ("#2f6f9f", "#c9782b", "#6a8f3c", "#8a5a9e")
BAR = 0.38
SMALLEST = 0.011
"""Ratios below have no place on a logarithmic axis, the few below 0 among them."""


def draw(path: Path, rows: Sequence[Shown]) -> None:
    """Write the picture of those that are ratios; its kind follows from the ending of `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = [row for row in rows if row.figure.unit == "ratio"]
    sizes = list(dict.fromkeys(row.size for row in rows))
    names = list(dict.fromkeys(row.what for row in rows))
    places = list(dict.fromkeys(row.place for row in rows))
    figure, panels = plt.subplots(
        1, len(sizes), figsize=(4.2 + 3.6 * len(sizes), 1.4 + 0.62 * len(names)), sharey=True, squeeze=False
    )
    for panel, size in zip(panels[0], sizes, strict=True):
        for row in (row for row in rows if row.size == size):
            number = places.index(row.place)
            y = names.index(row.what) + (number - (len(places) - 1) / 2) * BAR
            value, goal = row.figure.value, row.figure.goal
            shown = max(value, SMALLEST)
            colour = COLOURS[number % len(COLOURS)]
            panel.barh(y, shown, BAR * 0.92, color=colour, label=row.place)
            panel.text(max(shown, goal or 0) * 1.1, y, f"{value:.2f}", va="center", fontsize=8)
            if goal is not None:
                panel.plot([goal] * 2, [y - BAR / 2, y + BAR / 2], color="black", linewidth=2)
        panel.set_xscale("log")
        panel.set_xlim(SMALLEST / 1.1, 4 * max(row.figure.value for row in rows))
        panel.axvline(1, color="grey", linewidth=0.8, linestyle=":")
        panel.set_title(f"weights of {size}", fontsize=10)
        panel.set_xlabel("ratio, logarithmic (black mark: goal)")
        panel.spines[["top", "right"]].set_visible(False)
    first = panels[0][0]
    first.set_yticks(range(len(names)), names, fontsize=9)
    first.invert_yaxis()
    handles, labels = first.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        unique.values(), unique.keys(), loc="lower right", ncols=len(unique), fontsize=9, frameon=False
    )
    figure.suptitle("What a sync costs, over what else it could cost", fontsize=11)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(path, dpi=130)
    plt.close(figure)
