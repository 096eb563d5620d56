"""Reading a ledger: by the service that writes it, and by anyone beside it.

Owns every query; writes nothing. A reader sees whole transactions only, also while the writer is
at work and after it was killed.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from live_eval.errors import LedgerError, NoSuchJob
from live_eval.results import schema
from live_eval.results.rows import (
    RESULT_COLUMNS,
    AttemptRow,
    JobRow,
    OutboxRow,
    Totals,
    Transition,
    VersionEvent,
    job_from,
    result_from,
)

if TYPE_CHECKING:
    from protocol.messages import JobResult

DATASETS = "dataset/"
"""Prefix of the keys under which the datasets are kept."""

PRIORITIES = "priority/"
"""Prefix of the keys under which checkpoints' priorities are kept, where they are not 0."""

RESULTS = ", ".join(f"r.{name}" for name in RESULT_COLUMNS)


class LedgerReader:
    """All that can be asked of a ledger; usable from any thread."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self._db = db
        self._db.row_factory = sqlite3.Row
        self._mutex = threading.RLock()
        self._run_id = ""

    @classmethod
    def open_readonly(cls, path: Path | str) -> LedgerReader:
        """Open beside a writer; LedgerError if there is no ledger of this schema version."""
        path = Path(path)
        return LedgerReader(path, schema.connect_reader(path))

    def close(self) -> None:
        """Close the connection."""
        with self._mutex:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def run_id(self) -> str:
        """The run that the ledger belongs to."""
        if not self._run_id:
            rows = self._all("SELECT run_id FROM run")
            if not rows:
                raise LedgerError(f"the ledger {self.path} has no run yet: its service has not begun")
            self._run_id = rows[0]["run_id"]
        return self._run_id

    def result_id(self, job_id: str) -> str:
        """The one name of the job's result, the same in every life of the service."""
        return f"{self.run_id}/{job_id}"

    # --- jobs -----------------------------------------------------------------------------

    def job(self, job_id: str) -> JobRow:
        """The job; NoSuchJob if there is none."""
        rows = self._all("SELECT * FROM jobs WHERE job_id = ?", job_id)
        if not rows:
            raise NoSuchJob(f"no job {job_id!r} in {self.path}")
        return job_from(rows[0])

    def has_job(self, job_id: str) -> bool:
        """Whether the job was ever created."""
        return bool(self._all("SELECT 1 FROM jobs WHERE job_id = ?", job_id))

    def jobs(self) -> list[JobRow]:
        """All jobs, in the order in which they were created."""
        return [job_from(row) for row in self._all("SELECT * FROM jobs ORDER BY rowid")]

    def unfinished(self) -> list[JobRow]:
        """Waiting and running jobs, in the order in which they were created."""
        query = "SELECT * FROM jobs WHERE status IN ('waiting', 'running') ORDER BY rowid"
        return [job_from(row) for row in self._all(query)]

    def transitions(self, job_id: str | None = None) -> list[Transition]:
        """Every change of state of one job, or of all, in the order in which they were written."""
        columns = "job_id, from_status, to_status, attempt, reason, at"
        if job_id is None:
            rows = self._all(f"SELECT {columns} FROM transitions ORDER BY id")
        else:
            rows = self._all(f"SELECT {columns} FROM transitions WHERE job_id = ? ORDER BY id", job_id)
        return [Transition(**dict(row)) for row in rows]

    def attempt_rows(self, job_id: str | None = None) -> list[AttemptRow]:
        """Each time that one job, or any, ran, oldest first; none of a ledger of schema version 1."""
        if not self._all("SELECT 1 FROM sqlite_master WHERE name = 'attempts'"):
            return []
        columns = "job_id, attempt, started_at, ended_at, reason, num_taken_up, num_done"
        if job_id is None:
            rows = self._all(f"SELECT {columns} FROM attempts ORDER BY started_at, job_id, attempt")
        else:
            rows = self._all(f"SELECT {columns} FROM attempts WHERE job_id = ? ORDER BY attempt", job_id)
        return [AttemptRow(**dict(row)) for row in rows]

    def totals(self) -> Totals:
        """Number of jobs by state."""
        rows = self._all("SELECT status, count(*) AS n FROM jobs GROUP BY status")
        return Totals(by_status={row["status"]: row["n"] for row in rows})

    # --- results --------------------------------------------------------------------------

    def result(self, job_id: str) -> JobResult | None:
        """The job's result, or None while it has not ended."""
        rows = self._all(f"SELECT {RESULTS} FROM results r WHERE r.job_id = ?", job_id)
        return result_from(rows[0]) if rows else None

    def results(self) -> list[JobResult]:
        """All results, in the order in which they became durable."""
        return [result_from(row) for row in self._all(f"SELECT {RESULTS} FROM results r ORDER BY r.rowid")]

    # --- outbox ---------------------------------------------------------------------------

    def outbox(self, *, after: int = 0, limit: int = 100) -> list[OutboxRow]:
        """The next rows to tell sinks, `seq` > `after`, oldest first."""
        rows = self._all(
            f"SELECT o.seq, o.kind, o.key, o.body, j.attempt, {RESULTS} FROM outbox o"
            " LEFT JOIN results r ON o.kind = 'result' AND r.result_id = o.key"
            " LEFT JOIN jobs j ON j.job_id = r.job_id"
            " WHERE o.seq > ? ORDER BY o.seq LIMIT ?",
            after,
            limit,
        )
        return [_outbox_from(row) for row in rows]

    def last_seq(self) -> int:
        """`seq` of the newest outbox row, 0 while there is none."""
        return self._all("SELECT coalesce(max(seq), 0) AS seq FROM outbox")[0]["seq"]

    def cursor(self, sink: str) -> int:
        """`seq` up to which `sink` has acknowledged all rows, 0 for a new sink."""
        rows = self._all("SELECT acked FROM sinks WHERE name = ?", sink)
        return rows[0]["acked"] if rows else 0

    def cursors(self) -> dict[str, int]:
        """All sinks that ever acknowledged a row, with how far they are."""
        return {row["name"]: row["acked"] for row in self._all("SELECT name, acked FROM sinks ORDER BY name")}

    # --- keys -----------------------------------------------------------------------------

    def get(self, key: str, default: object = None) -> object:
        """The JSON value under `key`, or `default`."""
        rows = self._all("SELECT value FROM kv WHERE key = ?", key)
        return json.loads(rows[0]["value"]) if rows else default

    def under(self, prefix: str) -> dict[str, object]:
        """All values whose key begins with `prefix`, by the rest of the key."""
        query = "SELECT key, value FROM kv WHERE substr(key, 1, ?) = ? ORDER BY key"
        rows = self._all(query, len(prefix), prefix)
        return {row["key"][len(prefix) :]: json.loads(row["value"]) for row in rows}

    def datasets(self) -> dict[str, list[dict[str, Any]]]:
        """Dataset -> what it was (`description`) and from when on (`since`, epoch seconds), oldest first."""
        return cast("dict[str, list[dict[str, Any]]]", self.under(DATASETS))

    def priorities(self) -> dict[str, int]:
        """Key of a checkpoint, as in `c1` -> its priority; those of priority 0 are absent."""
        return cast("dict[str, int]", self.under(PRIORITIES))

    # --- inside ---------------------------------------------------------------------------

    def _all(self, query: str, *values: object) -> list[sqlite3.Row]:
        with self._guard("read"):
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _guard(self, what: str = "write") -> Iterator[None]:
        """One thread at a time; what SQLite cannot do or cannot hold becomes a LedgerError."""
        with self._mutex:
            try:
                yield
            except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
                raise LedgerError(f"{self.path}: cannot {what}: {error}") from error


def _outbox_from(row: sqlite3.Row) -> OutboxRow:
    if row["kind"] == "version":
        return OutboxRow(seq=row["seq"], key=row["key"], event=VersionEvent(**json.loads(row["body"])))
    return OutboxRow(seq=row["seq"], key=row["key"], result=result_from(row), attempt=row["attempt"])
