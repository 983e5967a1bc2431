"""Rows of fetched pages and of the WARC files ("archives") that hold their bytes: saved, found, moved, forgotten.

A *reading* of a thread is one attempt to fetch all its pages.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from medlive.clock import now
from medlive.db.mapping import Record, read, row_of
from medlive.db.session import Session
from medlive.db.tables.intake import ArchiveRow, FetchRow, FrontierState, PageKind
from medlive.integrity.digest import digest_bytes
from medlive.sources.ledger import FetchedPage, HarvestProblem, Place


@dataclass(frozen=True)
class KeptPage:
    """A page of a thread, as it was fetched."""

    fetch_id: int
    thread_id: str
    url: str
    page_number: int
    place: Place  # In its WARC file
    etag: str | None
    last_modified: str | None
    path: str | None
    """Path of the WARC file below the archive's folder; None: the bytes are gone."""


Reading = Record
"""The latest reading of a thread that has ended, and the thread's state in the frontier.

It has thread_id, pages (in order; empty while the thread waits for its first reading), state (None: no list showed the
thread) with reason and run_id, fields (what its last reading had) and stored (whether the thread is in `threads`).
"""


async def save_pages(
    session: Session,
    run_id: int,
    source: str,
    pages: Sequence[FetchedPage],
    archive_id: int,
    places: Sequence[Place],
) -> list[int]:
    """Save pages with their places in an archive, whose committed size becomes the end of the last page; return the
    fetches' numbers, in the order of the pages."""
    rows = []
    for event, place in zip(pages, places, strict=True):
        page = event.page
        row = row_of(
            FetchRow,
            page,
            run_id=run_id,
            source=source,
            kind=_kind_of(event),
            thread_id=event.thread_id,
            page_number=event.number,
            body_digest=digest_bytes(page.body),
            content_type=page.headers.get("content-type") or None,
            etag=page.headers.get("etag"),
            last_modified=page.headers.get("last-modified"),
            form=None if page.form is None else list(map(list, page.form)),
            archive_id=archive_id,
            archive_offset=place.offset,
            archive_length=place.length,
        )
        rows.append(row)
    saved = await session.insert_rows(
        FetchRow, rows, returning=("archive_offset", "id")
    )
    size = places[-1].offset + places[-1].length
    await session.run(
        "UPDATE archives SET bytes = :size WHERE id = :id", id=archive_id, size=size
    )
    numbers: dict[int, int] = dict(saved)
    return [numbers[place.offset] for place in places]


def _kind_of(event: FetchedPage | HarvestProblem) -> PageKind:
    return "listing" if event.thread_id is None else "thread"


async def save_failed_fetches(
    session: Session, run_id: int, source: str, problems: Sequence[HarvestProblem]
) -> None:
    """Save the requests that failed, and why."""
    moment, rows = now(), []
    for problem in problems:
        row = row_of(
            FetchRow,
            problem,
            run_id=run_id,
            source=source,
            kind=_kind_of(problem),
            page_number=1,
            fetched_at=moment,
            error=f"{problem.kind}: {problem.message}",
        )
        rows.append(row)
    await session.insert_rows(FetchRow, rows)


async def forget_pages(
    session: Session, source: str, thread_id: str, url: str, *, after_fetch: int
) -> list[int]:
    """Forget the pages of a thread fetched after `after_fetch`, which show another thread that was taken down.

    The fetches stay, with the address `url` that was asked for. Returns the numbers of the archives with the pages.
    """
    named = {"source": source, "thread_id": thread_id, "after": after_fetch}
    among = "source = :source AND thread_id = :thread_id AND id > :after"
    forgotten = f"""
        UPDATE fetches SET url = :url, body_digest = NULL, etag = NULL, last_modified = NULL,
        archive_id = NULL, archive_offset = NULL, archive_length = NULL WHERE {among}
    """
    numbers = await session.column(
        f"SELECT DISTINCT archive_id FROM fetches WHERE {among} AND archive_id IS NOT NULL",
        **named,
    )
    await session.run(forgotten, url=url, **named)
    return numbers


async def kept_pages(
    session: Session, source: str, thread_id: str, *, after_fetch: int = 0
) -> list[KeptPage]:
    """The pages of a thread's latest reading, in order; empty if a page or its bytes are missing.

    Only fetches with numbers above `after_fetch` count.
    """
    fetched = await _fetched_pages(session, source, [thread_id])
    pages = _latest_pages(page for page in fetched if page.fetch_id > after_fetch)
    for number, page in enumerate(pages, start=1):
        if page.page_number != number or page.path is None:
            return []
    return pages


async def read_threads_after(
    session: Session, source: str, after: str, limit: int
) -> list[str]:
    """The ids of the next `limit` threads of a source with fetched pages, in order, behind the id `after`."""
    return await session.column(
        f"""
        SELECT DISTINCT thread_id FROM fetches WHERE {_IS_PAGE} AND thread_id > :after ORDER BY 1 LIMIT :limit
        """,
        source=source,
        after=after,
        limit=limit,
    )


