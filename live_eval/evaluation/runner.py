"""One job: ask for every sample, grade it, keep it, and say what came out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from live_eval.evaluation.datasets import EvalSet
    from live_eval.evaluation.job import JobOutcomeDetail, JobSpec, Progress, RunLimits
    from live_eval.evaluation.rewards import Grader
    from live_eval.evaluation.source import SampleSource
    from live_eval.reasons import EndReason


class JobRun:
    """One run of one job.

    `result()` gives the outcome, whatever happened to engines, graders or the disk; only a fault
    of live-eval itself is raised. `cancel()` makes result() return soon, with what was scored so
    far kept apart as partial. If the task that waits in result() is cancelled, the run ends as by
    cancel(SHUTDOWN), its outcome is in `outcome`, and CancelledError goes on.
    """

    def __init__(
        self,
        spec: JobSpec,
        eval_set: EvalSet,
        source: SampleSource,
        *,
        grader: Grader,
        limits: RunLimits | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None: ...

    @property
    def outcome(self) -> JobOutcomeDetail | None:
        """The outcome once there is one; its samples are on disk by then."""
        ...

    def cancel(self, reason: EndReason, detail: str = "") -> None:
        """End the run soon, as timed_out for JOB_TIMEOUT and DRAIN_TIMEOUT, else as cancelled.

        The first call counts; after the end it does nothing.
        """
        ...

    async def result(self) -> JobOutcomeDetail:
        """Run the job, on the first call, and wait for its outcome."""
        ...
