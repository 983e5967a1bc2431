"""How often the files of snapshots were downloaded, by day."""

from dataclasses import dataclass
from datetime import date

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import read
from medlive.db.tables.release import DownloadRow


@dataclass(frozen=True, slots=True)
class DownloadCount:
    """How many downloads of a file were begun on a day."""

    version: str
    file: str
    day: date  # In UTC
    count: int


async def count_download(
    session: AsyncSession, version: str, file: str, day: date
) -> None:
    """Add one download of a snapshot's file."""
    row = DownloadRow
    statement = upsert(row).values(version=version, file=file, day=day, count=1)
    key = [row.version, row.file, row.day]
    await session.execute(
        statement.on_conflict_do_update(
            index_elements=key, set_={"count": row.count + 1}
        )
    )


async def list_downloads(session: AsyncSession, since: date) -> list[DownloadCount]:
    """The counts from a day on, by snapshot, file and day."""
    row = DownloadRow
    query = select(row).where(row.day >= since).order_by(row.version, row.file, row.day)
    return [read(DownloadCount, count) for count in await session.scalars(query)]


async def total_downloads(session: AsyncSession) -> dict[tuple[str, str], int]:
    """(Snapshot, file) → how many downloads were begun in all."""
    row = DownloadRow
    query = select(row.version, row.file, func.sum(row.count)).group_by(
        row.version, row.file
    )
    return {
        (version, file): total for version, file, total in await session.execute(query)
    }
