"""Snapshots that are fixed once and built again: what they say of themselves, what changed and what was kept out;
cases that are held out; and the gates' verdicts on case revisions."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_SNAPSHOT = "The snapshot"
_FIXED = ("snapshot_members", "snapshot_changes", "snapshot_kept_out")

# As in 0002, for every table of a snapshot's content.
REFUSE_TOUCHED = """
CREATE OR REPLACE FUNCTION medlive_refuse_frozen_members() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    touched text[] := ARRAY[OLD.version];
    frozen text;
BEGIN
    IF TG_OP = 'UPDATE' THEN touched := touched || NEW.version; END IF;
    PERFORM 1 FROM snapshots WHERE version = ANY (touched) ORDER BY version FOR SHARE;
    SELECT version INTO frozen FROM snapshots
        WHERE version = ANY (touched) AND state = 'frozen' ORDER BY version LIMIT 1;
    IF frozen IS NOT NULL THEN
        RAISE EXCEPTION '% of % refused: snapshot % is frozen', TG_OP, TG_TABLE_NAME, frozen
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$
"""

# Once a statement, not once a row: a release adds a hundred thousand. The snapshot's row is locked as in 0002.
REFUSE_ADDED = """
CREATE FUNCTION medlive_refuse_frozen_added() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    frozen text;
BEGIN
    PERFORM 1 FROM snapshots WHERE version IN (SELECT version FROM added) ORDER BY version FOR SHARE;
    SELECT version INTO frozen FROM snapshots
        WHERE version IN (SELECT version FROM added) AND state = 'frozen' ORDER BY version LIMIT 1;
    IF frozen IS NOT NULL THEN
        RAISE EXCEPTION '% of % refused: snapshot % is frozen', TG_OP, TG_TABLE_NAME, frozen
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$
"""


def upgrade() -> None:
    """Add the columns and tables. A snapshot that was begun and never frozen is dropped: it is begun anew."""
    op.execute(
        "DELETE FROM snapshot_members WHERE version IN (SELECT version FROM snapshots WHERE state <> 'frozen')"
    )
    op.execute("DELETE FROM snapshots WHERE state <> 'frozen'")
    _snapshots()
    _members()
    _changes()
    _kept_out()
    _verdicts()
    _triggers()


def _snapshots() -> None:
    table = "snapshots"
    op.add_column(
        table,
        sa.Column(
            "meta",
            postgresql.JSONB(),
            nullable=True,
            comment="What it says of itself, as it was fixed with its members; NULL: frozen before format 2",
        ),
    )
    op.add_column(
        table,
        sa.Column(
            "sums_digest",
            sa.Text(),
            nullable=True,
            comment="The digest of SHA256SUMS: the folder's identity; NULL: frozen before format 2",
        ),
    )
    op.add_column(
        table,
        sa.Column("signature", sa.Text(), nullable=True, comment="The text of SHA256SUMS.minisig; NULL: unsigned"),
    )
    op.create_check_constraint(
        op.f(f"ck_{table}_sums_digest_is_digest"), table, "sums_digest ~ '^sha256:[0-9a-f]{64}$'"
    )
    op.create_check_constraint(
        op.f(f"ck_{table}_identity_when_frozen"),
        table,
        "(state = 'frozen' OR sums_digest IS NULL) AND (sums_digest IS NOT NULL OR signature IS NULL)",
    )


def _members() -> None:
    table = "snapshot_members"
    op.alter_column(
        table,
        "first_release",
        nullable=True,
        existing_type=sa.Text(),
        existing_comment="The first snapshot that held the case",
        comment="The first snapshot that shows the case; NULL: it is held out",
    )
    for column, comment in (
        (
            "held_since",
            "The snapshot that it was first held out of; NULL: it is shown, and not for the first time",
        ),
        ("salt", "What keeps its commitment from being guessed back, 64 hexadecimal digits"),
        ("commitment", "The digest that stands for it while it is held out"),
    ):
        op.add_column(table, sa.Column(column, sa.Text(), nullable=True, comment=comment))
    for name, condition in (
        ("held_whole", "num_nonnulls(held_since, salt, commitment) IN (0, 3)"),
        ("held_or_shown", "first_release IS NOT NULL OR held_since IS NOT NULL"),
        (
            "revealed_after",
            "held_since IS NULL OR first_release IS NULL OR (first_release = version AND held_since < version)",
        ),
        ("held_before", "held_since <= version"),
        ("salt_form", "salt ~ '^[0-9a-f]{64}$'"),
        ("commitment_is_digest", "commitment ~ '^sha256:[0-9a-f]{64}$'"),
    ):
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, condition)
    op.create_foreign_key(op.f(f"fk_{table}_held_since"), table, "snapshots", ["held_since"], ["version"])


def _changes() -> None:
    table = "snapshot_changes"
    op.create_table(
        table,
        sa.Column("version", sa.Text(), nullable=False, comment=_SNAPSHOT),
        sa.Column("case_id", sa.Text(), nullable=False, comment="The case"),
        sa.Column(
            "kind", sa.Text(), nullable=False, comment="added, revised, withdrawn, or dropped while held out"
        ),
        sa.Column("reason", sa.Text(), nullable=False, comment="Why, as it is published"),
        sa.Column(
            "from_revision",
            sa.Integer(),
            nullable=True,
            comment="The revision in the parent; NULL: none was shown",
        ),
        sa.Column(
            "to_revision", sa.Integer(), nullable=True, comment="The revision in this one; NULL: none is shown"
        ),
        sa.Column(
            "held_since",
            sa.Text(),
            nullable=True,
            comment="Since when a dropped case was held out; NULL: it was not",
        ),
        sa.Column(
            "commitment", sa.Text(), nullable=True, comment="What stood for a dropped case; NULL: it was shown"
        ),
        sa.CheckConstraint(
            "kind IN ('added', 'revised', 'withdrawn', 'dropped')", name=op.f(f"ck_{table}_kind_known")
        ),
        sa.CheckConstraint("reason <> ''", name=op.f(f"ck_{table}_reason_not_empty")),
        sa.CheckConstraint(
            "(from_revision IS NOT NULL) = (kind IN ('revised', 'withdrawn'))"
            " AND (to_revision IS NOT NULL) = (kind IN ('added', 'revised'))",
            name=op.f(f"ck_{table}_revisions_of_kind"),
        ),
        sa.CheckConstraint(
            "num_nonnulls(held_since, commitment) = CASE kind WHEN 'dropped' THEN 2 ELSE 0 END",
            name=op.f(f"ck_{table}_dropped_was_held"),
        ),
        sa.ForeignKeyConstraint(["version"], ["snapshots.version"], name=op.f(f"fk_{table}_version")),
        sa.PrimaryKeyConstraint("version", "case_id", name=op.f(f"pk_{table}")),
        comment="What changed since the parent, as snapshots publish it",
    )


def _kept_out() -> None:
    table = "snapshot_kept_out"
    op.create_table(
        table,
        sa.Column("version", sa.Text(), nullable=False, comment=_SNAPSHOT),
        sa.Column("case_id", sa.Text(), nullable=False, comment="A case that was ready"),
        sa.Column("position", sa.SmallInteger(), nullable=False, comment="The reason's place, from 1"),
        sa.Column("gate", sa.Text(), nullable=False, comment="The gate that kept it out"),
        sa.Column("detail", sa.Text(), nullable=False, comment="Why; never the words it was found in"),
        sa.CheckConstraint("position >= 1", name=op.f(f"ck_{table}_position_positive")),
        sa.ForeignKeyConstraint(["version"], ["snapshots.version"], name=op.f(f"fk_{table}_version")),
        sa.PrimaryKeyConstraint("version", "case_id", "position", name=op.f(f"pk_{table}")),
        comment="Ready cases that the gates kept out of snapshots",
    )


def _verdicts() -> None:
    table = "case_gates"
    op.create_table(
        table,
        sa.Column("case_id", sa.Text(), nullable=False, comment="The case"),
        sa.Column("revision", sa.Integer(), nullable=False, comment="The case's revision"),
        sa.Column(
            "gates_digest", sa.Text(), nullable=False, comment="What decided: the gates' code and libraries"
        ),
        sa.Column(
            "hits", postgresql.JSONB(), nullable=False, comment="[[gate, detail]]; empty: nothing keeps it out"
        ),
        sa.Column(
            "checked_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was checked",
        ),
        sa.CheckConstraint(
            "gates_digest ~ '^sha256:[0-9a-f]{64}$'", name=op.f(f"ck_{table}_gates_digest_is_digest")
        ),
        sa.CheckConstraint("jsonb_typeof(hits) = 'array'", name=op.f(f"ck_{table}_hits_listed")),
        sa.ForeignKeyConstraint(
            ["case_id", "revision"],
            ["case_revisions.case_id", "case_revisions.revision"],
            name=op.f(f"fk_{table}_case_id_revision"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("case_id", "revision", "gates_digest", name=op.f(f"pk_{table}")),
        comment="What the release gates found in case revisions, so that none is read twice by them",
    )


def _triggers() -> None:
    op.execute("DROP TRIGGER snapshot_members_frozen ON snapshot_members")
    op.execute(REFUSE_TOUCHED)
    op.execute(REFUSE_ADDED)
    for table in _FIXED:
        op.execute(
            f"CREATE TRIGGER {table}_frozen BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION medlive_refuse_frozen_members()"
        )
        op.execute(
            f"CREATE TRIGGER {table}_added AFTER INSERT ON {table} REFERENCING NEW TABLE AS added "
            "FOR EACH STATEMENT EXECUTE FUNCTION medlive_refuse_frozen_added()"
        )
    for table in _FIXED[1:]:
        op.execute(
            f"CREATE TRIGGER {table}_not_truncated BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION medlive_refuse('snapshots are removed one by one, if at all')"
        )
