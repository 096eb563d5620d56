"""What a person sees while the demo runs: bars on a terminal, plain lines elsewhere.

It is told what happened and draws; it asks nobody and decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from live_eval.reasons import JobStatus

if TYPE_CHECKING:
    from rich.console import Console

    from protocol.messages import JobEvent

STYLES = {
    JobStatus.SUCCEEDED: "green",
    JobStatus.SUPERSEDED: "bright_black",
    JobStatus.CANCELLED: "yellow",
    JobStatus.DROPPED: "yellow",
    JobStatus.FAILED: "red",
    JobStatus.TIMED_OUT: "red",
}


PATH_WIDTH = 24
"""Of a checkpoint's path beside a bar, so that the bar has room on 80 columns."""


class DemoView:
    """Progress of training and of the jobs, and a line for each thing that ended."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._jobs: dict[str, TaskID] = {}
        self._training: TaskID | None = None

    @contextmanager
    def live(self) -> Iterator[None]:
        """Draw while the block runs."""
        with self._progress:
            yield

    def say(self, text: str, *, style: str = "") -> None:
        """One line, with the seconds since the start."""
        elapsed = time.monotonic() - self._began
        self._progress.console.print(
            f"[{elapsed:6.1f}s] {text}", style=style or None, markup=False, highlight=False, soft_wrap=True
        )

    def training(self, *, num_syncs: int, num_versions: int, loss: float | None) -> None:
        """Training has made `num_syncs` of `num_versions` syncs."""
        if self._training is None:
            self._training = self._progress.add_task("training (syncs)", total=num_versions, note="")
        note = "" if loss is None else f"loss {loss:.3f}"
        self._progress.update(self._training, completed=num_syncs, note=note)

    def job(self, event: JobEvent) -> None:
        """A job changed: a bar while it runs, a line when it ended."""
        status = JobStatus(event.status)
        if status is JobStatus.RUNNING:
            self._running(event)
        elif status.terminal:
            bar = self._jobs.pop(event.job_id, None)
            if bar is not None:
                self._progress.remove_task(bar)
            self.say(describe(event), style=STYLES[status])

    def _running(self, event: JobEvent) -> None:
        bar = self._jobs.get(event.job_id)
        total = max(event.num_expected, 1)
        if bar is None:
            bar = self._progress.add_task(f"eval {title(event, path_width=PATH_WIDTH)}", total=total, note="")
            self._jobs[event.job_id] = bar
        note = "" if event.score is None else f"mean {event.score:.3f}"
        self._progress.update(bar, completed=event.num_done, total=total, note=note)


def title(event: JobEvent, *, path_width: int | None = None) -> str:
    """`version 7 on rev`, or the checkpoint's path in place of the version, shortened to `path_width`."""
    if event.policy_version is not None:
        return f"version {event.policy_version} on {event.dataset}"
    path = event.checkpoint if path_width is None else shortened(event.checkpoint, path_width)
    return f"{path} on {event.dataset}"


def shortened(path: str, width: int) -> str:
    """The path without its middle; most of what is left is its end, by which paths differ."""
    if len(path) <= width:
        return path
    head = width // 3
    return f"{path[:head]}…{path[head + 1 - width :]}"


def describe(event: JobEvent) -> str:
    """A finished job in one line."""
    outcome = f"{event.status} ({event.reason})" if event.status != JobStatus.SUCCEEDED else "score"
    score = "" if event.score is None else f" {event.score:.3f}"
    return f"{title(event)}: {outcome}{score}  [{event.num_done}/{event.num_expected} samples]"
