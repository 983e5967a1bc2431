"""The revisions that wait in the job queue, as Procrastinate's table has them."""

from sqlalchemy import text

from medlive.db.session import Session

# Procrastinate's queueing lock holds while a job waits, and no longer.
_QUEUED = (
    "SELECT CAST(args ->> 'revision' AS bigint) FROM procrastinate_jobs "
    "WHERE queue_name = :queue AND status IN ('todo', 'doing')"
)


async def queued_revisions(session: Session, queue: str) -> set[int]:
    """Revisions with a job that waits or is under way."""
    return set(await session.scalars(text(_QUEUED), {"queue": queue}))
