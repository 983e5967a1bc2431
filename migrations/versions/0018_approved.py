"""A thread whose held case a person approved stands as kept, and one that was withdrawn since as withdrawn."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

BEFORE = """made.status = 'withdrawn' AND attempt.outcome = 'kept'
"""
AFTER = """made.status = 'withdrawn' AND attempt.outcome IN ('kept', 'held')
        UNION ALL
        SELECT attempt.stage, 'kept', NULL, attempt.finished_at WHERE made.status = 'ready' AND attempt.outcome = 'held'
"""
DEFINITION = (
    "SELECT pg_get_functiondef('medlive_refresh_standings(integer[])'::regprocedure)"
)
REFRESH = """
SELECT medlive_refresh_standings(array_agg(thread_id)) FROM thread_standings
WHERE outcome = 'held' AND status IN ('ready', 'withdrawn')
"""


def upgrade() -> None:
    # The function's own definition keeps its search_path, which another schema than public needs.
    definition = op.get_bind().scalar(sa.text(DEFINITION.replace("::", r"\:\:")))
    assert BEFORE in definition
    changed = definition.replace(BEFORE, AFTER)
    op.execute(changed.replace(":", r"\:"))
    op.execute(REFRESH)
