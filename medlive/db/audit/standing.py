"""How many threads stand where, by source and by week, of the sums that triggers keep."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.clock import iso_week, now
from medlive.db.audit.listing import WEEKS_COUNTED
from medlive.db.mapping import read
from medlive.db.tables.audit import ThreadCountRow


@dataclass(frozen=True, slots=True)
class Standing:
    """The threads of a source that came to an outcome, or were rejected for a reason, in a week."""

    week: str  # "": in all weeks
    source: str
    what: str
    n: int


async def list_decided(session: AsyncSession) -> list[Standing]:
    """Sums of each of the last `WEEKS_COUNTED` weeks, by the week in which threads came to stand where they do."""
    row, n = ThreadCountRow, func.sum(ThreadCountRow.n).label("n")
    what = case((row.outcome == "rejected", row.reason), else_=row.outcome).label(
        "what"
    )
    query = select(row.week, row.source, what, n).where(
        row.week > iso_week(now() - timedelta(weeks=WEEKS_COUNTED)),
        row.outcome.in_(("kept", "held", "parked", "rejected")),
    )
    found = await session.execute(
        query.group_by(row.week, row.source, what).having(n > 0)
    )
    return [read(Standing, one) for one in found]


async def list_standings(session: AsyncSession) -> list[Standing]:
    """Sums over all weeks, and of each of the last `WEEKS_COUNTED`; the newest week first."""
    row = ThreadCountRow
    first = iso_week(now() - timedelta(weeks=WEEKS_COUNTED))
    n = func.sum(row.n).label("n")
    query = select(row.week, row.source, row.outcome.label("what"), n).where(
        or_(row.week == "", row.week > first)
    )
    query = query.group_by(row.week, row.source, row.outcome).having(n != 0)
    return [
        read(Standing, found)
        for found in await session.execute(query.order_by(row.week.desc(), row.source))
    ]
