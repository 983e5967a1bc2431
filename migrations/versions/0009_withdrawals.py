"""Withdrawals and disputes: what was taken back and why, and what is being looked into."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# The rows of an erased thread may go with it (migration 0005), but not those about what a frozen snapshot holds.
WITHDRAWAL = "a withdrawal is never changed; another one is added to it"
DISPUTE = "a dispute stays, with what came of it"

CLOSE_ONCE = """
CREATE FUNCTION medlive_close_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.closed_at IS NOT NULL OR NEW.closed_at IS NULL
        OR (NEW.id, NEW.case_id, NEW.criterion_id, NEW.reason, NEW.opened_by, NEW.opened_at)
        IS DISTINCT FROM (OLD.id, OLD.case_id, OLD.criterion_id, OLD.reason, OLD.opened_by, OLD.opened_at) THEN
        RAISE EXCEPTION 'UPDATE of disputes refused: a dispute is closed once, and else never changed'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$
"""

# Cases that takedowns kept out before withdrawals were recorded.
EARLIER = """
INSERT INTO withdrawals (case_id, revision, kind, reason, withdrawn_at)
SELECT cases.id, (SELECT max(revision) FROM case_revisions WHERE case_id = cases.id), 'takedown', 'taken down',
    down.taken_down_at
FROM cases
JOIN threads ON threads.id = cases.thread_id
JOIN takedowns AS down ON down.source = threads.source AND down.thread_id = threads.thread_id
WHERE EXISTS (SELECT FROM case_revisions WHERE case_id = cases.id)
ORDER BY down.taken_down_at, cases.id
"""


def upgrade() -> None:
    """Make the tables, keep their rows, and take over the takedowns of before."""
    op.create_table(
        "withdrawals",
        sa.Column(
            "id",
            sa.Integer(),
            sa.Identity(always=True),
            nullable=False,
            comment="The withdrawal's number",
        ),
        sa.Column("case_id", sa.Text(), nullable=False, comment="The case"),
        sa.Column(
            "revision", sa.Integer(), nullable=False, comment="The case's revision that it was withdrawn from"
        ),
        sa.Column(
            "criterion_id",
            sa.Text(),
            nullable=True,
            comment="The criterion's id within that revision; NULL: the whole case",
        ),
        sa.Column(
            "criterion_digest",
            sa.Text(),
            nullable=True,
            comment="The digest of the criterion's folded text, by which it is known in other revisions",
        ),
        sa.Column(
            "new_revision",
            sa.Integer(),
            nullable=True,
            comment="The revision without the criterion that this made; NULL: none was needed",
        ),
        sa.Column("kind", sa.Text(), nullable=False, comment="erratum, takedown or privacy"),
        sa.Column("reason", sa.Text(), nullable=False, comment="Why, in words for the public"),
        sa.Column("withdrawn_by", sa.Text(), nullable=True, comment="Who withdrew it; NULL: not told"),
        sa.Column(
            "withdrawn_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was withdrawn",
        ),
        sa.CheckConstraint("kind IN ('erratum', 'takedown', 'privacy')", name=op.f("ck_withdrawals_kind_known")),
        sa.CheckConstraint(
            "criterion_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f("ck_withdrawals_criterion_digest_is_digest")
        ),
        sa.CheckConstraint(
            "revision >= 1 AND new_revision > revision", name=op.f("ck_withdrawals_revisions_in_order")
        ),
        sa.CheckConstraint(
            "(criterion_id IS NULL) = (criterion_digest IS NULL)"
            " AND (criterion_id IS NOT NULL OR new_revision IS NULL)",
            name=op.f("ck_withdrawals_criterion_is_whole"),
        ),
        sa.CheckConstraint("char_length(reason) BETWEEN 1 AND 500", name=op.f("ck_withdrawals_reason_length")),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name=op.f("fk_withdrawals_case_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_withdrawals")),
        sa.UniqueConstraint(
            "case_id",
            "criterion_digest",
            "kind",
            name=op.f("uq_withdrawals_case_id_criterion_digest_kind"),
            postgresql_nulls_not_distinct=True,
        ),
        comment="Withdrawn cases and criteria; rows are never changed",
    )
    op.create_table(
        "disputes",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="The dispute's number"),
        sa.Column("case_id", sa.Text(), nullable=False, comment="The case"),
        sa.Column(
            "criterion_id",
            sa.Text(),
            nullable=True,
            comment="The criterion's id within its case; NULL: the whole case",
        ),
        sa.Column("reason", sa.Text(), nullable=False, comment="What is objected to; not published"),
        sa.Column("opened_by", sa.Text(), nullable=True, comment="Who opened it; NULL: not told"),
        sa.Column(
            "opened_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was opened",
        ),
        sa.Column(
            "closed_at", sa.DateTime(timezone=True), nullable=True, comment="When it was closed; NULL: it is open"
        ),
        sa.Column("closed_by", sa.Text(), nullable=True, comment="Who closed it; NULL: not told, or it is open"),
        sa.Column("resolution", sa.Text(), nullable=True, comment="What came of it; NULL: it is open"),
        sa.CheckConstraint("char_length(reason) BETWEEN 1 AND 2000", name=op.f("ck_disputes_reason_length")),
        sa.CheckConstraint(
            "char_length(resolution) BETWEEN 1 AND 2000", name=op.f("ck_disputes_resolution_length")
        ),
        sa.CheckConstraint(
            "(closed_at IS NULL) = (resolution IS NULL) AND (closed_at IS NOT NULL OR closed_by IS NULL)",
            name=op.f("ck_disputes_closed_is_whole"),
        ),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name=op.f("fk_disputes_case_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_disputes")),
        comment="Disputes; a case with an open one stays out of the next snapshot",
    )
    op.create_index(
        op.f("ix_disputes_case_id"), "disputes", ["case_id"], postgresql_where=sa.text("closed_at IS NULL")
    )
    op.execute(EARLIER)
    op.execute(CLOSE_ONCE)
    op.execute(
        "CREATE TRIGGER withdrawals_immutable BEFORE UPDATE OR DELETE ON withdrawals "
        f"FOR EACH ROW EXECUTE FUNCTION medlive_refuse_unless_taken_down('{WITHDRAWAL}', 'case')"
    )
    op.execute(
        "CREATE TRIGGER disputes_closed BEFORE UPDATE ON disputes "
        "FOR EACH ROW EXECUTE FUNCTION medlive_close_once()"
    )
    op.execute(
        "CREATE TRIGGER disputes_kept BEFORE DELETE ON disputes "
        f"FOR EACH ROW EXECUTE FUNCTION medlive_refuse_unless_taken_down('{DISPUTE}', 'case')"
    )
    for table, rule in (("withdrawals", WITHDRAWAL), ("disputes", DISPUTE)):
        op.execute(
            f"CREATE TRIGGER {table}_not_truncated BEFORE TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION medlive_refuse('{rule}')"
        )
