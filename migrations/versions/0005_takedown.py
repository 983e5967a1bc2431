"""Takedowns: the one narrow way past what may not change, for the rows of an erased thread alone."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Table → what leads from a row to its thread, and which values an update may set (None: no update at all).
ERASABLE = {
    "thread_revisions": (
        "thread",
        '{"title": "", "tags": [], "messages": [], "fetch_id": null, "import_run_id": null}',
    ),
    "curations": ("revision", '{"detail": "", "narrative": "", "query": "", "advice": ""}'),
    "agent_calls": ("curation", None),
    "elements": ("curation", None),
    "requirements": ("curation", None),
    "claim_verdicts": ("curation", None),
    "claim_evidence": ("curation", None),
    "controller_checks": ("curation", None),
    "case_revisions": ("case", None),
    "criteria": ("case", None),
    "replies": ("reply", None),
}
RULES = {
    "thread_revisions": "a thread revision is never changed; an edited thread becomes a new revision",
    "replies": "a reply is never changed; it was paid for and decisions rest on it",
    "curations": "a decision is never changed; another attempt or an overruling is added to it",
    "agent_calls": "the calls of a decision are never changed",
    "elements": "the elements of a decision are never changed",
    "requirements": "the checklist of a decision is never changed",
    "claim_verdicts": "the verdicts of a decision are never changed",
    "claim_evidence": "the evidence of a decision is never changed",
    "controller_checks": "the checks of a decision are never changed",
    "case_revisions": "a case revision is never changed; another wording becomes a new revision",
    "criteria": "the criteria of a case revision are never changed; another rubric becomes a new revision",
}

NOTE = """
CREATE FUNCTION medlive_note_takedown() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.source, NEW.thread_id, NEW.reason, NEW.taken_down_at)
        IS DISTINCT FROM (OLD.source, OLD.thread_id, OLD.reason, OLD.taken_down_at) THEN
        RAISE EXCEPTION 'UPDATE of takedowns refused: a takedown stays as it was asked for'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    NEW.erased_in := pg_current_xact_id()::text::bigint;
    RETURN NEW;
END $$
"""

# A row may go when this very transaction wrote the takedown of its thread, and no frozen snapshot holds it. A
# reply belongs to no thread by itself: it may go in such a transaction when no decision rests on it (any more).
REFUSE = """
CREATE FUNCTION medlive_refuse_unless_taken_down() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was jsonb := to_jsonb(OLD);
    allowed boolean := false;
BEGIN
    IF EXISTS (SELECT FROM takedowns WHERE erased_in = pg_current_xact_id()::text::bigint) THEN
        IF TG_ARGV[1] = 'reply' THEN
            allowed := NOT EXISTS (SELECT FROM agent_calls WHERE reply_digest = was ->> 'request_digest');
        ELSE
            allowed := EXISTS (
                SELECT FROM threads AS thread
                JOIN takedowns AS down ON down.source = thread.source AND down.thread_id = thread.thread_id
                WHERE down.erased_in = pg_current_xact_id()::text::bigint AND thread.id = CASE TG_ARGV[1]
                    WHEN 'thread' THEN (was ->> 'thread_id')::int
                    WHEN 'revision' THEN (
                        SELECT revision.thread_id FROM thread_revisions AS revision
                        WHERE revision.id = (was ->> 'revision_id')::int
                    )
                    WHEN 'curation' THEN (
                        SELECT revision.thread_id FROM curations AS curation
                        JOIN thread_revisions AS revision ON revision.id = curation.revision_id
                        WHERE curation.id = (was ->> 'curation_id')::int
                    )
                    WHEN 'case' THEN (
                        SELECT made.thread_id FROM cases AS made WHERE made.id = was ->> 'case_id'
                    )
                END
            );
        END IF;
        IF allowed AND TG_ARGV[1] = 'case' THEN
            allowed := NOT EXISTS (
                SELECT FROM snapshot_members AS member JOIN snapshots USING (version)
                WHERE member.case_id = was ->> 'case_id' AND member.revision = (was ->> 'revision')::int
                    AND snapshots.state = 'frozen'
            );
        END IF;
        IF allowed AND TG_OP = 'UPDATE' THEN
            allowed := TG_NARGS > 2 AND to_jsonb(NEW) = was || TG_ARGV[2]::jsonb;
        END IF;
    END IF;
    IF NOT allowed THEN
        RAISE EXCEPTION '% of % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$
"""


def upgrade() -> None:
    """Make the table, and let its transactions through where their thread's rows stand."""
    op.create_table(
        "takedowns",
        sa.Column("source", sa.Text(), nullable=False, comment="The community"),
        sa.Column(
            "thread_id",
            sa.Text(),
            nullable=False,
            comment="The source's own id: what keeps the thread from coming back",
        ),
        sa.Column("reason", sa.Text(), nullable=False, comment="Why, in the words of who asked first"),
        sa.Column(
            "taken_down_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was first erased",
        ),
        sa.Column(
            "erased_in",
            sa.BigInteger(),
            nullable=False,
            comment="The transaction that wrote this row last, set by a trigger: it alone may erase",
        ),
        sa.Column(
            "counts",
            postgresql.JSONB(),
            server_default="{}",
            nullable=False,
            comment="What was erased: table to rows",
        ),
        sa.CheckConstraint("char_length(reason) BETWEEN 1 AND 2000", name=op.f("ck_takedowns_reason_length")),
        sa.CheckConstraint("char_length(thread_id) BETWEEN 1 AND 500", name=op.f("ck_takedowns_thread_id_length")),
        sa.ForeignKeyConstraint(["source"], ["sources.name"], name=op.f("fk_takedowns_source")),
        sa.PrimaryKeyConstraint("source", "thread_id", name=op.f("pk_takedowns")),
        comment="Erased threads; a transaction that writes one may erase its thread's rows",
    )
    op.add_column(
        "archives",
        sa.Column(
            "unswept_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Since when it holds pages of a takedown that no fetch names any more; NULL: none",
        ),
    )
    op.execute(NOTE)
    op.execute(REFUSE)
    op.execute(
        "CREATE TRIGGER takedowns_noted BEFORE INSERT OR UPDATE ON takedowns "
        "FOR EACH ROW EXECUTE FUNCTION medlive_note_takedown()"
    )
    rule = "a takedown stays, so that its thread does not come back"
    op.execute(
        "CREATE TRIGGER takedowns_kept BEFORE DELETE ON takedowns "
        f"FOR EACH ROW EXECUTE FUNCTION medlive_refuse('{rule}')"
    )
    op.execute(
        "CREATE TRIGGER takedowns_not_truncated BEFORE TRUNCATE ON takedowns "
        f"FOR EACH STATEMENT EXECUTE FUNCTION medlive_refuse('{rule}')"
    )
    for table, (link, blank) in ERASABLE.items():
        arguments = [RULES[table], link] + ([blank] if blank else [])
        told = ", ".join(f"'{argument}'" for argument in arguments)
        op.execute(f"DROP TRIGGER {table}_immutable ON {table}")
        op.execute(
            f"CREATE TRIGGER {table}_immutable BEFORE UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION medlive_refuse_unless_taken_down({told})"
        )
