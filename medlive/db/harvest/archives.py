"""WARC files: how much of each is committed, which pages are in them, and what retention and takedowns remove."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import Record, add_row
from medlive.db.tables.intake import ArchiveRow, FetchRow, HarvestRunRow
from medlive.sources.ledger import Place

# Offsets may swap places within a file, so all of them change in one statement.
_MOVE = text(
    "UPDATE fetches SET archive_offset = moved.target"
    " FROM unnest(CAST(:olds AS bigint[]), CAST(:news AS bigint[])) AS moved (origin, target)"
    " WHERE archive_id = :archive_id AND archive_offset = moved.origin"
)


async def start_archive(
    session: AsyncSession, run_id: int, path: str, size: int
) -> int:
    """Return the number of a file that was begun."""
    return (await add_row(session, ArchiveRow(run_id=run_id, path=path, bytes=size))).id


async def grow_archive(session: AsyncSession, archive_id: int, size: int) -> None:
    """Commit what was written, in the transaction of the pages' own rows."""
    await session.execute(
        update(ArchiveRow).where(ArchiveRow.id == archive_id).values(bytes=size)
    )


async def mark_sealed(session: AsyncSession, archive_id: int) -> None:
    """Note that a file will not grow."""
    unsealed = update(ArchiveRow).where(
        ArchiveRow.id == archive_id, ArchiveRow.sealed_at.is_(None)
    )
    await session.execute(unsealed.values(sealed_at=func.now()))


async def list_archives(
    session: AsyncSession,
    source: str | None = None,
    *,
    unsealed: bool = False,
    unswept: bool = False,
    before: datetime | None = None,
    removed: bool = False,
) -> Sequence[Record]:
    """The files of a source (None: of all), oldest first: archive_id, source, iso_week, path (below the archive's
    folder), bytes (how much of it is committed).

    Only those that are being written (`unsealed`), that hold pages of a takedown which no fetch names any more
    (`unswept`), that were begun before a moment, or that are marked as `removed`, whether or not they still exist.
    """
    row, run = ArchiveRow, HarvestRunRow
    number = row.id.label("archive_id")
    query = select(number, run.source, run.iso_week, row.path, row.bytes)
    query = query.join(run, run.id == row.run_id)
    query = query.where(row.removed_at.is_not(None) == removed)
    if source is not None:
        query = query.where(run.source == source)
    if unsealed:
        query = query.where(row.sealed_at.is_(None))
    if unswept:
        query = query.where(row.unswept_at.is_not(None))
    if before is not None:
        query = query.where(row.created_at < before)
    return (await session.execute(query.order_by(row.id))).all()


async def archived_sources(session: AsyncSession) -> list[str]:
    """The sources that have or had files, by name."""
    run = HarvestRunRow
    query = select(run.source).join(ArchiveRow, ArchiveRow.run_id == run.id)
    return sorted(await session.scalars(query.distinct()))


async def fetches_in(session: AsyncSession, archive_id: int) -> Sequence[Record]:
    """The pages that rows name in a file, in the file's order: fetch_id, kind, thread_id, place."""
    row = FetchRow
    query = select(row.id.label("fetch_id"), row.kind, row.thread_id, row.place)
    query = query.where(row.archive_id == archive_id).order_by(row.archive_offset)
    return (await session.execute(query)).all()


async def replace_archive(
    session: AsyncSession,
    archive_id: int,
    path: str,
    size: int,
    moved: Mapping[Place, Place],
) -> None:
    """Note that a file was rewritten: its new path and size, and where its pages are now."""
    offsets: dict[str, list[int]] = {"olds": [], "news": []}
    for old, new in moved.items():
        offsets["olds"].append(old.offset)
        offsets["news"].append(new.offset)
    await session.execute(_MOVE, {"archive_id": archive_id, **offsets})
    statement = update(ArchiveRow).where(ArchiveRow.id == archive_id)
    await session.execute(statement.values(path=path, bytes=size, unswept_at=None))


async def mark_unswept(session: AsyncSession, archive_ids: Sequence[int]) -> None:
    """Note that files hold pages that no fetch names any more and that must go."""
    statement = update(ArchiveRow).where(ArchiveRow.id.in_(archive_ids))
    await session.execute(statement.values(unswept_at=func.now()))


async def mark_removed(session: AsyncSession, archive_ids: Sequence[int]) -> int:
    """Note that files are gone, and with them the bytes of their pages; return how many pages that concerns."""
    no_place = dict.fromkeys(("archive_id", "archive_offset", "archive_length"))
    pages = update(FetchRow).where(FetchRow.archive_id.in_(archive_ids))
    gone = await session.scalars(pages.values(no_place).returning(FetchRow.id))
    row = ArchiveRow
    values = {
        "removed_at": func.coalesce(row.removed_at, func.now()),
        "sealed_at": func.coalesce(row.sealed_at, func.now()),
        "unswept_at": None,
    }
    await session.execute(update(row).where(row.id.in_(archive_ids)).values(values))
    return len(gone.all())
