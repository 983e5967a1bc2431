"""Downloads are no longer counted."""

from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.drop_table("downloads")
