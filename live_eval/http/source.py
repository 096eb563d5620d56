"""Where the API's answers come from: databases and files of the run, and what the service has in memory.

Opens connections of its own. What blocks is called in threads; what the service has is asked in its
event loop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval.errors import CorruptVersion
from live_eval.evaluation.job import sample_file
from live_eval.http.errors import ApiError
from live_eval.http.samples import SampleFiles, SampleIndex
from live_eval.http.views import (
    Estimate,
    job_details,
    job_item,
    refused_item,
    result_item,
    version_item,
)
from live_eval.results.pages import Filter, LedgerPages
from live_eval.rundir import RunDir
from live_eval.store.records import VersionState
from live_eval.store.store import VersionStore

if TYPE_CHECKING:
    from live_eval.config import HttpSettings, ServiceConfig
    from live_eval.engines.engine import Engine
    from live_eval.reasons import JobStatus
    from live_eval.results.rows import JobRow
    from live_eval.store.records import PinRecord, VersionRecord
    from protocol.messages import JobResult, ServiceStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSide:
    """What is asked of the service itself, in its event loop; nothing of it blocks."""

    config: ServiceConfig
    status: Callable[[], ServiceStatus]
    submit: Callable[[str, Sequence[str], int], tuple[str, ...]]
    """Path of a whole checkpoint, datasets, priority -> job ids. LiveEvalError where it cannot be."""
    cancel: Callable[[str], JobStatus]
    engines: Callable[[], Sequence[Engine]] = tuple
    sink_lag: Callable[[], dict[str, int]] = dict
    """Rows that each sink has not taken."""


@dataclass(slots=True)
class Source:
    """All that can be asked; usable from any thread, but for what `service` offers."""

    service: ServiceSide
    ledger: LedgerPages
    store: VersionStore
    run_dir: RunDir
    estimates: dict[str, Estimate] = field(default_factory=dict)
    """Running job -> what its samples say so far; whole values are put in and taken out."""
    started_at: float = field(default_factory=time.time)
    samples: SampleFiles = field(default_factory=SampleFiles)

    @classmethod
    def open(cls, service: ServiceSide) -> Source:
        """Open beside the service, whose ledger and store exist."""
        config, run_dir = service.config, RunDir(service.config.run_dir)
        store = VersionStore.open(
            run_dir.store, max_bytes=config.store.max_bytes, keep_newest=config.store.keep_newest
        )
        try:
            return cls(service, LedgerPages.open_pages(run_dir.ledger), store, run_dir)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Close both connections."""
        self.ledger.close()
        self.store.close()

    # --- status ---------------------------------------------------------------------------

    def status(self, said: ServiceStatus, *, last_event_id: str) -> dict[str, Any]:
        """The whole of /status; `said` is what the service says of itself."""
        config = self.service.config
        now = time.time()
        stable = self.store.stable()
        lag = self.lag(stable)
        discards: dict[str, int] = {}
        for record in self.store.discarded():
            discards[record.reason] = discards.get(record.reason, 0) + 1
        http = config.http
        sinks = self.service.sink_lag()
        return {
            "run_id": config.run_id,
            "live_eval_version": installed_version(),
            "started_at": self.started_at,
            "now": now,
            "state": said.state,
            "stable_version": stable.policy_version if stable else None,
            "stable_at": stable.sealed_at if stable else None,
            "stable_age_s": max(0.0, now - stable.sealed_at) if stable and stable.sealed_at else None,
            **lag,
            "running": list(said.running),
            "waiting": list(said.waiting),
            "queue_depth": len(said.waiting),
            "totals": dict(self.ledger.totals().by_status),
            "discarded": discards,
            "on_update": config.scheduler.on_update,
            "interval": config.scheduler.interval,
            "datasets": [dataset.name for dataset in config.datasets],
            "engines": dict(said.engines),
            "store": self.store_state(),
            "held_s": self.store.total_held_s(),
            "sinks": {name: sinks.get(name, 0) for name in {*sinks, *self.ledger.cursors()}},
            "checkpoint_roots": [str(root) for root in http.checkpoint_roots] if http else [],
            "needs_token": http is not None and http.token is not None,
            "last_event_id": last_event_id,
        }

    def lag(self, stable: VersionRecord | None) -> dict[str, Any]:
        """How far scores are behind the weights."""
        scored = max(
            (result.policy_version or 0 for result in self.ledger.newest_scores().values()), default=None
        )
        versions = seconds = None
        if stable is not None and scored is not None:
            sealed = [record for record in self.store.records() if record.sealed_at is not None]
            versions = sum(record.policy_version > scored for record in sealed)
            at = {record.policy_version: record.sealed_at for record in sealed}
            if scored in at and stable.sealed_at is not None:
                seconds = max(0.0, stable.sealed_at - (at[scored] or stable.sealed_at))
        return {"scored_version": scored, "lag_versions": versions, "lag_s": seconds}

    def store_state(self) -> dict[str, int]:
        """Bytes, versions and pins."""
        return {
            "used_bytes": self.store.used_bytes(),
            "max_bytes": self.service.config.store.max_bytes,
            "num_sealed": len(self.store.sealed()),
            "num_pins": len(self.store.pins()),
        }

    # --- versions -------------------------------------------------------------------------

    def versions(self, state: str | None, *, offset: int, limit: int) -> tuple[int, list[dict[str, Any]]]:
        """A page of /versions."""
        rows: list[Any] = [r for r in self.store.records() if state is None or r.state == state]
        if state in (None, VersionState.DISCARDED.value):
            rows += [record for record in self.store.discarded() if record.policy_version is None]
        rows.sort(key=lambda row: getattr(row, "began_at", None) or row.ended_at, reverse=True)
        page = rows[offset : offset + limit]
        numbered = [row for row in page if row.policy_version is not None]
        items = {item["policy_version"]: item for item in self.version_items(numbered)}
        return len(rows), [
            refused_item(row) if row.policy_version is None else items[row.policy_version] for row in page
        ]

    def version_items(self, records: Sequence[VersionRecord]) -> list[dict[str, Any]]:
        """Items of /versions."""
        stable = self.store.stable()
        pins: dict[int, list[PinRecord]] = {}
        for pin in self.store.pins():
            pins.setdefault(pin.policy_version, []).append(pin)
        jobs = self.ledger.jobs_of_versions([record.policy_version for record in records])
        results = self.ledger.results_of([name for names in jobs.values() for name in names])
        return [
            version_item(
                record,
                stable=stable.policy_version if stable else None,
                pins=pins.get(record.policy_version, []),
                jobs=(names := jobs.get(record.policy_version, [])),
                scores=_scores(results[name] for name in names if name in results),
            )
            for record in records
        ]

    # --- jobs -----------------------------------------------------------------------------

    def job_items(self, rows: Sequence[JobRow]) -> list[dict[str, Any]]:
        """Items of /jobs."""
        results = self.ledger.results_of([row.job_id for row in rows if row.status.terminal])
        priorities = self.ledger.priorities()
        return [
            job_item(
                row,
                result=results.get(row.job_id),
                estimate=self.estimates.get(row.job_id),
                priority=priorities.get(row.target.key, 0),
            )
            for row in rows
        ]

    def jobs(self, which: Filter, *, offset: int, limit: int) -> tuple[int, list[dict[str, Any]]]:
        """A page of /jobs."""
        total, rows = self.ledger.job_page(which, offset=offset, limit=limit)
        return total, self.job_items(rows)

    def job(self, job_id: str) -> dict[str, Any]:
        """One job with everything; NoSuchJob."""
        row = self.ledger.job(job_id)
        result = self.ledger.result(job_id)
        return job_details(
            self.job_items([row])[0],
            self.ledger.transitions(job_id),
            self.ledger.attempts(row),
            result_item(result, attempt=row.attempt) if result else None,
        )

    def results(self, which: Filter, *, offset: int, limit: int) -> tuple[int, list[dict[str, Any]]]:
        """A page of /results."""
        total, found = self.ledger.result_page(which, offset=offset, limit=limit)
        return total, [result_item(result, attempt=attempt) for result, attempt in found]

    def datasets(self) -> list[dict[str, Any]]:
        """What each configured dataset is now."""
        known = self.ledger.datasets()
        items = []
        for config in self.service.config.datasets:
            last = known[config.name][-1] if known.get(config.name) else None
            description = last["description"] if last else {}
            rows = description.get("num_rows", 0)
            items.append(
                {
                    "name": config.name,
                    "num_rows": rows,
                    "num_expected": rows * config.n,
                    "n": config.n,
                    "file_sha256": description.get("file_sha256", ""),
                    "since": last["since"] if last else 0.0,
                    "settings": description.get("settings", {}),
                }
            )
        return items

    def sample_index(self, job_id: str) -> tuple[JobRow, SampleIndex]:
        """The job and its samples, those of the running attempt too; ApiError if there are none."""
        row = self.ledger.job(job_id)
        result = self.ledger.result(job_id)
        path = self.run_dir.samples / sample_file(job_id, attempt=row.attempt)
        if result is not None and result.samples_path:
            path = Path(result.samples_path)
        try:
            return row, self.samples.index(path)
        except OSError as error:
            raise ApiError(
                404,
                "no_samples",
                f"{job_id} has no samples: it is {row.status} ({row.reason or 'no reason yet'})",
                value=job_id,
                what_to_do="choose a job that has run",
            ) from error

    # --- checkpoints ----------------------------------------------------------------------

    def allowed_path(self, given: str) -> str:
        """The directory that a submitted path means, links followed; ApiError if it may not be read."""
        http: HttpSettings | None = self.service.config.http
        roots = http.checkpoint_roots if http else ()
        path = Path(given)
        if "\0" in given or not path.is_absolute():
            raise ApiError(
                422,
                "bad_value",
                "the path must be absolute",
                value={"where": "path", "given": given},
                what_to_do="give the checkpoint's full path on the service's host",
            )
        try:
            real = Path(os.path.realpath(path))
            os.lstat(real)
        except FileNotFoundError:
            real = Path(os.path.realpath(path))  # whether it may be named at all comes first
        except (OSError, ValueError) as error:
            raise CorruptVersion(f"{given} cannot be looked at: {error}") from error
        if not any(real.is_relative_to(os.path.realpath(root)) for root in roots):
            below = f"use a checkpoint below one of: {', '.join(map(str, roots))}"
            raise ApiError(
                403,
                "outside_roots",
                f"{given} is, with links followed, in none of the directories that checkpoints may lie in",
                value=given,
                what_to_do=below if roots else "start the service with --checkpoint-root DIR: it names none",
            )
        return str(real)


def installed_version() -> str:
    """Of live-eval."""
    try:
        return version("live-eval")
    except PackageNotFoundError:
        return "unknown"


def _scores(results: Any) -> dict[str, float]:
    found: list[JobResult] = list(results)
    return {result.dataset: result.score for result in found if result.score is not None}
