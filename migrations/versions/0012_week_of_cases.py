"""An index of cases by week and the moment of their decision, for the pages of a week's cases.

Revision ID: 0012
Revises: 0011
"""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Make the index; rows stay as they are."""
    op.execute(
        "CREATE INDEX ix_cases_week_changed_at ON thread_standings"
        " (week, changed_at, thread_id) WHERE status <> ''"
    )