async def latest_readings(
    session: Session, source: str, thread_ids: Sequence[str]
) -> list[Reading]:
    """The latest reading of each of these threads.

    If a thread waits, the pages that its unfinished reading has fetched so far are left out.
    """
    pages: dict[str, list[KeptPage]] = {thread_id: [] for thread_id in thread_ids}
    for page in await _fetched_pages(session, source, thread_ids):
        pages[page.thread_id].append(page)
    readings = await session.records(
        """
        SELECT asked.thread_id, state, reason, run_id, fields, after_fetch, threads.id IS NOT NULL AS stored
        FROM unnest(CAST(:ids AS text[])) WITH ORDINALITY AS asked (thread_id, place)
        LEFT JOIN frontier ON frontier.source = :source AND frontier.thread_id = asked.thread_id
        LEFT JOIN threads ON threads.source = :source AND threads.thread_id = asked.thread_id ORDER BY place
        """,
        source=source,
        ids=list(thread_ids),
    )
    for listed in readings:
        own = pages[listed.thread_id]
        listed.state = listed.state and FrontierState(listed.state)
        if listed.state is FrontierState.WAITING:
            own = [page for page in own if page.fetch_id <= listed.after_fetch]
        listed.pages = _latest_pages(own)
    return readings


_IS_PAGE = "source = :source AND kind = 'thread' AND body_digest IS NOT NULL"
"""SQL: whether a fetch brought a page of a thread of the source."""
_FETCHED = f"""
    SELECT fetches.id AS fetch_id, thread_id, url, page_number, archive_offset, archive_length, etag, last_modified,
        path
    FROM fetches LEFT JOIN archives ON archives.id = archive_id
    WHERE {_IS_PAGE} AND thread_id = ANY (:ids) ORDER BY thread_id, fetches.id DESC
"""


async def _fetched_pages(
    session: Session, source: str, thread_ids: Sequence[str]
) -> list[KeptPage]:
    """Every page that was fetched of these threads, by thread, the newest first."""
    pages = []
    for row in await session.run(_FETCHED, source=source, ids=list(thread_ids)):
        place = Place(row.archive_offset, row.archive_length)
        pages.append(read(KeptPage, row, place=place))
    return pages


def _latest_pages(fetched: Iterable[KeptPage]) -> list[KeptPage]:
    """The pages of a thread's latest reading, in order; `fetched` has the thread's pages, newest first."""
    pages: dict[int, KeptPage] = {}
    for page in fetched:
        # Going back in time, pages met after the latest page 1 belong to earlier readings.
        if 1 in pages:
            break
        pages.setdefault(page.page_number, page)
    return [pages[number] for number in sorted(pages)]


# Offsets may swap places within a file, so all of them change in one statement.
_MOVE = """
    UPDATE fetches SET archive_offset = moved.target
    FROM unnest(CAST(:olds AS bigint[]), CAST(:news AS bigint[])) AS moved (origin, target)
    WHERE archive_id = :archive_id AND archive_offset = moved.origin
"""


async def start_archive(
    session: Session,
    run_id: int,
    path: str,
    size: int,
) -> int:
    """Insert the row of an archive that was begun; return its number."""
    return (await session.insert(ArchiveRow(run_id=run_id, path=path, bytes=size))).id


async def mark_sealed(session: Session, archive_id: int) -> None:
    """Note that an archive will not grow any more."""
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
) -> list[ArchiveRow]:
    """The archives of a source (None: of all) that were not removed, oldest first.

    Each option leaves only some: `unsealed` those being written, `unswept` those with pages of a takedown that no fetch
    names any more, `before` those begun before a moment.
    """
    return await session.rows(
        ArchiveRow,
        """
        WHERE removed_at IS NULL AND (
                CAST(:source AS text) IS NULL OR run_id IN (SELECT id FROM harvest_runs WHERE source = :source)
            )
            AND (sealed_at IS NULL OR NOT :unsealed) AND (unswept_at IS NOT NULL OR NOT :unswept)
            AND (CAST(:before AS timestamptz) IS NULL OR created_at < :before)
        ORDER BY id
        """,
        source=source,
        unsealed=unsealed,
        unswept=unswept,
        before=before,
    )


async def archived_sources(session: Session) -> list[str]:
    """The sources that have or had archives, by name."""
    return await session.column(
        "SELECT DISTINCT source FROM archives JOIN harvest_runs AS run ON run.id = run_id ORDER BY 1"
    )


async def fetches_in(session: Session, archive_id: int) -> list[FetchRow]:
    """The fetches whose pages are in an archive, in the file's order."""
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
    """Note that an archive was rewritten: its new path and size, and each page's old place → new place."""
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
    """Note that archives hold pages of a takedown that no fetch names any more and that must be removed."""
    await session.run(
        "UPDATE archives SET unswept_at = now() WHERE id = ANY (:ids)", ids=archive_ids
    )


async def mark_removed(session: Session, archive_ids: Sequence[int]) -> int:
    """Note that archives are gone, and with them the bytes of their pages; return the number of pages."""
    gone = await session.column(
        """
        UPDATE fetches SET archive_id = NULL, archive_offset = NULL, archive_length = NULL
        WHERE archive_id = ANY (:ids) RETURNING id
        """,
        ids=archive_ids,
    )
    await session.run(
        """
        UPDATE archives SET removed_at = coalesce(removed_at, now()), sealed_at = coalesce(sealed_at, now()),
        unswept_at = NULL WHERE id = ANY (:ids)
        """,
        ids=archive_ids,
    )
    return len(gone)
