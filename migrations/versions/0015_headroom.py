"""What a case asks, which criterion answers it, what its penalties were drawn from, and its headroom.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

from medlive.db.schema.changes import add, know, know_reasons

revision = "0015"
down_revision = "0014"

JSON = sa.dialects.postgresql.JSONB()
REASONS = (
    "no_narrative no_query no_advice query_not_clinical insufficient_narrative contradicted "
    "not_aligned no_sound_advice no_evidence disputed unsupported_element not_standard "
    "text_unfaithful question_doubted history_doubted advice_wrong advice_harmful "
    "danger_unanswered question_unanswered not_understandable advice_contradicted rubric_faulty "
    "rubric_unproven identifier endpoint_unavailable invalid_reply refused truncated "
    "budget_spent"
)
PROBES = (
    "excellent_long",
    "excellent_short",
    "ordinary",
    "slip",
    "vague",
    "wrong",
)
ORDINARY = "The score of the ordinary answer"


def upgrade() -> None:
    """Add the columns; earlier rows have no parts, no reasons and no ordinary answer."""
    know_reasons(REASONS)
    know("rubric_probes", "probe", PROBES)
    for name, comment in (
        ("asked", "What the query expressly asks: [{id, text}]"),
        (
            "conflicts",
            "Criteria that contradict the advice or one another: [{criterion, other, detail, advice_id}]",
        ),
    ):
        add("case_revisions", name, JSON, "[]", comment)
    for table, comment in (
        ("case_revisions", f"{ORDINARY}; NULL: not proved, or without one"),
        ("rubric_proofs", f"{ORDINARY}; NULL: an earlier proof, without one"),
    ):
        op.add_column(table, sa.Column("ordinary", sa.Float, comment=comment))
    op.create_check_constraint(
        op.f("ck_case_revisions_ordinary_range"),
        "case_revisions",
        "ordinary BETWEEN 0 AND 1",
    )
    for name, comment in (
        ("tier", "decisive or further; empty where it was made before tiers"),
        ("asked", "The part of the query that it answers directly; empty for none"),
        (
            "likely",
            "Of a penalty: the mistake it was drawn from, or why answers commit it; else empty",
        ),
    ):
        add("criteria", name, sa.Text(), "", comment)
    op.alter_column(
        "case_revisions",
        "omitted",
        comment="What no criterion asks for, each with the step that left it out and its reason",
    )
    op.alter_column(
        "rubric_probes",
        "mistake",
        new_column_name="note",
        comment="What it lacks or has wrong, by its writer's word; empty where nothing",
    )
    op.alter_column("rubric_probes", "probe", comment=", ".join(PROBES))
    op.add_column(
        "rubric_probes",
        sa.Column(
            "harm", JSON, comment="What reading it for harm came to; NULL: not read"
        ),
    )
