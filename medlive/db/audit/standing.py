"""How many threads stand where: by source, by week, and by the reason of what became of them."""

from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Row, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.clock import iso_week, now
from medlive.db.tables.audit import ThreadStandingRow

WEEKS_COUNTED: Final = 13
"""The weeks whose threads are counted by week."""
_S = ThreadStandingRow


async def count_stages(
    session: AsyncSession, week: str = ""
) -> list[Row[*tuple[Any, ...]]]:
    """(stage, outcome, reason, n): the threads that last moved in an ISO week; all threads for ""."""
    return await _count_by(session, _S.stage, _S.outcome, _S.reason, week=week)


async def count_by_source(session: AsyncSession) -> list[Row[*tuple[Any, ...]]]:
    """(source, outcome, n)."""
    return await _count_by(session, _S.source, _S.outcome)


async def count_by_week(session: AsyncSession) -> list[Row[*tuple[Any, ...]]]:
    """(week, outcome, n) of each of the last `WEEKS_COUNTED`, the newest first."""
    first = now() - timedelta(weeks=WEEKS_COUNTED)
    query = select(_S.week, _S.outcome, func.count().label("n"))
    query = query.where(_S.changed_at > first, _S.week > iso_week(first))
    grouped = query.group_by(_S.week, _S.outcome).order_by(_S.week.desc(), _S.outcome)
    return list(await session.execute(grouped))


async def _count_by(
    session: AsyncSession, *columns: Any, week: str = ""
) -> list[Row[*tuple[Any, ...]]]:
    query = select(*columns, func.count().label("n"))
    if week:
        query = query.where(_S.week == week)
    grouped = query.group_by(*columns).order_by(*columns)
    return list(await session.execute(grouped))
