CREATE TABLE open_problems (
    code TEXT NOT NULL,
    subject TEXT NOT NULL,
    severity TEXT NOT NULL,
    text TEXT NOT NULL,
    next_step TEXT NOT NULL,
    began_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    sent INTEGER DEFAULT '0' NOT NULL,
    send_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    acknowledged_at TIMESTAMP WITH TIME ZONE,
    acknowledged_by TEXT,
    acknowledged_until TIMESTAMP WITH TIME ZONE,
    acknowledged_why TEXT,
    CONSTRAINT pk_open_problems PRIMARY KEY (code, subject),
    CONSTRAINT ck_open_problems_severity_known CHECK (severity IN ('page', 'ticket')),
    CONSTRAINT ck_open_problems_sent_not_negative CHECK (sent >= 0),
    CONSTRAINT ck_open_problems_acknowledgement_is_whole CHECK (acknowledged_at IS NOT NULL OR num_nonnulls(acknowledged_by, acknowledged_until, acknowledged_why) = 0)
);

COMMENT ON TABLE open_problems IS 'Problems that were seen and have not ended; a row is removed when its problem has ended';

COMMENT ON COLUMN open_problems.code IS 'The check''s code, such as no_scheduler';

COMMENT ON COLUMN open_problems.subject IS 'What it is about, such as a queue; empty: the whole';

COMMENT ON COLUMN open_problems.severity IS 'page or ticket';

COMMENT ON COLUMN open_problems.text IS 'What is wrong, in a sentence';

COMMENT ON COLUMN open_problems.next_step IS 'What a person can do about it';

COMMENT ON COLUMN open_problems.began_at IS 'When it was first seen';

COMMENT ON COLUMN open_problems.seen_at IS 'When it was last seen';

COMMENT ON COLUMN open_problems.sent IS 'How many messages about it were written';

COMMENT ON COLUMN open_problems.send_at IS 'When the next message is due';

COMMENT ON COLUMN open_problems.acknowledged_at IS 'When somebody took it on; NULL: nobody did';

COMMENT ON COLUMN open_problems.acknowledged_by IS 'Who took it on; NULL: the command line, without --by';

COMMENT ON COLUMN open_problems.acknowledged_until IS 'Until when no message is sent; NULL: until it ends';

COMMENT ON COLUMN open_problems.acknowledged_why IS 'What they said about it';

CREATE TABLE outbox (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    place TEXT NOT NULL,
    message JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    send_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    last_error TEXT,
    CONSTRAINT pk_outbox PRIMARY KEY (id),
    CONSTRAINT ck_outbox_place_known CHECK (place IN ('webhook', 'email')),
    CONSTRAINT ck_outbox_attempts_not_negative CHECK (attempts >= 0)
);

CREATE INDEX ix_outbox_send_at ON outbox (send_at);

COMMENT ON TABLE outbox IS 'Messages for operators that were not delivered yet';

COMMENT ON COLUMN outbox.id IS 'The message''s number';

COMMENT ON COLUMN outbox.place IS 'Where it goes: webhook or email';

COMMENT ON COLUMN outbox.message IS 'Event, week, text and, of a problem, its code';

COMMENT ON COLUMN outbox.created_at IS 'When it was written';

COMMENT ON COLUMN outbox.attempts IS 'How often it was tried';

COMMENT ON COLUMN outbox.send_at IS 'When it is tried next';

COMMENT ON COLUMN outbox.last_error IS 'Why the last attempt failed; NULL before the first';

CREATE TABLE observations (
    name TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    value JSONB DEFAULT '{}' NOT NULL,
    CONSTRAINT pk_observations PRIMARY KEY (name)
);

COMMENT ON TABLE observations IS 'What a process noted last, by name: when the scheduler was heard, when certificates end';

COMMENT ON COLUMN observations.name IS 'What was observed';

COMMENT ON COLUMN observations.at IS 'When, by the database''s clock';

COMMENT ON COLUMN observations.value IS 'What was seen';

ALTER TABLE replies ADD COLUMN estimated boolean DEFAULT false NOT NULL;

COMMENT ON COLUMN replies.estimated IS 'Whether the endpoint reported no usage, and the tokens are an upper bound: a byte each';

ALTER TABLE audit_log DROP CONSTRAINT ck_audit_log_action_known;

ALTER TABLE audit_log ADD CONSTRAINT ck_audit_log_action_known CHECK (action IN ('confirm', 'approve', 'reject', 'drop_element', 'edit', 'redact', 'overrule', 'curate_again', 'dispute', 'resolve', 'withdraw', 'reinstate', 'take_down', 'lift_takedown', 'lift_quarantine', 'invite', 'set_role', 'disable', 'reset', 'set_password', 'start_study', 'close_study', 'freeze_partial', 'run_step', 'clear_step', 'acknowledge'));

COMMENT ON TABLE sign_in_attempts IS 'Attempts to sign in, counted for a quarter of an hour by account, by address and by both';

COMMENT ON COLUMN sign_in_attempts.subject IS 'account:NAME, account:NAME from ADDRESS or address:ADDRESS';
