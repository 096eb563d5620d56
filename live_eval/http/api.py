"""The HTTP side of a service: put together, told what happens, and telling it to who follows.

    job and engine events --> at once ------------------+
    progress               --> four times a second ------+--> EventLog --> streams
    the catalogue, status  --> once a second, if changed -+

Invariant: what the service calls here returns at once and never raises for a client's or a database's
fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from live_eval.coordinator.feed import (
    IncarnationEnded,
    SyncBegan,
    SyncDiscarded,
    VersionLost,
    VersionSealed,
    VersionsFeed,
)
from live_eval.errors import LiveEvalError
from live_eval.http.activity import Activity
from live_eval.http.app import Application
from live_eval.http.events import EventLog
from live_eval.http.routes import engine_items
from live_eval.http.server import HttpServer
from live_eval.http.source import ServiceSide, Source
from live_eval.http.views import refused_item, result_item
from live_eval.reasons import JobStatus

if TYPE_CHECKING:
    from live_eval.http.views import Estimate
    from protocol.messages import JobEvent

logger = logging.getLogger(__name__)

PROGRESS_S = 0.25
LOOK_S = 1.0
_RUNNING = JobStatus.RUNNING.value
_UNTOLD = ("now", "stable_age_s", "last_event_id")
"""Parts of the status that change by themselves."""


class HttpApi:
    """Serves the API while it is entered. All methods belong to the service's event loop."""

    def __init__(self, service: ServiceSide) -> None:
        """ConfigError if the configuration has no HTTP section; the ledger and the store must exist."""
        settings = service.config.http
        assert settings is not None
        self.source = Source.open(service)
        self.events = EventLog({"run_id": service.config.run_id})
        self.activity = Activity(self.source.run_dir.activity)
        self.app = Application(self.source, self.events, self.activity, token=settings.token)
        self._server = HttpServer(self.app, settings, url_file=self.source.run_dir.http_url)
        self._feed = VersionsFeed(self.source.store)
        self._progress: dict[str, JobEvent] = {}
        """Running jobs with progress that is not told yet."""
        self._told_status: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it is reached."""
        return self._server.url

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._feed.poll)  # what was so before is no event
        await self._server.__aenter__()
        self._task = asyncio.create_task(self._follow(), name="http-follow")
        self._task.add_done_callback(_tell_fault)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._tell_progress()
        self.events.close()
        await self._server.__aexit__(kind, error, trace)
        self.activity.close()
        self.source.close()

    # --- told by the service --------------------------------------------------------------

    def job_event(self, event: JobEvent) -> None:
        """A job was made, changed its state (durably), or made progress."""
        job_id = event.job_id
        if event.status == _RUNNING:
            known = job_id in self.source.estimates
            self.source.estimates[job_id] = _estimate(event)
            if known:
                self._progress[job_id] = event
                return
        else:
            self.source.estimates.pop(job_id, None)
            self._progress.pop(job_id, None)
        with self._suppressed("a job"):
            row = self.source.ledger.job(job_id)
            self.events.add("job", self.source.job_items([row])[0])
            if row.status.terminal and (result := self.source.ledger.result(job_id)) is not None:
                self.events.add("result", result_item(result, attempt=row.attempt))

    def engine_event(self, name: str, state: str, detail: str) -> None:
        """An engine has a new state."""
        self.activity.engine_changed(name, state, detail)
        for item in engine_items(self.source, self.activity):
            if item["name"] == name:
                self.events.add("engine", item)

    def load_began(self, name: str, label: str) -> None:
        """An engine is being loaded with what carries this label."""
        self.activity.load_began(name, label)

    # --- looked for -----------------------------------------------------------------------

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            await asyncio.sleep(PROGRESS_S)
            self._tell_progress()
            if loop.time() - looked < LOOK_S:
                continue
            looked = loop.time()
            with self._suppressed("versions"):
                for item in await asyncio.to_thread(self._changed_versions):
                    self.events.add("version", item)
            with self._suppressed("the status"):
                await self._tell_status()

    def _tell_progress(self) -> None:
        for job_id, event in self._progress.items():
            self.events.add(
                "progress",
                {
                    "job_id": job_id,
                    "num_done": event.num_done,
                    "num_expected": event.num_expected,
                    "estimate": self.source.estimates.get(job_id),
                },
            )
        self._progress.clear()

    def _changed_versions(self) -> list[dict[str, Any]]:
        """Blocks; what became of syncs and versions since the last call."""
        numbers: set[int] = set()
        items: list[dict[str, Any]] = []
        for change in self._feed.poll():
            match change:
                case SyncBegan(number):
                    numbers.add(number)
                case VersionSealed(record) | VersionLost(record):
                    numbers.add(record.policy_version)
                case SyncDiscarded(record) if record.policy_version is not None:
                    numbers.add(record.policy_version)
                case SyncDiscarded(record):
                    items.append(refused_item(record))
                case IncarnationEnded():
                    pass
        records = [each for each in self.source.store.records() if each.policy_version in numbers]
        return items + self.source.version_items(records)

    async def _tell_status(self) -> None:
        said = self.source.service.status()
        status = await asyncio.to_thread(self.source.status, said, last_event_id=self.events.last_id)
        core = {name: value for name, value in status.items() if name not in _UNTOLD}
        if core != self._told_status:
            self._told_status = core
            self.events.add("status", status)

    @contextlib.contextmanager
    def _suppressed(self, what: str) -> Any:
        """A database that cannot be read now costs an event, not the service."""
        try:
            yield
        except (LiveEvalError, OSError, sqlite3.Error) as error:
            logger.warning("who follows is not told of %s: %s", what, error)


def _tell_fault(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("who follows is told of no more progress", exc_info=error)


def _estimate(event: JobEvent) -> Estimate:
    return {
        "score": event.score,
        "low": event.score_low,
        "high": event.score_high,
        "num_scored": event.num_scored,
    }
