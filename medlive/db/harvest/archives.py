"""WARC files: how much of each is committed, which pages are in them, and what retention and takedowns remove."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import add_row
from medlive.db.tables.intake import ArchiveRow, FetchRow, HarvestRunRow
from medlive.sources.ledger import PageKind, Place

# Offsets may swap places within a file, so all of them change in one statement.
_MOVE = text(
    "UPDATE fetches SET archive_offset = moved.target"
    " FROM unnest(CAST(:olds AS bigint[]), CAST(:news AS bigint[])) AS moved (origin, target)"
    " WHERE archive_id = :archive_id AND archive_offset = moved.origin"
)


class Archive(NamedTuple):
    """A WARC file."""

    archive_id: int
    source: str
    iso_week: str
    path: str  # Below the archive's folder
    bytes: int  # How much of it is committed


class KeptFetch(NamedTuple):
    """A page in a file."""

    fetch_id: int
    kind: PageKind
    thread_id: str | None
    place: Place
    digest: str | None  # Of the body that was fetched


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
) -> list[Archive]:
    """The files of a source (None: of all), oldest first.

    Only those that are being written (`unsealed`), that hold pages of a takedown which no fetch names any more
    (`unswept`), that were begun before a moment, or that are marked as `removed`, whether or not they still exist.
    """
    row, run = ArchiveRow, HarvestRunRow
    query = select(row.id, run.source, run.iso_week, row.path, row.bytes).join(
        run, run.id == row.run_id
    )
    query = query.where(
        row.removed_at.is_not(None) if removed else row.removed_at.is_(None)
    )
    if source is not None:
        query = query.where(run.source == source)
    if unsealed:
        query = query.where(row.sealed_at.is_(None))
    if unswept:
        query = query.where(row.unswept_at.is_not(None))
    if before is not None:
        query = query.where(row.created_at < before)
    return [
        Archive(*values) for values in await session.execute(query.order_by(row.id))
    ]


async def archived_sources(session: AsyncSession) -> list[str]:
    """The sources that have or had files, by name."""
    query = (
        select(HarvestRunRow.source)
        .join(ArchiveRow, ArchiveRow.run_id == HarvestRunRow.id)
        .distinct()
    )
    return sorted(await session.scalars(query))


async def fetches_in(session: AsyncSession, archive_id: int) -> list[KeptFetch]:
    """The pages that rows name in a file, in the file's order."""
    row = FetchRow
    query = select(row).where(row.archive_id == archive_id).order_by(row.archive_offset)
    kept = []
    for fetch in await session.scalars(query):
        place = Place(fetch.archive_offset or 0, fetch.archive_length or 0)
        kept.append(
            KeptFetch(
                fetch_id=fetch.id,
                kind=fetch.kind,
                thread_id=fetch.thread_id,
                place=place,
                digest=fetch.body_digest,
            )
        )
    return kept


async def replace_archive(
    session: AsyncSession,
    archive_id: int,
    path: str,
    size: int,
    moved: Mapping[Place, Place],
) -> None:
    """Note that a file was rewritten: its new path and size, and where its pages are now."""
    offsets = {
        "olds": [old.offset for old in moved],
        "news": [new.offset for new in moved.values()],
    }
    await session.execute(_MOVE, {"archive_id": archive_id, **offsets})
    statement = update(ArchiveRow).where(ArchiveRow.id == archive_id)
    await session.execute(statement.values(path=path, bytes=size, unswept_at=None))


async def mark_unswept(session: AsyncSession, archive_ids: Sequence[int]) -> None:
    """Note that files hold pages that no fetch names any more and that must go."""
    statement = update(ArchiveRow).where(ArchiveRow.id.in_(archive_ids))
    await session.execute(statement.values(unswept_at=func.now()))


async def mark_removed(session: AsyncSession, archive_ids: Sequence[int]) -> int:
    """Note that files are gone, and with them the bytes of their pages; return how many pages that concerns."""
    pages = update(FetchRow).where(FetchRow.archive_id.in_(archive_ids))
    gone = await session.execute(
        pages.values(archive_id=None, archive_offset=None, archive_length=None)
    )
    removed_at, sealed_at = (
        func.coalesce(c, func.now())
        for c in (ArchiveRow.removed_at, ArchiveRow.sealed_at)
    )
    files = update(ArchiveRow).where(ArchiveRow.id.in_(archive_ids))
    await session.execute(
        files.values(removed_at=removed_at, sealed_at=sealed_at, unswept_at=None)
    )
    count: int = gone.rowcount  # type: ignore[attr-defined]
    return count
