"""The tables."""

# ruff: noqa: E501 - constraints on one line each, as PostgreSQL is given them

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "components",
        sa.Column("name", sa.Text(), nullable=False, comment="The library"),
        sa.Column("migration", sa.Text(), nullable=False, comment="The last of its migrations that is applied"),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_components")),
        comment="Libraries that keep tables here, and how far their schema has come",
    )
    op.create_table(
        "evaluation_runs",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="The record's number"),
        sa.Column("run_digest", sa.Text(), nullable=False, comment="The digest of the run"),
        sa.Column(
            "snapshot_version", sa.Text(), nullable=False, comment="The snapshot evaluated on, ours or another's"
        ),
        sa.Column("model", sa.Text(), nullable=False, comment="The model evaluated"),
        sa.Column("grader", sa.Text(), nullable=False, comment="The grader"),
        sa.Column("path", sa.Text(), nullable=False, comment="The run folder"),
        sa.Column("scores", postgresql.JSONB(), nullable=False, comment="The scores with their metric's name"),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was recorded",
        ),
        sa.CheckConstraint(
            "run_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_evaluation_runs_run_digest_is_digest")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluation_runs")),
        sa.UniqueConstraint("run_digest", name=op.f("uq_evaluation_runs_run_digest")),
        comment="Evaluations that were recorded; the run folder is the log",
    )
    op.create_table(
        "evidence_indexes",
        sa.Column("digest", sa.Text(), nullable=False, comment="The index's digest"),
        sa.Column("retriever", sa.Text(), nullable=False, comment="The kind of retriever, e.g. bm25"),
        sa.Column("corpora", postgresql.JSONB(), nullable=False, comment="Corpus name to corpus digest"),
        sa.Column("passages", sa.Integer(), nullable=False, comment="How many passages it holds"),
        sa.Column(
            "first_used_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When a curation first used it",
        ),
        sa.CheckConstraint("passages >= 0", name=op.f("ck_evidence_indexes_passages_not_negative")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_evidence_indexes")),
        comment="Evidence indexes that curations used",
    )
    op.create_table(
        "import_runs",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="The run's number"),
        sa.Column("file", sa.Text(), nullable=False, comment="The file's name as it was given"),
        sa.Column(
            "assumed_posted_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="The date taken for threads without one; NULL: none was",
        ),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it began",
        ),
        sa.Column(
            "finished_at", sa.DateTime(timezone=True), nullable=True, comment="When it ended; NULL while it runs"
        ),
        sa.Column("outcome", sa.Text(), nullable=False, comment="running, done or failed"),
        sa.Column(
            "counts",
            postgresql.JSONB(),
            server_default="{}",
            nullable=False,
            comment="What happened: new, revised, unchanged, problems",
        ),
        sa.Column("problem", sa.Text(), nullable=True, comment="Why it failed"),
        sa.CheckConstraint(
            "(outcome = 'running') = (finished_at IS NULL)", name=op.f("ck_import_runs_ends_when_not_running")
        ),
        sa.CheckConstraint(
            "outcome <> 'failed' OR problem IS NOT NULL", name=op.f("ck_import_runs_failure_has_problem")
        ),
        sa.CheckConstraint("outcome IN ('running', 'done', 'failed')", name=op.f("ck_import_runs_outcome_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_import_runs")),
        comment="Imports of thread files",
    )
    op.create_table(
        "passages",
        sa.Column("key", sa.Text(), nullable=False, comment="The digest of the whole row"),
        sa.Column("digest", sa.Text(), nullable=False, comment="The digest of title, section and text"),
        sa.Column("passage_id", sa.Text(), nullable=False, comment="<corpus>:<document>:<section>"),
        sa.Column("corpus", sa.Text(), nullable=False, comment="The corpus it is from"),
        sa.Column("title", sa.Text(), nullable=False, comment="The document's title"),
        sa.Column("section", sa.Text(), nullable=False, comment="The section's heading"),
        sa.Column("text", sa.Text(), nullable=False, comment="The passage"),
        sa.Column("language", sa.Text(), nullable=False, comment="The passage's language"),
        sa.Column("published", sa.Date(), nullable=True, comment="When it was published; NULL: unknown"),
        sa.Column("url", sa.Text(), nullable=False, comment="Where the document is"),
        sa.Column("licence", sa.Text(), nullable=False, comment="Its licence"),
        sa.CheckConstraint("digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_passages_digest_is_digest")),
        sa.CheckConstraint("key ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_passages_key_is_digest")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_passages")),
        comment="Passages that were retrieved for a claim; rows are never changed",
    )
    op.create_table(
        "pipeline_runs",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="The run's number"),
        sa.Column("command", sa.Text(), nullable=False, comment="The command"),
        sa.Column("iso_week", sa.Text(), nullable=True, comment="The ISO week it worked for; NULL: none"),
        sa.Column("code_version", sa.Text(), nullable=False, comment="medlive's version"),
        sa.Column(
            "settings", postgresql.JSONB(), nullable=False, comment="The effective settings, without secrets"
        ),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it began",
        ),
        sa.Column(
            "finished_at", sa.DateTime(timezone=True), nullable=True, comment="When it ended; NULL while it runs"
        ),
        sa.Column("outcome", sa.Text(), nullable=False, comment="running, done or failed"),
        sa.Column("counts", postgresql.JSONB(), server_default="{}", nullable=False, comment="What happened"),
        sa.CheckConstraint(
            "(outcome = 'running') = (finished_at IS NULL)", name=op.f("ck_pipeline_runs_ends_when_not_running")
        ),
        sa.CheckConstraint(
            "iso_week ~ '^\\d{4}\\.W(0[1-9]|[1-4]\\d|5[0-3])$'", name=op.f("ck_pipeline_runs_iso_week_form")
        ),
        sa.CheckConstraint(
            "outcome IN ('running', 'done', 'failed')", name=op.f("ck_pipeline_runs_outcome_known")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipeline_runs")),
        comment="The program's own runs: which code with which settings did what",
    )
    op.create_table(
        "prompts",
        sa.Column("digest", sa.Text(), nullable=False, comment="The digest of the text"),
        sa.Column("task", sa.Text(), nullable=False, comment="The task it was first used for"),
        sa.Column("text", sa.Text(), nullable=False, comment="The instructions"),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was first used",
        ),
        sa.CheckConstraint("digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_prompts_digest_is_digest")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_prompts")),
        comment="The instructions that engines were given; rows are never changed",
    )
    op.create_table(
        "snapshots",
        sa.Column("version", sa.Text(), nullable=False, comment="The ISO week, YYYY.WNN"),
        sa.Column("parent", sa.Text(), nullable=True, comment="The snapshot before; NULL for the first"),
        sa.Column("state", sa.Text(), nullable=False, comment="building or frozen"),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was begun",
        ),
        sa.Column("frozen_at", sa.DateTime(timezone=True), nullable=True, comment="When it was frozen"),
        sa.Column("manifest", postgresql.JSONB(), nullable=True, comment="The manifest as written"),
        sa.Column("manifest_digest", sa.Text(), nullable=True, comment="The digest of manifest.json's bytes"),
        sa.Column("cases", sa.Integer(), nullable=True, comment="How many cases it holds"),
        sa.Column("criteria", sa.Integer(), nullable=True, comment="How many criteria it holds"),
        sa.Column("publishable", sa.Boolean(), nullable=True, comment="Whether it may be released"),
        sa.Column(
            "why_not", postgresql.JSONB(), nullable=True, comment="The reasons why it may not; empty when it may"
        ),
        sa.Column("path", sa.Text(), nullable=True, comment="Where its folder was written"),
        sa.CheckConstraint(
            "(state = 'frozen') = (num_nonnulls(frozen_at, manifest, manifest_digest, cases, criteria, publishable, why_not, path) = 8)",
            name=op.f("ck_snapshots_frozen_is_whole"),
        ),
        sa.CheckConstraint(
            "manifest_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_snapshots_manifest_digest_is_digest")
        ),
        sa.CheckConstraint("state IN ('building', 'frozen')", name=op.f("ck_snapshots_state_known")),
        sa.CheckConstraint(
            "version ~ '^\\d{4}\\.W(0[1-9]|[1-4]\\d|5[0-3])$'", name=op.f("ck_snapshots_version_form")
        ),
        sa.CheckConstraint("cases >= 0 AND criteria >= 0", name=op.f("ck_snapshots_counts_not_negative")),
        sa.CheckConstraint("parent < version", name=op.f("ck_snapshots_parent_is_earlier")),
        sa.CheckConstraint(
            "publishable = (jsonb_array_length(why_not) = 0)", name=op.f("ck_snapshots_unpublishable_has_reason")
        ),
        sa.ForeignKeyConstraint(["parent"], ["snapshots.version"], name=op.f("fk_snapshots_parent")),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_snapshots")),
        comment="Snapshots; a frozen one and its members cannot be changed or deleted",
    )
    op.create_table(
        "sources",
        sa.Column("name", sa.Text(), nullable=False, comment="The source's name in threads and commands"),
        sa.Column("kind", sa.Text(), nullable=False, comment="site: harvested by an adapter; file: imported only"),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was first seen",
        ),
        sa.Column(
            "quarantined_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Since when it is left out, because its pages stopped making sense; NULL: it is not",
        ),
        sa.Column("quarantine_reason", sa.Text(), nullable=True, comment="Why it is left out"),
        sa.CheckConstraint("kind IN ('site', 'file')", name=op.f("ck_sources_kind_known")),
        sa.CheckConstraint(
            "(quarantined_at IS NULL) = (quarantine_reason IS NULL)", name=op.f("ck_sources_quarantine_has_reason")
        ),
        sa.CheckConstraint("char_length(name) BETWEEN 1 AND 200", name=op.f("ck_sources_name_length")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_sources")),
        comment="The communities that threads come from",
    )
    op.create_table(
        "harvest_runs",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="The run's number"),
        sa.Column("source", sa.Text(), nullable=False, comment="The source harvested"),
        sa.Column("iso_week", sa.Text(), nullable=False, comment="The ISO week, YYYY.WNN"),
        sa.Column(
            "starts",
            sa.Integer(),
            server_default="1",
            nullable=False,
            comment="How often it was begun or taken up again",
        ),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was first begun",
        ),
        sa.Column(
            "finished_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it last ended; NULL while it runs",
        ),
        sa.Column("outcome", sa.Text(), nullable=False, comment="running, done or failed"),
        sa.Column(
            "counts",
            postgresql.JSONB(),
            server_default="{}",
            nullable=False,
            comment="What happened: event's name to its number",
        ),
        sa.Column("problem", sa.Text(), nullable=True, comment="Why it failed, or what it met"),
        sa.CheckConstraint(
            "(outcome = 'running') = (finished_at IS NULL)", name=op.f("ck_harvest_runs_ends_when_not_running")
        ),
        sa.CheckConstraint(
            "iso_week ~ '^\\d{4}\\.W(0[1-9]|[1-4]\\d|5[0-3])$'", name=op.f("ck_harvest_runs_iso_week_form")
        ),
        sa.CheckConstraint(
            "outcome <> 'failed' OR problem IS NOT NULL", name=op.f("ck_harvest_runs_failure_has_problem")
        ),
        sa.CheckConstraint("outcome IN ('running', 'done', 'failed')", name=op.f("ck_harvest_runs_outcome_known")),
        sa.CheckConstraint("starts >= 1", name=op.f("ck_harvest_runs_starts_positive")),
        sa.ForeignKeyConstraint(["source"], ["sources.name"], name=op.f("fk_harvest_runs_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_harvest_runs")),
        sa.UniqueConstraint("source", "iso_week", name=op.f("uq_harvest_runs_source_iso_week")),
        comment="Harvests: one a source and ISO week, taken up again when it was interrupted",
    )
    op.create_table(
        "import_problems",
        sa.Column("run_id", sa.Integer(), nullable=False, comment="The import it was met in"),
        sa.Column("line", sa.Integer(), nullable=False, comment="The line's number, from 1"),
        sa.Column("file", sa.Text(), nullable=False, comment="The file's name as it was given"),
        sa.Column("reason", sa.Text(), nullable=False, comment="The kind of fault"),
        sa.Column("detail", sa.Text(), nullable=False, comment="The fault in words"),
        sa.Column("excerpt", sa.Text(), nullable=False, comment="The beginning of the line"),
        sa.CheckConstraint("line >= 1", name=op.f("ck_import_problems_line_positive")),
        sa.ForeignKeyConstraint(["run_id"], ["import_runs.id"], name=op.f("fk_import_problems_run_id")),
        sa.PrimaryKeyConstraint("run_id", "line", name=op.f("pk_import_problems")),
        comment="Lines of imports that became no thread",
    )
    op.create_table(
        "replies",
        sa.Column(
            "request_digest",
            sa.Text(),
            nullable=False,
            comment="Task, prompt, schema, inputs, repair, engine, model and parameters",
        ),
        sa.Column("task", sa.Text(), nullable=False, comment="The task, <agent>.<what>"),
        sa.Column("prompt_digest", sa.Text(), nullable=False, comment="Its instructions"),
        sa.Column("engine", sa.Text(), nullable=False, comment="The engine: rules or openai"),
        sa.Column("model", sa.Text(), nullable=False, comment="The pinned model id that was asked"),
        sa.Column("parameters", postgresql.JSONB(), nullable=False, comment="The engine's parameters"),
        sa.Column(
            "inputs", postgresql.JSONB(), nullable=False, comment="The inputs: text of threads is only here"
        ),
        sa.Column("schema_digest", sa.Text(), nullable=False, comment="The digest of the reply's JSON schema"),
        sa.Column(
            "repair",
            postgresql.JSONB(),
            nullable=True,
            comment="On a second attempt: the raw first reply and what was wrong with it",
        ),
        sa.Column(
            "round",
            sa.SmallInteger(),
            server_default="0",
            nullable=False,
            comment="How often stored unusable replies were stepped over before",
        ),
        sa.Column("text", sa.Text(), nullable=False, comment="The reply, untouched"),
        sa.Column("finish", sa.Text(), nullable=False, comment="Why the engine stopped: stop, length or refusal"),
        sa.Column("reply_model", sa.Text(), nullable=False, comment="The model as the endpoint named it"),
        sa.Column("input_tokens", sa.Integer(), nullable=False, comment="Tokens read"),
        sa.Column(
            "cached_tokens", sa.Integer(), nullable=False, comment="Of these, tokens from the endpoint's cache"
        ),
        sa.Column("output_tokens", sa.Integer(), nullable=False, comment="Tokens written"),
        sa.Column(
            "cost_usd",
            sa.Numeric(asdecimal=False),
            nullable=True,
            comment="The price in US dollars; NULL: unknown, not free",
        ),
        sa.Column("latency_ms", sa.Double(), nullable=False, comment="How long the reply took, in milliseconds"),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was stored",
        ),
        sa.CheckConstraint("finish IN ('stop', 'length', 'refusal')", name=op.f("ck_replies_finish_known")),
        sa.CheckConstraint(
            "request_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_replies_request_digest_is_digest")
        ),
        sa.CheckConstraint(
            "schema_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_replies_schema_digest_is_digest")
        ),
        sa.CheckConstraint("cost_usd >= 0", name=op.f("ck_replies_cost_not_negative")),
        sa.CheckConstraint(
            "input_tokens >= 0 AND cached_tokens >= 0 AND output_tokens >= 0", name=op.f("ck_replies_tokens")
        ),
        sa.CheckConstraint("latency_ms >= 0", name=op.f("ck_replies_latency_not_negative")),
        sa.CheckConstraint(
            "repair IS NULL OR jsonb_array_length(repair) = 2", name=op.f("ck_replies_repair_is_pair")
        ),
        sa.CheckConstraint("round >= 0", name=op.f("ck_replies_round_not_negative")),
        sa.ForeignKeyConstraint(["prompt_digest"], ["prompts.digest"], name=op.f("fk_replies_prompt_digest")),
        sa.PrimaryKeyConstraint("request_digest", name=op.f("pk_replies")),
        comment="Replies of engines under their request's digest, so that none is paid for twice",
    )
    op.create_index(op.f("ix_replies_task_created_at"), "replies", ["task", "created_at"], unique=False)
    op.create_table(
        "threads",
        sa.Column(
            "id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="The thread's number here"
        ),
        sa.Column("source", sa.Text(), nullable=False, comment="The community it is from"),
        sa.Column("thread_id", sa.Text(), nullable=False, comment="The source's own id, unique within it"),
        sa.Column("url", sa.Text(), nullable=False, comment="Its address, as last seen"),
        sa.Column(
            "first_seen_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it first came in",
        ),
        sa.Column(
            "last_seen_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it last came in, changed or not",
        ),
        sa.CheckConstraint("char_length(thread_id) BETWEEN 1 AND 500", name=op.f("ck_threads_thread_id_length")),
        sa.CheckConstraint("last_seen_at >= first_seen_at", name=op.f("ck_threads_seen_in_order")),
        sa.ForeignKeyConstraint(["source"], ["sources.name"], name=op.f("fk_threads_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_threads")),
        sa.UniqueConstraint("source", "thread_id", name=op.f("uq_threads_source_thread_id")),
        comment="Discussions of the sources",
    )
    op.create_table(
        "cases",
        sa.Column("id", sa.Text(), nullable=False, comment="A keyed hash that tells nothing of the thread"),
        sa.Column("thread_id", sa.Integer(), nullable=False, comment="The thread"),
        sa.Column("status", sa.Text(), nullable=False, comment="ready, held or withdrawn"),
        sa.Column(
            "status_reason", sa.Text(), nullable=True, comment="Why it is held or withdrawn; NULL when ready"
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the case was first made",
        ),
        sa.CheckConstraint(
            "(status = 'ready') = (status_reason IS NULL)", name=op.f("ck_cases_status_has_reason")
        ),
        sa.CheckConstraint("id ~ '^ml-[0-9a-f]{12,}$'", name=op.f("ck_cases_id_form")),
        sa.CheckConstraint("status IN ('ready', 'held', 'withdrawn')", name=op.f("ck_cases_status_known")),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name=op.f("fk_cases_thread_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cases")),
        sa.UniqueConstraint("thread_id", name=op.f("uq_cases_thread_id")),
        comment="Cases made from threads",
    )
    op.create_table(
        "fetches",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="The fetch's number"),
        sa.Column("run_id", sa.Integer(), nullable=False, comment="The run that asked for it"),
        sa.Column("source", sa.Text(), nullable=False, comment="The run's source"),
        sa.Column("kind", sa.Text(), nullable=False, comment="What the page was asked for: listing or thread"),
        sa.Column(
            "thread_id", sa.Text(), nullable=True, comment="The source's id of the page's thread; NULL for lists"
        ),
        sa.Column(
            "page_number",
            sa.Integer(),
            server_default="1",
            nullable=False,
            comment="The page's place in its thread, from 1",
        ),
        sa.Column("url", sa.Text(), nullable=False, comment="The address that answered, or that was asked"),
        sa.Column("status", sa.Integer(), nullable=True, comment="The HTTP status; NULL when there was no answer"),
        sa.Column("fetched_at", sa.DateTime(timezone=True), nullable=False, comment="When it was fetched"),
        sa.Column("elapsed_ms", sa.Integer(), nullable=True, comment="How long it took, in milliseconds"),
        sa.Column(
            "body_digest", sa.Text(), nullable=True, comment="The digest of the body as received, uncompressed"
        ),
        sa.Column("content_type", sa.Text(), nullable=True, comment="The Content-Type header as sent"),
        sa.Column("etag", sa.Text(), nullable=True, comment="The ETag header as sent"),
        sa.Column("last_modified", sa.Text(), nullable=True, comment="The Last-Modified header as sent"),
        sa.Column(
            "body",
            sa.LargeBinary(),
            nullable=True,
            comment="The body, gzip; NULL when not modified, failed, or let go by retention",
        ),
        sa.Column("error", sa.Text(), nullable=True, comment="Why it failed"),
        sa.Column(
            "pages_read",
            sa.Integer(),
            nullable=True,
            comment="On a first page: of how many pages its thread was read and saved; NULL: it was not",
        ),
        sa.CheckConstraint(
            "(kind = 'listing') = (thread_id IS NULL)", name=op.f("ck_fetches_thread_page_has_thread")
        ),
        sa.CheckConstraint("body_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_fetches_body_digest_is_digest")),
        sa.CheckConstraint("kind IN ('listing', 'thread')", name=op.f("ck_fetches_kind_known")),
        sa.CheckConstraint(
            "pages_read IS NULL OR (kind = 'thread' AND page_number = 1 AND pages_read >= 1)",
            name=op.f("ck_fetches_read_whole"),
        ),
        sa.CheckConstraint("body IS NULL OR body_digest IS NOT NULL", name=op.f("ck_fetches_body_has_digest")),
        sa.CheckConstraint("elapsed_ms >= 0", name=op.f("ck_fetches_elapsed_not_negative")),
        sa.CheckConstraint("page_number >= 1", name=op.f("ck_fetches_page_number_positive")),
        sa.CheckConstraint("status BETWEEN 100 AND 599", name=op.f("ck_fetches_status_is_http")),
        sa.CheckConstraint("status IS NOT NULL OR error IS NOT NULL", name=op.f("ck_fetches_answer_or_error")),
        sa.ForeignKeyConstraint(["run_id"], ["harvest_runs.id"], name=op.f("fk_fetches_run_id")),
        sa.ForeignKeyConstraint(["source"], ["sources.name"], name=op.f("fk_fetches_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fetches")),
        comment="Every page that was asked for, with its bytes",
    )
    op.create_index(op.f("ix_fetches_run_id"), "fetches", ["run_id"], unique=False)
    op.create_index("ix_fetches_thread_id_latest", "fetches", ["source", "thread_id", "id"], unique=False)
    op.create_table(
        "thread_revisions",
        sa.Column(
            "id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="The revision's number here"
        ),
        sa.Column("thread_id", sa.Integer(), nullable=False, comment="The thread"),
        sa.Column(
            "revision", sa.Integer(), nullable=False, comment="Its place among the thread's revisions, from 1"
        ),
        sa.Column("digest", sa.Text(), nullable=False, comment="The digest of its content"),
        sa.Column("title", sa.Text(), nullable=False, comment="The title"),
        sa.Column(
            "language", sa.Text(), nullable=True, comment="en, zh or what the source says; NULL: it does not say"
        ),
        sa.Column("tags", sa.ARRAY(sa.Text()), nullable=False, comment="The source's tags and board"),
        sa.Column(
            "posted_at", sa.DateTime(timezone=True), nullable=True, comment="When it was opened; NULL: unknown"
        ),
        sa.Column(
            "posted_at_assumed",
            sa.Boolean(),
            nullable=False,
            comment="Whether posted_at was given for want of a date",
        ),
        sa.Column(
            "messages",
            postgresql.JSONB(),
            nullable=False,
            comment="The messages in order: id, author (a keyed hash), role, verified, text, posted_at, media",
        ),
        sa.Column(
            "fetch_id", sa.Integer(), nullable=True, comment="The fetch of its first page; NULL for imports"
        ),
        sa.Column(
            "import_run_id", sa.Integer(), nullable=True, comment="The import it came with; NULL for harvests"
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When this content was first seen",
        ),
        sa.CheckConstraint("digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_thread_revisions_digest_is_digest")),
        sa.CheckConstraint(
            "NOT posted_at_assumed OR posted_at IS NOT NULL", name=op.f("ck_thread_revisions_assumed_is_known")
        ),
        sa.CheckConstraint(
            "num_nonnulls(fetch_id, import_run_id) <= 1", name=op.f("ck_thread_revisions_one_origin")
        ),
        sa.CheckConstraint("revision >= 1", name=op.f("ck_thread_revisions_revision_positive")),
        sa.ForeignKeyConstraint(["fetch_id"], ["fetches.id"], name=op.f("fk_thread_revisions_fetch_id")),
        sa.ForeignKeyConstraint(
            ["import_run_id"], ["import_runs.id"], name=op.f("fk_thread_revisions_import_run_id")
        ),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name=op.f("fk_thread_revisions_thread_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_thread_revisions")),
        sa.UniqueConstraint("thread_id", "digest", name=op.f("uq_thread_revisions_thread_id_digest")),
        sa.UniqueConstraint("thread_id", "revision", name=op.f("uq_thread_revisions_thread_id_revision")),
        comment="The content of threads, one row for each state seen; rows are never changed",
    )
    op.create_table(
        "curations",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="The curation's number"),
        sa.Column("revision_id", sa.Integer(), nullable=False, comment="The revision"),
        sa.Column(
            "pipeline_digest",
            sa.Text(),
            nullable=False,
            comment="Engines, prompts, evidence and settings: what a decision depends on besides the thread",
        ),
        sa.Column(
            "attempt", sa.Integer(), nullable=False, comment="From 1; only a failed attempt is followed by another"
        ),
        sa.Column("outcome", sa.Text(), nullable=False, comment="kept, rejected, held or failed"),
        sa.Column("stage", sa.Text(), nullable=False, comment="Where it ended"),
        sa.Column("reason", sa.Text(), nullable=True, comment="Why; NULL exactly when kept"),
        sa.Column("detail", sa.Text(), nullable=False, comment="The reason in words"),
        sa.Column("threshold_sufficiency", sa.Double(), nullable=False, comment="S_inf had to exceed this"),
        sa.Column("threshold_alignment", sa.Double(), nullable=False, comment="S_align had to exceed this"),
        sa.Column(
            "query_category",
            sa.Text(),
            nullable=True,
            comment="The question's kind in Ely's taxonomy; NULL: not judged",
        ),
        sa.Column("s_cc", sa.SmallInteger(), nullable=True, comment="Clinical meaningfulness; NULL: not judged"),
        sa.Column("s_inf", sa.Double(), nullable=True, comment="Sufficiency of the narrative; NULL: not judged"),
        sa.Column("s_align", sa.Double(), nullable=True, comment="Alignment with evidence; NULL: not judged"),
        sa.Column("index_digest", sa.Text(), nullable=True, comment="The evidence index; NULL: none was asked"),
        sa.Column("narrative", sa.Text(), nullable=True, comment="N as written; NULL: it was not"),
        sa.Column("query", sa.Text(), nullable=True, comment="Q as released; NULL: the texts were not written"),
        sa.Column("advice", sa.Text(), nullable=True, comment="A as written; NULL: it was not"),
        sa.Column(
            "engines", postgresql.JSONB(), nullable=False, comment="Agent to its engine, model and parameters"
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False, comment="When the attempt began"),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False, comment="When it ended"),
        sa.CheckConstraint("(outcome = 'kept') = (reason IS NULL)", name=op.f("ck_curations_kept_has_no_reason")),
        sa.CheckConstraint(
            "outcome IN ('kept', 'rejected', 'held', 'failed')", name=op.f("ck_curations_outcome_known")
        ),
        sa.CheckConstraint(
            "outcome NOT IN ('kept', 'held') OR (s_cc = 1 AND s_inf > threshold_sufficiency AND s_align > threshold_alignment AND index_digest IS NOT NULL AND narrative IS NOT NULL) IS TRUE",
            name=op.f("ck_curations_kept_passed"),
        ),
        sa.CheckConstraint(
            "outcome NOT IN ('kept', 'held') OR stage = 'rubric'", name=op.f("ck_curations_kept_at_the_end")
        ),
        sa.CheckConstraint(
            "pipeline_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_curations_pipeline_digest_is_digest")
        ),
        sa.CheckConstraint(
            "query_category IN ('diagnosis', 'treatment', 'management', 'epidemiology', 'nonclinical')",
            name=op.f("ck_curations_query_category_known"),
        ),
        sa.CheckConstraint(
            "reason IN ('no_narrative', 'no_query', 'no_advice', 'query_not_clinical', 'insufficient_narrative', 'contradicted', 'not_aligned', 'unsupported_element', 'numbers_changed', 'rubric_lint', 'endpoint_unavailable', 'invalid_reply', 'refused', 'truncated', 'budget_spent')",
            name=op.f("ck_curations_reason_known"),
        ),
        sa.CheckConstraint(
            "reason IS NULL OR (outcome = 'failed') = (reason IN ('endpoint_unavailable', 'invalid_reply', 'refused', 'truncated', 'budget_spent'))",
            name=op.f("ck_curations_failure_is_no_rejection"),
        ),
        sa.CheckConstraint(
            "stage IN ('screener', 'validator', 'controller', 'rubric')", name=op.f("ck_curations_stage_known")
        ),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_curations_attempt_positive")),
        sa.CheckConstraint("finished_at >= started_at", name=op.f("ck_curations_in_order")),
        sa.CheckConstraint(
            "num_nonnulls(narrative, query, advice) IN (0, 3)", name=op.f("ck_curations_text_whole")
        ),
        sa.CheckConstraint("s_align BETWEEN 0 AND 1", name=op.f("ck_curations_s_align_range")),
        sa.CheckConstraint("s_cc IN (0, 1)", name=op.f("ck_curations_s_cc_range")),
        sa.CheckConstraint("s_inf BETWEEN 0 AND 1", name=op.f("ck_curations_s_inf_range")),
        sa.CheckConstraint(
            "threshold_sufficiency BETWEEN 0 AND 1 AND threshold_alignment BETWEEN 0 AND 1",
            name=op.f("ck_curations_threshold_range"),
        ),
        sa.ForeignKeyConstraint(
            ["index_digest"], ["evidence_indexes.digest"], name=op.f("fk_curations_index_digest")
        ),
        sa.ForeignKeyConstraint(["revision_id"], ["thread_revisions.id"], name=op.f("fk_curations_revision_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_curations")),
        comment="Decisions about thread revisions, one row an attempt; rows are never changed",
    )
    op.create_index(
        op.f("ix_curations_revision_id_pipeline_digest_attempt"),
        "curations",
        ["revision_id", "pipeline_digest", "attempt"],
        unique=True,
    )
    op.create_index(
        "uq_curations_decided",
        "curations",
        ["revision_id", "pipeline_digest"],
        unique=True,
        postgresql_where=sa.text("outcome <> 'failed'"),
    )
    op.create_table(
        "filter_results",
        sa.Column("revision_id", sa.Integer(), nullable=False, comment="The revision"),
        sa.Column("chain_digest", sa.Text(), nullable=False, comment="The chain's rules and settings"),
        sa.Column("passed", sa.Boolean(), nullable=False, comment="Whether every rule passed"),
        sa.Column("rejected_by", sa.Text(), nullable=True, comment="The first rule that failed"),
        sa.Column("reason", sa.Text(), nullable=True, comment="That rule's reason"),
        sa.Column(
            "decided_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was decided",
        ),
        sa.CheckConstraint(
            "chain_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_filter_results_chain_digest_is_digest")
        ),
        sa.CheckConstraint("passed = (reason IS NULL)", name=op.f("ck_filter_results_rejected_with_reason")),
        sa.CheckConstraint("passed = (rejected_by IS NULL)", name=op.f("ck_filter_results_rejected_by_a_rule")),
        sa.ForeignKeyConstraint(
            ["revision_id"], ["thread_revisions.id"], name=op.f("fk_filter_results_revision_id")
        ),
        sa.PrimaryKeyConstraint("revision_id", "chain_digest", name=op.f("pk_filter_results")),
        comment="Results of the filter chain: one a revision and chain",
    )
    op.create_table(
        "agent_calls",
        sa.Column("curation_id", sa.Integer(), nullable=False, comment="The curation"),
        sa.Column("position", sa.Integer(), nullable=False, comment="The call's place, from 1"),
        sa.Column("task", sa.Text(), nullable=False, comment="The task"),
        sa.Column(
            "prompt_digest", sa.Text(), nullable=False, comment="Its instructions; in prompts when it was answered"
        ),
        sa.Column("engine", sa.Text(), nullable=False, comment="The engine asked"),
        sa.Column("model", sa.Text(), nullable=False, comment="The model asked"),
        sa.Column("request_digest", sa.Text(), nullable=False, comment="The request's digest, answered or not"),
        sa.Column(
            "reply_digest", sa.Text(), nullable=True, comment="The stored reply; NULL exactly when there was none"
        ),
        sa.Column("attempt", sa.SmallInteger(), nullable=False, comment="1, or 2 for the repair"),
        sa.Column("outcome", sa.Text(), nullable=False, comment="What became of it"),
        sa.Column("problem", sa.Text(), nullable=False, comment="What was wrong; empty when nothing was"),
        sa.Column(
            "replayed",
            sa.Boolean(),
            nullable=False,
            comment="Whether the stored reply was used and nothing was paid",
        ),
        sa.CheckConstraint(
            "(outcome IN ('unavailable', 'over_budget')) = (reply_digest IS NULL)",
            name=op.f("ck_agent_calls_answer_is_kept"),
        ),
        sa.CheckConstraint(
            "outcome IN ('ok', 'invalid', 'refused', 'truncated', 'unavailable', 'over_budget')",
            name=op.f("ck_agent_calls_outcome_known"),
        ),
        sa.CheckConstraint(
            "request_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_agent_calls_request_digest_is_digest")
        ),
        sa.CheckConstraint("attempt IN (1, 2)", name=op.f("ck_agent_calls_attempt_range")),
        sa.CheckConstraint("reply_digest = request_digest", name=op.f("ck_agent_calls_reply_answers_request")),
        sa.ForeignKeyConstraint(["curation_id"], ["curations.id"], name=op.f("fk_agent_calls_curation_id")),
        sa.ForeignKeyConstraint(
            ["reply_digest"], ["replies.request_digest"], name=op.f("fk_agent_calls_reply_digest")
        ),
        sa.PrimaryKeyConstraint("curation_id", "position", name=op.f("pk_agent_calls")),
        comment="Calls of the agents, in order; rows are never changed",
    )
    op.create_index(op.f("ix_agent_calls_reply_digest"), "agent_calls", ["reply_digest"], unique=False)
    op.create_table(
        "case_revisions",
        sa.Column("case_id", sa.Text(), nullable=False, comment="The case"),
        sa.Column("revision", sa.Integer(), nullable=False, comment="Its place among the revisions, from 1"),
        sa.Column("curation_id", sa.Integer(), nullable=False, comment="The decision it came from"),
        sa.Column("language", sa.Text(), nullable=False, comment="en or zh"),
        sa.Column("source", sa.Text(), nullable=False, comment="The community"),
        sa.Column("posted_at", sa.DateTime(timezone=True), nullable=False, comment="When the thread was opened"),
        sa.Column("specialty", sa.Text(), nullable=False, comment="One of the closed list, or unknown"),
        sa.Column("theme", sa.Text(), nullable=False, comment="What the case chiefly tests"),
        sa.Column("narrative", sa.Text(), nullable=False, comment="N"),
        sa.Column("query", sa.Text(), nullable=False, comment="Q"),
        sa.Column("advice", sa.Text(), nullable=False, comment="A"),
        sa.Column("publishable", sa.Boolean(), nullable=False, comment="Whether it may be released"),
        sa.Column("unpublishable_reason", sa.Text(), nullable=True, comment="Why not; NULL when it may"),
        sa.Column(
            "content_digest", sa.Text(), nullable=False, comment="The digest of all above and of the criteria"
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When this content was made",
        ),
        sa.CheckConstraint(
            "content_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_case_revisions_content_digest_is_digest")
        ),
        sa.CheckConstraint("language IN ('en', 'zh')", name=op.f("ck_case_revisions_language_known")),
        sa.CheckConstraint(
            "narrative <> '' AND query <> '' AND advice <> ''", name=op.f("ck_case_revisions_text_not_empty")
        ),
        sa.CheckConstraint(
            "specialty IN ('Allergy & Immunology', 'Anesthesiology & Pain', 'Cardiology', 'Cardiothoracic Surgery', 'Colorectal Surgery', 'Dentistry & Oral Surgery', 'Dermatology', 'Emergency Medicine', 'Endocrinology & Metabolism', 'Family & General Practice', 'Gastroenterology & Hepatology', 'General Surgery', 'Geriatrics', 'Hematology', 'Infectious Disease', 'Medical Genetics', 'Nephrology', 'Neuro-Oncology', 'Neurology', 'Neurosurgery', 'Nutrition', 'Obstetrics & Gynecology', 'Oncology', 'Ophthalmology', 'Orthopedics', 'Otolaryngology', 'Pathology', 'Pediatric Surgery', 'Pediatrics', 'Physical Medicine & Rehabilitation', 'Plastic Surgery', 'Psychiatry', 'Pulmonary & Critical Care', 'Radiation Oncology', 'Radiology & Nuclear Medicine', 'Rheumatology', 'Urology', 'Vascular Surgery', 'unknown')",
            name=op.f("ck_case_revisions_specialty_known"),
        ),
        sa.CheckConstraint(
            "theme IN ('Emergency Referrals', 'Context-Seeking', 'Expertise-Tailored Communication', 'Responding under Uncertainty', 'Response Depth')",
            name=op.f("ck_case_revisions_theme_known"),
        ),
        sa.CheckConstraint(
            "publishable = (unpublishable_reason IS NULL)", name=op.f("ck_case_revisions_unpublishable_has_reason")
        ),
        sa.CheckConstraint("revision >= 1", name=op.f("ck_case_revisions_revision_positive")),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name=op.f("fk_case_revisions_case_id")),
        sa.ForeignKeyConstraint(["curation_id"], ["curations.id"], name=op.f("fk_case_revisions_curation_id")),
        sa.ForeignKeyConstraint(["source"], ["sources.name"], name=op.f("fk_case_revisions_source")),
        sa.PrimaryKeyConstraint("case_id", "revision", name=op.f("pk_case_revisions")),
        comment="The content of cases, one row for each state; rows are never changed",
    )
    op.create_index(op.f("ix_case_revisions_curation_id"), "case_revisions", ["curation_id"], unique=False)
    op.create_table(
        "controller_checks",
        sa.Column("curation_id", sa.Integer(), nullable=False, comment="The curation"),
        sa.Column("position", sa.Integer(), nullable=False, comment="The check's place, from 1"),
        sa.Column("check_name", sa.Text(), nullable=False, comment="What was checked"),
        sa.Column("subject", sa.Text(), nullable=False, comment="The element, or narrative or advice"),
        sa.Column("passed", sa.Boolean(), nullable=False, comment="Whether it passed"),
        sa.Column(
            "detail", sa.Text(), nullable=False, comment="What was found; empty when there is nothing to say"
        ),
        sa.CheckConstraint(
            "check_name IN ('quote_in_thread', 'numbers_in_thread', 'says_no_more', 'numbers_in_elements')",
            name=op.f("ck_controller_checks_check_name_known"),
        ),
        sa.ForeignKeyConstraint(["curation_id"], ["curations.id"], name=op.f("fk_controller_checks_curation_id")),
        sa.PrimaryKeyConstraint("curation_id", "position", name=op.f("pk_controller_checks")),
        comment="The Controller's checks of elements and written texts",
    )
    op.create_table(
        "elements",
        sa.Column("curation_id", sa.Integer(), nullable=False, comment="The curation"),
        sa.Column("element_id", sa.Text(), nullable=False, comment="n1, n2, …, q, a1, a2, …"),
        sa.Column("position", sa.Integer(), nullable=False, comment="Its place among all, from 1"),
        sa.Column("side", sa.Text(), nullable=False, comment="narrative, query or advice"),
        sa.Column("kind", sa.Text(), nullable=False, comment="The SOAP section"),
        sa.Column("message_id", sa.Text(), nullable=False, comment="The message its quote stands in, or title"),
        sa.Column("quote", sa.Text(), nullable=False, comment="Verbatim words of that message"),
        sa.Column("statement", sa.Text(), nullable=False, comment="The statement that stands alone"),
        sa.CheckConstraint(
            "kind IN ('subjective', 'objective', 'assessment', 'plan', 'question')",
            name=op.f("ck_elements_kind_known"),
        ),
        sa.CheckConstraint("quote <> ''", name=op.f("ck_elements_quote_not_empty")),
        sa.CheckConstraint("side IN ('narrative', 'query', 'advice')", name=op.f("ck_elements_side_known")),
        sa.ForeignKeyConstraint(["curation_id"], ["curations.id"], name=op.f("fk_elements_curation_id")),
        sa.PrimaryKeyConstraint("curation_id", "element_id", name=op.f("pk_elements")),
        comment="Statements the Screener took from threads, with their words",
    )
    op.create_table(
        "filter_verdicts",
        sa.Column("revision_id", sa.Integer(), nullable=False, comment="The revision"),
        sa.Column("chain_digest", sa.Text(), nullable=False, comment="The chain's rules and settings"),
        sa.Column("rule", sa.Text(), nullable=False, comment="The rule's name"),
        sa.Column("position", sa.SmallInteger(), nullable=False, comment="The rule's place in the chain, from 1"),
        sa.Column("passed", sa.Boolean(), nullable=False, comment="Whether the rule passed"),
        sa.Column("reason", sa.Text(), nullable=True, comment="Why it failed"),
        sa.Column(
            "evidence",
            postgresql.JSONB(),
            server_default="{}",
            nullable=False,
            comment="What the verdict rests on",
        ),
        sa.CheckConstraint("passed = (reason IS NULL)", name=op.f("ck_filter_verdicts_rejected_with_reason")),
        sa.CheckConstraint("position >= 1", name=op.f("ck_filter_verdicts_position_positive")),
        sa.ForeignKeyConstraint(
            ["revision_id", "chain_digest"],
            ["filter_results.revision_id", "filter_results.chain_digest"],
            name=op.f("fk_filter_verdicts_revision_id_chain_digest"),
        ),
        sa.PrimaryKeyConstraint("revision_id", "chain_digest", "rule", name=op.f("pk_filter_verdicts")),
        comment="The verdict of every filter rule, passed or not, so that funnels add up",
    )
    op.create_table(
        "requirements",
        sa.Column("curation_id", sa.Integer(), nullable=False, comment="The curation"),
        sa.Column("position", sa.Integer(), nullable=False, comment="The item's place, from 1"),
        sa.Column("requirement", sa.Text(), nullable=False, comment="What a physician needs to know"),
        sa.Column("present", sa.Boolean(), nullable=False, comment="Whether the narrative entails it"),
        sa.Column("element_ids", sa.ARRAY(sa.Text()), nullable=False, comment="The elements that entail it"),
        sa.CheckConstraint(
            "NOT present OR cardinality(element_ids) > 0", name=op.f("ck_requirements_present_has_elements")
        ),
        sa.ForeignKeyConstraint(["curation_id"], ["curations.id"], name=op.f("fk_requirements_curation_id")),
        sa.PrimaryKeyConstraint("curation_id", "position", name=op.f("pk_requirements")),
        comment="The Validator's checklists, item by item",
    )
    op.create_table(
        "claim_verdicts",
        sa.Column("curation_id", sa.Integer(), nullable=False, comment="The curation"),
        sa.Column("element_id", sa.Text(), nullable=False, comment="The advice element"),
        sa.Column("position", sa.Integer(), nullable=False, comment="Its place among the claims, from 1"),
        sa.Column("verdict", sa.Text(), nullable=False, comment="supported, neutral or contradicted"),
        sa.Column("value", sa.Numeric(precision=2, scale=1), nullable=False, comment="v(a_j): 1.0, 0.5 or 0.0"),
        sa.Column(
            "quote",
            sa.Text(),
            nullable=False,
            comment="Verbatim words of a cited passage; empty only when neutral",
        ),
        sa.Column("reason", sa.Text(), nullable=False, comment="Why"),
        sa.Column(
            "overturned",
            sa.Boolean(),
            nullable=False,
            comment="Whether a first contradicted did not survive the second check",
        ),
        sa.CheckConstraint(
            "NOT overturned OR verdict = 'neutral'", name=op.f("ck_claim_verdicts_overturned_is_neutral")
        ),
        sa.CheckConstraint(
            "value = CASE verdict WHEN 'supported' THEN 1.0 WHEN 'neutral' THEN 0.5 ELSE 0.0 END",
            name=op.f("ck_claim_verdicts_value_of_verdict"),
        ),
        sa.CheckConstraint("verdict = 'neutral' OR quote <> ''", name=op.f("ck_claim_verdicts_verdict_has_quote")),
        sa.CheckConstraint(
            "verdict IN ('supported', 'neutral', 'contradicted')", name=op.f("ck_claim_verdicts_verdict_known")
        ),
        sa.ForeignKeyConstraint(
            ["curation_id", "element_id"],
            ["elements.curation_id", "elements.element_id"],
            name=op.f("fk_claim_verdicts_curation_id_element_id"),
        ),
        sa.PrimaryKeyConstraint("curation_id", "element_id", name=op.f("pk_claim_verdicts")),
        comment="The Validator's verdicts on advice elements",
    )
    op.create_table(
        "criteria",
        sa.Column("case_id", sa.Text(), nullable=False, comment="The case"),
        sa.Column("revision", sa.Integer(), nullable=False, comment="The case's revision"),
        sa.Column("criterion_id", sa.Text(), nullable=False, comment="c1, c2, … within the case revision"),
        sa.Column("position", sa.SmallInteger(), nullable=False, comment="Its place in the rubric"),
        sa.Column("criterion", sa.Text(), nullable=False, comment="What is met or not met"),
        sa.Column("axis", sa.Text(), nullable=False, comment="What it measures"),
        sa.Column("points", sa.SmallInteger(), nullable=False, comment="Its weight; the sign is the polarity"),
        sa.Column("advice_id", sa.Text(), nullable=False, comment="The advice element it came from"),
        sa.CheckConstraint(
            "axis IN ('Accuracy', 'Completeness', 'Communication Quality', 'Context Awareness', 'Safety')",
            name=op.f("ck_criteria_axis_known"),
        ),
        sa.CheckConstraint("criterion <> ''", name=op.f("ck_criteria_criterion_not_empty")),
        sa.CheckConstraint("points BETWEEN -10 AND 10 AND points <> 0", name=op.f("ck_criteria_points_range")),
        sa.ForeignKeyConstraint(
            ["case_id", "revision"],
            ["case_revisions.case_id", "case_revisions.revision"],
            name=op.f("fk_criteria_case_id_revision"),
        ),
        sa.PrimaryKeyConstraint("case_id", "revision", "criterion_id", name=op.f("pk_criteria")),
        sa.UniqueConstraint("case_id", "revision", "position", name=op.f("uq_criteria_case_id_revision_position")),
        comment="The weighted criteria of case revisions; rows are never changed",
    )
    op.create_table(
        "snapshot_members",
        sa.Column("version", sa.Text(), nullable=False, comment="The snapshot"),
        sa.Column("case_id", sa.Text(), nullable=False, comment="The case"),
        sa.Column("revision", sa.Integer(), nullable=False, comment="The case's revision"),
        sa.Column("first_release", sa.Text(), nullable=False, comment="The first snapshot that held the case"),
        sa.CheckConstraint("first_release <= version", name=op.f("ck_snapshot_members_released_before")),
        sa.ForeignKeyConstraint(
            ["case_id", "revision"],
            ["case_revisions.case_id", "case_revisions.revision"],
            name=op.f("fk_snapshot_members_case_id_revision"),
        ),
        sa.ForeignKeyConstraint(
            ["first_release"], ["snapshots.version"], name=op.f("fk_snapshot_members_first_release")
        ),
        sa.ForeignKeyConstraint(["version"], ["snapshots.version"], name=op.f("fk_snapshot_members_version")),
        sa.PrimaryKeyConstraint("version", "case_id", name=op.f("pk_snapshot_members")),
        comment="The case revisions of snapshots",
    )
    op.create_index(op.f("ix_snapshot_members_case_id"), "snapshot_members", ["case_id"], unique=False)
    op.create_table(
        "claim_evidence",
        sa.Column("curation_id", sa.Integer(), nullable=False, comment="The curation"),
        sa.Column("element_id", sa.Text(), nullable=False, comment="The claim"),
        sa.Column("position", sa.SmallInteger(), nullable=False, comment="Its place, best first"),
        sa.Column("passage_key", sa.Text(), nullable=False, comment="The passage"),
        sa.Column("rank", sa.Integer(), nullable=False, comment="The retriever's rank, from 1"),
        sa.Column("score", sa.Double(), nullable=False, comment="The retriever's own score, higher is nearer"),
        sa.Column(
            "cited_as",
            sa.SmallInteger(),
            nullable=True,
            comment="Its place among the passages the verdict cites, from 1; NULL: not cited",
        ),
        sa.CheckConstraint("cited_as >= 1", name=op.f("ck_claim_evidence_cited_as_positive")),
        sa.CheckConstraint("position >= 1 AND rank >= 1", name=op.f("ck_claim_evidence_positive")),
        sa.ForeignKeyConstraint(
            ["curation_id", "element_id"],
            ["claim_verdicts.curation_id", "claim_verdicts.element_id"],
            name=op.f("fk_claim_evidence_curation_id_element_id"),
        ),
        sa.ForeignKeyConstraint(["passage_key"], ["passages.key"], name=op.f("fk_claim_evidence_passage_key")),
        sa.PrimaryKeyConstraint("curation_id", "element_id", "position", name=op.f("pk_claim_evidence")),
        comment="What was retrieved for each claim, and what of it the verdict cites",
    )
    op.create_index(op.f("ix_claim_evidence_passage_key"), "claim_evidence", ["passage_key"], unique=False)
