"""Readings: the pages that a thread was last read from, for reading them again from their files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import to_stored
from medlive.db.tables.intake import FrontierState, HarvestMeasureRow, HarvestRunRow, RunOutcome
from medlive.sources.archive.warc import Place

_NEXT = text(
    "SELECT DISTINCT thread_id FROM fetches WHERE source = :source AND thread_id > :after AND kind = 'thread'"
    " AND body_digest IS NOT NULL ORDER BY thread_id LIMIT :limit"
)
_PAGES = text(
    "SELECT page.id, page.thread_id, page.page_number, page.etag, page.last_modified, page.archive_offset,"
    " page.archive_length, archives.path"
    " FROM fetches AS page LEFT JOIN archives ON archives.id = page.archive_id"
    " WHERE page.source = :source AND page.thread_id = ANY (:ids) AND page.kind = 'thread'"
    " AND page.body_digest IS NOT NULL ORDER BY page.thread_id, page.id DESC"
)
_KNOWN = text(
    "SELECT frontier.thread_id, state, reason, run_id, after_fetch, fields, EXISTS (SELECT FROM threads"
    " WHERE threads.source = frontier.source AND threads.thread_id = frontier.thread_id) AS stored"
    " FROM frontier WHERE source = :source AND thread_id = ANY (:ids)"
)


@dataclass(frozen=True, slots=True)
class PageOnFile:
    """A page of a reading."""

    fetch_id: int
    number: int
    etag: str | None
    last_modified: str | None
    file: tuple[str, Place] | None
    """The file's path below the archive's folder and the place in it; None: the bytes are gone."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A thread's latest whole try at reading it, and how the frontier has it."""

    thread_id: str
    pages: tuple[PageOnFile, ...]
    """From its first; empty while the thread waits for its first reading."""
    state: FrontierState | None
    """None: no list shows it."""
    reason: str | None
    run_id: int | None
    fields: Mapping[str, Any] | None
    """What its last reading had."""
    stored: bool
    """Whether it is a thread here."""


async def read_threads_after(session: AsyncSession, source: str, after: str, limit: int) -> list[str]:
    """The next threads of a source that pages were fetched of, in the order of their ids."""
    named = {"source": source, "after": to_stored(after), "limit": limit}
    return list(await session.scalars(_NEXT, named))


async def latest_readings(session: AsyncSession, source: str, thread_ids: Sequence[str]) -> list[Reading]:
    """The latest reading of each of these threads.

    Of a thread that waits, pages that its interrupted reading has fetched so far are left out.
    """
    named = {"source": source, "ids": [to_stored(i) for i in thread_ids]}
    known = {found.thread_id: found for found in await session.execute(_KNOWN, named)}
    pages: dict[str, dict[int, PageOnFile]] = {thread_id: {} for thread_id in thread_ids}
    for found in await session.execute(_PAGES, named):
        mine = pages[found.thread_id]
        before = known.get(found.thread_id)
        waits = before is not None and before.state == FrontierState.WAITING
        # Backwards in time: what comes after the latest first page belongs to earlier readings.
        if 1 in mine or found.page_number in mine or (waits and before and found.id > before.after_fetch):
            continue
        mine[found.page_number] = PageOnFile(
            found.id,
            found.page_number,
            found.etag,
            found.last_modified,
            None if found.path is None else (found.path, Place(found.archive_offset, found.archive_length)),
        )
    return [_reading(thread_id, mine, known.get(thread_id)) for thread_id, mine in pages.items()]


async def latest_run(session: AsyncSession, source: str) -> tuple[int, bool] | None:
    """The source's latest harvest that has ended, and whether its figures were taken; None: there is none."""
    row = HarvestRunRow
    measured = select(HarvestMeasureRow.run_id).where(HarvestMeasureRow.run_id == row.id).exists()
    found = (
        await session.execute(
            select(row.id, measured)
            .where(row.source == source, row.outcome != RunOutcome.RUNNING)
            .order_by(row.iso_week.desc())
            .limit(1)
        )
    ).one_or_none()
    return None if found is None else (found[0], found[1])


def _reading(thread_id: str, pages: Mapping[int, PageOnFile], known: Any) -> Reading:
    ordered = tuple(pages[number] for number in sorted(pages))
    if known is None:
        return Reading(thread_id, ordered, None, None, None, None, False)
    state = FrontierState(known.state)
    return Reading(thread_id, ordered, state, known.reason, known.run_id, known.fields, known.stored)
