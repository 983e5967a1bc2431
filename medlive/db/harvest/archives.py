"""WARC files: which there are, how much of each is committed, and which pages lie in them."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.tables.intake import ArchiveRow, HarvestRunRow


@dataclass(frozen=True, slots=True)
class Archive:
    """A WARC file."""

    archive_id: int
    source: str
    iso_week: str
    path: str
    """Below the archive's folder."""
    bytes: int
    """How much of it is committed."""
    created_at: datetime
    sealed: bool


async def start_archive(session: AsyncSession, run_id: int, path: str, size: int) -> int:
    """The number of a file that was begun."""
    statement = insert(ArchiveRow).values(run_id=run_id, path=path, bytes=size).returning(ArchiveRow.id)
    number: int = (await session.execute(statement)).scalar_one()
    return number


async def grow_archive(session: AsyncSession, archive_id: int, size: int) -> None:
    """Commit what was written, in the transaction of the pages' own rows."""
    await session.execute(update(ArchiveRow).where(ArchiveRow.id == archive_id).values(bytes=size))


async def mark_sealed(session: AsyncSession, archive_id: int) -> None:
    """Note that a file will not grow."""
    await session.execute(
        update(ArchiveRow).where(ArchiveRow.id == archive_id, ArchiveRow.sealed_at.is_(None)).values(
            sealed_at=func.now()
        )
    )  # fmt: skip


async def list_archives(
    session: AsyncSession, *, source: str | None = None, iso_week: str | None = None, unsealed_only: bool = False
) -> list[Archive]:
    """The files that are here, oldest first."""
    row = ArchiveRow
    query = (
        select(row, HarvestRunRow.source, HarvestRunRow.iso_week)
        .join(HarvestRunRow, HarvestRunRow.id == row.run_id)
        .where(row.removed_at.is_(None))
        .order_by(row.id)
    )
    if source is not None:
        query = query.where(HarvestRunRow.source == source)
    if iso_week is not None:
        query = query.where(HarvestRunRow.iso_week == iso_week)
    if unsealed_only:
        query = query.where(row.sealed_at.is_(None))
    return [
        Archive(a.id, name, week, a.path, a.bytes, a.created_at, a.sealed_at is not None)
        for a, name, week in await session.execute(query)
    ]
