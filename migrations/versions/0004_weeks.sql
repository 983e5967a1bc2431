CREATE TABLE week_threads (
    revision_id INTEGER NOT NULL,
    week TEXT,
    queued_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    frozen_in TEXT,
    CONSTRAINT pk_week_threads PRIMARY KEY (revision_id),
    CONSTRAINT ck_week_threads_week_form CHECK (week ~ '^\d{4}\.W(0[1-9]|[1-4]\d|5[0-3])$'),
    CONSTRAINT fk_week_threads_revision_id FOREIGN KEY(revision_id) REFERENCES thread_revisions (id),
    CONSTRAINT fk_week_threads_frozen_in FOREIGN KEY(frozen_in) REFERENCES snapshots (version)
);

CREATE INDEX ix_week_threads_open ON week_threads (revision_id) WHERE frozen_in IS NULL;

CREATE INDEX ix_week_threads_frozen_in ON week_threads (frozen_in);

COMMENT ON TABLE week_threads IS 'Thread revisions that were queued for a freeze: a week is whole when they are decided';

COMMENT ON COLUMN week_threads.revision_id IS 'The revision';

COMMENT ON COLUMN week_threads.week IS 'The ISO week it was queued for; NULL: the next that is frozen';

COMMENT ON COLUMN week_threads.queued_at IS 'When it was queued';

COMMENT ON COLUMN week_threads.frozen_in IS 'The snapshot that was frozen after it was settled; NULL: the next freeze counts it';

-- What passed the filters and waits for a decision.
INSERT INTO week_threads (revision_id)
SELECT revision_id FROM thread_standings WHERE stage = 'screener' AND outcome = 'pending' ORDER BY 1;

CREATE TABLE step_waits (
    step TEXT NOT NULL,
    week TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_step_waits PRIMARY KEY (step, week),
    CONSTRAINT ck_step_waits_week_form CHECK (week ~ '^\d{4}\.W(0[1-9]|[1-4]\d|5[0-3])$')
);

COMMENT ON TABLE step_waits IS 'Steps that wait for others, so that a restart does not begin their time anew';

COMMENT ON COLUMN step_waits.step IS 'The step';

COMMENT ON COLUMN step_waits.week IS 'The ISO week it is to be run for';

COMMENT ON COLUMN step_waits.since IS 'Since when it waits';

COMMENT ON COLUMN step_waits.ended_at IS 'When its time limit had passed; NULL: it has not';

ALTER TABLE pipeline_runs ADD COLUMN log JSONB DEFAULT '[]' NOT NULL;

COMMENT ON COLUMN pipeline_runs.log IS 'The last lines that it logged, without secrets';

ALTER TABLE audit_log DROP CONSTRAINT ck_audit_log_action_known;

ALTER TABLE audit_log ADD CONSTRAINT ck_audit_log_action_known CHECK (action IN ('confirm', 'approve', 'reject', 'drop_element', 'edit', 'redact', 'overrule', 'curate_again', 'dispute', 'resolve', 'withdraw', 'reinstate', 'take_down', 'lift_takedown', 'lift_quarantine', 'invite', 'set_role', 'disable', 'reset', 'set_password', 'start_study', 'close_study', 'freeze_partial', 'run_step', 'clear_step'));

COMMENT ON COLUMN audit_log.subject IS 'To what: case:ID, thread:SOURCE/ID, source:NAME, account:NAME, study:NAME, step:NAME';
