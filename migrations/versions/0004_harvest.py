"""The harvest's memory: frontier, list cursors, WARC archives, robots.txt, measures, and identifiers' places.

Raw pages leave the database for WARC files. What earlier fetches held of them is dropped: no released version
harvested a real community.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables, and let a run end before its end."""
    op.create_table(
        "archives",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="The file's number"),
        sa.Column("run_id", sa.Integer(), nullable=False, comment="The run whose pages it holds"),
        sa.Column("path", sa.Text(), nullable=False, comment="Its path below the archive's folder"),
        sa.Column("bytes", sa.BigInteger(), nullable=False, comment="How much of it is committed"),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was begun",
        ),
        sa.Column(
            "sealed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Since when it does not grow; NULL: being written",
        ),
        sa.Column(
            "removed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When retention or a takedown removed the file",
        ),
        sa.CheckConstraint("bytes >= 0", name=op.f("ck_archives_bytes_not_negative")),
        sa.ForeignKeyConstraint(["run_id"], ["harvest_runs.id"], name=op.f("fk_archives_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_archives")),
        sa.UniqueConstraint("path", name=op.f("uq_archives_path")),
        comment="WARC files under the archive's folder; what they hold beyond `bytes` was never committed",
    )
    op.create_table(
        "frontier",
        sa.Column("source", sa.Text(), nullable=False, comment="The community"),
        sa.Column("thread_id", sa.Text(), nullable=False, comment="The source's own id"),
        sa.Column("run_id", sa.Integer(), nullable=False, comment="The run that listed it last"),
        sa.Column("list_key", sa.Text(), nullable=True, comment="The list that showed it last; NULL: none yet"),
        sa.Column("url", sa.Text(), nullable=False, comment="Its address, as the list has it"),
        sa.Column(
            "posted_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it was opened; NULL: no list says so",
        ),
        sa.Column(
            "active_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Its latest activity, as the list has it",
        ),
        sa.Column("state", sa.Text(), nullable=False, comment="What became of it in that run"),
        sa.Column("reason", sa.Text(), nullable=True, comment="Why it was skipped or failed"),
        sa.Column(
            "attempts", sa.Integer(), server_default="0", nullable=False, comment="Times in a row that it failed"
        ),
        sa.Column(
            "after_fetch",
            sa.BigInteger(),
            nullable=False,
            comment="The newest fetch when it was listed: pages of this reading have higher numbers",
        ),
        sa.Column("etag", sa.Text(), nullable=True, comment="The ETag that its first page was last read with"),
        sa.Column(
            "last_modified", sa.Text(), nullable=True, comment="The Last-Modified that it was last read with"
        ),
        sa.Column(
            "page_count", sa.Integer(), nullable=True, comment="How many pages it last had; NULL: never read"
        ),
        sa.Column(
            "fields",
            postgresql.JSONB(),
            nullable=True,
            comment="Which fields its last reading had (true or false), and how many messages",
        ),
        sa.Column("first_run_id", sa.Integer(), nullable=False, comment="The run that met it first"),
        sa.Column(
            "changed_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When this row last changed",
        ),
        sa.CheckConstraint(
            "(state IN ('skipped', 'failed')) = (reason IS NOT NULL)",
            name=op.f("ck_frontier_reason_when_not_read"),
        ),
        sa.CheckConstraint("state <> 'read' OR fields IS NOT NULL", name=op.f("ck_frontier_read_has_fields")),
        sa.CheckConstraint(
            "state IN ('waiting', 'read', 'not_modified', 'skipped', 'failed', 'gone', 'known')",
            name=op.f("ck_frontier_state_known"),
        ),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_frontier_attempts_not_negative")),
        sa.CheckConstraint("char_length(thread_id) BETWEEN 1 AND 500", name=op.f("ck_frontier_thread_id_length")),
        sa.CheckConstraint("page_count >= 1", name=op.f("ck_frontier_page_count_positive")),
        sa.ForeignKeyConstraint(["first_run_id"], ["harvest_runs.id"], name=op.f("fk_frontier_first_run_id")),
        sa.ForeignKeyConstraint(["run_id"], ["harvest_runs.id"], name=op.f("fk_frontier_run_id")),
        sa.ForeignKeyConstraint(["source"], ["sources.name"], name=op.f("fk_frontier_source")),
        sa.PrimaryKeyConstraint("source", "thread_id", name=op.f("pk_frontier")),
        comment="Every thread that a list showed, and what became of it in the run that listed it last",
    )
    op.create_index("ix_frontier_run_id_state", "frontier", ["run_id", "state"], unique=False)
    op.create_index("ix_frontier_source_waiting", "frontier", ["source", "state"], unique=False)
    op.create_table(
        "harvest_measures",
        sa.Column("run_id", sa.Integer(), nullable=False, comment="The run"),
        sa.Column("measure", sa.Text(), nullable=False, comment="The figure's name, e.g. field:posted_at"),
        sa.Column("value", sa.Double(), nullable=False, comment="A share from 0 to 1, or a mean"),
        sa.Column("n", sa.Integer(), nullable=False, comment="Over how many threads"),
        sa.Column("median", sa.Double(), nullable=True, comment="The median of the runs before; NULL: too few"),
        sa.Column(
            "collapsed",
            sa.Boolean(),
            nullable=False,
            comment="Whether it left that median too far behind to be chance",
        ),
        sa.CheckConstraint("n >= 0", name=op.f("ck_harvest_measures_n_not_negative")),
        sa.ForeignKeyConstraint(["run_id"], ["harvest_runs.id"], name=op.f("fk_harvest_measures_run_id")),
        sa.PrimaryKeyConstraint("run_id", "measure", name=op.f("pk_harvest_measures")),
        comment="What a run's threads had, compared with the runs before",
    )
    op.create_table(
        "harvest_robots",
        sa.Column("run_id", sa.Integer(), nullable=False, comment="The run"),
        sa.Column("host", sa.Text(), nullable=False, comment="The host, with a port that is not its scheme's"),
        sa.Column("fetched_at", sa.DateTime(timezone=True), nullable=False, comment="When it was asked for"),
        sa.Column("state", sa.Text(), nullable=False, comment="rules, absent (all may be read) or unreadable"),
        sa.Column("status", sa.Integer(), nullable=True, comment="The HTTP status; NULL when no answer came"),
        sa.Column("body", sa.Text(), nullable=False, comment="The file as read"),
        sa.Column("detail", sa.Text(), nullable=True, comment="Why it is unreadable"),
        sa.CheckConstraint(
            "(state = 'unreadable') = (detail IS NOT NULL)", name=op.f("ck_harvest_robots_unreadable_says_why")
        ),
        sa.CheckConstraint(
            "state IN ('rules', 'absent', 'unreadable')", name=op.f("ck_harvest_robots_state_known")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["harvest_runs.id"], name=op.f("fk_harvest_robots_run_id")),
        sa.PrimaryKeyConstraint("run_id", "host", "fetched_at", name=op.f("pk_harvest_robots")),
        comment="The robots.txt of every host that a run asked",
    )
    op.create_table(
        "list_cursors",
        sa.Column("run_id", sa.Integer(), nullable=False, comment="The run"),
        sa.Column("list_key", sa.Text(), nullable=False, comment="The list: what its first page is asked with"),
        sa.Column("next_url", sa.Text(), nullable=True, comment="The page to go on with; NULL: from the first"),
        sa.Column("pages", sa.Integer(), server_default="0", nullable=False, comment="Pages read"),
        sa.Column(
            "newest_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="The latest activity that it showed; NULL: no date",
        ),
        sa.Column(
            "finished_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it was read to its end; NULL: it was not",
        ),
        sa.CheckConstraint(
            "finished_at IS NULL OR next_url IS NULL", name=op.f("ck_list_cursors_finished_has_no_next")
        ),
        sa.CheckConstraint("pages >= 0", name=op.f("ck_list_cursors_pages_not_negative")),
        sa.ForeignKeyConstraint(["run_id"], ["harvest_runs.id"], name=op.f("fk_list_cursors_run_id")),
        sa.PrimaryKeyConstraint("run_id", "list_key", name=op.f("pk_list_cursors")),
        comment="How far each list was read in each run; the newest finished one is where the next run stops",
    )
    op.create_table(
        "identifiers",
        sa.Column("revision_id", sa.Integer(), nullable=False, comment="The thread's revision"),
        sa.Column("message", sa.Integer(), nullable=False, comment="0: the title; n: the n-th message"),
        sa.Column("start_at", sa.Integer(), nullable=False, comment="The span's first character, from 0"),
        sa.Column("end_at", sa.Integer(), nullable=False, comment="The character after its last"),
        sa.Column("kind", sa.Text(), nullable=False, comment="What it is, as de-identification names it"),
        sa.CheckConstraint("0 <= start_at AND start_at < end_at", name=op.f("ck_identifiers_span_in_order")),
        sa.CheckConstraint("message >= 0", name=op.f("ck_identifiers_message_not_negative")),
        sa.ForeignKeyConstraint(["revision_id"], ["thread_revisions.id"], name=op.f("fk_identifiers_revision_id")),
        sa.PrimaryKeyConstraint("revision_id", "message", "start_at", name=op.f("pk_identifiers")),
        comment="Identifiers of people and places in raw text, found when it came in; never the words",
    )
    op.add_column(
        "fetches",
        sa.Column(
            "form", postgresql.JSONB(), nullable=True, comment="The form that was posted, as pairs; NULL: none was"
        ),
    )
    op.add_column(
        "fetches",
        sa.Column(
            "archive_id",
            sa.Integer(),
            nullable=True,
            comment="The WARC file with its bytes; NULL when there are none, or no longer",
        ),
    )
    op.add_column(
        "fetches",
        sa.Column("archive_offset", sa.BigInteger(), nullable=True, comment="Where its record begins in the file"),
    )
    op.add_column(
        "fetches",
        sa.Column(
            "archive_length", sa.Integer(), nullable=True, comment="The record's length in bytes, compressed"
        ),
    )
    op.create_index(op.f("ix_fetches_archive_id"), "fetches", ["archive_id"], unique=False)
    op.create_foreign_key(op.f("fk_fetches_archive_id"), "fetches", "archives", ["archive_id"], ["id"])
    op.create_table_comment(
        "fetches",
        "Every page that was asked for, and where its bytes lie",
        existing_comment="Every page that was asked for, with its bytes",
        schema=None,
    )
    op.drop_column("fetches", "pages_read")
    op.drop_column("fetches", "body")
    op.add_column(
        "sources",
        sa.Column(
            "compared_since",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Runs begun before are not what its figures are compared with; NULL: all are",
        ),
    )
    op.add_column(
        "threads",
        sa.Column(
            "gone_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the source answered that it is no longer there; NULL: it is there, as far as known",
        ),
    )
    op.create_check_constraint(
        op.f("ck_fetches_place_is_whole"),
        "fetches",
        "num_nonnulls(archive_id, archive_offset, archive_length) IN (0, 3)",
    )
    op.create_check_constraint(
        op.f("ck_fetches_archived_has_digest"), "fetches", "archive_id IS NULL OR body_digest IS NOT NULL"
    )
    for table in ("harvest_runs", "import_runs", "pipeline_runs"):
        name = op.f(f"ck_{table}_outcome_known")
        op.drop_constraint(name, table, type_="check")
        op.create_check_constraint(name, table, "outcome IN ('running', 'done', 'partial', 'failed')")
