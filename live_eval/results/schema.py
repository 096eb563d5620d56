"""The ledger's SQLite schema, and how its file is opened.

Owns the rules that the database itself enforces, so that no caller can break them:
- a job begins as waiting and reaches exactly one terminal state;
- a result exists if and only if its job is terminal, and has the job's identity and status;
- a result has a score only if its job succeeded;
- results, transitions and outbox rows are written once and never changed or deleted;
- each time that a job ran is an attempt's row, which is not changed after it has ended;
- every change of state has a transition row, every result an outbox row, in the same transaction.

Knows nothing of what the rows mean to a scheduler or a sink.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from live_eval.errors import LedgerError
from live_eval.results.migrations import ATTEMPTS_TABLE, ATTEMPTS_TRIGGERS, STEPS
from live_eval.sqlite import BUSY_TIMEOUT_S, SMALL_CACHE

SCHEMA_VERSION = 2
"""2 added the attempts. A ledger of an earlier version is brought up by the service that goes on with it
(see migrations) and read as it is by everybody else; one of a later version is refused."""
APPLICATION_ID = 0x4C45_4C47
"""Marks the file as a ledger ("LELG"), so that another program's database is never touched."""

_TERMINAL = "('succeeded','failed','timed_out','cancelled','superseded','dropped')"

_TABLES = f"""
CREATE TABLE run (
    run_id TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT;

CREATE TABLE jobs (
    job_id TEXT PRIMARY KEY,
    dataset TEXT NOT NULL,
    policy_version INTEGER,
    incarnation INTEGER NOT NULL,
    weight_version INTEGER NOT NULL,
    checkpoint TEXT NOT NULL,
    checkpoint_number INTEGER,
    rollout_id INTEGER,
    train_step INTEGER,
    attempt INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('waiting','running') OR status IN {_TERMINAL}),
    reason TEXT NOT NULL,
    protected INTEGER NOT NULL CHECK (protected IN (0, 1)),
    requested_at REAL NOT NULL,
    started_at REAL,
    finished_at REAL,
    changed_at REAL NOT NULL,
    num_done INTEGER NOT NULL,
    num_expected INTEGER NOT NULL,
    CHECK ((policy_version IS NULL) = (checkpoint <> '')),
    CHECK ((checkpoint_number IS NULL) = (checkpoint = '')),
    CHECK ((finished_at IS NOT NULL) = (status IN {_TERMINAL}))
) STRICT;
CREATE INDEX jobs_by_status ON jobs (status);

CREATE TABLE transitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL REFERENCES jobs (job_id),
    from_status TEXT NOT NULL,
    to_status TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    reason TEXT NOT NULL,
    at REAL NOT NULL
) STRICT;
CREATE INDEX transitions_by_job ON transitions (job_id);

{ATTEMPTS_TABLE}
CREATE TABLE results (
    result_id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL UNIQUE REFERENCES jobs (job_id),
    dataset TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN {_TERMINAL}),
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    policy_version INTEGER,
    checkpoint TEXT NOT NULL,
    train_step INTEGER,
    rollout_id INTEGER,
    weight_digest TEXT NOT NULL,
    score REAL,
    metrics TEXT NOT NULL CHECK (json_valid(metrics)),
    partial TEXT NOT NULL CHECK (json_valid(partial)),
    n_expected INTEGER NOT NULL,
    n_scored INTEGER NOT NULL,
    n_errored INTEGER NOT NULL,
    n_aborted INTEGER NOT NULL,
    engine_versions TEXT NOT NULL CHECK (json_valid(engine_versions)),
    requested_at REAL NOT NULL,
    started_at REAL,
    finished_at REAL NOT NULL,
    samples_path TEXT NOT NULL,
    CHECK (status = 'succeeded' OR (score IS NULL AND metrics = '{{}}'))
) STRICT;

CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL CHECK (kind IN ('result', 'version')),
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    at REAL NOT NULL,
    UNIQUE (kind, key)
) STRICT;

CREATE TABLE sinks (
    name TEXT PRIMARY KEY,
    acked INTEGER NOT NULL,
    acked_at REAL NOT NULL
) STRICT;

CREATE TABLE kv (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL CHECK (json_valid(value))
) STRICT;
"""

