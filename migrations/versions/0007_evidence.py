"""Verdicts down to the words they rest on: claims, citations, the second check, the sides of a search; and the
cross-examination of a thread and its case."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

REASONS = (
    "no_narrative", "no_query", "no_advice", "query_not_clinical", "insufficient_narrative", "contradicted",
    "not_aligned", "unsupported_element", "numbers_changed", "negation_changed", "rubric_lint",
    "endpoint_unavailable", "invalid_reply", "refused", "truncated", "budget_spent",
)  # fmt: skip
CHECKS = ("quote_in_thread", "numbers_in_thread", "negation_kept", "says_no_more", "numbers_in_elements")
RULES = {
    "cross_examinations": "the cross-examination of a decision is never changed",
    "cross_questions": "the cross-examination of a decision is never changed",
}
_CURATION = "The curation"


def upgrade() -> None:
    """Add the columns and tables; what was decided before keeps its words, with the passage that holds them."""
    _widen("curations", "reason", REASONS)
    _widen("controller_checks", "check_name", CHECKS)
    op.add_column(
        "evidence_indexes",
        sa.Column(
            "dense",
            postgresql.JSONB(),
            nullable=True,
            comment="Its dense side: encoder, kind, parameters, recall; NULL: it has none",
        ),
    )
    op.add_column(
        "criteria",
        sa.Column(
            "fact",
            sa.Text(),
            nullable=True,
            comment="The fact of that element that it asks for; NULL: written before facts were listed",
        ),
    )
    _cite()
    _claims()
    _cross_examinations()


def _widen(table: str, column: str, values: tuple[str, ...]) -> None:
    name = op.f(f"ck_{table}_{column}_known")
    op.drop_constraint(name, table, type_="check")
    op.create_check_constraint(name, table, f"{column} IN ({', '.join(repr(value) for value in values)})")


def _cite() -> None:
    """Each cited passage with its own words."""
    table = "claim_evidence"
    op.add_column(
        table,
        sa.Column(
            "quote", sa.Text(), nullable=True, comment="Its words that the verdict rests on; NULL: not cited"
        ),
    )
    op.add_column(
        table,
        sa.Column(
            "second_quote",
            sa.Text(),
            nullable=True,
            comment="Its words that the second check rests on; NULL: not cited there",
        ),
    )
    op.add_column(
        table,
        sa.Column(
            "sides",
            postgresql.JSONB(),
            server_default="[]",
            nullable=False,
            comment="Where each side of the search put it: [{side, rank, score}]",
        ),
    )
    op.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_immutable")
    # A verdict had one quote for all the passages that it named: it stays with the one that holds it, or with the
    # first where white space or width differs; the others were named and not quoted.
    op.execute(
        """
        WITH ranked AS (
            SELECT e.curation_id, e.element_id, e.position, v.quote, row_number() OVER (
                PARTITION BY e.curation_id, e.element_id
                ORDER BY (position(v.quote IN p.text) > 0) DESC, e.cited_as
            ) AS place
            FROM claim_evidence AS e
            JOIN claim_verdicts AS v USING (curation_id, element_id)
            JOIN passages AS p ON p.key = e.passage_key
            WHERE e.cited_as IS NOT NULL
        )
        UPDATE claim_evidence AS e
        SET quote = CASE WHEN r.place = 1 AND r.quote <> '' THEN r.quote END,
            cited_as = CASE WHEN r.place = 1 AND r.quote <> '' THEN 1 END
        FROM ranked AS r
        WHERE (e.curation_id, e.element_id, e.position) = (r.curation_id, r.element_id, r.position)
        """
    )
    op.execute(f"ALTER TABLE {table} ENABLE TRIGGER {table}_immutable")
    op.create_check_constraint(op.f(f"ck_{table}_cited_with_words"), table, "(cited_as IS NULL) = (quote IS NULL)")
    op.create_check_constraint(op.f(f"ck_{table}_quotes_not_empty"), table, "quote <> '' AND second_quote <> ''")


def _claims() -> None:
    """What was judged, and what the second check said."""
    table = "claim_verdicts"
    for column, kind, comment in (
        ("claim", sa.Text(), "The element as a statement that stands alone: what was judged"),
        ("english", sa.Text(), "The claim in English; NULL: it is English, or could not be translated"),
        ("cited", sa.SmallInteger(), "How many passages the verdict quotes"),
        (
            "second_goes_against",
            sa.Boolean(),
            "Whether the second check confirmed a contradiction; NULL: none was made",
        ),
        ("second_reason", sa.Text(), "Why; NULL: no second check was made"),
    ):
        op.add_column(table, sa.Column(column, kind, nullable=True, comment=comment))
    op.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_immutable")
    # Until now a claim was judged in the words of its element, and a second check left its words in the reason.
    op.execute(
        """
        UPDATE claim_verdicts AS v
        SET claim = e.statement, cited = CASE WHEN v.quote = '' THEN 0 ELSE 1 END,
            second_goes_against = CASE WHEN v.overturned THEN false END,
            second_reason = CASE WHEN v.overturned THEN v.reason END
        FROM elements AS e
        WHERE (e.curation_id, e.element_id) = (v.curation_id, v.element_id)
        """
    )
    op.execute(f"ALTER TABLE {table} ENABLE TRIGGER {table}_immutable")
    op.alter_column(table, "claim", nullable=False)
    op.alter_column(table, "cited", nullable=False)
    for name in ("verdict_has_quote", "overturned_is_neutral"):
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table, type_="check")
    op.drop_column(table, "quote")
    op.drop_column(table, "overturned")
    for name, condition in (
        ("verdict_has_quote", "verdict = 'neutral' OR cited > 0"),
        ("english_not_empty", "english <> ''"),
        ("second_check_whole", "(second_goes_against IS NULL) = (second_reason IS NULL)"),
        (
            "second_check_decides",
            "second_goes_against IS NULL OR verdict = CASE WHEN second_goes_against THEN 'contradicted' "
            "ELSE 'neutral' END",
        ),
    ):
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, condition)


def _cross_examinations() -> None:
    scores = (
        ("coverage", "What of the thread the case speaks of"),
        ("conformity", "What of the thread the case does not deny"),
        ("conformity_strict", "What of the thread the case confirms"),
        ("consistency", "What of the case the thread speaks of"),
        ("conciseness", "By how much the case is shorter; below 0: longer"),
        ("summary", "The summary score"),
        ("stability", "Questions that their own text answers with yes"),
    )
    table = "cross_examinations"
    op.create_table(
        table,
        sa.Column("curation_id", sa.Integer(), nullable=False, comment=_CURATION),
        *(sa.Column(name, sa.Float(), nullable=False, comment=comment) for name, comment in scores),
        *(
            sa.CheckConstraint(
                "conciseness <= 100" if name == "conciseness" else f"{name} BETWEEN 0 AND 100",
                name=op.f(f"ck_{table}_{name}_percent"),
            )
            for name, _ in scores
        ),
        sa.ForeignKeyConstraint(["curation_id"], ["curations.id"], name=op.f(f"fk_{table}_curation_id")),
        sa.PrimaryKeyConstraint("curation_id", name=op.f(f"pk_{table}")),
        comment="Cross-examinations of threads and the cases written from them, in percent",
    )
    table = "cross_questions"
    answers = "'yes', 'no', 'unknown'"
    op.create_table(
        table,
        sa.Column("curation_id", sa.Integer(), nullable=False, comment=_CURATION),
        sa.Column("position", sa.Integer(), nullable=False, comment="The question's place, from 1"),
        sa.Column(
            "made_from", sa.Text(), nullable=False, comment="The text that answers it with yes: thread or case"
        ),
        sa.Column("question", sa.Text(), nullable=False, comment="The question"),
        sa.Column("own_answer", sa.Text(), nullable=False, comment="What that text answered when asked again"),
        sa.Column("other_answer", sa.Text(), nullable=False, comment="What the other text answered"),
        sa.CheckConstraint("made_from IN ('thread', 'case')", name=op.f(f"ck_{table}_made_from_known")),
        sa.CheckConstraint(f"own_answer IN ({answers})", name=op.f(f"ck_{table}_own_answer_known")),
        sa.CheckConstraint(f"other_answer IN ({answers})", name=op.f(f"ck_{table}_other_answer_known")),
        sa.ForeignKeyConstraint(
            ["curation_id"], ["cross_examinations.curation_id"], name=op.f(f"fk_{table}_curation_id")
        ),
        sa.PrimaryKeyConstraint("curation_id", "position", name=op.f(f"pk_{table}")),
        comment="The questions of cross-examinations, and what both texts answered",
    )
    for name, rule in RULES.items():
        op.execute(
            f"CREATE TRIGGER {name}_immutable BEFORE UPDATE OR DELETE ON {name} "
            f"FOR EACH ROW EXECUTE FUNCTION medlive_refuse_unless_taken_down('{rule}', 'curation')"
        )
        op.execute(
            f"CREATE TRIGGER {name}_not_truncated BEFORE TRUNCATE ON {name} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION medlive_refuse('{rule}')"
        )
