"""Fetched pages, each with its place in a WARC file, and the pages that a thread was last read from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.clock import now
from medlive.db.mapping import from_stored, insert_rows, row_of, to_stored
from medlive.db.tables.intake import FetchRow, FrontierState
from medlive.integrity.digest import digest_bytes
from medlive.sources.ledger import FetchedPage, HarvestProblem, PageKind, Place

_NEXT = text(
    "SELECT DISTINCT thread_id FROM fetches WHERE source = :source AND thread_id > :after AND kind = 'thread'"
    " AND body_digest IS NOT NULL ORDER BY thread_id LIMIT :limit"
)
_PAGES = text(
    "SELECT page.*, archives.path FROM fetches AS page LEFT JOIN archives ON archives.id = page.archive_id"
    " WHERE page.source = :source AND page.thread_id = ANY (:ids) AND page.kind = 'thread'"
    " AND page.body_digest IS NOT NULL ORDER BY page.thread_id, page.id DESC"
)
_KNOWN = text(
    "SELECT frontier.thread_id, state, reason, run_id, after_fetch, fields, EXISTS (SELECT FROM threads"
    " WHERE threads.source = frontier.source AND threads.thread_id = frontier.thread_id) AS stored"
    " FROM frontier WHERE source = :source AND thread_id = ANY (:ids)"
)


@dataclass(frozen=True, slots=True)
class KeptPage:
    """A page of a reading."""

    fetch_id: int
    url: str
    page_number: int
    # The WARC file below the archive's folder; None: the bytes are gone
    path: str | None
    place: Place  # In the file
    etag: str | None
    last_modified: str | None


@dataclass(frozen=True, slots=True)
class Reading:
    """The latest complete attempt to read a thread, and its state in the frontier."""

    thread_id: str
    # From its first; empty while the thread waits for its first reading
    pages: tuple[KeptPage, ...]
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
) -> list[KeptPage]:
    """The pages of a thread's latest reading, in order; empty when one or its bytes are missing.

    `after_fetch` leaves out earlier fetches.
    """
    rows = await session.execute(
        _PAGES, {"source": source, "ids": [to_stored(thread_id)]}
    )
    pages = _latest_pages(row for row in rows if row.id > after_fetch)
    whole = [page.page_number for page in pages if page.path is not None] == list(
        range(1, len(pages) + 1)
    )
    return pages if whole else []


async def read_threads_after(
    session: AsyncSession, source: str, after: str, limit: int
) -> list[str]:
    """The next threads of a source that pages were fetched of, in the order of their ids."""
    named = {"source": source, "after": to_stored(after), "limit": limit}
    return list(await session.scalars(_NEXT, named))


async def latest_readings(
    session: AsyncSession, source: str, thread_ids: Sequence[str]
) -> list[Reading]:
    """The latest reading of each of these threads.

    Of a thread that waits, the pages that its interrupted reading has fetched so far are left out.
    """
    named = {"source": source, "ids": [to_stored(i) for i in thread_ids]}
    known = {row.thread_id: row for row in await session.execute(_KNOWN, named)}
    rows: dict[str, list[Any]] = {thread_id: [] for thread_id in thread_ids}
    for row in await session.execute(_PAGES, named):
        state = known.get(row.thread_id)
        if (
            state is None
            or state.state != FrontierState.WAITING
            or row.id <= state.after_fetch
        ):
            rows[row.thread_id].append(row)
    readings = []
    for thread_id, pages in rows.items():
        reading = Reading(thread_id, tuple(_latest_pages(pages)))
        if (state := known.get(thread_id)) is not None:
            reading = replace(
                reading,
                state=FrontierState(state.state),
                reason=state.reason,
                run_id=state.run_id,
                fields=state.fields,
                stored=state.stored,
            )
        readings.append(reading)
    return readings


def _latest_pages(rows: Iterable[Any]) -> list[KeptPage]:
    """The pages of a thread's latest reading in order, from its fetches, newest first."""
    pages: dict[int, KeptPage] = {}
    for row in rows:
        # Backwards in time: what comes after the latest first page belongs to earlier readings.
        if 1 in pages:
            break
        if row.page_number not in pages:
            place = Place(row.archive_offset or 0, row.archive_length or 0)
            pages[row.page_number] = KeptPage(
                row.id,
                from_stored(row.url),
                row.page_number,
                row.path,
                place,
                row.etag,
                row.last_modified,
            )
    return [pages[number] for number in sorted(pages)]