_TRIGGERS = f"""
CREATE TRIGGER job_begins_waiting BEFORE INSERT ON jobs WHEN NEW.status <> 'waiting'
BEGIN SELECT RAISE(ABORT, 'a job begins as waiting'); END;

CREATE TRIGGER job_created AFTER INSERT ON jobs
BEGIN
    INSERT INTO transitions (job_id, from_status, to_status, attempt, reason, at)
    VALUES (NEW.job_id, '', NEW.status, NEW.attempt, NEW.reason, NEW.changed_at);
END;

CREATE TRIGGER job_identity BEFORE UPDATE ON jobs
WHEN NEW.job_id <> OLD.job_id OR NEW.dataset <> OLD.dataset
    OR NEW.policy_version IS NOT OLD.policy_version OR NEW.checkpoint <> OLD.checkpoint
BEGIN SELECT RAISE(ABORT, 'what a job evaluates never changes'); END;

CREATE TRIGGER job_terminal_once BEFORE UPDATE ON jobs WHEN OLD.status IN {_TERMINAL}
BEGIN SELECT RAISE(ABORT, 'the job has ended already'); END;

CREATE TRIGGER job_terminal_has_result BEFORE UPDATE OF status ON jobs
WHEN NEW.status IN {_TERMINAL}
    AND NOT EXISTS (SELECT 1 FROM results r WHERE r.job_id = NEW.job_id AND r.status = NEW.status)
BEGIN SELECT RAISE(ABORT, 'a job ends only with its result'); END;

CREATE TRIGGER job_changed AFTER UPDATE OF status ON jobs
BEGIN
    INSERT INTO transitions (job_id, from_status, to_status, attempt, reason, at)
    VALUES (NEW.job_id, OLD.status, NEW.status, NEW.attempt, NEW.reason, NEW.changed_at);
END;

{ATTEMPTS_TRIGGERS}
CREATE TRIGGER job_kept BEFORE DELETE ON jobs
BEGIN SELECT RAISE(ABORT, 'jobs are never deleted'); END;

CREATE TRIGGER result_of_live_job BEFORE INSERT ON results
BEGIN
    SELECT RAISE(ABORT, 'no such job')
    WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.job_id = NEW.job_id);
    SELECT RAISE(ABORT, 'the job has ended already')
    FROM jobs j WHERE j.job_id = NEW.job_id AND j.status IN {_TERMINAL};
    SELECT RAISE(ABORT, 'the result is of another dataset, version or checkpoint than its job')
    FROM jobs j WHERE j.job_id = NEW.job_id AND (j.dataset <> NEW.dataset
        OR j.policy_version IS NOT NEW.policy_version OR j.checkpoint <> NEW.checkpoint);
    SELECT RAISE(ABORT, 'only a running job can succeed')
    FROM jobs j WHERE j.job_id = NEW.job_id AND NEW.status = 'succeeded' AND j.status <> 'running';
END;

CREATE TRIGGER result_ends_job AFTER INSERT ON results
BEGIN
    UPDATE jobs SET status = NEW.status, reason = NEW.reason, finished_at = NEW.finished_at,
        changed_at = NEW.finished_at, num_expected = max(num_expected, NEW.n_expected),
        num_done = max(num_done, NEW.n_scored + NEW.n_errored)
    WHERE job_id = NEW.job_id;
    INSERT INTO outbox (kind, key, body, at)
    VALUES ('result', NEW.result_id, '', NEW.finished_at);
END;

CREATE TRIGGER result_fixed BEFORE UPDATE ON results
BEGIN SELECT RAISE(ABORT, 'a result never changes'); END;
CREATE TRIGGER result_kept BEFORE DELETE ON results
BEGIN SELECT RAISE(ABORT, 'results are never deleted'); END;
CREATE TRIGGER transition_fixed BEFORE UPDATE ON transitions
BEGIN SELECT RAISE(ABORT, 'a transition never changes'); END;
CREATE TRIGGER transition_kept BEFORE DELETE ON transitions
BEGIN SELECT RAISE(ABORT, 'transitions are never deleted'); END;
CREATE TRIGGER outbox_fixed BEFORE UPDATE ON outbox
BEGIN SELECT RAISE(ABORT, 'an outbox row never changes'); END;
CREATE TRIGGER outbox_kept BEFORE DELETE ON outbox
BEGIN SELECT RAISE(ABORT, 'outbox rows are never deleted'); END;
"""


