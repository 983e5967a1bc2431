"""What each criterion rests on: the case's advice, a passage, or two models."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "criteria",
        sa.Column(
            "origin",
            sa.Text,
            nullable=False,
            server_default="advice",
            comment="What it rests on: advice, evidence or consensus",
        ),
    )
    op.add_column(
        "criteria",
        sa.Column(
            "source",
            sa.Text,
            nullable=False,
            server_default="",
            comment="For evidence the passage, for consensus the models that named it, else empty",
        ),
    )
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
