"""The seam to whoever runs a job: live-eval's own runner, or another one that a service was given."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from live_eval.evaluation.source import SampleSource

if TYPE_CHECKING:
    from live_eval.evaluation.datasets import EvalSet
    from live_eval.evaluation.job import JobOutcomeDetail, JobSpec, Progress, RunLimits
    from live_eval.evaluation.rewards import Grader
    from live_eval.reasons import EndReason


class Run(Protocol):
    """One run of one job; live_eval.evaluation.runner.JobRun is the model."""

    def cancel(self, reason: EndReason, detail: str = "") -> None:
        """End it soon, as timed_out for JOB_TIMEOUT and DRAIN_TIMEOUT, else as cancelled."""
        ...

    async def result(self) -> JobOutcomeDetail:
        """Run it, and wait for its outcome; only a fault of live-eval itself is raised."""
        ...


class Answer(Protocol):
    """What an engine answered to a request of the runner's own."""

    @property
    def status(self) -> int:
        """Of HTTP."""
        ...

    @property
    def content_type(self) -> str:
        """Of HTTP."""
        ...

    @property
    def body(self) -> bytes:
        """Unchanged."""
        ...

    @property
    def engine(self) -> str:
        """Which engine answered."""
        ...


class PinnedEngines(SampleSource, Protocol):
    """A lease's engines, for a runner that has requests of its own."""

    async def forward(self, method: str, path: str, *, body: bytes, content_type: str) -> Answer | None:
        """One engine's answer to one HTTP request; None after abort(). EngineError: it is lost."""
        ...


class MakeRun(Protocol):
    """Makes a run of one job on engines that hold its target."""

    def __call__(
        self,
        spec: JobSpec,
        eval_set: EvalSet,
        source: PinnedEngines,
        /,
        *,
        grader: Grader,
        limits: RunLimits,
        on_progress: Callable[[Progress], None],
    ) -> Run:
        """Nothing happens before the run's result()."""
        ...


class Runs(Protocol):
    """Another runner than live-eval's own, as a service holds it: entered before its first run."""

    async def __aenter__(self) -> Self:
        """Get ready."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Give everything back."""
        ...

    @property
    def make(self) -> MakeRun:
        """Makes the runs."""
        ...
