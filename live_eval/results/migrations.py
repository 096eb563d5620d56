"""How a ledger of an earlier schema becomes one of the present one, without a row being lost.

Owns one step a schema version. A step runs in the transaction that raises the version, so a kill leaves
the ledger as it was or as it will be. Invariant: what the earlier live-eval wrote is read back the same;
what it did not write is filled in from what it did, or left at zero.
"""

from __future__ import annotations

ATTEMPTS_TABLE = """
CREATE TABLE attempts (
    job_id TEXT NOT NULL REFERENCES jobs (job_id),
    attempt INTEGER NOT NULL,
    started_at REAL NOT NULL,
    ended_at REAL,
    reason TEXT NOT NULL,
    num_taken_up INTEGER NOT NULL,
    num_done INTEGER NOT NULL,
    PRIMARY KEY (job_id, attempt)
) STRICT;
"""

ATTEMPTS_TRIGGERS = """
CREATE TRIGGER attempt_began AFTER UPDATE OF status ON jobs WHEN NEW.status = 'running'
BEGIN
    INSERT INTO attempts (job_id, attempt, started_at, reason, num_taken_up, num_done)
    VALUES (NEW.job_id, NEW.attempt, NEW.changed_at, '', 0, 0);
END;

CREATE TRIGGER attempt_ended AFTER UPDATE OF status ON jobs WHEN OLD.status = 'running'
BEGIN
    UPDATE attempts SET ended_at = NEW.changed_at, reason = NEW.reason,
        num_done = max(OLD.num_done, NEW.num_done)
    WHERE job_id = OLD.job_id AND attempt = OLD.attempt;
END;

CREATE TRIGGER attempt_fixed BEFORE UPDATE ON attempts WHEN OLD.ended_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'an attempt that has ended never changes'); END;

CREATE TRIGGER attempt_kept BEFORE DELETE ON attempts
BEGIN SELECT RAISE(ABORT, 'attempts are never deleted'); END;
"""

_ATTEMPTS_SO_FAR = """
INSERT INTO attempts (job_id, attempt, started_at, ended_at, reason, num_taken_up, num_done)
SELECT began.job_id, began.attempt, began.at, ended.at, coalesce(ended.reason, ''), 0,
    CASE WHEN job.attempt = began.attempt THEN job.num_done ELSE 0 END
FROM transitions began JOIN jobs job ON job.job_id = began.job_id
LEFT JOIN transitions ended ON ended.id = (
    SELECT min(later.id) FROM transitions later WHERE later.job_id = began.job_id AND later.id > began.id)
WHERE began.to_status = 'running';
"""

STEPS: dict[int, str] = {1: ATTEMPTS_TABLE + _ATTEMPTS_SO_FAR + ATTEMPTS_TRIGGERS}
"""Schema version -> the statements that lead to the next one."""
