PRAGMA application_id=1279609927;
PRAGMA user_version=1;
BEGIN TRANSACTION;
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
    status TEXT NOT NULL CHECK (status IN ('waiting','running') OR status IN ('succeeded','failed','timed_out','cancelled','superseded','dropped')),
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
    CHECK ((finished_at IS NOT NULL) = (status IN ('succeeded','failed','timed_out','cancelled','superseded','dropped')))
) STRICT;
INSERT INTO "jobs" VALUES('v7/rev','rev',7,1,7,'',NULL,6,70,2,'succeeded','completed',0,2.0,5.0,6.0,6.0,4,4);
INSERT INTO "jobs" VALUES('v7/add','add',7,1,7,'',NULL,6,70,1,'running','',0,2.0,7.0,NULL,7.0,1,4);
INSERT INTO "jobs" VALUES('c1/rev','rev',NULL,0,0,'/ckpt/step_2',1,NULL,2,1,'cancelled','user',0,8.0,NULL,9.0,9.0,0,0);
CREATE TABLE kv (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL CHECK (json_valid(value))
) STRICT;
INSERT INTO "kv" VALUES('wandb/run_id','"le123"');
INSERT INTO "kv" VALUES('checkpoint_number','1');
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL CHECK (kind IN ('result', 'version')),
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    at REAL NOT NULL,
    UNIQUE (kind, key)
) STRICT;
INSERT INTO "outbox" VALUES(1,'version','sealed/v7','{"key": "sealed/v7", "state": "sealed", "reason": "", "detail": "", "policy_version": 7, "weight_version": 7, "incarnation": 1, "rollout_id": null, "train_step": null, "at": 1.5}',1.5);
INSERT INTO "outbox" VALUES(2,'result','run/v7/rev','',6.0);
INSERT INTO "outbox" VALUES(3,'result','run/c1/rev','',9.0);
CREATE TABLE results (
    result_id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL UNIQUE REFERENCES jobs (job_id),
    dataset TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('succeeded','failed','timed_out','cancelled','superseded','dropped')),
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
    CHECK (status = 'succeeded' OR (score IS NULL AND metrics = '{}'))
) STRICT;
INSERT INTO "results" VALUES('run/v7/rev','v7/rev','rev','succeeded','completed','',7,'',70,6,'ab',0.5,'{"pass@1": 0.5}','{}',4,4,0,0,'["7"]',2.0,5.0,6.0,'samples/v7/rev@2.jsonl');
INSERT INTO "results" VALUES('run/c1/rev','c1/rev','rev','cancelled','user','',NULL,'/ckpt/step_2',2,NULL,'',NULL,'{}','{}',0,0,0,0,'[]',8.0,NULL,9.0,'');
CREATE TABLE run (
    run_id TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT;
INSERT INTO "run" VALUES('run',1.0);
CREATE TABLE sinks (
    name TEXT PRIMARY KEY,
    acked INTEGER NOT NULL,
    acked_at REAL NOT NULL
) STRICT;
INSERT INTO "sinks" VALUES('jsonl',2,9.5);
CREATE TABLE transitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL REFERENCES jobs (job_id),
    from_status TEXT NOT NULL,
    to_status TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    reason TEXT NOT NULL,
    at REAL NOT NULL
) STRICT;
INSERT INTO "transitions" VALUES(1,'v7/rev','','waiting',1,'every',2.0);
INSERT INTO "transitions" VALUES(2,'v7/add','','waiting',1,'every',2.0);
INSERT INTO "transitions" VALUES(3,'v7/rev','waiting','running',1,'',3.0);
INSERT INTO "transitions" VALUES(4,'v7/rev','running','waiting',2,'service_restarted',4.0);
INSERT INTO "transitions" VALUES(5,'v7/rev','waiting','running',2,'',5.0);
INSERT INTO "transitions" VALUES(6,'v7/rev','running','succeeded',2,'completed',6.0);
INSERT INTO "transitions" VALUES(7,'v7/add','waiting','running',1,'',7.0);
INSERT INTO "transitions" VALUES(8,'c1/rev','','waiting',1,'',8.0);
INSERT INTO "transitions" VALUES(9,'c1/rev','waiting','cancelled',1,'user',9.0);
CREATE INDEX jobs_by_status ON jobs (status);
CREATE INDEX transitions_by_job ON transitions (job_id);
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
CREATE TRIGGER job_terminal_once BEFORE UPDATE ON jobs WHEN OLD.status IN ('succeeded','failed','timed_out','cancelled','superseded','dropped')
BEGIN SELECT RAISE(ABORT, 'the job has ended already'); END;
CREATE TRIGGER job_terminal_has_result BEFORE UPDATE OF status ON jobs
WHEN NEW.status IN ('succeeded','failed','timed_out','cancelled','superseded','dropped')
    AND NOT EXISTS (SELECT 1 FROM results r WHERE r.job_id = NEW.job_id AND r.status = NEW.status)
BEGIN SELECT RAISE(ABORT, 'a job ends only with its result'); END;
CREATE TRIGGER job_changed AFTER UPDATE OF status ON jobs
BEGIN
    INSERT INTO transitions (job_id, from_status, to_status, attempt, reason, at)
    VALUES (NEW.job_id, OLD.status, NEW.status, NEW.attempt, NEW.reason, NEW.changed_at);
END;
CREATE TRIGGER job_kept BEFORE DELETE ON jobs
BEGIN SELECT RAISE(ABORT, 'jobs are never deleted'); END;
CREATE TRIGGER result_of_live_job BEFORE INSERT ON results
BEGIN
    SELECT RAISE(ABORT, 'no such job')
    WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.job_id = NEW.job_id);
    SELECT RAISE(ABORT, 'the job has ended already')
    FROM jobs j WHERE j.job_id = NEW.job_id AND j.status IN ('succeeded','failed','timed_out','cancelled','superseded','dropped');
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
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('outbox',3);
INSERT INTO "sqlite_sequence" VALUES('transitions',9);
COMMIT;
