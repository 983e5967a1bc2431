"""Overruling a confirmed veto takes as many people as the entry says, and the case says why it was overruled."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column(
        "overrules",
        sa.Column(
            "people",
            sa.SmallInteger,
            nullable=False,
            server_default="1",
            comment="How many people have to overrule it; fewer change nothing",
        ),
    )
    op.create_check_constraint(
        op.f("ck_overrules_people_positive"), "overrules", "people >= 1"
    )
    op.add_column(
        "case_revisions",
        sa.Column(
            "overruled",
            sa.Text,
            comment="Why people overruled a confirmed veto; NULL: none was",
        ),
    )
