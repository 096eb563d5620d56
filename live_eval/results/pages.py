"""Pages of a ledger: filtered, counted and cut by the database, for readers that want a part.

Reads over a connection of its own, so that a long question never waits for the writer's lock, nor the
writer for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from live_eval.results import schema
from live_eval.results.reader import RESULTS, LedgerReader
from live_eval.results.rows import JobRow, Transition, job_from, result_from

if TYPE_CHECKING:
    from protocol.messages import JobResult

Kind = Literal["live", "checkpoint"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """Which jobs; what is None or empty leaves out none."""

    statuses: tuple[str, ...] = ()
    dataset: str | None = None
    kind: Kind | None = None
    policy_version: int | None = None

    def where(self, table: str) -> tuple[str, list[object]]:
        """The condition on this table, and its values."""
        parts: list[str] = []
        values: list[object] = []
        if self.statuses:
            parts.append(f"{table}.status IN ({', '.join('?' * len(self.statuses))})")
            values += self.statuses
        if self.dataset is not None:
            parts.append(f"{table}.dataset = ?")
            values.append(self.dataset)
        if self.kind is not None:
            parts.append(f"{table}.policy_version IS {'NOT ' if self.kind == 'live' else ''}NULL")
        if self.policy_version is not None:
            parts.append(f"{table}.policy_version = ?")
            values.append(self.policy_version)
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), values


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One stretch of a job's running, or its waiting where it never ran."""

    job: JobRow
    number: int
    began_at: float | None
    ended_at: float | None
    outcome: str
    """Why it ended: the job's status, or why it waited again; empty while it goes on."""


class LedgerPages(LedgerReader):
    """A reader that answers in parts."""

    @classmethod
    def open_pages(cls, path: Path | str) -> LedgerPages:
        """Open beside a writer; LedgerError if there is no ledger of this schema version."""
        path = Path(path)
        return LedgerPages(path, schema.connect_reader(path))

    def job_page(self, which: Filter, *, offset: int, limit: int) -> tuple[int, list[JobRow]]:
        """How many there are, and these of them, the newest first."""
        where, values = which.where("j")
        total = self._all(f"SELECT count(*) AS n FROM jobs j{where}", *values)[0]["n"]
        rows = self._all(
            f"SELECT j.* FROM jobs j{where} ORDER BY j.rowid DESC LIMIT ? OFFSET ?", *values, limit, offset
        )
        return total, [job_from(row) for row in rows]

    def result_page(
        self, which: Filter, *, offset: int, limit: int
    ) -> tuple[int, list[tuple[JobResult, int]]]:
        """How many there are, and these of them with the attempts they took, in the order of their end."""
        where, values = which.where("r")
        total = self._all(f"SELECT count(*) AS n FROM results r{where}", *values)[0]["n"]
        rows = self._all(
            f"SELECT {RESULTS}, j.attempt FROM results r JOIN jobs j ON j.job_id = r.job_id{where}"
            " ORDER BY r.rowid LIMIT ? OFFSET ?",
            *values,
            limit,
            offset,
        )
        return total, [(result_from(row), row["attempt"]) for row in rows]

    def results_of(self, job_ids: Sequence[str]) -> dict[str, JobResult]:
        """Results of those of the jobs that have ended."""
        found: dict[str, JobResult] = {}
        for row in self._in(f"SELECT {RESULTS} FROM results r WHERE r.job_id IN", job_ids):
            result = result_from(row)
            found[result.job_id] = result
        return found

    def jobs_of_versions(self, versions: Collection[int]) -> dict[int, list[str]]:
        """Policy version -> ids of its jobs."""
        jobs: dict[int, list[str]] = {}
        query = "SELECT policy_version, job_id FROM jobs WHERE policy_version IN"
        for row in self._in(query, list(versions), " ORDER BY rowid"):
            jobs.setdefault(row["policy_version"], []).append(row["job_id"])
        return jobs

    def newest_scores(self) -> dict[str, JobResult]:
        """Dataset -> the result of its newest version that has a score."""
        rows = self._all(
            f"SELECT {RESULTS}, max(r.policy_version) FROM results r"
            " WHERE r.score IS NOT NULL AND r.policy_version IS NOT NULL GROUP BY r.dataset"
        )
        return {row["dataset"]: result_from(row) for row in rows}

    def newest_checkpoint_scores(self) -> dict[str, JobResult]:
        """Dataset -> the result of the checkpoint that was scored last."""
        rows = self._all(
            f"SELECT {RESULTS}, max(r.rowid) FROM results r"
            " WHERE r.score IS NOT NULL AND r.policy_version IS NULL GROUP BY r.dataset"
        )
        return {row["dataset"]: result_from(row) for row in rows}

    def ends(self) -> dict[tuple[str, str], int]:
        """(status, reason) -> number of jobs that ended so."""
        rows = self._all("SELECT status, reason, count(*) AS n FROM results GROUP BY status, reason")
        return {(row["status"], row["reason"]): row["n"] for row in rows}

    def attempts(self, job: JobRow) -> list[Attempt]:
        """Every stretch of the job's running, the oldest first."""
        return attempts_of(job, self.transitions(job.job_id))

    def attempts_between(self, since: float, until: float, *, limit: int) -> tuple[bool, list[Attempt]]:
        """Attempts of jobs that were there in the window, the oldest first; whether some were left out."""
        rows = self._all(
            "SELECT * FROM jobs WHERE requested_at <= ? AND (finished_at IS NULL OR finished_at >= ?)"
            " ORDER BY rowid DESC LIMIT ?",
            until,
            since,
            limit + 1,
        )
        jobs = [job_from(row) for row in reversed(rows[:limit])]
        moves: dict[str, list[Transition]] = {}
        query = "SELECT job_id, from_status, to_status, attempt, reason, at FROM transitions WHERE job_id IN"
        for row in self._in(query, [job.job_id for job in jobs], " ORDER BY id"):
            moves.setdefault(row["job_id"], []).append(Transition(**dict(row)))
        found = [each for job in jobs for each in attempts_of(job, moves.get(job.job_id, []))]
        return len(rows) > limit, found

    def _in(self, query: str, values: Sequence[object], rest: str = "") -> list:
        """Rows of `query` with the values in its IN, in portions that SQLite takes."""
        rows = []
        for begin in range(0, len(values), 500):
            part = values[begin : begin + 500]
            rows += self._all(f"{query} ({', '.join('?' * len(part))}){rest}", *part)
        return rows


def attempts_of(job: JobRow, transitions: Sequence[Transition]) -> list[Attempt]:
    """The attempts that a job's transitions tell of."""
    attempts: list[Attempt] = []
    begun: Transition | None = None
    for move in transitions:
        if begun is not None:
            outcome = move.reason if move.to_status == "waiting" else move.to_status
            attempts.append(
                Attempt(job=job, number=begun.attempt, began_at=begun.at, ended_at=move.at, outcome=outcome)
            )
        begun = move if move.to_status == "running" else None
    if begun is not None:
        attempts.append(Attempt(job=job, number=begun.attempt, began_at=begun.at, ended_at=None, outcome=""))
    if not attempts:
        outcome = job.status.value if job.status.terminal else ""
        attempts.append(
            Attempt(job=job, number=job.attempt, began_at=None, ended_at=job.finished_at, outcome=outcome)
        )
    return attempts
