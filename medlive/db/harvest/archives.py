"""WARC files: how much of each is committed, which pages are in them, and what retention and takedowns remove."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from medlive.db.session import Session
from medlive.db.tables.intake import ArchiveRow, FetchRow
from medlive.sources.ledger import Place

# Offsets may swap places within a file, so all of them change in one statement.
_MOVE = """
    UPDATE fetches SET archive_offset = moved.target
    FROM unnest(CAST(:olds AS bigint[]), CAST(:news AS bigint[])) AS moved (origin, target)
    WHERE archive_id = :archive_id AND archive_offset = moved.origin
"""

_LIST = """
    WHERE (removed_at IS NOT NULL) = :removed AND (
            CAST(:source AS text) IS NULL OR run_id IN (SELECT id FROM harvest_runs WHERE source = :source)
        )
        AND (sealed_at IS NULL OR NOT :unsealed) AND (unswept_at IS NOT NULL OR NOT :unswept)
        AND (CAST(:before AS timestamptz) IS NULL OR created_at < :before)
    ORDER BY id
"""


async def start_archive(session: Session, run_id: int, path: str, size: int) -> int:
    """Return the number of a file that was begun."""
    return (await session.insert(ArchiveRow(run_id=run_id, path=path, bytes=size))).id


async def mark_sealed(session: Session, archive_id: int) -> None:
    """Note that a file will not grow."""
    await session.run(
        "UPDATE archives SET sealed_at = now() WHERE id = :id AND sealed_at IS NULL",
        id=archive_id,
    )


async def list_archives(
    session: Session,
    source: str | None = None,
    *,
    unsealed: bool = False,
    unswept: bool = False,
    before: datetime | None = None,
    removed: bool = False,
) -> list[ArchiveRow]:
    """The files of a source (None: of all), oldest first.

    Only those that are being written (`unsealed`), that hold pages of a takedown which no fetch names any more
    (`unswept`), that were begun before a moment, or that are marked as `removed`, whether or not they still exist.
    """
    return await session.rows(
        ArchiveRow,
        _LIST,
        source=source,
        unsealed=unsealed,
        unswept=unswept,
        before=before,
        removed=removed,
    )


async def archived_sources(session: Session) -> list[str]:
    """The sources that have or had files, by name."""
    return await session.column(
        "SELECT DISTINCT source FROM archives JOIN harvest_runs AS run ON run.id = run_id ORDER BY 1"
    )


async def fetches_in(session: Session, archive_id: int) -> list[FetchRow]:
    """The pages that rows name in a file, in the file's order."""
    return await session.rows(
        FetchRow, "WHERE archive_id = :id ORDER BY archive_offset", id=archive_id
    )


async def replace_archive(
    session: Session,
    archive_id: int,
    path: str,
    size: int,
    moved: Mapping[Place, Place],
) -> None:
    """Note that a file was rewritten: its new path and size, and where its pages are now."""
    olds = [place.offset for place in moved]
    news = [place.offset for place in moved.values()]
    await session.run(_MOVE, archive_id=archive_id, olds=olds, news=news)
    await session.run(
        "UPDATE archives SET path = :path, bytes = :size, unswept_at = NULL WHERE id = :id",
        id=archive_id,
        path=path,
        size=size,
    )


async def mark_unswept(session: Session, archive_ids: Sequence[int]) -> None:
    """Note that files hold pages that no fetch names any more and that must go."""
    await session.run(
        "UPDATE archives SET unswept_at = now() WHERE id = ANY (:ids)", ids=archive_ids
    )


async def mark_removed(session: Session, archive_ids: Sequence[int]) -> int:
    """Note that files are gone, and with them the bytes of their pages; return how many pages that concerns."""
    pages = """
        UPDATE fetches SET archive_id = NULL, archive_offset = NULL, archive_length = NULL
        WHERE archive_id = ANY (:ids) RETURNING id
    """
    gone = await session.column(pages, ids=archive_ids)
    files = """
        UPDATE archives SET removed_at = coalesce(removed_at, now()), sealed_at = coalesce(sealed_at, now()),
        unswept_at = NULL WHERE id = ANY (:ids)
    """
    await session.run(files, ids=archive_ids)
    return len(gone)
