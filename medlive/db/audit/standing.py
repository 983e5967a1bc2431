"""How many threads stand where, by source and by week, of the sums that triggers keep."""

from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.clock import iso_week, now
from medlive.db.audit.listing import WEEKS_COUNTED
from medlive.db.tables.audit import ThreadCountRow


@dataclass(frozen=True, slots=True)
class Standing:
    """The threads of a source that came to an outcome in a week."""

    week: str  # "": in all weeks
    source: str
    outcome: str
    n: int


async def sum_threads(
    session: AsyncSession, *columns: Any, week: str | None = ""
) -> list[tuple[Any, ...]]:
    """Values of these columns and how many threads have them, in a week, or in all weeks ("").

    None stands for all weeks and each of the last `WEEKS_COUNTED`.
    """
    row, n = ThreadCountRow, func.sum(ThreadCountRow.n)
    first = iso_week(now() - timedelta(weeks=WEEKS_COUNTED))
    recent = or_(row.week == "", row.week > first)
    query = select(*columns, n).where(recent if week is None else row.week == week)
    rows = await session.execute(
        query.group_by(*columns).having(n != 0).order_by(*columns)
    )
    return list(map(tuple, rows))


async def list_standings(session: AsyncSession) -> list[Standing]:
    """Sums over all weeks, and of each of the last `WEEKS_COUNTED`; the newest week first."""
    row = ThreadCountRow
    sums = await sum_threads(session, row.week, row.source, row.outcome, week=None)
    standings = [Standing(*values) for values in sums]
    return sorted(standings, key=attrgetter("week"), reverse=True)
