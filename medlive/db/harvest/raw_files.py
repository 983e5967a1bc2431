"""Where raw pages lie: read for sweeping and retention, and changed when a file is rewritten or removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.tables.intake import ArchiveRow, FetchRow, HarvestRunRow
from medlive.sources.archive.warc import Place
from medlive.sources.ledger import PageKind

# Offsets may swap places within a file, so all of them change in one statement.
_MOVE = text(
    "UPDATE fetches SET archive_offset = moved.target"
    " FROM unnest(CAST(:olds AS bigint[]), CAST(:news AS bigint[])) AS moved (origin, target)"
    " WHERE archive_id = :archive_id AND archive_offset = moved.origin"
)


@dataclass(frozen=True, slots=True)
class KeptFetch:
    """A page that lies in a file."""

    fetch_id: int
    kind: PageKind
    thread_id: str | None
    place: Place


@dataclass(frozen=True, slots=True)
class OldArchive:
    """A file that is to go, or is gone."""

    archive_id: int
    path: str
    bytes: int


async def fetches_in(session: AsyncSession, archive_id: int) -> list[KeptFetch]:
    """The pages that rows name in a file, in the file's order."""
    row = FetchRow
    query = (
        select(row.id, row.kind, row.thread_id, row.archive_offset, row.archive_length)
        .where(row.archive_id == archive_id)
        .order_by(row.archive_offset)
    )
    return [
        KeptFetch(found.id, found.kind, found.thread_id, Place(found.archive_offset, found.archive_length))
        for found in await session.execute(query)
    ]


async def digests_in(session: AsyncSession, archive_id: int) -> dict[int, str]:
    """Offset → the digest of the body that was fetched, of the pages that rows name in a file."""
    row = FetchRow
    query = select(row.archive_offset, row.body_digest).where(row.archive_id == archive_id)
    return {found.archive_offset: found.body_digest for found in await session.execute(query)}


async def unswept_archives(session: AsyncSession, source: str) -> list[OldArchive]:
    """A source's files that hold pages of a takedown which no fetch names any more."""
    return await _archives(session, source, ArchiveRow.unswept_at.is_not(None), ArchiveRow.removed_at.is_(None))


async def expired_archives(session: AsyncSession, source: str, before: datetime) -> list[OldArchive]:
    """A source's files that were begun before that moment."""
    return await _archives(session, source, ArchiveRow.created_at < before, ArchiveRow.removed_at.is_(None))


async def removed_archives(session: AsyncSession, source: str) -> list[OldArchive]:
    """A source's files that are marked as removed, whether or not they still lie there."""
    return await _archives(session, source, ArchiveRow.removed_at.is_not(None))


async def replace_archive(
    session: AsyncSession, archive_id: int, path: str, size: int, moved: Mapping[Place, Place]
) -> None:
    """Note that a file was rewritten: its new path and size, and where its pages lie now."""
    await session.execute(
        _MOVE,
        {
            "archive_id": archive_id,
            "olds": [old.offset for old in moved],
            "news": [new.offset for new in moved.values()],
        },
    )
    await session.execute(
        update(ArchiveRow).where(ArchiveRow.id == archive_id).values(path=path, bytes=size, unswept_at=None)
    )


async def mark_removed(session: AsyncSession, archive_ids: Sequence[int]) -> int:
    """Note that files are gone, and with them the bytes of their pages; how many pages that concerns."""
    gone = await session.execute(
        update(FetchRow)
        .where(FetchRow.archive_id.in_(archive_ids))
        .values(archive_id=None, archive_offset=None, archive_length=None)
    )
    await session.execute(
        update(ArchiveRow)
        .where(ArchiveRow.id.in_(archive_ids))
        .values(
            removed_at=func.coalesce(ArchiveRow.removed_at, func.now()),
            sealed_at=func.coalesce(ArchiveRow.sealed_at, func.now()),
            unswept_at=None,
        )
    )
    pages: int = gone.rowcount  # type: ignore[attr-defined]
    return pages


async def archive_paths(session: AsyncSession) -> set[str]:
    """The paths of all files that are here."""
    return set(await session.scalars(select(ArchiveRow.path).where(ArchiveRow.removed_at.is_(None))))


async def archived_sources(session: AsyncSession) -> list[str]:
    """The sources that have or had files, by name."""
    query = select(HarvestRunRow.source).join(ArchiveRow, ArchiveRow.run_id == HarvestRunRow.id).distinct()
    return sorted(await session.scalars(query))


async def _archives(session: AsyncSession, source: str, *conditions: object) -> list[OldArchive]:
    row = ArchiveRow
    query = (
        select(row.id, row.path, row.bytes)
        .join(HarvestRunRow, HarvestRunRow.id == row.run_id)
        .where(HarvestRunRow.source == source, *conditions)  # type: ignore[arg-type]
        .order_by(row.id)
    )
    return [OldArchive(pk, path, size) for pk, path, size in await session.execute(query)]
