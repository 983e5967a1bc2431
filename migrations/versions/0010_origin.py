"""What each criterion rests on, what a rubric leaves out, and which advice is not in A."""

import sqlalchemy as sa
from alembic import op

from medlive.db.schema.changes import add, know_reasons

revision = "0010"
down_revision = "0009"

JSON = sa.dialects.postgresql.JSONB()
REASONS = (
    "no_narrative no_query no_advice query_not_clinical insufficient_narrative contradicted "
    "not_aligned no_sound_advice no_evidence disputed unsupported_element not_standard "
    "text_unfaithful question_doubted history_doubted advice_wrong advice_harmful "
    "danger_unanswered question_unanswered not_understandable rubric_faulty identifier "
    "endpoint_unavailable invalid_reply refused truncated budget_spent"
)


def upgrade() -> None:
    rests_on = "What it rests on: advice, evidence or consensus"
    add("criteria", "origin", sa.Text(), "advice", rests_on)
    named = (
        "For evidence the passage, for consensus the models that named it, else empty"
    )
    add("criteria", "source", sa.Text(), "", named)
    op.alter_column(
        "criteria",
        "advice_id",
        nullable=True,
        comment="The advice element it came from; NULL: it came from no advice",
    )
    op.alter_column(
        "criteria",
        "fact",
        comment="The fact that it asks for; NULL: written before facts were listed",
    )
    for name, condition in (
        ("origin_known", "origin IN ('advice', 'evidence', 'consensus')"),
        ("advice_has_element", "(origin = 'advice') = (advice_id IS NOT NULL)"),
        ("origin_has_source", "(origin = 'advice') = (source = '')"),
    ):
        op.create_check_constraint(op.f(f"ck_criteria_{name}"), "criteria", condition)
    left_out = "Facts of the advice that the rubric leaves out, each with its reason"
    add("case_revisions", "omitted", JSON, "[]", left_out)
    op.add_column(
        "case_revisions",
        sa.Column(
            "completion",
            JSON,
            comment="What became of points that the advice lacks; NULL: the rubric was not made complete",
        ),
    )
    op.add_column(
        "elements",
        sa.Column(
            "left_out",
            sa.Text,
            comment="Why this advice is not in A: not_standard, refuted or advertising; "
            "NULL: it is, or a person dropped it",
        ),
    )
    for name, condition in (
        ("left_out_known", "left_out IN ('not_standard', 'refuted', 'advertising')"),
        (
            "left_out_is_advice",
            "left_out IS NULL OR (standing = 'dropped' AND side = 'advice')",
        ),
    ):
        op.create_check_constraint(op.f(f"ck_elements_{name}"), "elements", condition)
    know_reasons(REASONS)
