"""Disputes: objections to cases, each open until a person says what came of it."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import read
from medlive.db.tables.release import DisputeRow
from medlive.errors import CheckFailed, UsageError


@dataclass(frozen=True, slots=True)
class Dispute:
    """An objection to a case or to a criterion of it."""

    number: int
    case_id: str
    criterion_id: str | None
    """Within its case (`c3`); None: the whole case."""
    reason: str
    opened_by: str | None
    opened_at: datetime
    closed_at: datetime | None
    closed_by: str | None
    resolution: str | None
    """None while it is open."""


def disputed_cases() -> Select[str]:
    """The statement that selects the ids of cases with an open dispute, for `column.in_(…)`."""
    return select(DisputeRow.case_id).where(DisputeRow.closed_at.is_(None))


async def open_disputes(session: AsyncSession) -> set[str]:
    """The ids of cases with an open dispute."""
    return set(await session.scalars(disputed_cases()))


async def open_dispute(
    session: AsyncSession,
    case_id: str,
    reason: str,
    *,
    criterion_id: str | None = None,
    opened_by: str | None = None,
) -> Dispute:
    """Dispute a case that is there, or a criterion of it; the same objection that is open already is that one.

    Whoever calls it holds the case's row, so that two who object at once do not both open it.
    """
    known = await session.scalar(
        select(DisputeRow).where(
            DisputeRow.case_id == case_id,
            DisputeRow.criterion_id.is_not_distinct_from(criterion_id),
            DisputeRow.reason == reason,
            DisputeRow.opened_by.is_not_distinct_from(opened_by),
            DisputeRow.closed_at.is_(None),
        )
    )
    if known is not None:
        return read(Dispute, known, number=known.id)
    row = await session.scalar(
        insert(DisputeRow)
        .values(case_id=case_id, criterion_id=criterion_id, reason=reason, opened_by=opened_by)
        .returning(DisputeRow)
    )
    if row is None:
        raise RuntimeError("the database returned no row of an insert")
    return read(Dispute, row, number=row.id)


async def close_dispute(
    session: AsyncSession, number: int, resolution: str, *, closed_by: str | None = None
) -> Dispute:
    """Close a dispute with what came of it. Raises UsageError for no dispute and CheckFailed for a closed one."""
    row = await session.scalar(
        update(DisputeRow)
        .where(DisputeRow.id == number, DisputeRow.closed_at.is_(None))
        .values(closed_at=func.now(), closed_by=closed_by, resolution=resolution)
        .returning(DisputeRow)
        .execution_options(populate_existing=True)
    )
    if row is not None:
        return read(Dispute, row, number=row.id)
    if (known := await session.get(DisputeRow, number)) is None:
        raise UsageError(f"there is no dispute {number}", hint="medlive review disputes --all names them")
    raise CheckFailed(f"dispute {number} was closed already: {known.resolution}")


async def list_disputes(session: AsyncSession, *, closed: bool = False) -> list[Dispute]:
    """The open disputes, oldest first; with `closed` every one."""
    query = select(DisputeRow).order_by(DisputeRow.id)
    if not closed:
        query = query.where(DisputeRow.closed_at.is_(None))
    return [read(Dispute, row, number=row.id) for row in await session.scalars(query)]
