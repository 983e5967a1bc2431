"""Threads parked for want of evidence, contradictions that engines dispute, and the second check's two questions."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

OUTCOMES = ("kept", "rejected", "parked", "held", "failed")
VERDICTS = ("supported", "neutral", "not_standard", "disputed", "contradicted")
REASONS = (
    "no_narrative",
    "no_query",
    "no_advice",
    "query_not_clinical",
    "insufficient_narrative",
    "contradicted",
    "not_aligned",
    "no_evidence",
    "disputed",
    "unsupported_element",
    "not_standard",
    "text_unfaithful",
    "question_doubted",
    "history_doubted",
    "advice_wrong",
    "advice_harmful",
    "danger_unanswered",
    "question_unanswered",
    "not_understandable",
    "rubric_faulty",
    "identifier",
    "endpoint_unavailable",
    "invalid_reply",
    "refused",
    "truncated",
    "budget_spent",
)
PASSES = (
    "(cardinality(overruled) > 0 OR s_cc = 1 AND s_inf > threshold_sufficiency"
    " AND (s_align > threshold_alignment OR reason = 'disputed')) "
    "AND index_digest IS NOT NULL AND narrative IS NOT NULL"
)


def replace_check(table: str, name: str, condition: str) -> None:
    op.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS ck_{table}_{name}")
    op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, condition)


def one_of(table: str, column: str, names: tuple[str, ...]) -> None:
    listed = ", ".join(f"'{name}'" for name in names)
    replace_check(table, f"{column}_known", f"{column} IN ({listed})")


def comment(table: str, column: str, text: str) -> None:
    quoted = text.replace("'", "''")
    op.execute(f"COMMENT ON COLUMN {table}.{column} IS '{quoted}'")


def upgrade() -> None:
    one_of("curations", "outcome", OUTCOMES)
    one_of("curations", "reason", REASONS)
    one_of("holds", "reason", REASONS)
    one_of("claim_verdicts", "verdict", VERDICTS)
    replace_check(
        "curations",
        "kept_passed",
        f"outcome NOT IN ('kept', 'held') OR ({PASSES}) IS TRUE",
    )
    replace_check(
        "curations",
        "parked_for_want_of_evidence",
        "(outcome = 'parked') = (reason IS NOT DISTINCT FROM 'no_evidence')",
    )
    comment("curations", "outcome", "kept, rejected, parked, held or failed")
    comment(
        "thread_standings",
        "outcome",
        "pending, rejected, parked, failed, held, kept or withdrawn",
    )
    op.create_index(
        "ix_thread_standings_parked",
        "thread_standings",
        ["thread_id"],
        postgresql_where=sa.text("outcome IN ('parked', 'failed')"),
    )
    change_verdicts()
    change_evidence()


def change_verdicts() -> None:
    table = "claim_verdicts"
    # Earlier checks asked both in one: what they confirmed stands under the first.
    op.alter_column(
        table, "second_goes_against", new_column_name="second_false_by_passage"
    )
    op.add_column(
        table,
        sa.Column(
            "second_could_hurt",
            sa.Boolean,
            comment="Whether a passage says it could hurt; NULL: not asked apart from whether it is false",
        ),
    )
    op.add_column(
        table,
        sa.Column(
            "on_subject",
            sa.Boolean,
            nullable=False,
            server_default="true",
            comment="Whether any passage is on its disease, drug or procedure",
        ),
    )
    op.add_column(
        table,
        sa.Column(
            "nearest",
            sa.Text,
            comment="The id of the passage nearest to that subject; NULL: none is named",
        ),
    )
    comment(
        table,
        "verdict",
        "supported, neutral, not_standard, disputed or contradicted",
    )
    comment(
        table,
        "second_false_by_passage",
        "Whether the second check finds the claim false by a passage; NULL: none was made",
    )
    replace_check(
        table,
        "second_check_whole",
        "(second_false_by_passage IS NULL) = (second_reason IS NULL)",
    )
    replace_check(
        table,
        "second_check_decides",
        "second_false_by_passage IS NULL OR (verdict = 'contradicted')"
        " = (second_false_by_passage OR coalesce(second_could_hurt, false))",
    )
    replace_check(
        table,
        "disputed_by_second_check",
        "verdict <> 'disputed' OR second_false_by_passage IS NOT NULL",
    )
    replace_check(
        table,
        "decided_on_subject",
        "on_subject OR verdict NOT IN ('supported', 'contradicted')",
    )


def change_evidence() -> None:
    table = "claim_evidence"
    op.add_column(
        table,
        sa.Column(
            "harm_quote",
            sa.Text,
            comment="Its words by which the second check finds that it could hurt; NULL: not cited there",
        ),
    )
    comment(
        table,
        "second_quote",
        "Its words by which the second check finds the claim false; NULL: not cited there",
    )
    replace_check(
        table,
        "quotes_not_empty",
        "quote <> '' AND second_quote <> '' AND harm_quote <> ''",
    )
