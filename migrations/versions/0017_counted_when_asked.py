"""Threads are counted and listed by the one table that says where each stands: sums and places go, and saved
views, which a browser keeps.

Revision ID: 0017
Revises: 0016
"""

from alembic import op

revision = "0017"
down_revision = "0016"

GONE = """
DROP TRIGGER thread_standings_come ON thread_standings;
DROP TRIGGER thread_standings_moved ON thread_standings;
DROP TRIGGER thread_standings_gone ON thread_standings;
DROP FUNCTION medlive_count_standings();
DROP FUNCTION medlive_sum_counts();
DROP TABLE thread_counts;
DROP TABLE saved_views;
DELETE FROM observations WHERE name = 'certificates';
COMMENT ON TABLE observations IS 'What a process noted last, by name, such as when the scheduler was heard';
DROP INDEX ix_cases_week_changed_at;
DROP INDEX ix_cases_week_posted_at;
DROP INDEX ix_thread_standings_week_changed_at_thread_id;
DROP INDEX ix_thread_standings_week_posted_at_thread_id;
ALTER TABLE thread_standings DROP COLUMN place;
CREATE INDEX ix_thread_standings_facets ON thread_standings
    (source, language, stage, outcome, reason, engine, specialty, status, week);
CREATE STATISTICS thread_standings_facets (mcv)
    ON source, language, stage, outcome, reason, engine, specialty, status FROM thread_standings;
"""


def upgrade() -> None:
    """Drop what is counted by triggers, and the indexes that only a planner of our own used."""
    op.execute(GONE)
