"""How many threads stand where: by source and by week; counts for a monitor."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row

from medlive.clock import iso_week, now
from medlive.db.session import Session

WEEKS_COUNTED = 13
"""The weeks whose threads are counted by week."""


async def count_by_source(session: Session) -> Sequence[Row[*tuple[Any, ...]]]:
    """(source, outcome, n)."""
    query = """
        SELECT source, outcome, count(*) AS n FROM thread_standings GROUP BY 1, 2 ORDER BY 1, 2
    """
    return (await session.run(query)).all()


async def count_by_week(session: Session) -> Sequence[Row[*tuple[Any, ...]]]:
    """(week, outcome, n) of each of the last `WEEKS_COUNTED`, the newest first."""
    query = """
        SELECT week, outcome, count(*) AS n FROM thread_standings WHERE changed_at > :first AND week > :week
        GROUP BY 1, 2 ORDER BY week DESC, outcome
    """
    first = now() - timedelta(weeks=WEEKS_COUNTED)
    counts = await session.run(query, first=first, week=iso_week(first))
    return counts.all()


_GAUGES = {
    "threads": "SELECT stage, outcome, reason, count(*) FROM thread_standings GROUP BY 1, 2, 3",
    "recent": """
        SELECT outcome, count(*) FROM thread_standings WHERE changed_at >= :recent AND stage <> 'filters' GROUP BY 1
    """,
    "jobs": "SELECT queue_name, status::text, count(*) FROM procrastinate_jobs GROUP BY 1, 2",
    "oldest": """
        SELECT queue_name, extract(epoch FROM now() - max(event.at))::float
        FROM (SELECT queue_name, min(id) AS id FROM procrastinate_jobs WHERE status = 'todo' GROUP BY 1) AS oldest
        JOIN procrastinate_events AS event ON event.job_id = oldest.id
        WHERE event.type IN ('deferred', 'deferred_for_retry')
        GROUP BY 1
    """,
    "spent": """
        SELECT task, count(*), count(*) - count(cost_usd), count(*) FILTER (WHERE estimated), sum(cost_usd)::float
        FROM replies WHERE created_at >= :week GROUP BY 1
    """,
}


async def read_gauges(
    session: Session, *, recent: datetime, week: datetime
) -> dict[str, Sequence[Any]]:
    """Read every gauge: rows of label values, each with its figures last.

    Args:
        session: The database.
        recent: The moment from which decisions are counted.
        week: The moment from which replies are counted.

    Returns:
        `threads` by stage, outcome and reason; `recent` (outcome, threads that an engine decided since); `jobs` by
        queue and status; `oldest` (queue, seconds since its oldest waiting job was deferred); `spent` (task, replies
        since, those without a price, those by a bound, US dollars of the priced).
    """
    gauges: dict[str, Sequence[Any]] = {}
    for name, query in _GAUGES.items():
        rows = await session.run(query, recent=recent, week=week)
        gauges[name] = rows.all()
    return gauges
