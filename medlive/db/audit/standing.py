"""How many threads stand where: by source, by week, and by the reason of what became of them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Row

from medlive.clock import iso_week, now
from medlive.db.session import Session

WEEKS_COUNTED = 13
"""The weeks whose threads are counted by week."""


async def count_stages(
    session: Session, week: str = ""
) -> Sequence[Row[*tuple[Any, ...]]]:
    """(stage, outcome, reason, n): the threads that last moved in an ISO week; all threads for ""."""
    query = """
        SELECT stage, outcome, reason, count(*) AS n FROM thread_standings WHERE :week IN ('', week)
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    """
    return (await session.run(query, week=week)).all()


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
