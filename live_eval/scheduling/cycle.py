"""Which datasets a due version is evaluated on, where some are not evaluated every time.

A dataset with `eval_every` k belongs to a due version if none of the k - 1 due versions before it had a
job for it that will be, or was, served. So one whose job was superseded, dropped or cancelled for a
newer version comes with the next due version, and none is skipped for good. Pure; told by the desk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from live_eval.reasons import EndReason, JobStatus

if TYPE_CHECKING:
    from live_eval.scheduling.config import OnUpdate
    from live_eval.scheduling.jobs import Evaluation, Job

_UNSERVED = (JobStatus.SUPERSEDED, JobStatus.DROPPED)


class DatasetCycle:
    """Remembers the live evaluations that were made, in order."""

    def __init__(self, datasets: Sequence[str], every: Mapping[str, int], on_update: OnUpdate) -> None:
        self._datasets = tuple(datasets)
        self._every = every
        self._on_update: OnUpdate = on_update
        self._longest = max(every.values(), default=1)
        self._made: list[Evaluation | None] = []

    def made(self, evaluation: Evaluation | None) -> None:
        """A due version has its evaluation; None: it has none."""
        if self._longest > 1:
            self._made = [*self._made[1 - self._longest :], evaluation]

    def passed(self) -> None:
        """A due version was passed over, since no dataset had its turn."""
        self.made(None)

    def turn(self, *, running: Evaluation | None, everything: bool) -> tuple[str, ...]:
        """The datasets of the next due version; all if `everything`."""
        return tuple(
            name
            for name in self._datasets
            if everything or not self._served_lately(name, self._every.get(name, 1), running)
        )

    def _served_lately(self, name: str, every: int, running: Evaluation | None) -> bool:
        recent = self._made[max(0, len(self._made) - every + 1) :] if every > 1 else []
        jobs = ((each, job) for each in recent if each for job in each.jobs if job.dataset == name)
        return any(self._is_served(each, job, running) for each, job in jobs)

    def _is_served(self, evaluation: Evaluation, job: Job, running: Evaluation | None) -> bool:
        if job.ended:
            for_newer = job.status is JobStatus.CANCELLED and job.reason is EndReason.NEWER_VERSION
            return job.status not in _UNSERVED and not for_newer
        if self._on_update == "queue":
            return True
        # What waits is about to be superseded, and under `cancel` what runs is cancelled.
        return evaluation is running and (self._on_update == "finish" or evaluation.protected)
