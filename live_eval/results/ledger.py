"""The ledger: every job, every change of its state and every result, durable before it is told.

Owns the one writing connection of a run's ledger.sqlite and the lock that keeps a second service
out; the rules themselves are in the database (see schema). Readers may be anywhere, at any time.
Knows nothing of scheduling, engines or sinks; is told the time.

Invariant: when a writing method returns, what it wrote survives a kill -9 and a power failure
(progress excepted: it may be some samples old); when it raises LedgerError, nothing was written.
All methods may be called from any thread.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from live_eval.errors import LedgerError
from live_eval.reasons import JobStatus
from live_eval.results import schema
from live_eval.results.lock import WriterLock
from live_eval.results.reader import DATASETS, LedgerReader
from live_eval.results.rows import RESULT_COLUMNS, JobRow, VersionEvent, result_values, target_columns
from live_eval.targets import CheckpointTarget, Target, job_id
from protocol.messages import JobResult

_CHECKPOINT_NUMBER = "checkpoint_number"


class Ledger(LedgerReader):
    """The writer. One process a file; `open` refuses a second one."""

    def __init__(self, path: Path, db: sqlite3.Connection, lock: WriterLock) -> None:
        super().__init__(path, db)
        self._lock_file = lock

    @classmethod
    def open(cls, path: Path | str, *, run_id: str | None = None, now: float = 0.0) -> Self:
        """Open or create the ledger at `path`.

        A new ledger takes `run_id`, or a random one. LedgerError if another process writes it, if
        it belongs to another run, or if the file is no ledger of this schema version.
        """
        path = Path(path)
        lock = WriterLock(path)
        try:
            db = schema.connect_writer(path)
            ledger = cls(path, db, lock)
            try:
                ledger._adopt_run(run_id, now)
            except BaseException:
                db.close()
                raise
        except BaseException:
            lock.release()
            raise
        return ledger

    def close(self) -> None:
        """Close the connection and let another process write."""
        super().close()
        self._lock_file.release()

    # --- jobs ---------------------------------------------------------------------------

    def create_jobs(
        self,
        target: Target,
        datasets: Sequence[str],
        *,
        now: float,
        protected: bool = False,
        num_expected: Mapping[str, int] | None = None,
        reason: str = "",
    ) -> list[JobRow]:
        """Record one waiting job a dataset, all or none; LedgerError if one exists already."""
        expected = num_expected or {}
        identity = target_columns(target)
        ids = [job_id(target, dataset) for dataset in datasets]
        with self._write():
            for name, dataset in zip(ids, datasets, strict=True):
                columns: dict[str, object] = {
                    "job_id": name,
                    "dataset": dataset,
                    **identity,
                    "attempt": 1,
                    "status": JobStatus.WAITING.value,
                    "reason": reason,
                    "protected": int(protected),
                    "requested_at": now,
                    "changed_at": now,
                    "num_done": 0,
                    "num_expected": expected.get(dataset, 0),
                }
                self._insert("jobs", columns)
        return [self.job(name) for name in ids]

    def start(self, job_id: str, *, now: float, attempt: int | None = None, reason: str = "") -> None:
        """waiting -> running."""
        self._move(job_id, JobStatus.WAITING, JobStatus.RUNNING, now=now, attempt=attempt, reason=reason)

    def requeue(self, job_id: str, *, now: float, reason: str) -> int:
        """running -> waiting, for another attempt; the number of that attempt."""
        with self._write():
            attempt = self.job(job_id).attempt + 1
            self._move(job_id, JobStatus.RUNNING, JobStatus.WAITING, now=now, attempt=attempt, reason=reason)
        return attempt

    def protect(self, job_id: str) -> None:
        """Mark a job that has not ended as one that a newer version may not cancel."""
        with self._write():
            done = self._db.execute("UPDATE jobs SET protected = 1 WHERE job_id = ?", (job_id,))
            if done.rowcount != 1:
                raise LedgerError(f"no job {job_id!r} in {self.path}")

    def progress(self, job_id: str, *, num_done: int, num_expected: int) -> None:
        """Record progress, without waiting for the disk; nothing happens if the job has ended."""
        with self._guard():
            self._relaxed(
                "UPDATE jobs SET num_done = ?, num_expected = ? WHERE job_id = ? AND status = 'running'",
                num_done,
                num_expected,
                job_id,
            )

    def taken_up(self, job_id: str, num_samples: int) -> None:
        """Note how many samples the attempt that runs has of earlier ones, without waiting for the disk."""
        with self._guard():
            self._relaxed(
                "UPDATE attempts SET num_taken_up = ? WHERE job_id = ? AND ended_at IS NULL",
                num_samples,
                job_id,
            )

    def ack(self, sink: str, seq: int, *, now: float) -> None:
        """`sink` has all rows up to `seq`; never moves back. Does not wait for the disk: a row
        that a sink gets again is harmless."""
        with self._guard("acknowledge"):
            self._relaxed(
                "INSERT INTO sinks (name, acked, acked_at) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
                " SET acked = excluded.acked, acked_at = excluded.acked_at WHERE excluded.acked > acked",
                sink,
                seq,
                now,
            )

    def outcome(self, job_id: str, *, status: JobStatus | str, reason: str, now: float) -> JobResult:
        """A JobResult with the job's identity and times; the caller adds what was measured
        (msgspec.structs.replace) and hands it to `finish`."""
        row = self.job(job_id)
        target = row.target
        checkpoint = target if isinstance(target, CheckpointTarget) else None
        policy = target if not isinstance(target, CheckpointTarget) else None
        return JobResult(
            result_id=self.result_id(job_id),
            job_id=job_id,
            dataset=row.dataset,
            status=str(status),
            reason=str(reason),
            policy_version=policy.policy_version if policy else None,
            checkpoint=checkpoint.path if checkpoint else "",
            train_step=target.train_step,
            rollout_id=policy.rollout_id if policy else None,
            n_expected=row.num_expected,
            requested_at=row.requested_at,
            started_at=row.started_at,
            finished_at=now,
        )

    def finish(self, result: JobResult) -> None:
        """End a job: state, transition, result and outbox row in one durable transaction.

        Announce the result only after this has returned. LedgerError, and nothing written, if the
        job has ended before, is unknown, or is of another dataset or version than the result.
        """
        name = self.result_id(result.job_id)
        if result.result_id != name:
            raise LedgerError(f"the result of job {result.job_id!r} is {name!r}, not {result.result_id!r}")
        values = result_values(result)
        marks = ", ".join("?" * len(values))
        with self._write(f"finish {result.job_id} as {result.status}"):
            # Triggers end the job, write the transition and put the result in the outbox.
            self._db.execute(f"INSERT INTO results ({', '.join(RESULT_COLUMNS)}) VALUES ({marks})", values)

    # --- versions and keys ----------------------------------------------------------------

    def record_version(self, event: VersionEvent) -> bool:
        """Put a sync's or version's end in the outbox; False if this key is there already."""
        body = {name: getattr(event, name) for name in VersionEvent.__slots__}
        with self._write():
            done = self._db.execute(
                "INSERT INTO outbox (kind, key, body, at) VALUES ('version', ?, ?, ?) ON CONFLICT DO NOTHING",
                (event.key, json.dumps(body, allow_nan=False), event.at),
            )
            return done.rowcount == 1

    def put(self, key: str, value: object) -> None:
        """Store a JSON value under `key`."""
        with self._write():
            self._put(key, value)

    def note_dataset(self, name: str, description: Mapping[str, object], *, now: float) -> bool:
        """Keep what a dataset is from `now` on; False if it is what it was."""
        with self._write():
            known = self.datasets().get(name, [])
            if known and known[-1]["description"] == json.loads(json.dumps(description)):
                return False
            self._put(DATASETS + name, [*known, {"since": now, "description": description}])
            return True

    def next_checkpoint_number(self) -> int:
        """1, 2, 3, ...; never the same twice, over restarts too."""
        with self._write():
            last = self.get(_CHECKPOINT_NUMBER, 0)
            if not isinstance(last, int):
                raise LedgerError(f"{self.path}: {_CHECKPOINT_NUMBER} is {last!r}, not a number")
            self._put(_CHECKPOINT_NUMBER, last + 1)
            return last + 1

    # --- inside ---------------------------------------------------------------------------

    def _adopt_run(self, run_id: str | None, now: float) -> None:
        with self._write():
            row = self._db.execute("SELECT run_id FROM run").fetchone()
            if row is None:
                self._insert("run", {"run_id": run_id or uuid.uuid4().hex[:12], "created_at": now})
            elif run_id is not None and row["run_id"] != run_id:
                raise LedgerError(
                    f"{self.path} belongs to run {row['run_id']!r}, not {run_id!r}: "
                    "continue that run, or give another directory"
                )

    def _relaxed(self, statement: str, *values: object) -> None:
        """A statement whose loss at a power failure costs nothing: its commit does not wait."""
        self._db.execute("PRAGMA synchronous=NORMAL")
        try:
            self._db.execute(statement, values)
        finally:
            self._db.execute("PRAGMA synchronous=FULL")

    def _move(
        self,
        job_id: str,
        source: JobStatus,
        to: JobStatus,
        *,
        now: float,
        attempt: int | None,
        reason: str,
    ) -> None:
        started = now if to is JobStatus.RUNNING else None
        with self._write(f"move {job_id} from {source} to {to}"):
            done = self._db.execute(
                "UPDATE jobs SET status = ?, reason = ?, changed_at = ?,"
                " started_at = coalesce(?, started_at), attempt = coalesce(?, attempt), num_done = 0"
                " WHERE job_id = ? AND status = ?",
                (to.value, reason, now, started, attempt, job_id, source.value),
            )
            if done.rowcount != 1:
                row = self.job(job_id)
                raise LedgerError(f"job {job_id} cannot become {to}: it is {row.status}, not {source}")

    def _insert(self, table: str, columns: Mapping[str, object]) -> None:
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        self._db.execute(statement, list(columns.values()))

    def _put(self, key: str, value: object) -> None:
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise LedgerError(f"{key}: the value cannot be kept as JSON: {error}") from error
        self._db.execute(
            "INSERT INTO kv (key, value) VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, text),
        )

    @contextmanager
    def _write(self, what: str = "write") -> Iterator[None]:
        """One transaction; entered again inside itself it is part of the outer one."""
        with self._guard(what):
            if self._db.in_transaction:
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                # SQLite has already rolled back after a full disk or an I/O error.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
