"""What a failed eval does in the driver: a line and a W&B alert, or an error at a step boundary.

Pure but for the two ways to tell people, which are given. Invariant: `check` raises only where it is
called, before a training step, so no step is ever cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from live_eval.errors import LiveEvalError
from live_eval.reasons import JobStatus

if TYPE_CHECKING:
    from protocol.messages import JobResult
    from slime_patch.settings import OnFailure

logger = logging.getLogger(__name__)

FAILED = (JobStatus.FAILED, JobStatus.TIMED_OUT)
MAX_DETAIL = 500
SERVICE_GONE = "the service has failed for good; see logs/service.log in the output directory"


class EvalFailed(LiveEvalError):
    """An eval failed, and --eval-on-failure stop was given. Training is between two steps."""

    code = "eval_failed"


class FailurePolicy:
    """Told of results by one thread, asked by the driver's."""

    def __init__(
        self,
        action: OnFailure,
        *,
        alert: Callable[[str, str], None],
        say: Callable[[str], None] = print,
    ) -> None:
        """`alert(title, text)` reaches people through W&B."""
        self._action = action
        self._alert = alert
        self._say = say
        self._first = ""

    def take(self, result: JobResult) -> None:
        """A job has ended."""
        if result.status in FAILED:
            detail = f": {result.detail[:MAX_DETAIL]}" if result.detail else ""
            self.failed(f"{result.job_id} ended as {result.status} ({result.reason}){detail}")

    def failed(self, what: str) -> None:
        """Something went wrong for good."""
        if self._action == "record":
            return
        # First, for a driver that asks meanwhile: telling people may take time.
        self._first = self._first or what
        self._say(f"live-eval: {what}")
        self._alert("live-eval: an eval has failed", what)

    def check(self) -> None:
        """EvalFailed if training is to stop here."""
        if self._action == "stop" and self._first:
            raise EvalFailed(
                f"{self._first}; training stops here because of --eval-on-failure stop (resume it from its "
                "last checkpoint)"
            )


def wandb_alert(title: str, text: str) -> None:
    """An alert of the trainer's W&B run, where this process writes one."""
    import sys

    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is not None:
        run.alert(title=title, text=text, level="ERROR")
