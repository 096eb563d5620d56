"""How a run is told to end: the first reason counts, and everyone who works on it can see it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from live_eval.reasons import EndReason, JobStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """Why a run does not, or did, go to its end."""

    status: JobStatus
    reason: EndReason
    detail: str = ""


class StopSignal:
    """Open until the first end(); then it stays as it is."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self._event = asyncio.Event()

    @property
    def stopped(self) -> bool:
        """Whether the run shall end."""
        return self.ending is not None

    def end(self, status: JobStatus, reason: EndReason, detail: str = "") -> None:
        """End the run. The first ending stays, unless it is a success and the new one a failure."""
        succeeded = self.ending is not None and self.ending.status is JobStatus.SUCCEEDED
        if self.ending is None or (succeeded and status is JobStatus.FAILED):
            self.ending = Ending(status=status, reason=reason, detail=detail)
            self._event.set()

    def fail(self, reason: EndReason, detail: str) -> None:
        """End the run as failed."""
        self.end(JobStatus.FAILED, reason, detail)

    async def wait(self) -> None:
        """Return once the run shall end."""
        await self._event.wait()
