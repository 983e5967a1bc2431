-- The tables, as medlive/db/tables describes them on the day of the first release.

CREATE TABLE accounts (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    password_hash TEXT,
    subject TEXT,
    link_digest TEXT,
    link_expires_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    signed_in_at TIMESTAMP WITH TIME ZONE,
    disabled_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_accounts PRIMARY KEY (id),
    CONSTRAINT ck_accounts_role_known CHECK (role IN ('viewer', 'reviewer', 'publisher', 'admin')),
    CONSTRAINT ck_accounts_link_digest_is_digest CHECK (link_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT uq_accounts_name UNIQUE (name),
    CONSTRAINT uq_accounts_subject UNIQUE (subject),
    CONSTRAINT uq_accounts_link_digest UNIQUE (link_digest),
    CONSTRAINT ck_accounts_name_spelling CHECK (name ~ '^[a-z0-9][a-z0-9._@+-]{0,63}$'),
    CONSTRAINT ck_accounts_password_is_hashed CHECK (password_hash LIKE '$argon2id$%'),
    CONSTRAINT ck_accounts_one_way_in CHECK (subject IS NULL OR (password_hash IS NULL AND link_digest IS NULL)),
    CONSTRAINT ck_accounts_link_is_whole CHECK ((link_digest IS NULL) = (link_expires_at IS NULL))
);

COMMENT ON TABLE accounts IS 'The people who may use the private pages';

COMMENT ON COLUMN accounts.id IS 'The account''s number';

COMMENT ON COLUMN accounts.name IS 'The name to sign in with';

COMMENT ON COLUMN accounts.role IS 'viewer, reviewer, publisher or admin';

COMMENT ON COLUMN accounts.password_hash IS 'argon2id with its salt and parameters; NULL: no password is set';

COMMENT ON COLUMN accounts.subject IS 'Issuer and subject at the identity provider; NULL: signs in here';

COMMENT ON COLUMN accounts.link_digest IS 'The digest of the one-time link''s token; NULL: no link is open';

COMMENT ON COLUMN accounts.link_expires_at IS 'Until when the link can be used';

COMMENT ON COLUMN accounts.created_at IS 'When it was made';

COMMENT ON COLUMN accounts.signed_in_at IS 'When it last signed in; NULL: never';

COMMENT ON COLUMN accounts.disabled_at IS 'Since when it cannot sign in; NULL: it can';

CREATE TABLE account_sessions (
    digest TEXT NOT NULL,
    account_id INTEGER NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    used_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_account_sessions PRIMARY KEY (digest),
    CONSTRAINT ck_account_sessions_digest_is_digest CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT fk_account_sessions_account_id FOREIGN KEY(account_id) REFERENCES accounts (id) ON DELETE CASCADE
);

CREATE INDEX ix_account_sessions_account_id ON account_sessions (account_id);

COMMENT ON TABLE account_sessions IS 'The sessions of signed-in browsers';

COMMENT ON COLUMN account_sessions.digest IS 'The digest of the token that the browser holds';

COMMENT ON COLUMN account_sessions.account_id IS 'Whose it is';

COMMENT ON COLUMN account_sessions.created_at IS 'When it began';

COMMENT ON COLUMN account_sessions.used_at IS 'When it was last used, to the minute';

CREATE TABLE sign_in_attempts (
    subject TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_sign_in_attempts PRIMARY KEY (subject),
    CONSTRAINT ck_sign_in_attempts_attempts_positive CHECK (attempts >= 1)
);

CREATE INDEX ix_sign_in_attempts_until ON sign_in_attempts (until);

COMMENT ON TABLE sign_in_attempts IS 'Attempts to sign in, counted for a quarter of an hour by account and by address';

COMMENT ON COLUMN sign_in_attempts.subject IS 'account:NAME or address:ADDRESS';

COMMENT ON COLUMN sign_in_attempts.attempts IS 'How many there were';

COMMENT ON COLUMN sign_in_attempts.until IS 'When the count starts anew';

CREATE TABLE prompts (
    digest TEXT NOT NULL,
    task TEXT NOT NULL,
    text TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_prompts PRIMARY KEY (digest),
    CONSTRAINT ck_prompts_digest_is_digest CHECK (digest ~ '^sha256:[0-9a-f]{64}$')
);

COMMENT ON TABLE prompts IS 'The instructions that engines were given; rows are never changed';

COMMENT ON COLUMN prompts.digest IS 'The digest of the text';

COMMENT ON COLUMN prompts.task IS 'The task it was first used for';

COMMENT ON COLUMN prompts.text IS 'The instructions';

COMMENT ON COLUMN prompts.created_at IS 'When it was first used';

CREATE TABLE evidence_indexes (
    digest TEXT NOT NULL,
    retriever TEXT NOT NULL,
    corpora JSONB NOT NULL,
    passages INTEGER NOT NULL,
    dense JSONB,
    first_used_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_evidence_indexes PRIMARY KEY (digest),
    CONSTRAINT ck_evidence_indexes_passages_not_negative CHECK (passages >= 0)
);

COMMENT ON TABLE evidence_indexes IS 'Evidence indexes that curations used';

COMMENT ON COLUMN evidence_indexes.digest IS 'The index''s digest';

COMMENT ON COLUMN evidence_indexes.retriever IS 'The kind of retriever, e.g. bm25';

COMMENT ON COLUMN evidence_indexes.corpora IS 'Corpus name to corpus digest';

COMMENT ON COLUMN evidence_indexes.passages IS 'How many passages it holds';

COMMENT ON COLUMN evidence_indexes.dense IS 'Its dense side: encoder, kind, parameters, recall; NULL: it has none';

COMMENT ON COLUMN evidence_indexes.first_used_at IS 'When a curation first used it';

CREATE TABLE passages (
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    passage_id TEXT NOT NULL,
    corpus TEXT NOT NULL,
    title TEXT NOT NULL,
    section TEXT NOT NULL,
    text TEXT NOT NULL,
    language TEXT NOT NULL,
    published DATE,
    url TEXT NOT NULL,
    licence TEXT NOT NULL,
    CONSTRAINT pk_passages PRIMARY KEY (key),
    CONSTRAINT ck_passages_key_is_digest CHECK (key ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_passages_digest_is_digest CHECK (digest ~ '^sha256:[0-9a-f]{64}$')
);

COMMENT ON TABLE passages IS 'Passages that were retrieved for a claim; rows are never changed';

COMMENT ON COLUMN passages.key IS 'The digest of the whole row';

COMMENT ON COLUMN passages.digest IS 'The digest of title, section and text';

COMMENT ON COLUMN passages.passage_id IS '<corpus>:<document>:<section>';

COMMENT ON COLUMN passages.corpus IS 'The corpus it is from';

COMMENT ON COLUMN passages.title IS 'The document''s title';

COMMENT ON COLUMN passages.section IS 'The section''s heading';

COMMENT ON COLUMN passages.text IS 'The passage';

COMMENT ON COLUMN passages.language IS 'The passage''s language';

COMMENT ON COLUMN passages.published IS 'When it was published; NULL: unknown';

COMMENT ON COLUMN passages.url IS 'Where the document is';

COMMENT ON COLUMN passages.licence IS 'Its licence';

CREATE TABLE band_schemes (
    scheme TEXT NOT NULL,
    filled_to INTEGER DEFAULT '0' NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_band_schemes PRIMARY KEY (scheme),
    CONSTRAINT ck_band_schemes_scheme_length CHECK (char_length(scheme) BETWEEN 1 AND 200),
    CONSTRAINT ck_band_schemes_filled_to_not_negative CHECK (filled_to >= 0)
);

COMMENT ON TABLE band_schemes IS 'The way in which the bands here were made; another one has them made anew';

COMMENT ON COLUMN band_schemes.scheme IS 'What bands are made of, and a check of what the library gives';

COMMENT ON COLUMN band_schemes.filled_to IS 'The last revision whose bands were filled in afterwards; 0: none yet';

COMMENT ON COLUMN band_schemes.started_at IS 'When its bands were begun';

COMMENT ON COLUMN band_schemes.finished_at IS 'Since when every accepted thread has its bands; NULL while they are filled in';

CREATE TABLE sources (
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    quarantined_at TIMESTAMP WITH TIME ZONE,
    quarantine_reason TEXT,
    compared_since TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_sources PRIMARY KEY (name),
    CONSTRAINT ck_sources_kind_known CHECK (kind IN ('site', 'file')),
    CONSTRAINT ck_sources_name_length CHECK (char_length(name) BETWEEN 1 AND 200),
    CONSTRAINT ck_sources_quarantine_has_reason CHECK ((quarantined_at IS NULL) = (quarantine_reason IS NULL))
);

COMMENT ON TABLE sources IS 'The communities that threads come from';

COMMENT ON COLUMN sources.name IS 'The source''s name in threads and commands';

COMMENT ON COLUMN sources.kind IS 'site: harvested by an adapter; file: imported only';

COMMENT ON COLUMN sources.created_at IS 'When it was first seen';

COMMENT ON COLUMN sources.quarantined_at IS 'Since when it is left out, because its pages stopped making sense; NULL: it is not';

COMMENT ON COLUMN sources.quarantine_reason IS 'Why it is left out';

COMMENT ON COLUMN sources.compared_since IS 'Runs begun before are not what its figures are compared with; NULL: all are';

CREATE TABLE import_runs (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    file TEXT NOT NULL,
    assumed_posted_at TIMESTAMP WITH TIME ZONE,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT NOT NULL,
    counts JSONB DEFAULT '{}' NOT NULL,
    problem TEXT,
    CONSTRAINT pk_import_runs PRIMARY KEY (id),
    CONSTRAINT ck_import_runs_outcome_known CHECK (outcome IN ('running', 'done', 'partial', 'failed')),
    CONSTRAINT ck_import_runs_ends_when_not_running CHECK ((outcome = 'running') = (finished_at IS NULL)),
    CONSTRAINT ck_import_runs_failure_has_problem CHECK (outcome <> 'failed' OR problem IS NOT NULL)
);

COMMENT ON TABLE import_runs IS 'Imports of thread files';

COMMENT ON COLUMN import_runs.id IS 'The run''s number';

COMMENT ON COLUMN import_runs.file IS 'The file''s name as it was given';

COMMENT ON COLUMN import_runs.assumed_posted_at IS 'The date taken for threads without one; NULL: none was';

COMMENT ON COLUMN import_runs.started_at IS 'When it began';

COMMENT ON COLUMN import_runs.finished_at IS 'When it ended; NULL while it runs';

COMMENT ON COLUMN import_runs.outcome IS 'running, done or failed';

COMMENT ON COLUMN import_runs.counts IS 'What happened: new, revised, unchanged, problems';

COMMENT ON COLUMN import_runs.problem IS 'Why it failed';

CREATE TABLE snapshots (
    version TEXT NOT NULL,
    parent TEXT,
    state TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    frozen_at TIMESTAMP WITH TIME ZONE,
    manifest JSONB,
    manifest_digest TEXT,
    cases INTEGER,
    criteria INTEGER,
    publishable BOOLEAN,
    why_not JSONB,
    path TEXT,
    meta JSONB,
    sums_digest TEXT,
    signature TEXT,
    CONSTRAINT pk_snapshots PRIMARY KEY (version),
    CONSTRAINT ck_snapshots_state_known CHECK (state IN ('building', 'frozen')),
    CONSTRAINT ck_snapshots_manifest_digest_is_digest CHECK (manifest_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_snapshots_version_form CHECK (version ~ '^\d{4}\.W(0[1-9]|[1-4]\d|5[0-3])$'),
    CONSTRAINT ck_snapshots_parent_is_earlier CHECK (parent < version),
    CONSTRAINT ck_snapshots_frozen_is_whole CHECK ((state = 'frozen') = (num_nonnulls(frozen_at, manifest, manifest_digest, cases, criteria, publishable, why_not, path) = 8)),
    CONSTRAINT ck_snapshots_counts_not_negative CHECK (cases >= 0 AND criteria >= 0),
    CONSTRAINT ck_snapshots_unpublishable_has_reason CHECK (publishable = (jsonb_array_length(why_not) = 0)),
    CONSTRAINT ck_snapshots_sums_digest_is_digest CHECK (sums_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_snapshots_identity_when_frozen CHECK ((state = 'frozen' OR sums_digest IS NULL) AND (sums_digest IS NOT NULL OR signature IS NULL)),
    CONSTRAINT fk_snapshots_parent FOREIGN KEY(parent) REFERENCES snapshots (version)
);

COMMENT ON TABLE snapshots IS 'Snapshots; a frozen one and its members cannot be changed or deleted';

COMMENT ON COLUMN snapshots.version IS 'The ISO week, YYYY.WNN';

COMMENT ON COLUMN snapshots.parent IS 'The snapshot before; NULL for the first';

COMMENT ON COLUMN snapshots.state IS 'building or frozen';

COMMENT ON COLUMN snapshots.created_at IS 'When it was begun';

COMMENT ON COLUMN snapshots.frozen_at IS 'When it was frozen';

COMMENT ON COLUMN snapshots.manifest IS 'The manifest as written';

COMMENT ON COLUMN snapshots.manifest_digest IS 'The digest of manifest.json''s bytes';

COMMENT ON COLUMN snapshots.cases IS 'How many cases it holds';

COMMENT ON COLUMN snapshots.criteria IS 'How many criteria it holds';

COMMENT ON COLUMN snapshots.publishable IS 'Whether it may be released';

COMMENT ON COLUMN snapshots.why_not IS 'The reasons why it may not; empty when it may';

COMMENT ON COLUMN snapshots.path IS 'Where its folder was written';

COMMENT ON COLUMN snapshots.meta IS 'What it says of itself, as it was fixed with its members; NULL: frozen before format 2';

COMMENT ON COLUMN snapshots.sums_digest IS 'The digest of SHA256SUMS: the folder''s identity; NULL: frozen before format 2';

COMMENT ON COLUMN snapshots.signature IS 'The text of SHA256SUMS.minisig; NULL: unsigned';

CREATE TABLE downloads (
    version TEXT NOT NULL,
    file TEXT NOT NULL,
    day DATE NOT NULL,
    count INTEGER NOT NULL,
    CONSTRAINT pk_downloads PRIMARY KEY (version, file, day),
    CONSTRAINT ck_downloads_count_positive CHECK (count >= 1),
    CONSTRAINT fk_downloads_version FOREIGN KEY(version) REFERENCES snapshots (version)
);

COMMENT ON TABLE downloads IS 'How often each file of a snapshot was downloaded on a day; nothing is kept of who did';

COMMENT ON COLUMN downloads.version IS 'The snapshot';

COMMENT ON COLUMN downloads.file IS 'The file''s name in the snapshot''s folder';

COMMENT ON COLUMN downloads.day IS 'The day, in UTC';

COMMENT ON COLUMN downloads.count IS 'How many downloads were begun';

CREATE TABLE evaluation_runs (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    run_digest TEXT NOT NULL,
    snapshot_version TEXT NOT NULL,
    model TEXT NOT NULL,
    grader TEXT NOT NULL,
    path TEXT NOT NULL,
    scores JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_evaluation_runs PRIMARY KEY (id),
    CONSTRAINT ck_evaluation_runs_run_digest_is_digest CHECK (run_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT uq_evaluation_runs_run_digest UNIQUE (run_digest)
);

COMMENT ON TABLE evaluation_runs IS 'Evaluations that were recorded; the run folder is the log';

COMMENT ON COLUMN evaluation_runs.id IS 'The record''s number';

COMMENT ON COLUMN evaluation_runs.run_digest IS 'The digest of the run';

COMMENT ON COLUMN evaluation_runs.snapshot_version IS 'The snapshot evaluated on, ours or another''s';

COMMENT ON COLUMN evaluation_runs.model IS 'The model evaluated';

COMMENT ON COLUMN evaluation_runs.grader IS 'The grader';

COMMENT ON COLUMN evaluation_runs.path IS 'The run folder';

COMMENT ON COLUMN evaluation_runs.scores IS 'The scores with their metric''s name';

COMMENT ON COLUMN evaluation_runs.created_at IS 'When it was recorded';

CREATE TABLE circuits (
    key TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    cause TEXT NOT NULL,
    of_replies BOOLEAN NOT NULL,
    opened_at TIMESTAMP WITH TIME ZONE NOT NULL,
    retry_at TIMESTAMP WITH TIME ZONE NOT NULL,
    backoff_s DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_circuits PRIMARY KEY (key)
);

COMMENT ON TABLE circuits IS 'Models at endpoints that are not asked for a while, since they failed too often';

COMMENT ON COLUMN circuits.key IS 'The digest of address, key and model';

COMMENT ON COLUMN circuits.endpoint IS 'Host, port and model';

COMMENT ON COLUMN circuits.cause IS 'What was wrong last';

COMMENT ON COLUMN circuits.of_replies IS 'Whether replies came and could not be used';

COMMENT ON COLUMN circuits.opened_at IS 'Since when nothing is asked';

COMMENT ON COLUMN circuits.retry_at IS 'When one call is let through';

COMMENT ON COLUMN circuits.backoff_s IS 'Seconds between such calls';

CREATE TABLE pipeline_runs (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    command TEXT NOT NULL,
    iso_week TEXT,
    code_version TEXT NOT NULL,
    settings JSONB NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT NOT NULL,
    counts JSONB DEFAULT '{}' NOT NULL,
    CONSTRAINT pk_pipeline_runs PRIMARY KEY (id),
    CONSTRAINT ck_pipeline_runs_outcome_known CHECK (outcome IN ('running', 'done', 'partial', 'failed')),
    CONSTRAINT ck_pipeline_runs_iso_week_form CHECK (iso_week ~ '^\d{4}\.W(0[1-9]|[1-4]\d|5[0-3])$'),
    CONSTRAINT ck_pipeline_runs_ends_when_not_running CHECK ((outcome = 'running') = (finished_at IS NULL))
);

COMMENT ON TABLE pipeline_runs IS 'The program''s own runs: which code with which settings did what';

COMMENT ON COLUMN pipeline_runs.id IS 'The run''s number';

COMMENT ON COLUMN pipeline_runs.command IS 'The command';

COMMENT ON COLUMN pipeline_runs.iso_week IS 'The ISO week it worked for; NULL: none';

COMMENT ON COLUMN pipeline_runs.code_version IS 'medlive''s version';

COMMENT ON COLUMN pipeline_runs.settings IS 'The effective settings, without secrets';

COMMENT ON COLUMN pipeline_runs.started_at IS 'When it began';

COMMENT ON COLUMN pipeline_runs.finished_at IS 'When it ended; NULL while it runs';

COMMENT ON COLUMN pipeline_runs.outcome IS 'running, done or failed';

COMMENT ON COLUMN pipeline_runs.counts IS 'What happened';

CREATE TABLE components (
    name TEXT NOT NULL,
    migration TEXT NOT NULL,
    CONSTRAINT pk_components PRIMARY KEY (name)
);

COMMENT ON TABLE components IS 'Libraries that keep tables here, and how far their schema has come';

COMMENT ON COLUMN components.name IS 'The library';

COMMENT ON COLUMN components.migration IS 'The last of its migrations that is applied';

CREATE TABLE replies (
    request_digest TEXT NOT NULL,
    task TEXT NOT NULL,
    prompt_digest TEXT NOT NULL,
    engine TEXT NOT NULL,
    model TEXT NOT NULL,
    parameters JSONB NOT NULL,
    inputs JSONB NOT NULL,
    schema_digest TEXT NOT NULL,
    repair JSONB,
    round SMALLINT DEFAULT '0' NOT NULL,
    text TEXT NOT NULL,
    finish TEXT NOT NULL,
    reply_model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_usd NUMERIC,
    latency_ms DOUBLE PRECISION NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_replies PRIMARY KEY (request_digest),
    CONSTRAINT ck_replies_request_digest_is_digest CHECK (request_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_replies_schema_digest_is_digest CHECK (schema_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_replies_finish_known CHECK (finish IN ('stop', 'length', 'refusal')),
    CONSTRAINT ck_replies_tokens CHECK (input_tokens >= 0 AND cached_tokens >= 0 AND output_tokens >= 0),
    CONSTRAINT ck_replies_cost_not_negative CHECK (cost_usd >= 0),
    CONSTRAINT ck_replies_latency_not_negative CHECK (latency_ms >= 0),
    CONSTRAINT ck_replies_repair_is_pair CHECK (repair IS NULL OR jsonb_array_length(repair) = 2),
    CONSTRAINT ck_replies_round_not_negative CHECK (round >= 0),
    CONSTRAINT fk_replies_prompt_digest FOREIGN KEY(prompt_digest) REFERENCES prompts (digest)
);

CREATE INDEX ix_replies_task_created_at ON replies (task, created_at);

COMMENT ON TABLE replies IS 'Replies of engines under their request''s digest, so that none is paid for twice';

COMMENT ON COLUMN replies.request_digest IS 'Task, prompt, schema, inputs, repair, engine, model and parameters';

COMMENT ON COLUMN replies.task IS 'The task, <agent>.<what>';

COMMENT ON COLUMN replies.prompt_digest IS 'Its instructions';

COMMENT ON COLUMN replies.engine IS 'The engine: rules or openai';

COMMENT ON COLUMN replies.model IS 'The pinned model id that was asked';

COMMENT ON COLUMN replies.parameters IS 'The engine''s parameters';

COMMENT ON COLUMN replies.inputs IS 'The inputs: text of threads is only here';

COMMENT ON COLUMN replies.schema_digest IS 'The digest of the reply''s JSON schema';

COMMENT ON COLUMN replies.repair IS 'On a second attempt: the raw first reply and what was wrong with it';

COMMENT ON COLUMN replies.round IS 'How often stored unusable replies were stepped over before';

COMMENT ON COLUMN replies.text IS 'The reply, untouched';

COMMENT ON COLUMN replies.finish IS 'Why the engine stopped: stop, length or refusal';

COMMENT ON COLUMN replies.reply_model IS 'The model as the endpoint named it';

COMMENT ON COLUMN replies.input_tokens IS 'Tokens read';

COMMENT ON COLUMN replies.cached_tokens IS 'Of these, tokens from the endpoint''s cache';

COMMENT ON COLUMN replies.output_tokens IS 'Tokens written';

COMMENT ON COLUMN replies.cost_usd IS 'The price in US dollars; NULL: unknown, not free';

COMMENT ON COLUMN replies.latency_ms IS 'How long the reply took, in milliseconds';

COMMENT ON COLUMN replies.created_at IS 'When it was stored';

CREATE TABLE harvest_runs (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    source TEXT NOT NULL,
    iso_week TEXT NOT NULL,
    starts INTEGER DEFAULT '1' NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT NOT NULL,
    counts JSONB DEFAULT '{}' NOT NULL,
    problem TEXT,
    CONSTRAINT pk_harvest_runs PRIMARY KEY (id),
    CONSTRAINT uq_harvest_runs_source_iso_week UNIQUE (source, iso_week),
    CONSTRAINT ck_harvest_runs_outcome_known CHECK (outcome IN ('running', 'done', 'partial', 'failed')),
    CONSTRAINT ck_harvest_runs_iso_week_form CHECK (iso_week ~ '^\d{4}\.W(0[1-9]|[1-4]\d|5[0-3])$'),
    CONSTRAINT ck_harvest_runs_ends_when_not_running CHECK ((outcome = 'running') = (finished_at IS NULL)),
    CONSTRAINT ck_harvest_runs_failure_has_problem CHECK (outcome <> 'failed' OR problem IS NOT NULL),
    CONSTRAINT ck_harvest_runs_starts_positive CHECK (starts >= 1),
    CONSTRAINT fk_harvest_runs_source FOREIGN KEY(source) REFERENCES sources (name)
);

COMMENT ON TABLE harvest_runs IS 'Harvests: one a source and ISO week, taken up again when it was interrupted';

COMMENT ON COLUMN harvest_runs.id IS 'The run''s number';

COMMENT ON COLUMN harvest_runs.source IS 'The source harvested';

COMMENT ON COLUMN harvest_runs.iso_week IS 'The ISO week, YYYY.WNN';

COMMENT ON COLUMN harvest_runs.starts IS 'How often it was begun or taken up again';

COMMENT ON COLUMN harvest_runs.started_at IS 'When it was first begun';

COMMENT ON COLUMN harvest_runs.finished_at IS 'When it last ended; NULL while it runs';

COMMENT ON COLUMN harvest_runs.outcome IS 'running, done or failed';

COMMENT ON COLUMN harvest_runs.counts IS 'What happened: event''s name to its number';

COMMENT ON COLUMN harvest_runs.problem IS 'Why it failed, or what it met';

CREATE TABLE import_problems (
    run_id INTEGER NOT NULL,
    line INTEGER NOT NULL,
    file TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    excerpt TEXT NOT NULL,
    CONSTRAINT pk_import_problems PRIMARY KEY (run_id, line),
    CONSTRAINT ck_import_problems_line_positive CHECK (line >= 1),
    CONSTRAINT fk_import_problems_run_id FOREIGN KEY(run_id) REFERENCES import_runs (id)
);

COMMENT ON TABLE import_problems IS 'Lines of imports that became no thread';

COMMENT ON COLUMN import_problems.run_id IS 'The import it was met in';

COMMENT ON COLUMN import_problems.line IS 'The line''s number, from 1';

COMMENT ON COLUMN import_problems.file IS 'The file''s name as it was given';

COMMENT ON COLUMN import_problems.reason IS 'The kind of fault';

COMMENT ON COLUMN import_problems.detail IS 'The fault in words';

COMMENT ON COLUMN import_problems.excerpt IS 'The beginning of the line';

CREATE TABLE threads (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    source TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    url TEXT NOT NULL,
    first_seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    last_seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    gone_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_threads PRIMARY KEY (id),
    CONSTRAINT uq_threads_source_thread_id UNIQUE (source, thread_id),
    CONSTRAINT ck_threads_thread_id_length CHECK (char_length(thread_id) BETWEEN 1 AND 500),
    CONSTRAINT ck_threads_seen_in_order CHECK (last_seen_at >= first_seen_at),
    CONSTRAINT fk_threads_source FOREIGN KEY(source) REFERENCES sources (name)
);

COMMENT ON TABLE threads IS 'Discussions of the sources';

COMMENT ON COLUMN threads.id IS 'The thread''s number here';

COMMENT ON COLUMN threads.source IS 'The community it is from';

COMMENT ON COLUMN threads.thread_id IS 'The source''s own id, unique within it';

COMMENT ON COLUMN threads.url IS 'Its address, as last seen';

COMMENT ON COLUMN threads.first_seen_at IS 'When it first came in';

COMMENT ON COLUMN threads.last_seen_at IS 'When it last came in, changed or not';

COMMENT ON COLUMN threads.gone_at IS 'When the source answered that it is no longer there; NULL: not known to be gone';

CREATE TABLE snapshot_changes (
    version TEXT NOT NULL,
    case_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    from_revision INTEGER,
    to_revision INTEGER,
    held_since TEXT,
    commitment TEXT,
    CONSTRAINT pk_snapshot_changes PRIMARY KEY (version, case_id),
    CONSTRAINT ck_snapshot_changes_kind_known CHECK (kind IN ('added', 'revised', 'withdrawn', 'dropped')),
    CONSTRAINT ck_snapshot_changes_reason_not_empty CHECK (reason <> ''),
    CONSTRAINT ck_snapshot_changes_revisions_of_kind CHECK ((from_revision IS NOT NULL) = (kind IN ('revised', 'withdrawn')) AND (to_revision IS NOT NULL) = (kind IN ('added', 'revised'))),
    CONSTRAINT ck_snapshot_changes_dropped_was_held CHECK (num_nonnulls(held_since, commitment) = CASE kind WHEN 'dropped' THEN 2 ELSE 0 END),
    CONSTRAINT fk_snapshot_changes_version FOREIGN KEY(version) REFERENCES snapshots (version)
);

COMMENT ON TABLE snapshot_changes IS 'What changed since the parent, as snapshots publish it';

COMMENT ON COLUMN snapshot_changes.version IS 'The snapshot';

COMMENT ON COLUMN snapshot_changes.case_id IS 'The case';

COMMENT ON COLUMN snapshot_changes.kind IS 'added, revised, withdrawn, or dropped while held out';

COMMENT ON COLUMN snapshot_changes.reason IS 'Why, as it is published';

COMMENT ON COLUMN snapshot_changes.from_revision IS 'The revision in the parent; NULL: none was shown';

COMMENT ON COLUMN snapshot_changes.to_revision IS 'The revision in this one; NULL: none is shown';

COMMENT ON COLUMN snapshot_changes.held_since IS 'Since when a dropped case was held out; NULL: it was not';

COMMENT ON COLUMN snapshot_changes.commitment IS 'What stood for a dropped case; NULL: it was shown';

CREATE TABLE snapshot_kept_out (
    version TEXT NOT NULL,
    case_id TEXT NOT NULL,
    position SMALLINT NOT NULL,
    gate TEXT NOT NULL,
    detail TEXT NOT NULL,
    CONSTRAINT pk_snapshot_kept_out PRIMARY KEY (version, case_id, position),
    CONSTRAINT ck_snapshot_kept_out_position_positive CHECK (position >= 1),
    CONSTRAINT fk_snapshot_kept_out_version FOREIGN KEY(version) REFERENCES snapshots (version)
);

COMMENT ON TABLE snapshot_kept_out IS 'Ready cases that the gates kept out of snapshots';

COMMENT ON COLUMN snapshot_kept_out.version IS 'The snapshot';

COMMENT ON COLUMN snapshot_kept_out.case_id IS 'A case that was ready';

COMMENT ON COLUMN snapshot_kept_out.position IS 'The reason''s place, from 1';

COMMENT ON COLUMN snapshot_kept_out.gate IS 'The gate that kept it out';

COMMENT ON COLUMN snapshot_kept_out.detail IS 'Why; never the words it was found in';

CREATE TABLE takedowns (
    source TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    taken_down_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    erased_in BIGINT NOT NULL,
    counts JSONB DEFAULT '{}' NOT NULL,
    lifted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_takedowns PRIMARY KEY (source, thread_id),
    CONSTRAINT ck_takedowns_thread_id_length CHECK (char_length(thread_id) BETWEEN 1 AND 500),
    CONSTRAINT ck_takedowns_reason_length CHECK (char_length(reason) BETWEEN 1 AND 2000),
    CONSTRAINT fk_takedowns_source FOREIGN KEY(source) REFERENCES sources (name)
);

COMMENT ON TABLE takedowns IS 'Erased threads; a transaction that writes one may erase its thread''s rows';

COMMENT ON COLUMN takedowns.source IS 'The community';

COMMENT ON COLUMN takedowns.thread_id IS 'The source''s own id: what keeps the thread from coming back';

COMMENT ON COLUMN takedowns.reason IS 'Why, in the words of who asked first';

COMMENT ON COLUMN takedowns.taken_down_at IS 'When it was first erased';

COMMENT ON COLUMN takedowns.erased_in IS 'The transaction that wrote this row last, set by a trigger: it alone may erase';

COMMENT ON COLUMN takedowns.counts IS 'What was erased: table to rows';

COMMENT ON COLUMN takedowns.lifted_at IS 'Since when a harvest may bring the thread back; NULL: none may';

CREATE TABLE bands (
    key BIGINT NOT NULL,
    thread_id INTEGER NOT NULL,
    CONSTRAINT pk_bands PRIMARY KEY (key, thread_id),
    CONSTRAINT fk_bands_thread_id FOREIGN KEY(thread_id) REFERENCES threads (id)
);

COMMENT ON TABLE bands IS 'MinHash bands: threads that share one may be near-duplicates';

COMMENT ON COLUMN bands.key IS 'A hash of the band''s place and its minima';

COMMENT ON COLUMN bands.thread_id IS 'A thread of which some accepted revision has this band';

CREATE TABLE frontier (
    source TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    run_id INTEGER NOT NULL,
    list_key TEXT,
    url TEXT NOT NULL,
    posted_at TIMESTAMP WITH TIME ZONE,
    active_at TIMESTAMP WITH TIME ZONE,
    state TEXT NOT NULL,
    reason TEXT,
    attempts INTEGER DEFAULT '0' NOT NULL,
    after_fetch BIGINT NOT NULL,
    etag TEXT,
    last_modified TEXT,
    page_count INTEGER,
    fields JSONB,
    first_run_id INTEGER NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_frontier PRIMARY KEY (source, thread_id),
    CONSTRAINT ck_frontier_state_known CHECK (state IN ('waiting', 'read', 'not_modified', 'skipped', 'failed', 'gone', 'known')),
    CONSTRAINT ck_frontier_reason_when_not_read CHECK ((state IN ('skipped', 'failed')) = (reason IS NOT NULL)),
    CONSTRAINT ck_frontier_attempts_not_negative CHECK (attempts >= 0),
    CONSTRAINT ck_frontier_page_count_positive CHECK (page_count >= 1),
    CONSTRAINT ck_frontier_thread_id_length CHECK (char_length(thread_id) BETWEEN 1 AND 500),
    CONSTRAINT ck_frontier_read_has_fields CHECK (state <> 'read' OR fields IS NOT NULL),
    CONSTRAINT fk_frontier_source FOREIGN KEY(source) REFERENCES sources (name),
    CONSTRAINT fk_frontier_run_id FOREIGN KEY(run_id) REFERENCES harvest_runs (id),
    CONSTRAINT fk_frontier_first_run_id FOREIGN KEY(first_run_id) REFERENCES harvest_runs (id)
);

CREATE INDEX ix_frontier_run_id_state ON frontier (run_id, state);

CREATE INDEX ix_frontier_source_waiting ON frontier (source, state);

COMMENT ON TABLE frontier IS 'Every thread that a list showed, and what became of it in the run that listed it last';

COMMENT ON COLUMN frontier.source IS 'The community';

COMMENT ON COLUMN frontier.thread_id IS 'The source''s own id';

COMMENT ON COLUMN frontier.run_id IS 'The run that listed it last';

COMMENT ON COLUMN frontier.list_key IS 'The list that showed it last; NULL: none yet';

COMMENT ON COLUMN frontier.url IS 'Its address, as the list has it';

COMMENT ON COLUMN frontier.posted_at IS 'When it was opened; NULL: no list says so';

COMMENT ON COLUMN frontier.active_at IS 'Its latest activity, as the list has it';

COMMENT ON COLUMN frontier.state IS 'What became of it in that run';

COMMENT ON COLUMN frontier.reason IS 'Why it was skipped or failed';

COMMENT ON COLUMN frontier.attempts IS 'Times in a row that it failed';

COMMENT ON COLUMN frontier.after_fetch IS 'The newest fetch when it was listed: pages of this reading have higher numbers';

COMMENT ON COLUMN frontier.etag IS 'The ETag that its first page was last read with';

COMMENT ON COLUMN frontier.last_modified IS 'The Last-Modified that it was last read with';

COMMENT ON COLUMN frontier.page_count IS 'How many pages it last had; NULL: never read';

COMMENT ON COLUMN frontier.fields IS 'Which fields its last reading had (true or false), and how many messages';

COMMENT ON COLUMN frontier.first_run_id IS 'The run that met it first';

COMMENT ON COLUMN frontier.changed_at IS 'When this row last changed';

CREATE TABLE list_cursors (
    run_id INTEGER NOT NULL,
    list_key TEXT NOT NULL,
    next_url TEXT,
    pages INTEGER DEFAULT '0' NOT NULL,
    newest_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_list_cursors PRIMARY KEY (run_id, list_key),
    CONSTRAINT ck_list_cursors_pages_not_negative CHECK (pages >= 0),
    CONSTRAINT ck_list_cursors_finished_has_no_next CHECK (finished_at IS NULL OR next_url IS NULL),
    CONSTRAINT fk_list_cursors_run_id FOREIGN KEY(run_id) REFERENCES harvest_runs (id)
);

COMMENT ON TABLE list_cursors IS 'How far each list was read in each run; the newest finished one is where the next run stops';

COMMENT ON COLUMN list_cursors.run_id IS 'The run';

COMMENT ON COLUMN list_cursors.list_key IS 'The list: what its first page is asked with';

COMMENT ON COLUMN list_cursors.next_url IS 'The page to go on with; NULL: from the first';

COMMENT ON COLUMN list_cursors.pages IS 'Pages read';

COMMENT ON COLUMN list_cursors.newest_at IS 'The latest activity that it showed; NULL: no date';

COMMENT ON COLUMN list_cursors.finished_at IS 'When it was read to its end; NULL: it was not';

CREATE TABLE archives (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    run_id INTEGER NOT NULL,
    path TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    sealed_at TIMESTAMP WITH TIME ZONE,
    removed_at TIMESTAMP WITH TIME ZONE,
    unswept_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_archives PRIMARY KEY (id),
    CONSTRAINT uq_archives_path UNIQUE (path),
    CONSTRAINT ck_archives_bytes_not_negative CHECK (bytes >= 0),
    CONSTRAINT fk_archives_run_id FOREIGN KEY(run_id) REFERENCES harvest_runs (id)
);

COMMENT ON TABLE archives IS 'WARC files under the archive''s folder; what they hold beyond `bytes` was never committed';

COMMENT ON COLUMN archives.id IS 'The file''s number';

COMMENT ON COLUMN archives.run_id IS 'The run whose pages it holds';

COMMENT ON COLUMN archives.path IS 'Its path below the archive''s folder';

COMMENT ON COLUMN archives.bytes IS 'How much of it is committed';

COMMENT ON COLUMN archives.created_at IS 'When it was begun';

COMMENT ON COLUMN archives.sealed_at IS 'Since when it does not grow; NULL: being written';

COMMENT ON COLUMN archives.removed_at IS 'When retention or a takedown removed the file';

COMMENT ON COLUMN archives.unswept_at IS 'Since when it holds pages of a takedown that no fetch names any more; NULL: none';

CREATE TABLE harvest_robots (
    run_id INTEGER NOT NULL,
    host TEXT NOT NULL,
    fetched_at TIMESTAMP WITH TIME ZONE NOT NULL,
    state TEXT NOT NULL,
    status INTEGER,
    body TEXT NOT NULL,
    detail TEXT,
    CONSTRAINT pk_harvest_robots PRIMARY KEY (run_id, host, fetched_at),
    CONSTRAINT ck_harvest_robots_state_known CHECK (state IN ('rules', 'absent', 'unreadable')),
    CONSTRAINT ck_harvest_robots_unreadable_says_why CHECK ((state = 'unreadable') = (detail IS NOT NULL)),
    CONSTRAINT fk_harvest_robots_run_id FOREIGN KEY(run_id) REFERENCES harvest_runs (id)
);

COMMENT ON TABLE harvest_robots IS 'The robots.txt of every host that a run asked';

COMMENT ON COLUMN harvest_robots.run_id IS 'The run';

COMMENT ON COLUMN harvest_robots.host IS 'The host, with a port that is not its scheme''s';

COMMENT ON COLUMN harvest_robots.fetched_at IS 'When it was asked for';

COMMENT ON COLUMN harvest_robots.state IS 'rules, absent (all may be read) or unreadable';

COMMENT ON COLUMN harvest_robots.status IS 'The HTTP status; NULL when no answer came';

COMMENT ON COLUMN harvest_robots.body IS 'The file as read';

COMMENT ON COLUMN harvest_robots.detail IS 'Why it is unreadable';

CREATE TABLE harvest_measures (
    run_id INTEGER NOT NULL,
    measure TEXT NOT NULL,
    value DOUBLE PRECISION NOT NULL,
    n INTEGER NOT NULL,
    median DOUBLE PRECISION,
    collapsed BOOLEAN NOT NULL,
    CONSTRAINT pk_harvest_measures PRIMARY KEY (run_id, measure),
    CONSTRAINT ck_harvest_measures_n_not_negative CHECK (n >= 0),
    CONSTRAINT fk_harvest_measures_run_id FOREIGN KEY(run_id) REFERENCES harvest_runs (id)
);

COMMENT ON TABLE harvest_measures IS 'What a run''s threads had, compared with the runs before';

COMMENT ON COLUMN harvest_measures.run_id IS 'The run';

COMMENT ON COLUMN harvest_measures.measure IS 'The figure''s name, e.g. field:posted_at';

COMMENT ON COLUMN harvest_measures.value IS 'A share from 0 to 1, or a mean';

COMMENT ON COLUMN harvest_measures.n IS 'Over how many threads';

COMMENT ON COLUMN harvest_measures.median IS 'The median of the runs before; NULL: too few';

COMMENT ON COLUMN harvest_measures.collapsed IS 'Whether it left that median too far behind to be chance';

CREATE TABLE cases (
    id TEXT NOT NULL,
    thread_id INTEGER NOT NULL,
    status TEXT NOT NULL,
    status_reason TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_cases PRIMARY KEY (id),
    CONSTRAINT ck_cases_status_known CHECK (status IN ('ready', 'held', 'rejected', 'withdrawn')),
    CONSTRAINT ck_cases_id_form CHECK (id ~ '^ml-[0-9a-f]{12,}$'),
    CONSTRAINT ck_cases_status_has_reason CHECK ((status = 'ready') = (status_reason IS NULL)),
    CONSTRAINT uq_cases_thread_id UNIQUE (thread_id),
    CONSTRAINT fk_cases_thread_id FOREIGN KEY(thread_id) REFERENCES threads (id)
);

COMMENT ON TABLE cases IS 'Cases made from threads';

COMMENT ON COLUMN cases.id IS 'A keyed hash that tells nothing of the thread';

COMMENT ON COLUMN cases.thread_id IS 'The thread';

COMMENT ON COLUMN cases.status IS 'ready, held, rejected or withdrawn';

COMMENT ON COLUMN cases.status_reason IS 'Why it is not ready; NULL when ready';

COMMENT ON COLUMN cases.created_at IS 'When the case was first made';

CREATE TABLE fetches (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    run_id INTEGER NOT NULL,
    source TEXT NOT NULL,
    kind TEXT NOT NULL,
    thread_id TEXT,
    page_number INTEGER DEFAULT '1' NOT NULL,
    url TEXT NOT NULL,
    status INTEGER,
    fetched_at TIMESTAMP WITH TIME ZONE NOT NULL,
    elapsed_ms INTEGER,
    body_digest TEXT,
    content_type TEXT,
    etag TEXT,
    last_modified TEXT,
    form JSONB,
    archive_id INTEGER,
    archive_offset BIGINT,
    archive_length INTEGER,
    error TEXT,
    CONSTRAINT pk_fetches PRIMARY KEY (id),
    CONSTRAINT ck_fetches_kind_known CHECK (kind IN ('listing', 'thread')),
    CONSTRAINT ck_fetches_body_digest_is_digest CHECK (body_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_fetches_answer_or_error CHECK (status IS NOT NULL OR error IS NOT NULL),
    CONSTRAINT ck_fetches_status_is_http CHECK (status BETWEEN 100 AND 599),
    CONSTRAINT ck_fetches_elapsed_not_negative CHECK (elapsed_ms >= 0),
    CONSTRAINT ck_fetches_place_is_whole CHECK (num_nonnulls(archive_id, archive_offset, archive_length) IN (0, 3)),
    CONSTRAINT ck_fetches_archived_has_digest CHECK (archive_id IS NULL OR body_digest IS NOT NULL),
    CONSTRAINT ck_fetches_page_number_positive CHECK (page_number >= 1),
    CONSTRAINT ck_fetches_thread_page_has_thread CHECK ((kind = 'listing') = (thread_id IS NULL)),
    CONSTRAINT fk_fetches_run_id FOREIGN KEY(run_id) REFERENCES harvest_runs (id),
    CONSTRAINT fk_fetches_source FOREIGN KEY(source) REFERENCES sources (name),
    CONSTRAINT fk_fetches_archive_id FOREIGN KEY(archive_id) REFERENCES archives (id)
);

CREATE INDEX ix_fetches_run_id ON fetches (run_id);

CREATE INDEX ix_fetches_archive_id ON fetches (archive_id);

CREATE INDEX ix_fetches_thread_id_latest ON fetches (source, thread_id, id);

COMMENT ON TABLE fetches IS 'Every page that was asked for, and where its bytes lie';

COMMENT ON COLUMN fetches.id IS 'The fetch''s number';

COMMENT ON COLUMN fetches.run_id IS 'The run that asked for it';

COMMENT ON COLUMN fetches.source IS 'The run''s source';

COMMENT ON COLUMN fetches.kind IS 'What the page was asked for: listing or thread';

COMMENT ON COLUMN fetches.thread_id IS 'The source''s id of the page''s thread; NULL for lists';

COMMENT ON COLUMN fetches.page_number IS 'The page''s place in its thread, from 1';

COMMENT ON COLUMN fetches.url IS 'The address that answered, or that was asked';

COMMENT ON COLUMN fetches.status IS 'The HTTP status; NULL when there was no answer';

COMMENT ON COLUMN fetches.fetched_at IS 'When it was fetched';

COMMENT ON COLUMN fetches.elapsed_ms IS 'How long it took, in milliseconds';

COMMENT ON COLUMN fetches.body_digest IS 'The digest of the body as received, uncompressed';

COMMENT ON COLUMN fetches.content_type IS 'The Content-Type header as sent';

COMMENT ON COLUMN fetches.etag IS 'The ETag header as sent';

COMMENT ON COLUMN fetches.last_modified IS 'The Last-Modified header as sent';

COMMENT ON COLUMN fetches.form IS 'The form that was posted, as pairs; NULL: none was';

COMMENT ON COLUMN fetches.archive_id IS 'The WARC file with its bytes; NULL when there are none, or no longer';

COMMENT ON COLUMN fetches.archive_offset IS 'Where its record begins in the file';

COMMENT ON COLUMN fetches.archive_length IS 'The record''s length in bytes, compressed';

COMMENT ON COLUMN fetches.error IS 'Why it failed';

CREATE TABLE withdrawals (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    case_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    criterion_id TEXT,
    criterion_digest TEXT,
    new_revision INTEGER,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    withdrawn_by TEXT,
    withdrawn_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_withdrawals PRIMARY KEY (id),
    CONSTRAINT ck_withdrawals_kind_known CHECK (kind IN ('erratum', 'takedown', 'privacy')),
    CONSTRAINT ck_withdrawals_criterion_digest_is_digest CHECK (criterion_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_withdrawals_revisions_in_order CHECK (revision >= 1 AND new_revision > revision),
    CONSTRAINT ck_withdrawals_criterion_is_whole CHECK ((criterion_id IS NULL) = (criterion_digest IS NULL) AND (criterion_id IS NOT NULL OR new_revision IS NULL)),
    CONSTRAINT ck_withdrawals_reason_length CHECK (char_length(reason) BETWEEN 1 AND 500),
    CONSTRAINT fk_withdrawals_case_id FOREIGN KEY(case_id) REFERENCES cases (id)
);

CREATE INDEX ix_withdrawals_case_id ON withdrawals (case_id);

COMMENT ON TABLE withdrawals IS 'Withdrawn cases and criteria; rows are never changed';

COMMENT ON COLUMN withdrawals.id IS 'The withdrawal''s number';

COMMENT ON COLUMN withdrawals.case_id IS 'The case';

COMMENT ON COLUMN withdrawals.revision IS 'The case''s revision that it was withdrawn from';

COMMENT ON COLUMN withdrawals.criterion_id IS 'The criterion''s id within that revision; NULL: the whole case';

COMMENT ON COLUMN withdrawals.criterion_digest IS 'The digest of the criterion''s folded text, by which it is known in other revisions';

COMMENT ON COLUMN withdrawals.new_revision IS 'The revision without the criterion that this made; NULL: none was needed';

COMMENT ON COLUMN withdrawals.kind IS 'erratum, takedown or privacy';

COMMENT ON COLUMN withdrawals.reason IS 'Why, in words for the public';

COMMENT ON COLUMN withdrawals.withdrawn_by IS 'Who withdrew it; NULL: unknown';

COMMENT ON COLUMN withdrawals.withdrawn_at IS 'When it was withdrawn';

CREATE TABLE reinstatements (
    withdrawal_id INTEGER NOT NULL,
    case_id TEXT NOT NULL,
    reinstated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_reinstatements PRIMARY KEY (withdrawal_id),
    CONSTRAINT fk_reinstatements_withdrawal_id FOREIGN KEY(withdrawal_id) REFERENCES withdrawals (id),
    CONSTRAINT fk_reinstatements_case_id FOREIGN KEY(case_id) REFERENCES cases (id)
);

COMMENT ON TABLE reinstatements IS 'Withdrawals that were undone, who and why stands in the audit log; rows are never changed';

COMMENT ON COLUMN reinstatements.withdrawal_id IS 'The withdrawal';

COMMENT ON COLUMN reinstatements.case_id IS 'Its case';

COMMENT ON COLUMN reinstatements.reinstated_at IS 'When it was undone';

CREATE TABLE disputes (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    case_id TEXT NOT NULL,
    criterion_id TEXT,
    reason TEXT NOT NULL,
    opened_by TEXT,
    opened_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    closed_by TEXT,
    resolution TEXT,
    CONSTRAINT pk_disputes PRIMARY KEY (id),
    CONSTRAINT ck_disputes_reason_length CHECK (char_length(reason) BETWEEN 1 AND 2000),
    CONSTRAINT ck_disputes_resolution_length CHECK (char_length(resolution) BETWEEN 1 AND 2000),
    CONSTRAINT ck_disputes_closed_is_whole CHECK ((closed_at IS NULL) = (resolution IS NULL) AND (closed_at IS NOT NULL OR closed_by IS NULL)),
    CONSTRAINT fk_disputes_case_id FOREIGN KEY(case_id) REFERENCES cases (id)
);

CREATE INDEX ix_disputes_case_id ON disputes (case_id) WHERE closed_at IS NULL;

COMMENT ON TABLE disputes IS 'Disputes; a case with an open one stays out of the next snapshot';

COMMENT ON COLUMN disputes.id IS 'The dispute''s number';

COMMENT ON COLUMN disputes.case_id IS 'The case';

COMMENT ON COLUMN disputes.criterion_id IS 'The criterion''s id within its case; NULL: the whole case';

COMMENT ON COLUMN disputes.reason IS 'What is objected to; not published';

COMMENT ON COLUMN disputes.opened_by IS 'Who opened it; NULL: unknown';

COMMENT ON COLUMN disputes.opened_at IS 'When it was opened';

COMMENT ON COLUMN disputes.closed_at IS 'When it was closed; NULL: it is open';

COMMENT ON COLUMN disputes.closed_by IS 'Who closed it; NULL: unknown, or it is open';

COMMENT ON COLUMN disputes.resolution IS 'What came of it; NULL: it is open';

CREATE TABLE thread_revisions (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    thread_id INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    digest TEXT NOT NULL,
    title TEXT NOT NULL,
    language TEXT,
    tags TEXT[] NOT NULL,
    posted_at TIMESTAMP WITH TIME ZONE,
    posted_at_assumed BOOLEAN NOT NULL,
    messages JSONB NOT NULL,
    fetch_id INTEGER,
    import_run_id INTEGER,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_thread_revisions PRIMARY KEY (id),
    CONSTRAINT uq_thread_revisions_thread_id_revision UNIQUE (thread_id, revision),
    CONSTRAINT ck_thread_revisions_digest_is_digest CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_thread_revisions_revision_positive CHECK (revision >= 1),
    CONSTRAINT ck_thread_revisions_assumed_is_known CHECK (NOT posted_at_assumed OR posted_at IS NOT NULL),
    CONSTRAINT ck_thread_revisions_one_origin CHECK (num_nonnulls(fetch_id, import_run_id) <= 1),
    CONSTRAINT fk_thread_revisions_thread_id FOREIGN KEY(thread_id) REFERENCES threads (id),
    CONSTRAINT fk_thread_revisions_fetch_id FOREIGN KEY(fetch_id) REFERENCES fetches (id),
    CONSTRAINT fk_thread_revisions_import_run_id FOREIGN KEY(import_run_id) REFERENCES import_runs (id)
);

COMMENT ON TABLE thread_revisions IS 'The content of threads, one row for each state seen; rows are never changed';

COMMENT ON COLUMN thread_revisions.id IS 'The revision''s number here';

COMMENT ON COLUMN thread_revisions.thread_id IS 'The thread';

COMMENT ON COLUMN thread_revisions.revision IS 'Its place among the thread''s revisions, from 1';

COMMENT ON COLUMN thread_revisions.digest IS 'The digest of its content';

COMMENT ON COLUMN thread_revisions.title IS 'The title';

COMMENT ON COLUMN thread_revisions.language IS 'en, zh or what the source says; NULL: it does not say';

COMMENT ON COLUMN thread_revisions.tags IS 'The source''s tags and board';

COMMENT ON COLUMN thread_revisions.posted_at IS 'When it was opened; NULL: unknown';

COMMENT ON COLUMN thread_revisions.posted_at_assumed IS 'Whether posted_at was given for want of a date';

COMMENT ON COLUMN thread_revisions.messages IS 'The messages in order: id, author (a keyed hash), role, verified, text, posted_at, media';

COMMENT ON COLUMN thread_revisions.fetch_id IS 'The fetch of its first page; NULL for imports';

COMMENT ON COLUMN thread_revisions.import_run_id IS 'The import it came with; NULL for harvests';

COMMENT ON COLUMN thread_revisions.created_at IS 'When this content was first seen';

CREATE TABLE filter_results (
    revision_id INTEGER NOT NULL,
    chain_digest TEXT NOT NULL,
    passed BOOLEAN NOT NULL,
    rejected_by TEXT,
    reason TEXT,
    decided_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    verdicts JSONB DEFAULT '[]' NOT NULL,
    CONSTRAINT pk_filter_results PRIMARY KEY (revision_id, chain_digest),
    CONSTRAINT ck_filter_results_chain_digest_is_digest CHECK (chain_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_filter_results_rejected_by_a_rule CHECK (passed = (rejected_by IS NULL)),
    CONSTRAINT ck_filter_results_rejected_with_reason CHECK (passed = (reason IS NULL)),
    CONSTRAINT fk_filter_results_revision_id FOREIGN KEY(revision_id) REFERENCES thread_revisions (id)
);

COMMENT ON TABLE filter_results IS 'Results of the filter chain: one a revision and chain';

COMMENT ON COLUMN filter_results.revision_id IS 'The revision';

COMMENT ON COLUMN filter_results.chain_digest IS 'The chain''s rules and settings';

COMMENT ON COLUMN filter_results.passed IS 'Whether every rule passed';

COMMENT ON COLUMN filter_results.rejected_by IS 'The first rule that failed';

COMMENT ON COLUMN filter_results.reason IS 'That rule''s reason';

COMMENT ON COLUMN filter_results.decided_at IS 'When it was decided';

COMMENT ON COLUMN filter_results.verdicts IS 'In the chain''s order: [{rule, passed, reason, evidence}]';

CREATE TABLE curations (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    revision_id INTEGER NOT NULL,
    pipeline_digest TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    stage TEXT NOT NULL,
    reason TEXT,
    detail TEXT NOT NULL,
    threshold_sufficiency DOUBLE PRECISION NOT NULL,
    threshold_alignment DOUBLE PRECISION NOT NULL,
    query_category TEXT,
    s_cc SMALLINT,
    s_inf DOUBLE PRECISION,
    s_align DOUBLE PRECISION,
    index_digest TEXT,
    narrative TEXT,
    query TEXT,
    advice TEXT,
    engines JSONB NOT NULL,
    overruled TEXT[] DEFAULT '{}' NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_curations PRIMARY KEY (id),
    CONSTRAINT ck_curations_outcome_known CHECK (outcome IN ('kept', 'rejected', 'held', 'failed')),
    CONSTRAINT ck_curations_stage_known CHECK (stage IN ('screener', 'validator', 'controller', 'rubric')),
    CONSTRAINT ck_curations_reason_known CHECK (reason IN ('no_narrative', 'no_query', 'no_advice', 'query_not_clinical', 'insufficient_narrative', 'contradicted', 'not_aligned', 'unsupported_element', 'not_standard', 'text_unfaithful', 'question_doubted', 'history_doubted', 'advice_wrong', 'advice_harmful', 'danger_unanswered', 'question_unanswered', 'not_understandable', 'rubric_faulty', 'identifier', 'endpoint_unavailable', 'invalid_reply', 'refused', 'truncated', 'budget_spent')),
    CONSTRAINT ck_curations_query_category_known CHECK (query_category IN ('diagnosis', 'treatment', 'management', 'epidemiology', 'nonclinical')),
    CONSTRAINT ck_curations_pipeline_digest_is_digest CHECK (pipeline_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_curations_attempt_positive CHECK (attempt >= 1),
    CONSTRAINT ck_curations_kept_has_no_reason CHECK ((outcome = 'kept') = (reason IS NULL)),
    CONSTRAINT ck_curations_failure_is_no_rejection CHECK (reason IS NULL OR (outcome = 'failed') = (reason IN ('endpoint_unavailable', 'invalid_reply', 'refused', 'truncated', 'budget_spent'))),
    CONSTRAINT ck_curations_kept_passed CHECK (outcome NOT IN ('kept', 'held') OR ((cardinality(overruled) > 0 OR s_cc = 1 AND s_inf > threshold_sufficiency AND s_align > threshold_alignment) AND index_digest IS NOT NULL AND narrative IS NOT NULL) IS TRUE),
    CONSTRAINT ck_curations_kept_at_the_end CHECK (outcome NOT IN ('kept', 'held') OR stage = 'rubric'),
    CONSTRAINT ck_curations_s_cc_range CHECK (s_cc IN (0, 1)),
    CONSTRAINT ck_curations_s_inf_range CHECK (s_inf BETWEEN 0 AND 1),
    CONSTRAINT ck_curations_s_align_range CHECK (s_align BETWEEN 0 AND 1),
    CONSTRAINT ck_curations_threshold_range CHECK (threshold_sufficiency >= 0 AND threshold_sufficiency <= 1 AND threshold_alignment >= 0 AND threshold_alignment <= 1),
    CONSTRAINT ck_curations_text_whole CHECK (num_nonnulls(narrative, query, advice) IN (0, 3)),
    CONSTRAINT ck_curations_in_order CHECK (finished_at >= started_at),
    CONSTRAINT fk_curations_revision_id FOREIGN KEY(revision_id) REFERENCES thread_revisions (id),
    CONSTRAINT fk_curations_index_digest FOREIGN KEY(index_digest) REFERENCES evidence_indexes (digest)
);

CREATE UNIQUE INDEX ix_curations_revision_id_pipeline_digest_attempt ON curations (revision_id, pipeline_digest, attempt);

CREATE UNIQUE INDEX uq_curations_decided ON curations (revision_id, pipeline_digest) WHERE outcome <> 'failed';

CREATE INDEX ix_curations_revision_id_id ON curations (revision_id, id);

COMMENT ON TABLE curations IS 'Decisions about thread revisions, one row an attempt; rows are never changed';

COMMENT ON COLUMN curations.id IS 'The curation''s number';

COMMENT ON COLUMN curations.revision_id IS 'The revision';

COMMENT ON COLUMN curations.pipeline_digest IS 'Engines, prompts, evidence and settings: what a decision depends on besides the thread';

COMMENT ON COLUMN curations.attempt IS 'From 1; only a failed attempt is followed by another';

COMMENT ON COLUMN curations.outcome IS 'kept, rejected, held or failed';

COMMENT ON COLUMN curations.stage IS 'Where it ended';

COMMENT ON COLUMN curations.reason IS 'Why; NULL exactly when kept';

COMMENT ON COLUMN curations.detail IS 'The reason in words';

COMMENT ON COLUMN curations.threshold_sufficiency IS 'S_inf had to exceed this';

COMMENT ON COLUMN curations.threshold_alignment IS 'S_align had to exceed this';

COMMENT ON COLUMN curations.query_category IS 'The question''s kind in Ely''s taxonomy; NULL: not judged';

COMMENT ON COLUMN curations.s_cc IS 'Clinical meaningfulness; NULL: not judged';

COMMENT ON COLUMN curations.s_inf IS 'Sufficiency of the narrative; NULL: not judged';

COMMENT ON COLUMN curations.s_align IS 'Alignment with evidence; NULL: not judged';

COMMENT ON COLUMN curations.index_digest IS 'The evidence index; NULL: none was asked';

COMMENT ON COLUMN curations.narrative IS 'N as written; NULL: it was not';

COMMENT ON COLUMN curations.query IS 'Q as released; NULL: the texts were not written';

COMMENT ON COLUMN curations.advice IS 'A as written; NULL: it was not';

COMMENT ON COLUMN curations.engines IS 'Agent to its engine, model and parameters';

COMMENT ON COLUMN curations.overruled IS 'Reasons of rejection that a person overruled before';

COMMENT ON COLUMN curations.started_at IS 'When the attempt began';

COMMENT ON COLUMN curations.finished_at IS 'When it ended';

CREATE TABLE identifiers (
    revision_id INTEGER NOT NULL,
    message INTEGER NOT NULL,
    start_at INTEGER NOT NULL,
    end_at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    CONSTRAINT pk_identifiers PRIMARY KEY (revision_id, message, start_at),
    CONSTRAINT ck_identifiers_message_not_negative CHECK (message >= 0),
    CONSTRAINT ck_identifiers_span_in_order CHECK (0 <= start_at AND start_at < end_at),
    CONSTRAINT fk_identifiers_revision_id FOREIGN KEY(revision_id) REFERENCES thread_revisions (id)
);

COMMENT ON TABLE identifiers IS 'Identifiers of people and places in raw text, found when it came in; never the words';

COMMENT ON COLUMN identifiers.revision_id IS 'The thread''s revision';

COMMENT ON COLUMN identifiers.message IS '0: the title; n: the n-th message';

COMMENT ON COLUMN identifiers.start_at IS 'The span''s first character, from 0';

COMMENT ON COLUMN identifiers.end_at IS 'The character after its last';

COMMENT ON COLUMN identifiers.kind IS 'What it is, as de-identification names it';

CREATE TABLE overrules (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    revision_id INTEGER NOT NULL,
    curation_id INTEGER,
    overruled TEXT NOT NULL,
    reason TEXT NOT NULL,
    decided_by TEXT,
    decided_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_overrules PRIMARY KEY (id),
    CONSTRAINT ck_overrules_reason_length CHECK (char_length(reason) BETWEEN 1 AND 2000),
    CONSTRAINT fk_overrules_revision_id FOREIGN KEY(revision_id) REFERENCES thread_revisions (id),
    CONSTRAINT fk_overrules_curation_id FOREIGN KEY(curation_id) REFERENCES curations (id)
);

CREATE INDEX ix_overrules_revision_id ON overrules (revision_id);

COMMENT ON TABLE overrules IS 'Rejections that people overruled: the thread goes on from there; rows are never changed';

COMMENT ON COLUMN overrules.id IS 'The entry''s number';

COMMENT ON COLUMN overrules.revision_id IS 'The rejected revision';

COMMENT ON COLUMN overrules.curation_id IS 'The decision that is overruled; NULL: that of the filters';

COMMENT ON COLUMN overrules.overruled IS 'Why the thread had been rejected';

COMMENT ON COLUMN overrules.reason IS 'Why it should not have been';

COMMENT ON COLUMN overrules.decided_by IS 'Who; NULL: not said';

COMMENT ON COLUMN overrules.decided_at IS 'When';

CREATE TABLE agent_calls (
    curation_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    task TEXT NOT NULL,
    prompt_digest TEXT NOT NULL,
    engine TEXT NOT NULL,
    model TEXT NOT NULL,
    request_digest TEXT NOT NULL,
    reply_digest TEXT,
    attempt SMALLINT NOT NULL,
    outcome TEXT NOT NULL,
    problem TEXT NOT NULL,
    replayed BOOLEAN NOT NULL,
    CONSTRAINT pk_agent_calls PRIMARY KEY (curation_id, position),
    CONSTRAINT ck_agent_calls_outcome_known CHECK (outcome IN ('ok', 'invalid', 'refused', 'truncated', 'unavailable', 'over_budget')),
    CONSTRAINT ck_agent_calls_request_digest_is_digest CHECK (request_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_agent_calls_attempt_range CHECK (attempt IN (1, 2)),
    CONSTRAINT ck_agent_calls_reply_answers_request CHECK (reply_digest = request_digest),
    CONSTRAINT ck_agent_calls_answer_is_kept CHECK ((outcome IN ('unavailable', 'over_budget')) = (reply_digest IS NULL)),
    CONSTRAINT fk_agent_calls_curation_id FOREIGN KEY(curation_id) REFERENCES curations (id),
    CONSTRAINT fk_agent_calls_reply_digest FOREIGN KEY(reply_digest) REFERENCES replies (request_digest)
);

CREATE INDEX ix_agent_calls_reply_digest ON agent_calls (reply_digest);

COMMENT ON TABLE agent_calls IS 'Calls of the agents, in order; rows are never changed';

COMMENT ON COLUMN agent_calls.curation_id IS 'The curation';

COMMENT ON COLUMN agent_calls.position IS 'The call''s place, from 1';

COMMENT ON COLUMN agent_calls.task IS 'The task';

COMMENT ON COLUMN agent_calls.prompt_digest IS 'Its instructions; in prompts when it was answered';

COMMENT ON COLUMN agent_calls.engine IS 'The engine asked';

COMMENT ON COLUMN agent_calls.model IS 'The model asked';

COMMENT ON COLUMN agent_calls.request_digest IS 'The request''s digest, answered or not';

COMMENT ON COLUMN agent_calls.reply_digest IS 'The stored reply; NULL exactly when there was none';

COMMENT ON COLUMN agent_calls.attempt IS '1, or 2 for the repair';

COMMENT ON COLUMN agent_calls.outcome IS 'What became of it';

COMMENT ON COLUMN agent_calls.problem IS 'What was wrong; empty when nothing was';

COMMENT ON COLUMN agent_calls.replayed IS 'Whether the stored reply was used and nothing was paid';

CREATE TABLE elements (
    curation_id INTEGER NOT NULL,
    element_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    side TEXT NOT NULL,
    kind TEXT NOT NULL,
    message_id TEXT NOT NULL,
    quote TEXT NOT NULL,
    statement TEXT NOT NULL,
    standing TEXT NOT NULL,
    CONSTRAINT pk_elements PRIMARY KEY (curation_id, element_id),
    CONSTRAINT ck_elements_side_known CHECK (side IN ('narrative', 'query', 'advice')),
    CONSTRAINT ck_elements_kind_known CHECK (kind IN ('subjective', 'objective', 'assessment', 'plan', 'question')),
    CONSTRAINT ck_elements_standing_known CHECK (standing IN ('kept', 'dropped', 'unsupported')),
    CONSTRAINT ck_elements_quote_not_empty CHECK (quote <> ''),
    CONSTRAINT fk_elements_curation_id FOREIGN KEY(curation_id) REFERENCES curations (id)
);

COMMENT ON TABLE elements IS 'Statements the Screener took from threads, with their words';

COMMENT ON COLUMN elements.curation_id IS 'The curation';

COMMENT ON COLUMN elements.element_id IS 'n1, n2, …, q, a1, a2, …';

COMMENT ON COLUMN elements.position IS 'Its place among all, from 1';

COMMENT ON COLUMN elements.side IS 'narrative, query or advice';

COMMENT ON COLUMN elements.kind IS 'The SOAP section';

COMMENT ON COLUMN elements.message_id IS 'The message its quote stands in, or title';

COMMENT ON COLUMN elements.quote IS 'Verbatim words of that message';

COMMENT ON COLUMN elements.statement IS 'The statement that stands alone';

COMMENT ON COLUMN elements.standing IS 'kept, dropped (in no text) or unsupported (in the texts, and the case is held)';

CREATE TABLE requirements (
    curation_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    requirement TEXT NOT NULL,
    present BOOLEAN NOT NULL,
    element_ids TEXT[] NOT NULL,
    prudent BOOLEAN NOT NULL,
    CONSTRAINT pk_requirements PRIMARY KEY (curation_id, position),
    CONSTRAINT ck_requirements_present_has_elements CHECK (NOT present OR cardinality(element_ids) > 0),
    CONSTRAINT fk_requirements_curation_id FOREIGN KEY(curation_id) REFERENCES curations (id)
);

COMMENT ON TABLE requirements IS 'The Validator''s checklists, item by item';

COMMENT ON COLUMN requirements.curation_id IS 'The curation';

COMMENT ON COLUMN requirements.position IS 'The item''s place, from 1';

COMMENT ON COLUMN requirements.requirement IS 'What a physician needs to know';

COMMENT ON COLUMN requirements.present IS 'Whether the narrative entails it';

COMMENT ON COLUMN requirements.element_ids IS 'The elements that entail it; q for the query';

COMMENT ON COLUMN requirements.prudent IS 'Whether it is only good to know, and not counted in S_inf';

CREATE TABLE controller_checks (
    curation_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    check_name TEXT NOT NULL,
    subject TEXT NOT NULL,
    round SMALLINT NOT NULL,
    passed BOOLEAN NOT NULL,
    detail TEXT NOT NULL,
    CONSTRAINT pk_controller_checks PRIMARY KEY (curation_id, position),
    CONSTRAINT ck_controller_checks_check_name_known CHECK (check_name IN ('quote_in_message', 'numbers_agree', 'suspicion', 'supported', 'supported_again', 'withdrawn')),
    CONSTRAINT fk_controller_checks_curation_id FOREIGN KEY(curation_id) REFERENCES curations (id)
);

COMMENT ON TABLE controller_checks IS 'The Controller''s checks of elements and written texts';

COMMENT ON COLUMN controller_checks.curation_id IS 'The curation';

COMMENT ON COLUMN controller_checks.position IS 'The check''s place, from 1';

COMMENT ON COLUMN controller_checks.check_name IS 'What was checked';

COMMENT ON COLUMN controller_checks.subject IS 'The element, or narrative or advice';

COMMENT ON COLUMN controller_checks.round IS '0: what was given first; 1 and 2: its revisions';

COMMENT ON COLUMN controller_checks.passed IS 'Whether it passed; false for every suspicion';

COMMENT ON COLUMN controller_checks.detail IS 'What was found; empty when there is nothing to say';

CREATE TABLE second_readings (
    curation_id INTEGER NOT NULL,
    asked BOOLEAN NOT NULL,
    clinical BOOLEAN NOT NULL,
    enough BOOLEAN NOT NULL,
    answered BOOLEAN NOT NULL,
    understandable BOOLEAN NOT NULL,
    wrong JSONB NOT NULL,
    danger TEXT NOT NULL,
    reason TEXT NOT NULL,
    engine JSONB NOT NULL,
    CONSTRAINT pk_second_readings PRIMARY KEY (curation_id),
    CONSTRAINT fk_second_readings_curation_id FOREIGN KEY(curation_id) REFERENCES curations (id)
);

COMMENT ON TABLE second_readings IS 'Second readings of threads and the cases made of them';

COMMENT ON COLUMN second_readings.curation_id IS 'The curation';

COMMENT ON COLUMN second_readings.asked IS 'Whether something is asked';

COMMENT ON COLUMN second_readings.clinical IS 'Whether it is a clinical question';

COMMENT ON COLUMN second_readings.enough IS 'Whether the history is enough to answer it';

COMMENT ON COLUMN second_readings.answered IS 'Whether the advice answers the main thing asked';

COMMENT ON COLUMN second_readings.understandable IS 'Whether a stranger would make sense of the case';

COMMENT ON COLUMN second_readings.wrong IS 'Advice found wrong: [{element_id, kind harmful|false|minor, reason}]';

COMMENT ON COLUMN second_readings.danger IS 'An alarming sign that no advice answers; empty for none';

COMMENT ON COLUMN second_readings.reason IS 'What decides, in words';

COMMENT ON COLUMN second_readings.engine IS 'The reader''s engine, model and parameters';

CREATE TABLE holds (
    curation_id INTEGER NOT NULL,
    position SMALLINT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    elements TEXT[] NOT NULL,
    CONSTRAINT pk_holds PRIMARY KEY (curation_id, position),
    CONSTRAINT ck_holds_reason_known CHECK (reason IN ('no_narrative', 'no_query', 'no_advice', 'query_not_clinical', 'insufficient_narrative', 'contradicted', 'not_aligned', 'unsupported_element', 'not_standard', 'text_unfaithful', 'question_doubted', 'history_doubted', 'advice_wrong', 'advice_harmful', 'danger_unanswered', 'question_unanswered', 'not_understandable', 'rubric_faulty', 'identifier', 'endpoint_unavailable', 'invalid_reply', 'refused', 'truncated', 'budget_spent')),
    CONSTRAINT fk_holds_curation_id FOREIGN KEY(curation_id) REFERENCES curations (id)
);

COMMENT ON TABLE holds IS 'Why curated cases wait for a person, the gravest reason first';

COMMENT ON COLUMN holds.curation_id IS 'The curation';

COMMENT ON COLUMN holds.position IS 'Its place, from 1';

COMMENT ON COLUMN holds.reason IS 'Why';

COMMENT ON COLUMN holds.detail IS 'The reason in words';

COMMENT ON COLUMN holds.elements IS 'The advice elements or criteria it rests on';

CREATE TABLE cross_examinations (
    curation_id INTEGER NOT NULL,
    coverage DOUBLE PRECISION NOT NULL,
    conformity DOUBLE PRECISION NOT NULL,
    conformity_strict DOUBLE PRECISION NOT NULL,
    consistency DOUBLE PRECISION NOT NULL,
    conciseness DOUBLE PRECISION NOT NULL,
    summary DOUBLE PRECISION NOT NULL,
    stability DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_cross_examinations PRIMARY KEY (curation_id),
    CONSTRAINT ck_cross_examinations_coverage_percent CHECK (coverage BETWEEN 0 AND 100),
    CONSTRAINT ck_cross_examinations_conformity_percent CHECK (conformity BETWEEN 0 AND 100),
    CONSTRAINT ck_cross_examinations_conformity_strict_percent CHECK (conformity_strict BETWEEN 0 AND 100),
    CONSTRAINT ck_cross_examinations_consistency_percent CHECK (consistency BETWEEN 0 AND 100),
    CONSTRAINT ck_cross_examinations_summary_percent CHECK (summary BETWEEN 0 AND 100),
    CONSTRAINT ck_cross_examinations_stability_percent CHECK (stability BETWEEN 0 AND 100),
    CONSTRAINT ck_cross_examinations_conciseness_percent CHECK (conciseness <= 100),
    CONSTRAINT fk_cross_examinations_curation_id FOREIGN KEY(curation_id) REFERENCES curations (id)
);

COMMENT ON TABLE cross_examinations IS 'Cross-examinations of threads and the cases written from them, in percent';

COMMENT ON COLUMN cross_examinations.curation_id IS 'The curation';

COMMENT ON COLUMN cross_examinations.coverage IS 'What of the thread the case speaks of';

COMMENT ON COLUMN cross_examinations.conformity IS 'What of the thread the case does not deny';

COMMENT ON COLUMN cross_examinations.conformity_strict IS 'What of the thread the case confirms';

COMMENT ON COLUMN cross_examinations.consistency IS 'What of the case the thread speaks of';

COMMENT ON COLUMN cross_examinations.conciseness IS 'By how much the case is shorter; below 0: longer';

COMMENT ON COLUMN cross_examinations.summary IS 'The summary score';

COMMENT ON COLUMN cross_examinations.stability IS 'Questions that their own text answers with yes';

CREATE TABLE case_revisions (
    case_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    curation_id INTEGER NOT NULL,
    language TEXT NOT NULL,
    source TEXT NOT NULL,
    posted_at TIMESTAMP WITH TIME ZONE NOT NULL,
    specialty TEXT NOT NULL,
    theme TEXT NOT NULL,
    narrative TEXT NOT NULL,
    query TEXT NOT NULL,
    advice TEXT NOT NULL,
    publishable BOOLEAN NOT NULL,
    unpublishable_reason TEXT,
    no_negative TEXT NOT NULL,
    difficulty TEXT DEFAULT 'unknown' NOT NULL,
    dialogue_register TEXT DEFAULT 'unknown' NOT NULL,
    content_digest TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_case_revisions PRIMARY KEY (case_id, revision),
    CONSTRAINT ck_case_revisions_theme_known CHECK (theme IN ('Emergency Referrals', 'Context-Seeking', 'Expertise-Tailored Communication', 'Responding under Uncertainty', 'Response Depth')),
    CONSTRAINT ck_case_revisions_specialty_known CHECK (specialty IN ('Allergy & Immunology', 'Anesthesiology & Pain', 'Cardiology', 'Cardiothoracic Surgery', 'Colorectal Surgery', 'Dentistry & Oral Surgery', 'Dermatology', 'Emergency Medicine', 'Endocrinology & Metabolism', 'Family & General Practice', 'Gastroenterology & Hepatology', 'General Surgery', 'Geriatrics', 'Hematology', 'Infectious Disease', 'Medical Genetics', 'Nephrology', 'Neuro-Oncology', 'Neurology', 'Neurosurgery', 'Nutrition', 'Obstetrics & Gynecology', 'Oncology', 'Ophthalmology', 'Orthopedics', 'Otolaryngology', 'Pathology', 'Pediatric Surgery', 'Pediatrics', 'Physical Medicine & Rehabilitation', 'Plastic Surgery', 'Psychiatry', 'Pulmonary & Critical Care', 'Radiation Oncology', 'Radiology & Nuclear Medicine', 'Rheumatology', 'Urology', 'Vascular Surgery', 'unknown')),
    CONSTRAINT ck_case_revisions_language_known CHECK (language IN ('en', 'zh')),
    CONSTRAINT ck_case_revisions_content_digest_is_digest CHECK (content_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_case_revisions_difficulty_known CHECK (difficulty IN ('low', 'medium', 'high', 'unknown')),
    CONSTRAINT ck_case_revisions_dialogue_register_known CHECK (dialogue_register IN ('lay', 'professional', 'unknown')),
    CONSTRAINT ck_case_revisions_revision_positive CHECK (revision >= 1),
    CONSTRAINT ck_case_revisions_text_not_empty CHECK (narrative <> '' AND query <> '' AND advice <> ''),
    CONSTRAINT ck_case_revisions_unpublishable_has_reason CHECK (publishable = (unpublishable_reason IS NULL)),
    CONSTRAINT fk_case_revisions_case_id FOREIGN KEY(case_id) REFERENCES cases (id),
    CONSTRAINT fk_case_revisions_curation_id FOREIGN KEY(curation_id) REFERENCES curations (id),
    CONSTRAINT fk_case_revisions_source FOREIGN KEY(source) REFERENCES sources (name)
);

CREATE INDEX ix_case_revisions_curation_id ON case_revisions (curation_id);

COMMENT ON TABLE case_revisions IS 'The content of cases, one row for each state; rows are never changed';

COMMENT ON COLUMN case_revisions.case_id IS 'The case';

COMMENT ON COLUMN case_revisions.revision IS 'Its place among the revisions, from 1';

COMMENT ON COLUMN case_revisions.curation_id IS 'The decision it came from';

COMMENT ON COLUMN case_revisions.language IS 'en or zh';

COMMENT ON COLUMN case_revisions.source IS 'The community';

COMMENT ON COLUMN case_revisions.posted_at IS 'When the thread was opened';

COMMENT ON COLUMN case_revisions.specialty IS 'One of the closed list, or unknown';

COMMENT ON COLUMN case_revisions.theme IS 'What the case chiefly tests';

COMMENT ON COLUMN case_revisions.narrative IS 'N';

COMMENT ON COLUMN case_revisions.query IS 'Q';

COMMENT ON COLUMN case_revisions.advice IS 'A';

COMMENT ON COLUMN case_revisions.publishable IS 'Whether it may be released';

COMMENT ON COLUMN case_revisions.unpublishable_reason IS 'Why not; NULL when it may';

COMMENT ON COLUMN case_revisions.no_negative IS 'Why no criterion costs points; empty where one does';

COMMENT ON COLUMN case_revisions.difficulty IS 'low, medium, high or unknown';

COMMENT ON COLUMN case_revisions.dialogue_register IS 'Whom it is written for: lay, professional or unknown';

COMMENT ON COLUMN case_revisions.content_digest IS 'The digest of the texts and of the criteria';

COMMENT ON COLUMN case_revisions.created_at IS 'When this content was made';

CREATE TABLE claim_verdicts (
    curation_id INTEGER NOT NULL,
    element_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    value NUMERIC(2, 1) NOT NULL,
    claim TEXT NOT NULL,
    queries TEXT[] NOT NULL,
    flag TEXT NOT NULL,
    cited SMALLINT NOT NULL,
    reason TEXT NOT NULL,
    second_goes_against BOOLEAN,
    second_reason TEXT,
    CONSTRAINT pk_claim_verdicts PRIMARY KEY (curation_id, element_id),
    CONSTRAINT fk_claim_verdicts_curation_id_element_id FOREIGN KEY(curation_id, element_id) REFERENCES elements (curation_id, element_id),
    CONSTRAINT ck_claim_verdicts_verdict_known CHECK (verdict IN ('supported', 'neutral', 'not_standard', 'contradicted')),
    CONSTRAINT ck_claim_verdicts_value_of_verdict CHECK (value = CASE verdict WHEN 'supported' THEN 1.0 WHEN 'contradicted' THEN 0.0 ELSE 0.5 END),
    CONSTRAINT ck_claim_verdicts_verdict_has_quote CHECK (verdict IN ('neutral', 'not_standard') OR cited > 0),
    CONSTRAINT ck_claim_verdicts_queries_asked CHECK (cardinality(queries) > 0),
    CONSTRAINT ck_claim_verdicts_second_check_whole CHECK ((second_goes_against IS NULL) = (second_reason IS NULL)),
    CONSTRAINT ck_claim_verdicts_second_check_decides CHECK (second_goes_against IS NULL OR verdict = CASE WHEN second_goes_against THEN 'contradicted' ELSE 'neutral' END)
);

COMMENT ON TABLE claim_verdicts IS 'The Validator''s verdicts on advice elements';

COMMENT ON COLUMN claim_verdicts.curation_id IS 'The curation';

COMMENT ON COLUMN claim_verdicts.element_id IS 'The advice element';

COMMENT ON COLUMN claim_verdicts.position IS 'Its place among the claims, from 1';

COMMENT ON COLUMN claim_verdicts.verdict IS 'supported, neutral, not_standard or contradicted';

COMMENT ON COLUMN claim_verdicts.value IS 'v(a_j): 1.0, 0.5 or 0.0';

COMMENT ON COLUMN claim_verdicts.claim IS 'The element as a statement that stands alone: what was judged';

COMMENT ON COLUMN claim_verdicts.queries IS 'The phrases that evidence was searched for';

COMMENT ON COLUMN claim_verdicts.flag IS 'What code doubts of the claim''s wording; empty for nothing';

COMMENT ON COLUMN claim_verdicts.cited IS 'How many passages the verdict quotes';

COMMENT ON COLUMN claim_verdicts.reason IS 'Why';

COMMENT ON COLUMN claim_verdicts.second_goes_against IS 'Whether the second check confirmed a contradiction; NULL: none was made';

COMMENT ON COLUMN claim_verdicts.second_reason IS 'Why; NULL: no second check was made';

CREATE TABLE cross_questions (
    curation_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    made_from TEXT NOT NULL,
    question TEXT NOT NULL,
    own_answer TEXT NOT NULL,
    other_answer TEXT NOT NULL,
    CONSTRAINT pk_cross_questions PRIMARY KEY (curation_id, position),
    CONSTRAINT ck_cross_questions_made_from_known CHECK (made_from IN ('thread', 'case')),
    CONSTRAINT ck_cross_questions_own_answer_known CHECK (own_answer IN ('yes', 'no', 'unknown')),
    CONSTRAINT ck_cross_questions_other_answer_known CHECK (other_answer IN ('yes', 'no', 'unknown')),
    CONSTRAINT fk_cross_questions_curation_id FOREIGN KEY(curation_id) REFERENCES cross_examinations (curation_id)
);

COMMENT ON TABLE cross_questions IS 'The questions of cross-examinations, and what both texts answered';

COMMENT ON COLUMN cross_questions.curation_id IS 'The curation';

COMMENT ON COLUMN cross_questions.position IS 'The question''s place, from 1';

COMMENT ON COLUMN cross_questions.made_from IS 'The text that answers it with yes: thread or case';

COMMENT ON COLUMN cross_questions.question IS 'The question';

COMMENT ON COLUMN cross_questions.own_answer IS 'What that text answered when asked again';

COMMENT ON COLUMN cross_questions.other_answer IS 'What the other text answered';

CREATE TABLE criteria (
    case_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    criterion_id TEXT NOT NULL,
    position SMALLINT NOT NULL,
    criterion TEXT NOT NULL,
    axis TEXT NOT NULL,
    points SMALLINT NOT NULL,
    advice_id TEXT NOT NULL,
    fact TEXT,
    CONSTRAINT pk_criteria PRIMARY KEY (case_id, revision, criterion_id),
    CONSTRAINT fk_criteria_case_id_revision FOREIGN KEY(case_id, revision) REFERENCES case_revisions (case_id, revision),
    CONSTRAINT uq_criteria_case_id_revision_position UNIQUE (case_id, revision, position),
    CONSTRAINT ck_criteria_axis_known CHECK (axis IN ('Accuracy', 'Completeness', 'Communication Quality', 'Context Awareness', 'Safety')),
    CONSTRAINT ck_criteria_points_range CHECK (points >= -10 AND points <= 10 AND points <> 0),
    CONSTRAINT ck_criteria_criterion_not_empty CHECK (criterion <> '')
);

COMMENT ON TABLE criteria IS 'The weighted criteria of case revisions; rows are never changed';

COMMENT ON COLUMN criteria.case_id IS 'The case';

COMMENT ON COLUMN criteria.revision IS 'The case''s revision';

COMMENT ON COLUMN criteria.criterion_id IS 'c1, c2, … within the case revision';

COMMENT ON COLUMN criteria.position IS 'Its place in the rubric';

COMMENT ON COLUMN criteria.criterion IS 'What is met or not met';

COMMENT ON COLUMN criteria.axis IS 'What it measures';

COMMENT ON COLUMN criteria.points IS 'Its weight; the sign is the polarity';

COMMENT ON COLUMN criteria.advice_id IS 'The advice element it came from';

COMMENT ON COLUMN criteria.fact IS 'The fact of that element that it asks for; NULL: written before facts were listed';

CREATE TABLE snapshot_members (
    version TEXT NOT NULL,
    case_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    first_release TEXT,
    held_since TEXT,
    salt TEXT,
    commitment TEXT,
    CONSTRAINT pk_snapshot_members PRIMARY KEY (version, case_id),
    CONSTRAINT fk_snapshot_members_case_id_revision FOREIGN KEY(case_id, revision) REFERENCES case_revisions (case_id, revision),
    CONSTRAINT ck_snapshot_members_released_before CHECK (first_release <= version),
    CONSTRAINT ck_snapshot_members_held_whole CHECK (num_nonnulls(held_since, salt, commitment) IN (0, 3)),
    CONSTRAINT ck_snapshot_members_held_or_shown CHECK (first_release IS NOT NULL OR held_since IS NOT NULL),
    CONSTRAINT ck_snapshot_members_revealed_after CHECK (held_since IS NULL OR first_release IS NULL OR (first_release = version AND held_since < version)),
    CONSTRAINT ck_snapshot_members_held_before CHECK (held_since <= version),
    CONSTRAINT ck_snapshot_members_salt_form CHECK (salt ~ '^[0-9a-f]{64}$'),
    CONSTRAINT ck_snapshot_members_commitment_is_digest CHECK (commitment ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT fk_snapshot_members_version FOREIGN KEY(version) REFERENCES snapshots (version),
    CONSTRAINT fk_snapshot_members_first_release FOREIGN KEY(first_release) REFERENCES snapshots (version),
    CONSTRAINT fk_snapshot_members_held_since FOREIGN KEY(held_since) REFERENCES snapshots (version)
);

CREATE INDEX ix_snapshot_members_case_id ON snapshot_members (case_id);

COMMENT ON TABLE snapshot_members IS 'The case revisions of snapshots';

COMMENT ON COLUMN snapshot_members.version IS 'The snapshot';

COMMENT ON COLUMN snapshot_members.case_id IS 'The case';

COMMENT ON COLUMN snapshot_members.revision IS 'The case''s revision';

COMMENT ON COLUMN snapshot_members.first_release IS 'The first snapshot that shows the case; NULL: it is held out';

COMMENT ON COLUMN snapshot_members.held_since IS 'The snapshot that it was first held out of; NULL: it is shown, and not for the first time';

COMMENT ON COLUMN snapshot_members.salt IS 'What keeps its commitment from being guessed back, 64 hexadecimal digits';

COMMENT ON COLUMN snapshot_members.commitment IS 'The digest that stands for it while it is held out';

CREATE TABLE case_gates (
    case_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    gates_digest TEXT NOT NULL,
    hits JSONB NOT NULL,
    checked_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_case_gates PRIMARY KEY (case_id, revision, gates_digest),
    CONSTRAINT fk_case_gates_case_id_revision FOREIGN KEY(case_id, revision) REFERENCES case_revisions (case_id, revision) ON DELETE CASCADE,
    CONSTRAINT ck_case_gates_gates_digest_is_digest CHECK (gates_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_case_gates_hits_listed CHECK (jsonb_typeof(hits) = 'array')
);

COMMENT ON TABLE case_gates IS 'What the release gates found in case revisions, so that none is read twice by them';

COMMENT ON COLUMN case_gates.case_id IS 'The case';

COMMENT ON COLUMN case_gates.revision IS 'The case''s revision';

COMMENT ON COLUMN case_gates.gates_digest IS 'What decided: the gates'' code and libraries';

COMMENT ON COLUMN case_gates.hits IS '[[gate, detail]]; empty: nothing keeps it out';

COMMENT ON COLUMN case_gates.checked_at IS 'When it was checked';

CREATE TABLE reviews (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    case_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    action TEXT NOT NULL,
    element_id TEXT,
    reason TEXT NOT NULL,
    decided_by TEXT,
    decided_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_reviews PRIMARY KEY (id),
    CONSTRAINT ck_reviews_action_known CHECK (action IN ('approve', 'reject', 'drop_element', 'edit')),
    CONSTRAINT fk_reviews_case_id_revision FOREIGN KEY(case_id, revision) REFERENCES case_revisions (case_id, revision),
    CONSTRAINT ck_reviews_element_is_named CHECK ((action = 'drop_element') = (element_id IS NOT NULL)),
    CONSTRAINT ck_reviews_reason_length CHECK (char_length(reason) BETWEEN 1 AND 2000)
);

CREATE INDEX ix_reviews_case_id_revision ON reviews (case_id, revision);

COMMENT ON TABLE reviews IS 'What people decided about cases; rows are never changed';

COMMENT ON COLUMN reviews.id IS 'The decision''s number';

COMMENT ON COLUMN reviews.case_id IS 'The case';

COMMENT ON COLUMN reviews.revision IS 'The revision that was looked at, or that an edit made';

COMMENT ON COLUMN reviews.action IS 'approve, reject, drop_element or edit';

COMMENT ON COLUMN reviews.element_id IS 'The advice element that was dropped; NULL: none';

COMMENT ON COLUMN reviews.reason IS 'Why';

COMMENT ON COLUMN reviews.decided_by IS 'Who; NULL: not said';

COMMENT ON COLUMN reviews.decided_at IS 'When';

CREATE TABLE identifier_scans (
    case_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    scanner TEXT NOT NULL,
    found INTEGER NOT NULL,
    scanned_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_identifier_scans PRIMARY KEY (case_id, revision, scanner),
    CONSTRAINT fk_identifier_scans_case_id_revision FOREIGN KEY(case_id, revision) REFERENCES case_revisions (case_id, revision),
    CONSTRAINT ck_identifier_scans_scanner_is_digest CHECK (scanner ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT fk_identifier_scans_case_id FOREIGN KEY(case_id) REFERENCES cases (id)
);

COMMENT ON TABLE identifier_scans IS 'Which case revisions were looked through for identifiers; rows are never changed';

COMMENT ON COLUMN identifier_scans.case_id IS 'The case';

COMMENT ON COLUMN identifier_scans.revision IS 'Its revision';

COMMENT ON COLUMN identifier_scans.scanner IS 'The instructions and the engine that looked';

COMMENT ON COLUMN identifier_scans.found IS 'How many identifiers were found';

COMMENT ON COLUMN identifier_scans.scanned_at IS 'When';

CREATE TABLE claim_evidence (
    curation_id INTEGER NOT NULL,
    element_id TEXT NOT NULL,
    position SMALLINT NOT NULL,
    passage_key TEXT NOT NULL,
    rank INTEGER NOT NULL,
    score DOUBLE PRECISION NOT NULL,
    cited_as SMALLINT,
    quote TEXT,
    second_quote TEXT,
    sides JSONB DEFAULT '[]' NOT NULL,
    CONSTRAINT pk_claim_evidence PRIMARY KEY (curation_id, element_id, position),
    CONSTRAINT fk_claim_evidence_curation_id_element_id FOREIGN KEY(curation_id, element_id) REFERENCES claim_verdicts (curation_id, element_id),
    CONSTRAINT ck_claim_evidence_positive CHECK (position >= 1 AND rank >= 1),
    CONSTRAINT ck_claim_evidence_cited_as_positive CHECK (cited_as >= 1),
    CONSTRAINT ck_claim_evidence_cited_with_words CHECK ((cited_as IS NULL) = (quote IS NULL)),
    CONSTRAINT ck_claim_evidence_quotes_not_empty CHECK (quote <> '' AND second_quote <> ''),
    CONSTRAINT fk_claim_evidence_passage_key FOREIGN KEY(passage_key) REFERENCES passages (key)
);

CREATE INDEX ix_claim_evidence_passage_key ON claim_evidence (passage_key);

COMMENT ON TABLE claim_evidence IS 'What was retrieved for each claim, and what of it the verdict cites';

COMMENT ON COLUMN claim_evidence.curation_id IS 'The curation';

COMMENT ON COLUMN claim_evidence.element_id IS 'The claim';

COMMENT ON COLUMN claim_evidence.position IS 'Its place, best first';

COMMENT ON COLUMN claim_evidence.passage_key IS 'The passage';

COMMENT ON COLUMN claim_evidence.rank IS 'The retriever''s rank, from 1';

COMMENT ON COLUMN claim_evidence.score IS 'The retriever''s own score, higher is nearer';

COMMENT ON COLUMN claim_evidence.cited_as IS 'Its place among the passages the verdict cites, from 1; NULL: not cited';

COMMENT ON COLUMN claim_evidence.quote IS 'Its words that the verdict rests on; NULL: not cited';

COMMENT ON COLUMN claim_evidence.second_quote IS 'Its words that the second check rests on; NULL: not cited there';

COMMENT ON COLUMN claim_evidence.sides IS 'Where each side of the search put it: [{side, phrase, rank, score}]';

CREATE TABLE thread_standings (
    thread_id INTEGER NOT NULL,
    revision_id INTEGER NOT NULL,
    curation_id INTEGER,
    case_id TEXT,
    case_revision INTEGER,
    source TEXT NOT NULL,
    language TEXT NOT NULL,
    stage TEXT NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    engine TEXT NOT NULL,
    specialty TEXT NOT NULL,
    status TEXT NOT NULL,
    week TEXT NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    posted_at TIMESTAMP WITH TIME ZONE NOT NULL,
    words TSVECTOR NOT NULL,
    place BIGINT GENERATED ALWAYS AS (hashtextextended(source || ' ' || language || ' ' || stage || ' ' || outcome || ' ' || reason || ' ' || engine || ' ' || specialty || ' ' || status, 0)) STORED NOT NULL, 
    CONSTRAINT pk_thread_standings PRIMARY KEY (thread_id),
    CONSTRAINT fk_thread_standings_thread_id FOREIGN KEY(thread_id) REFERENCES threads (id) ON DELETE CASCADE
);

CREATE INDEX ix_cases_changed_at ON thread_standings (changed_at, thread_id) WHERE status <> '';

CREATE INDEX ix_cases_posted_at ON thread_standings (posted_at, thread_id) WHERE status <> '';

CREATE INDEX ix_cases_week_posted_at ON thread_standings (week, posted_at, thread_id) WHERE status <> '';

CREATE INDEX ix_thread_standings_changed_at_thread_id ON thread_standings (changed_at, thread_id);

CREATE INDEX ix_thread_standings_curation_id ON thread_standings (curation_id);

CREATE INDEX ix_thread_standings_place_changed_at_thread_id ON thread_standings (place, changed_at, thread_id);

CREATE INDEX ix_thread_standings_place_posted_at_thread_id ON thread_standings (place, posted_at, thread_id) INCLUDE (changed_at);

CREATE INDEX ix_thread_standings_posted_at_thread_id ON thread_standings (posted_at, thread_id);

CREATE INDEX ix_thread_standings_week_changed_at_thread_id ON thread_standings (week, changed_at, thread_id);

CREATE INDEX ix_thread_standings_week_posted_at_thread_id ON thread_standings (week, posted_at, thread_id) INCLUDE (changed_at);

CREATE INDEX ix_thread_standings_words ON thread_standings USING gin (words);

COMMENT ON TABLE thread_standings IS 'Where each thread stands, by its latest revision and that one''s latest decision';

COMMENT ON COLUMN thread_standings.thread_id IS 'The thread';

COMMENT ON COLUMN thread_standings.revision_id IS 'Its latest revision';

COMMENT ON COLUMN thread_standings.curation_id IS 'The latest decision about that; NULL: none';

COMMENT ON COLUMN thread_standings.case_id IS 'Its case; NULL: none';

COMMENT ON COLUMN thread_standings.case_revision IS 'The case''s latest revision; NULL without a case';

COMMENT ON COLUMN thread_standings.source IS 'The community';

COMMENT ON COLUMN thread_standings.language IS 'en, zh or what the source says; empty: it does not say';

COMMENT ON COLUMN thread_standings.stage IS 'filters, screener, validator, controller, rubric or case';

COMMENT ON COLUMN thread_standings.outcome IS 'pending, rejected, failed, held, kept or withdrawn';

COMMENT ON COLUMN thread_standings.reason IS 'Why, for filters the failing rule''s reason; empty: there is none';

COMMENT ON COLUMN thread_standings.engine IS 'The screener''s model; empty: no engine was asked';

COMMENT ON COLUMN thread_standings.specialty IS 'The case''s specialty; empty without a case';

COMMENT ON COLUMN thread_standings.status IS 'The case''s status; empty without a case';

COMMENT ON COLUMN thread_standings.week IS 'The ISO week of changed_at, YYYY.WNN';

COMMENT ON COLUMN thread_standings.changed_at IS 'When it came to stand there';

COMMENT ON COLUMN thread_standings.posted_at IS 'When it was opened, or came in where that is unknown';

COMMENT ON COLUMN thread_standings.words IS 'What is searched: title, messages and the case''s texts';

COMMENT ON COLUMN thread_standings.place IS 'A number of the facets above together';

CREATE TABLE thread_counts (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    week TEXT NOT NULL,
    source TEXT NOT NULL,
    language TEXT NOT NULL,
    stage TEXT NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    engine TEXT NOT NULL,
    specialty TEXT NOT NULL,
    status TEXT NOT NULL,
    n INTEGER NOT NULL,
    place BIGINT GENERATED ALWAYS AS (hashtextextended(source || ' ' || language || ' ' || stage || ' ' || outcome || ' ' || reason || ' ' || engine || ' ' || specialty || ' ' || status, 0)) STORED NOT NULL, 
    CONSTRAINT pk_thread_counts PRIMARY KEY (id)
);

CREATE INDEX ix_thread_counts_week ON thread_counts (week);

COMMENT ON TABLE thread_counts IS 'How many threads stand where, as sums of rows that are only added, and added up from time to time';

COMMENT ON COLUMN thread_counts.id IS 'The row''s number';

COMMENT ON COLUMN thread_counts.week IS 'The ISO week; empty: over all weeks';

COMMENT ON COLUMN thread_counts.source IS 'As in thread_standings';

COMMENT ON COLUMN thread_counts.language IS 'As in thread_standings';

COMMENT ON COLUMN thread_counts.stage IS 'As in thread_standings';

COMMENT ON COLUMN thread_counts.outcome IS 'As in thread_standings';

COMMENT ON COLUMN thread_counts.reason IS 'As in thread_standings';

COMMENT ON COLUMN thread_counts.engine IS 'As in thread_standings';

COMMENT ON COLUMN thread_counts.specialty IS 'As in thread_standings';

COMMENT ON COLUMN thread_counts.status IS 'As in thread_standings';

COMMENT ON COLUMN thread_counts.n IS 'How many came, less those that went';

COMMENT ON COLUMN thread_counts.place IS 'A number of the facets above together';

CREATE TABLE audit_log (
    number INTEGER NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    by TEXT,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    reason TEXT,
    reason_digest TEXT,
    details JSONB NOT NULL,
    previous TEXT,
    digest TEXT NOT NULL,
    CONSTRAINT pk_audit_log PRIMARY KEY (number),
    CONSTRAINT ck_audit_log_action_known CHECK (action IN ('confirm', 'approve', 'reject', 'drop_element', 'edit', 'redact', 'overrule', 'curate_again', 'dispute', 'resolve', 'withdraw', 'reinstate', 'take_down', 'lift_takedown', 'lift_quarantine', 'invite', 'set_role', 'disable', 'reset', 'set_password', 'start_study', 'close_study')),
    CONSTRAINT ck_audit_log_reason_digest_is_digest CHECK (reason_digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_audit_log_previous_is_digest CHECK (previous ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_audit_log_digest_is_digest CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
    CONSTRAINT ck_audit_log_number_positive CHECK (number >= 1),
    CONSTRAINT uq_audit_log_digest UNIQUE (digest)
);

CREATE INDEX ix_audit_log_subject ON audit_log (subject);

COMMENT ON TABLE audit_log IS 'What people did, a chain of digests; a row is never changed, but for a reason that a takedown erases';

COMMENT ON COLUMN audit_log.number IS 'Its place in the log, from 1 without a gap';

COMMENT ON COLUMN audit_log.at IS 'When';

COMMENT ON COLUMN audit_log.by IS 'Who; NULL: the command line, without --by';

COMMENT ON COLUMN audit_log.action IS 'What was done';

COMMENT ON COLUMN audit_log.subject IS 'To what: case:ID, thread:SOURCE/ID, source:NAME, account:NAME, study:NAME';

COMMENT ON COLUMN audit_log.reason IS 'Why; NULL where nobody is asked, or a takedown erased it';

COMMENT ON COLUMN audit_log.reason_digest IS 'Of the reason, which stays; NULL where nobody is asked';

COMMENT ON COLUMN audit_log.details IS 'What belongs to the act, e.g. a revision';

COMMENT ON COLUMN audit_log.previous IS 'The digest of the row before; NULL in the first';

COMMENT ON COLUMN audit_log.digest IS 'Of the canonical JSON of all other columns but the reason';

CREATE TABLE saved_views (
    id INTEGER GENERATED ALWAYS AS IDENTITY,
    account_id INTEGER NOT NULL,
    title TEXT NOT NULL,
    table_name TEXT NOT NULL,
    query TEXT NOT NULL,
    CONSTRAINT pk_saved_views PRIMARY KEY (id),
    CONSTRAINT uq_saved_views_account_id_title UNIQUE (account_id, title),
    CONSTRAINT fk_saved_views_account_id FOREIGN KEY(account_id) REFERENCES accounts (id) ON DELETE CASCADE
);

COMMENT ON TABLE saved_views IS 'Table pages that accounts go back to';

COMMENT ON COLUMN saved_views.id IS 'The view''s number';

COMMENT ON COLUMN saved_views.account_id IS 'Whose it is';

COMMENT ON COLUMN saved_views.title IS 'What the account calls it';

COMMENT ON COLUMN saved_views.table_name IS 'The table';

COMMENT ON COLUMN saved_views.query IS 'Filter and sort, as in the page''s address';

CREATE TABLE studies (
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    version TEXT,
    run TEXT,
    grader TEXT,
    against TEXT,
    stratum TEXT NOT NULL,
    seed INTEGER NOT NULL,
    raters TEXT[] NOT NULL,
    adjudicator TEXT,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_studies PRIMARY KEY (name),
    CONSTRAINT ck_studies_kind_known CHECK (kind IN ('case_quality', 'criterion_validity', 'grader_check')),
    CONSTRAINT ck_studies_stratum_known CHECK (stratum IN ('none', 'language', 'specialty', 'theme')),
    CONSTRAINT ck_studies_name_spelling CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,63}$'),
    CONSTRAINT ck_studies_adjudicator_is_another CHECK (NOT adjudicator = ANY (raters))
);

COMMENT ON TABLE studies IS 'Studies in which people rate a sample of cases';

COMMENT ON COLUMN studies.name IS 'The study''s name';

COMMENT ON COLUMN studies.kind IS 'case_quality, criterion_validity or grader_check';

COMMENT ON COLUMN studies.version IS 'The snapshot whose cases were drawn; NULL: the ready cases';

COMMENT ON COLUMN studies.run IS 'The folder of the run whose answers are rated; NULL: cases are rated';

COMMENT ON COLUMN studies.grader IS 'Who graded the run; NULL: cases are rated';

COMMENT ON COLUMN studies.against IS 'The judge who decided all items otherwise; NULL: not chosen by that';

COMMENT ON COLUMN studies.stratum IS 'By what the sample was drawn in equal numbers';

COMMENT ON COLUMN studies.seed IS 'Of the sample, and of each rater''s order';

COMMENT ON COLUMN studies.raters IS 'The accounts that rate';

COMMENT ON COLUMN studies.adjudicator IS 'The account that settles disagreements; NULL: nobody';

COMMENT ON COLUMN studies.created_by IS 'The account that began it';

COMMENT ON COLUMN studies.created_at IS 'When it was begun';

COMMENT ON COLUMN studies.closed_at IS 'Since when nobody rates any more; NULL: it is open';

CREATE TABLE study_items (
    study TEXT NOT NULL,
    item TEXT NOT NULL,
    position INTEGER NOT NULL,
    case_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    aspect TEXT NOT NULL,
    criterion_id TEXT,
    answer TEXT,
    verdict BOOLEAN,
    CONSTRAINT pk_study_items PRIMARY KEY (study, item),
    CONSTRAINT uq_study_items_study_position UNIQUE (study, position),
    CONSTRAINT fk_study_items_study FOREIGN KEY(study) REFERENCES studies (name)
);

CREATE INDEX ix_study_items_case_id ON study_items (case_id);

COMMENT ON TABLE study_items IS 'What is rated in studies: one aspect of one revision of a case';

COMMENT ON COLUMN study_items.study IS 'The study';

COMMENT ON COLUMN study_items.item IS 'The digest of what is rated, as on sheets';

COMMENT ON COLUMN study_items.position IS 'Its place in the study, from 1';

COMMENT ON COLUMN study_items.case_id IS 'The case';

COMMENT ON COLUMN study_items.revision IS 'Its revision';

COMMENT ON COLUMN study_items.aspect IS 'narrative_and_query, advice, criterion or verdict';

COMMENT ON COLUMN study_items.criterion_id IS 'The criterion''s id within its case; NULL: another aspect';

COMMENT ON COLUMN study_items.answer IS 'The model''s answer; NULL: the case is rated';

COMMENT ON COLUMN study_items.verdict IS 'Whether the grader found the criterion met; NULL: the case is rated';

CREATE TABLE study_ratings (
    study TEXT NOT NULL,
    item TEXT NOT NULL,
    rater TEXT NOT NULL,
    rating INTEGER,
    comment TEXT NOT NULL,
    rated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_study_ratings PRIMARY KEY (study, item, rater),
    CONSTRAINT fk_study_ratings_study_item FOREIGN KEY(study, item) REFERENCES study_items (study, item),
    CONSTRAINT ck_study_ratings_rating_range CHECK (rating BETWEEN 0 AND 2),
    CONSTRAINT ck_study_ratings_comment_length CHECK (char_length(comment) <= 2000)
);

COMMENT ON TABLE study_ratings IS 'Ratings, each of which its rater may change while the study is open';

COMMENT ON COLUMN study_ratings.study IS 'The study';

COMMENT ON COLUMN study_ratings.item IS 'What is rated';

COMMENT ON COLUMN study_ratings.rater IS 'The account, a rater''s or the adjudicator''s';

COMMENT ON COLUMN study_ratings.rating IS 'On the aspect''s scale; NULL: could not decide';

COMMENT ON COLUMN study_ratings.comment IS 'What the rater says about it';

COMMENT ON COLUMN study_ratings.rated_at IS 'When it was given, or last changed';