def connect_writer(path: Path, *, durable: bool = True) -> sqlite3.Connection:
    """Open for writing in WAL mode; `durable` makes each commit wait for the disk.

    A ledger of an earlier schema version is brought up to the present one. Raises LedgerError if the
    file is no ledger, or one of a later version.
    """
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S)
    except sqlite3.Error as error:
        raise LedgerError(f"cannot open the ledger {path}: {error}") from error
    try:
        # The version is read before anything is set: journal_mode=WAL would write to a foreign file.
        version = _schema_of(db, path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        db.execute("PRAGMA foreign_keys=ON")
        db.execute(SMALL_CACHE)
        if not version:
            _create(db)
        elif version < SCHEMA_VERSION:
            _bring_up(db, version)
    except sqlite3.Error as error:
        db.close()
        raise LedgerError(f"cannot open the ledger {path}: {error}") from error
    except LedgerError:
        db.close()
        raise
    return db


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open read-only, beside a live writer or after one that was killed.

    One of an earlier schema version is read as it is. Raises LedgerError if there is no file, it is no
    ledger, or is of a later version.
    """
    if not path.is_file():
        raise LedgerError(f"no ledger at {path}: give the --out directory of a run")
    try:
        return _open_reader(path, "mode=ro")
    except sqlite3.OperationalError as error:
        # SQLite cannot make its -shm file in a directory that is not writable. Without a -wal
        # file the database is whole as it stands and needs none.
        if Path(f"{path}-wal").exists():
            raise LedgerError(f"cannot read the ledger {path}: {error}") from error
    try:
        return _open_reader(path, "mode=ro&immutable=1")
    except sqlite3.OperationalError as error:
        raise LedgerError(f"cannot read the ledger {path}: {error}") from error


def _open_reader(path: Path, options: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?{options}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S)
    try:
        if not _schema_of(db, path):
            raise LedgerError(f"the ledger {path} is empty: the service has not begun to write it yet")
        db.execute(SMALL_CACHE)
    except (LedgerError, sqlite3.Error):
        db.close()
        raise
    return db


def _schema_of(db: sqlite3.Connection, path: Path) -> int:
    """The version of our schema that the file holds, 0 for a new and empty one.

    LedgerError if it holds something else, or a version that is not known here.
    """
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"{path} is not a ledger ({error}): move it, or give another directory") from error
    if tables == 0 and version == 0 and application == 0:
        return 0
    if application != APPLICATION_ID:
        raise LedgerError(
            f"{path} is another program's database (application id {application:#x}): "
            "move it away, or give another directory"
        )
    if not 1 <= version <= SCHEMA_VERSION:
        raise LedgerError(
            f"the ledger {path} has schema version {version}, this live-eval knows 1 to {SCHEMA_VERSION}: "
            "use the live-eval that wrote it, or start with a new directory"
        )
    return version


def _create(db: sqlite3.Connection) -> None:
    """Make all tables in one transaction, so that a crash leaves an empty file or a whole ledger."""
    db.execute("BEGIN IMMEDIATE")
    for statement in _statements(_TABLES + _TRIGGERS):
        db.execute(statement)
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    db.execute("COMMIT")


def _bring_up(db: sqlite3.Connection, version: int) -> None:
    """Take the steps from `version` to the present one, all or none."""
    db.execute("BEGIN IMMEDIATE")
    for step in range(version, SCHEMA_VERSION):
        for statement in _statements(STEPS[step]):
            db.execute(statement)
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    db.execute("COMMIT")


def _statements(script: str) -> list[str]:
    """Split a script at its statements' ends (executescript would commit the open transaction)."""
    statements: list[str] = []
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            statements.append(pending.strip())
            pending = ""
    return statements
