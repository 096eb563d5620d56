"""Draws a run: six panels over time, what must be flat and what may grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.soak.trends import MIB, OURS, WARM_SHARE, cpu_share

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.soak.samples import Look

COLOURS = {"trainer": "#2f6f9f", "receiver": "#c9782b", "service": "#6a8f3c", "engine": "#8a5a9e"}
PARTS = (*OURS, "engine")


def draw(path: Path, looks: Sequence[Look]) -> None:
    """Write the picture; its kind follows from the ending of `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 3, figsize=(14, 7.2))
    minutes = [look.at_s / 60 for look in looks]

    def lines(panel: Any, title: str, label: str, values: dict[str, Callable[[Look], float]]) -> None:
        for name, value in values.items():
            points = [value(look) for look in looks]
            panel.plot(minutes, points, label=name, color=COLOURS.get(name), linewidth=1.4)
        panel.set_title(title, fontsize=10, loc="left")
        panel.set_ylabel(label, fontsize=9)
        panel.set_ylim(bottom=0)
        panel.legend(fontsize=8, frameon=False, loc="lower right")

    lines(
        panels[0][0], "memory of each part, without shared memory", "MiB",
        {name: lambda look, name=name: look.memory[name] / MIB for name in PARTS},
    )  # fmt: skip
    lines(
        panels[0][1], "open files", "files",
        {name: lambda look, name=name: look.files[name] for name in PARTS},
    )  # fmt: skip
    lines(
        panels[0][2], "threads (solid) and processes (dotted)", "number",
        {name: lambda look, name=name: look.threads[name] for name in OURS},
    )  # fmt: skip
    for name in OURS:
        counts = [look.processes[name] for look in looks]
        panels[0][2].plot(minutes, counts, color=COLOURS[name], linestyle=":", linewidth=1.4)
    lines(
        panels[1][0], "shared memory and version store", "MiB",
        {
            "Ray's object store": lambda look: look.object_store / MIB,
            "version store": lambda look: look.store / MIB,
        },
    )  # fmt: skip
    lines(
        panels[1][1], "what is kept of each eval: it may grow", "MiB",
        {
            "ledger": lambda look: look.ledger / MIB,
            "samples, results, logs": lambda look: look.rest / MIB,
        },
    )  # fmt: skip
    lines(
        panels[1][2], "what was done", "number",
        {
            "versions sealed": lambda look: look.syncs.get("sealed", 0),
            "evals that succeeded": lambda look: look.jobs.get("succeeded", 0),
            "versions discarded": lambda look: look.syncs.get("discarded", 0),
        },
    )  # fmt: skip
    for panel in panels.flat:
        panel.set_xlabel("minutes", fontsize=9)
        panel.axvspan(0, minutes[-1] * WARM_SHARE, color="#00000010", linewidth=0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    figure.suptitle(
        f"{minutes[-1]:.0f} minutes of steady syncs and evals, {cpu_share(looks):.2f} of a core "
        "(grey: warm-up, not judged)",
        fontsize=12,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    figure.savefig(path, dpi=110)
    plt.close(figure)
