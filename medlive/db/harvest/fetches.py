"""Fetched pages, each with its place in a WARC file, and the pages that a thread was last read from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.clock import now
from medlive.db.mapping import Record, insert_rows, is_one_of, read, row_of
from medlive.db.tables.intake import (
    ArchiveRow,
    FetchRow,
    FrontierRow,
    FrontierState,
    ThreadRow,
)
from medlive.integrity.digest import digest_bytes
from medlive.sources.ledger import FetchedPage, HarvestProblem, PageKind, Place


@dataclass(frozen=True, slots=True)
class Reading:
    """The latest complete attempt to read a thread, and its state in the frontier."""

    thread_id: str
    # From its first: fetch_id, url, page_number, path (of the WARC file below the archive's folder; None: the bytes are
    # gone), place (in it), etag, last_modified; empty while the thread waits for its first reading
    pages: tuple[Record, ...]
    state: FrontierState | None = None  # None: no list shows it
    reason: str | None = None
    run_id: int | None = None
    fields: Mapping[str, Any] | None = None  # What its last reading had
    stored: bool = False  # Whether it has become a thread


async def save_pages(
    session: AsyncSession,
    run_id: int,
    source: str,
    pages: Sequence[FetchedPage],
    archive_id: int,
    places: Sequence[Place],
) -> list[int]:
    """Save pages with their places in an archive; return the fetches' numbers, in the order of the pages."""
    rows = []
    for event, place in zip(pages, places, strict=True):
        page = event.page
        row = row_of(
            FetchRow,
            page,
            run_id=run_id,
            source=source,
            kind=event.kind,
            thread_id=event.thread_id,
            page_number=event.number,
            body_digest=digest_bytes(page.body),
            content_type=page.content_type or None,
            etag=page.headers.get("etag"),
            last_modified=page.headers.get("last-modified"),
            form=None if page.form is None else list(map(list, page.form)),
            archive_id=archive_id,
            archive_offset=place.offset,
            archive_length=place.length,
        )
        rows.append(row)
    saved = await insert_rows(
        session, FetchRow, rows, returning=("archive_offset", "id")
    )
    numbers: dict[int, int] = dict(saved)
    return [numbers[place.offset] for place in places]


async def save_failed_fetches(
    session: AsyncSession, run_id: int, source: str, problems: Sequence[HarvestProblem]
) -> None:
    """Save what could not be read, and why."""
    moment = now()
    rows: list[dict[str, Any]] = []
    for problem in problems:
        is_listing = problem.thread_id is None
        row = {
            "run_id": run_id,
            "source": source,
            "kind": PageKind.LISTING if is_listing else PageKind.THREAD,
            "thread_id": problem.thread_id,
            "url": problem.url,
            "page_number": 1,
            "fetched_at": moment,
            "error": f"{problem.kind.value}: {problem.message}",
        }
        rows.append(row)
    await insert_rows(session, FetchRow, rows)


async def kept_pages(
    session: AsyncSession, source: str, thread_id: str, *, after_fetch: int = 0
) -> list[Record]:
    """The pages of a thread's latest reading, in order; empty when one or its bytes are missing.

    `after_fetch` leaves out earlier fetches.
    """
    rows = await _fetched_pages(session, source, [thread_id])
    pages = _latest_pages(row for row in rows if row.fetch_id > after_fetch)
    for number, page in enumerate(pages, start=1):
        if page.page_number != number or page.path is None:
            return []
    return pages


async def read_threads_after(
    session: AsyncSession, source: str, after: str, limit: int
) -> list[str]:
    """The next threads of a source that pages were fetched of, in the order of their ids."""
    query = select(FetchRow.thread_id).where(
        *_is_page_of(source), FetchRow.thread_id > after
    )
    query = query.distinct().order_by(FetchRow.thread_id).limit(limit)
    return list(await session.scalars(query))


async def latest_readings(
    session: AsyncSession, source: str, thread_ids: Sequence[str]
) -> list[Reading]:
    """The latest reading of each of these threads.

    Of a thread that waits, the pages that its interrupted reading has fetched so far are left out.
    """
    stored = exists().where(
        ThreadRow.source == FrontierRow.source,
        ThreadRow.thread_id == FrontierRow.thread_id,
    )
    query = select(FrontierRow, stored).where(
        FrontierRow.source == source, is_one_of(FrontierRow.thread_id, thread_ids)
    )
    known: dict[str, tuple[Any, bool]] = {}
    for listed, is_stored in await session.execute(query):
        known[listed.thread_id] = (listed, is_stored)
    pages: dict[str, list[Any]] = {thread_id: [] for thread_id in thread_ids}
    for page in await _fetched_pages(session, source, thread_ids):
        listed, _ = known.get(page.thread_id, (None, False))
        is_waiting = listed is not None and listed.state is FrontierState.WAITING
        if not is_waiting or page.fetch_id <= listed.after_fetch:
            pages[page.thread_id].append(page)
    readings = []
    for thread_id, own in pages.items():
        latest = tuple(_latest_pages(own))
        if thread_id in known:
            listed, is_stored = known[thread_id]
            readings.append(read(Reading, listed, pages=latest, stored=is_stored))
        else:
            readings.append(Reading(thread_id, latest))
    return readings


def _is_page_of(source: str) -> tuple[ColumnElement[bool], ...]:
    """The conditions that a fetch brought a page of a thread of a source."""
    is_page = (FetchRow.kind == PageKind.THREAD) & FetchRow.body_digest.is_not(None)
    return FetchRow.source == source, is_page


async def _fetched_pages(
    session: AsyncSession, source: str, thread_ids: Sequence[str]
) -> Sequence[Record]:
    """Every page that was fetched of these threads, of each thread the newest first."""
    query = select(
        FetchRow.id.label("fetch_id"),
        FetchRow.thread_id,
        FetchRow.url,
        FetchRow.page_number,
        FetchRow.place,
        FetchRow.etag,
        FetchRow.last_modified,
        ArchiveRow.path,
    )
    query = query.outerjoin(ArchiveRow, ArchiveRow.id == FetchRow.archive_id)
    query = query.where(*_is_page_of(source), is_one_of(FetchRow.thread_id, thread_ids))
    query = query.order_by(FetchRow.thread_id, FetchRow.id.desc())
    return (await session.execute(query)).all()


def _latest_pages(rows: Iterable[Any]) -> list[Record]:
    """The pages of a thread's latest reading in order, from its fetches, newest first."""
    pages: dict[int, Any] = {}
    for row in rows:
        # Backwards in time: what comes after the latest first page belongs to earlier readings.
        if 1 in pages:
            break
        pages.setdefault(row.page_number, row)
    return [pages[number] for number in sorted(pages)]
