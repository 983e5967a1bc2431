"""Pages as they were fetched: each with its digest, and the place in a WARC file where its bytes lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.clock import now
from medlive.db.mapping import insert_rows, row_of
from medlive.db.tables.intake import ArchiveRow, FetchRow
from medlive.digest import digest_bytes
from medlive.sources.archive.warc import Place
from medlive.sources.ledger import FetchedPage, HarvestProblem, PageKind


@dataclass(frozen=True, slots=True)
class KeptPage:
    """Where the bytes of a page lie."""

    fetch_id: int
    url: str
    page_number: int
    path: str
    """The WARC file below the archive's folder."""
    place: Place


async def save_pages(
    session: AsyncSession,
    run_id: int,
    source: str,
    pages: Sequence[FetchedPage],
    archive_id: int,
    places: Sequence[Place],
) -> list[int]:
    """The fetches' numbers, in the order of the pages; `places` says where each lies in that archive."""
    rows = [
        row_of(
            FetchRow,
            event.fetched,
            run_id=run_id,
            source=source,
            kind=event.kind,
            thread_id=event.thread_id,
            page_number=event.number,
            body_digest=digest_bytes(event.fetched.body),
            content_type=event.fetched.content_type or None,
            etag=event.fetched.headers.get("etag"),
            last_modified=event.fetched.headers.get("last-modified"),
            form=None if event.page.form is None else [list(pair) for pair in event.page.form],
            archive_id=archive_id,
            archive_offset=place.offset,
            archive_length=place.length,
        )
        for event, place in zip(pages, places, strict=True)
    ]
    saved = await insert_rows(session, FetchRow, rows, returning=("archive_offset", "id"))
    numbers: dict[int, int] = dict(saved)
    return [numbers[place.offset] for place in places]


async def save_failed_fetches(
    session: AsyncSession, run_id: int, source: str, problems: Sequence[HarvestProblem]
) -> None:
    """Keep what could not be read, and why."""
    moment = now()
    rows: list[dict[str, Any]] = [
        {
            "run_id": run_id,
            "source": source,
            "kind": PageKind.LISTING if problem.thread_id is None else PageKind.THREAD,
            "thread_id": problem.thread_id,
            "url": problem.url,
            "page_number": 1,
            "fetched_at": moment,
            "error": f"{problem.kind.value}: {problem.message}",
        }
        for problem in problems
    ]
    await insert_rows(session, FetchRow, rows)


async def kept_pages(
    session: AsyncSession, source: str, thread_id: str, *, after_fetch: int = 0
) -> list[KeptPage]:
    """The pages of a thread's latest reading whose bytes are here, from its first, in order.

    `after_fetch` leaves out earlier fetches. Empty when the first page's bytes are not here.
    """
    query = (
        select(
            FetchRow.id,
            FetchRow.url,
            FetchRow.page_number,
            FetchRow.archive_offset,
            FetchRow.archive_length,
            ArchiveRow.path,
        )
        .join(ArchiveRow, ArchiveRow.id == FetchRow.archive_id)
        .where(
            FetchRow.source == source,
            FetchRow.thread_id == thread_id,
            FetchRow.kind == PageKind.THREAD,
            FetchRow.id > after_fetch,
        )
        .order_by(FetchRow.id.desc())
    )
    latest: dict[int, KeptPage] = {}
    for fetch_id, url, number, offset, length, path in await session.execute(query):
        # Backwards in time: the page that follows on what was met belongs to the same reading.
        if number not in latest:
            assert offset is not None  # as the constraint `place_is_whole` has it
            assert length is not None
            latest[number] = KeptPage(fetch_id, url, number, path, Place(offset, length))
        if number == 1:
            break
    pages = [latest[number] for number in sorted(latest)]
    return pages if [page.page_number for page in pages] == list(range(1, len(pages) + 1)) else []
