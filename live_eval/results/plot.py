"""A picture of a run: score by policy version with its 95 % interval, one line a dataset.

Knows results only. Invariant: only evaluations that succeeded are points; a version whose
evaluation did not succeed is marked in a strip below, so that a gap in a line has a reason.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.reasons import JobStatus

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from protocol.messages import JobResult

# Okabe and Ito's palette, whose colours stay apart for all common kinds of colour blindness, less
# its yellow (too pale on white). Markers and dashes repeat the distinction for print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", "-.", ":")

_UNFINISHED = {
    JobStatus.SUPERSEDED: "|",
    JobStatus.CANCELLED: "x",
    JobStatus.DROPPED: "1",
    JobStatus.FAILED: "*",
    JobStatus.TIMED_OUT: "+",
}
_MARK_COLOUR = "#444444"
_ROW_SHARE = 0.05
"""Height of one row of marks below the scores, as a share of the range of scores."""


def plot_scores(results: Sequence[JobResult], path: Path, *, title: str = "") -> None:
    """Draw the results to a PNG at `path`, replacing it in one step.

    Scores of checkpoints with a known train step get a panel of their own, by step.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    policy = [result for result in results if result.policy_version is not None]
    checkpoints = [r for r in results if r.policy_version is None and r.train_step is not None]
    frame = _Frame.around([*policy, *checkpoints])
    num_panels = 2 if checkpoints else 1
    figure = Figure(figsize=(3.0 + 5.0 * num_panels, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, num_panels, squeeze=False, sharey=True)[0]
    _draw(axes[0], policy, frame, step="policy_version")
    axes[0].set(xlabel="policy version", ylabel="score (mean reward)")
    if checkpoints:
        _draw(axes[1], checkpoints, frame, step="train_step")
        axes[1].set_xlabel("train step of the checkpoint")
    _add_legend(figure, axes)
    if title:
        figure.suptitle(title)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        figure.savefig(partial, format="png")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Frame:
    """What all panels share: a look for each dataset, the range of scores, a row for each mark."""

    datasets: tuple[str, ...]
    low: float
    high: float
    marks: tuple[JobStatus, ...]

    @classmethod
    def around(cls, results: Sequence[JobResult]) -> _Frame:
        scores = [r.score for r in results if r.status == JobStatus.SUCCEEDED and r.score is not None]
        scores += [bound for result in results for bound in _bounds(result)]
        low, high = min([0.0, *scores]), max([1.0, *scores])
        return cls(
            datasets=tuple(sorted({result.dataset for result in results})),
            low=low,
            high=high,
            marks=tuple(s for s in _UNFINISHED if any(result.status == s for result in results)),
        )

    @property
    def row_height(self) -> float:
        return _ROW_SHARE * (self.high - self.low)

    @property
    def bottom(self) -> float:
        return self.low - self.row_height * len(self.marks)


def _bounds(result: JobResult) -> tuple[float, ...]:
    """The ends of the score's interval; empty where there is none."""
    low, high = result.metrics.get("score/low"), result.metrics.get("score/high")
    return () if low is None or high is None else (low, high)


def _draw_intervals(axes: Axes, results: Sequence[JobResult], *, step: str, colour: str) -> None:
    """An upright line through each point."""
    known = [(getattr(result, step), bounds) for result in results if (bounds := _bounds(result))]
    if known:
        at, lows, highs = zip(*((at, low, high) for at, (low, high) in known), strict=True)
        axes.vlines(list(at), list(lows), list(highs), color=colour, alpha=0.5, linewidth=1.2, clip_on=False)


def _draw(axes: Axes, results: Sequence[JobResult], frame: _Frame, *, step: str) -> None:
    """One panel: a line of scores a dataset, and below them the marks of what has no score."""
    from matplotlib.ticker import MaxNLocator

    for index, dataset in enumerate(frame.datasets):
        scored = [
            result for result in results if result.dataset == dataset and result.status == JobStatus.SUCCEEDED
        ]
        points = sorted((getattr(each, step), each.score) for each in scored if each.score is not None)
        if points:
            _draw_intervals(axes, scored, step=step, colour=_COLOURS[index % len(_COLOURS)])
            axes.plot(
                [at for at, _ in points],
                [score for _, score in points],
                color=_COLOURS[index % len(_COLOURS)],
                marker=_MARKERS[index % len(_MARKERS)],
                linestyle=_DASHES[index % len(_DASHES)],
                label=dataset,
                clip_on=False,
            )
    for row, status in enumerate(frame.marks):
        steps = sorted({getattr(result, step) for result in results if result.status == status})
        if steps:
            height = frame.low - (row + 0.5) * frame.row_height
            marks = axes.scatter(steps, [height] * len(steps), marker=_UNFINISHED[status], color=_MARK_COLOUR)
            marks.set_label(status.value.replace("_", " "))
    if frame.marks:
        axes.axhspan(frame.bottom, frame.low, color="#f0f0f0", zorder=0)
    axes.set_ylim(frame.bottom, frame.high + 0.03 * (frame.high - frame.low))
    slack = 1e-6 * (frame.high - frame.low)  # ticks are sums of floats
    axes.set_yticks([y for y in axes.get_yticks() if frame.low - slack <= y <= frame.high + slack])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len({getattr(result, step) for result in results}) == 1:
        axes.set_xticks([getattr(results[0], step)])  # around one point the locator has only fractions
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if not results:
        axes.text(0.5, 0.5, "no evaluation has finished", ha="center", transform=axes.transAxes)


def _add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, beside them: it never covers a point."""
    handles = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
