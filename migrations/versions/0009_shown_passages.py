"""What of each passage the judge of a claim was given."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    # Of earlier verdicts it is not known: their passages were cut otherwise.
    op.add_column(
        "claim_evidence",
        sa.Column(
            "shown",
            sa.Text,
            nullable=False,
            server_default="",
            comment="What the judge was given of it; empty for nothing",
        ),
    )
