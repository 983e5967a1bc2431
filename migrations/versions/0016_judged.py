"""Whether a physician would answer now, what passages lack, and the third voice on what a second reading objects to.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

from medlive.db.schema.changes import add, know_reasons, replace_check

revision = "0016"
down_revision = "0015"

JSON = sa.dialects.postgresql.JSONB()
REASONS = (
    "no_narrative no_query no_advice query_not_clinical insufficient_narrative contradicted "
    "not_aligned no_sound_advice no_evidence disputed unsupported_element not_standard "
    "text_unfaithful question_doubted history_doubted advice_wrong advice_harmful "
    "not_text_only damaged_text "
    "danger_unanswered question_unanswered not_understandable advice_contradicted rubric_faulty "
    "rubric_unproven identifier endpoint_unavailable invalid_reply refused truncated "
    "budget_spent"
)
PASSES = (
    "(cardinality(overruled) > 0 OR s_cc = 1 AND (s_inf > threshold_sufficiency OR answers_now)"
    " AND (s_align > threshold_alignment OR reason = 'disputed')) "
    "AND index_digest IS NOT NULL AND narrative IS NOT NULL"
)


def upgrade() -> None:
    """Add the columns; earlier rows say nothing of them."""
    know_reasons(REASONS)
    for name, comment in (
        (
            "answers_now",
            "Whether a careful physician would answer by it, if with conditions; NULL: not judged",
        ),
        (
            "of_its_time",
            "Whether the right answer depends on when it was asked; NULL: not judged",
        ),
    ):
        op.add_column("curations", sa.Column(name, sa.Boolean, comment=comment))
    passed = f"outcome NOT IN ('kept', 'held') OR ({PASSES}) IS TRUE"
    replace_check("curations", "kept_passed", passed)
    add(
        "claim_verdicts",
        "lacks",
        sa.ARRAY(sa.Text),
        "{}",
        "What the passages would have to say in addition: drug, situation, population, strength",
    )
    readings = "second_readings"
    add(
        readings,
        "sure",
        sa.Boolean(),
        "true",
        "Whether it is sure of danger and of answered",
    )
    add(
        readings,
        "unseen",
        JSON,
        "{}",
        "Advice that rests on what the text does not hold: element to a physician's words",
    )
    add(readings, "damaged", JSON, "[]", "Words that a machine garbled")
    add(
        readings,
        "voices",
        JSON,
        "[]",
        "The third voice on each objection: [{reason, element_id, verdict, sure, standard, case_for, case_against}]",
    )
    add(
        readings,
        "voices_note",
        sa.Text(),
        "",
        "Why the third voice does not count, or whose it is; empty for nothing",
    )
    op.alter_column(
        readings,
        "wrong",
        comment="Advice found wrong: [{element_id, kind harmful|false|minor, reason, standard, sure}]",
    )
