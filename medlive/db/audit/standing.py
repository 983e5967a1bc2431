"""How many threads stand where, by source and by week, of the sums that triggers keep."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.clock import iso_week, now
from medlive.db.audit.listing import WEEKS_COUNTED
from medlive.db.mapping import read
from medlive.db.tables.audit import ThreadCountRow


@dataclass(frozen=True, slots=True)
class Standing:
    """The threads of a source that came to an outcome in a week."""

    week: str  # "": in all weeks
    source: str
    outcome: str
    n: int


async def list_standings(session: AsyncSession) -> list[Standing]:
    """Sums over all weeks, and of each of the last `WEEKS_COUNTED`; the newest week first."""
    row = ThreadCountRow
    first = iso_week(now() - timedelta(weeks=WEEKS_COUNTED))
    n = func.sum(row.n).label("n")
    query = select(row.week, row.source, row.outcome, n).where(
        or_(row.week == "", row.week > first)
    )
    query = query.group_by(row.week, row.source, row.outcome).having(n != 0)
    return [
        read(Standing, found)
        for found in await session.execute(query.order_by(row.week.desc(), row.source))
    ]
