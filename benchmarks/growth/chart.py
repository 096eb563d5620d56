"""Draws the panels: small multiples of times over what grows, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.growth.curves import HELD, MEMCPY, QUEUED, SEALED, Panel

if TYPE_CHECKING:
    from pathlib import Path

COLOURS = {HELD: "#2f6f9f", SEALED: "#c9782b", QUEUED: "#6a8f3c", MEMCPY: "#8a8a8a"}


def draw(path: Path, panels: Sequence[Panel]) -> None:
    """Write the picture; its kind follows from the ending of `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator

    figure, axes = plt.subplots(2, 2, figsize=(9.2, 6.8), squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        for name, points in panel.curves.items():
            amounts = [amount for amount, _ in points]
            middle = [times.median * 1000 for _, times in points]
            halves = [times.middle_half for _, times in points]
            colour = COLOURS[name]
            style = "--" if name == MEMCPY else "-"
            axis.plot(amounts, middle, style, marker="o", markersize=4, color=colour, label=name)
            axis.fill_between(
                amounts,
                [low * 1000 for low, _ in halves],
                [high * 1000 for _, high in halves],
                color=colour,
                alpha=0.2,
                linewidth=0,
            )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks(amounts := [amount for amount, _ in next(iter(panel.curves.values()))])
        axis.set_xticklabels(
            [f"{amount:,g}" if amount >= 1 else f"{amount:.2g}" for amount in amounts], fontsize=8
        )
        axis.minorticks_off()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_xlabel(panel.quantity)
        axis.set_ylabel("milliseconds")
        axis.set_title(f"by {panel.quantity} ({panel.constant})", fontsize=10)
        axis.grid(visible=True, color="#dddddd", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=8, frameon=False)
    figure.suptitle("How the cost of a sync grows (medians; shaded: the middle half)", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)
