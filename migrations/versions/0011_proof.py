"""The proofs of rubrics: four answers of known quality, how they were graded, and what that says of the rubric."""

import sqlalchemy as sa
from alembic import op

from medlive.db.schema.changes import know_reasons

revision = "0011"
down_revision = "0010"

JSON = sa.dialects.postgresql.JSONB()
REASONS = (
    "no_narrative no_query no_advice query_not_clinical insufficient_narrative contradicted "
    "not_aligned no_sound_advice no_evidence disputed unsupported_element not_standard "
    "text_unfaithful question_doubted history_doubted advice_wrong advice_harmful "
    "danger_unanswered question_unanswered not_understandable rubric_faulty "
    "rubric_unproven identifier endpoint_unavailable invalid_reply refused truncated "
    "budget_spent"
)
PROBES = ("excellent_short", "excellent_long", "vague", "wrong")
FIGURES = {
    "ceiling": "The score of the long good answer",
    "floor": "The higher score of the bad answers",
    "separation": "The lower score of the good answers, less the floor",
}
WHY = "the proof of a decision is never changed"


def upgrade() -> None:
    know_reasons(REASONS)
    for name, comment in FIGURES.items():
        column = sa.Column(name, sa.Float, comment=f"{comment}; NULL: not proved")
        op.add_column("case_revisions", column)
        op.create_check_constraint(
            op.f(f"ck_case_revisions_{name}_range"),
            "case_revisions",
            f"{name} BETWEEN 0 AND 1",
        )
    op.create_check_constraint(
        op.f("ck_case_revisions_proof_whole"),
        "case_revisions",
        "num_nonnulls(ceiling, floor, separation) IN (0, 3)",
    )
    create_proofs()
    create_probes()
    for table in ("rubric_proofs", "rubric_probes"):
        keep(table)


def create_proofs() -> None:
    figures = []
    for name, comment in FIGURES.items():
        figures.append(sa.Column(name, sa.Float, nullable=False, comment=comment))
    op.create_table(
        "rubric_proofs",
        sa.Column(
            "curation_id", sa.Integer, autoincrement=False, comment="The curation"
        ),
        sa.Column(
            "passed",
            sa.Boolean,
            nullable=False,
            comment="Whether the rubric is proved",
        ),
        sa.Column(
            "rounds",
            sa.SmallInteger,
            nullable=False,
            comment="How often the rubric was revised for it",
        ),
        *figures,
        sa.Column(
            "criteria",
            JSON,
            nullable=False,
            comment="The rubric that the answers were last graded by: [{id, criterion, axis, points, …}]",
        ),
        sa.Column(
            "findings",
            JSON,
            nullable=False,
            comment="What spoke against the rubric, by round: [{round, fault, criterion, needed, reason, …}]",
        ),
        sa.Column(
            "engines",
            JSON,
            nullable=False,
            comment="Who wrote the answers and who graded them: {prober, grader}",
        ),
        sa.PrimaryKeyConstraint("curation_id", name="pk_rubric_proofs"),
        sa.ForeignKeyConstraint(
            ["curation_id"], ["curations.id"], name="fk_rubric_proofs_curation_id"
        ),
        comment="Proofs of rubrics, passed or not",
    )


def create_probes() -> None:
    listed = ", ".join(f"'{probe}'" for probe in PROBES)
    op.create_table(
        "rubric_probes",
        sa.Column(
            "curation_id", sa.Integer, autoincrement=False, comment="The curation"
        ),
        sa.Column(
            "position",
            sa.SmallInteger,
            autoincrement=False,
            comment="Its place, from 1",
        ),
        sa.Column(
            "probe",
            sa.Text,
            nullable=False,
            comment="excellent_short, excellent_long, vague or wrong",
        ),
        sa.Column("answer", sa.Text, nullable=False, comment="The answer"),
        sa.Column(
            "mistake",
            sa.Text,
            nullable=False,
            comment="The mistake that it makes on purpose; empty where it makes none",
        ),
        sa.Column(
            "score",
            sa.Float,
            nullable=False,
            comment="Its score by the rubric that the proof ended with",
        ),
        sa.Column(
            "verdicts",
            JSON,
            nullable=False,
            comment="The grader's verdicts: {criterion: {met, quote}}",
        ),
        sa.CheckConstraint(f"probe IN ({listed})", name="probe_known"),
        sa.PrimaryKeyConstraint("curation_id", "position", name="pk_rubric_probes"),
        sa.ForeignKeyConstraint(
            ["curation_id"],
            ["rubric_proofs.curation_id"],
            name="fk_rubric_probes_curation_id",
        ),
        comment="Answers of known quality to cases, which are never published",
    )


def keep(table: str) -> None:
    """Refuse changes, but for what a takedown erases."""
    trigger(
        f"{table}_immutable",
        f"BEFORE DELETE OR UPDATE ON {table} FOR EACH ROW",
        f"medlive_refuse_unless_taken_down('{WHY}', 'curation')",
    )
    trigger(
        f"{table}_not_truncated",
        f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT",
        f"medlive_refuse('{WHY}')",
    )


def trigger(name: str, event: str, function: str) -> None:
    op.execute(f"CREATE TRIGGER {name} {event} EXECUTE FUNCTION {function}")
