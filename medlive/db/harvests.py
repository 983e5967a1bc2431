"""Harvests: one run a source and week, every page with its bytes, and what need not be sent again."""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, insert, select, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.clock import now
from medlive.db.tables import FetchRow, HarvestRunRow, RunOutcome, SourceKind, SourceRow
from medlive.db.threads import ensure_sources
from medlive.digest import digest_bytes
from medlive.errors import UsageError
from medlive.sources.harvest import FetchedPage, HarvestProblem, KnownThread, PageKind


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """What is recorded of a source."""

    name: str
    kind: SourceKind
    quarantined_at: datetime | None
    quarantine_reason: str | None
    last_run: str | None
    """The ISO week of its latest harvest; None when it was never harvested."""
    last_outcome: RunOutcome | None


async def start_harvest(session: AsyncSession, source: str, iso_week: str) -> int:
    """The number of the source's run of that week, begun or taken up again."""
    await ensure_sources(session, [source], SourceKind.SITE)
    statement = upsert(HarvestRunRow).values(source=source, iso_week=iso_week, outcome=RunOutcome.RUNNING)
    statement = statement.on_conflict_do_update(
        index_elements=["source", "iso_week"],
        set_={
            "outcome": RunOutcome.RUNNING,
            "finished_at": None,
            "problem": None,
            "starts": HarvestRunRow.starts + 1,
        },
    )
    run_id: int = (await session.execute(statement.returning(HarvestRunRow.id))).scalar_one()
    return run_id


async def finish_harvest(
    session: AsyncSession, run_id: int, counts: Mapping[str, int], *, problem: str | None = None
) -> None:
    """End a run: done, or failed with its problem. A run that was taken up again adds to its counts."""
    before = await session.scalar(select(HarvestRunRow.counts).where(HarvestRunRow.id == run_id))
    if before is None:
        raise UsageError(f"there is no harvest run {run_id}")
    added = {key: before.get(key, 0) + counts.get(key, 0) for key in before | dict(counts)}
    await session.execute(
        update(HarvestRunRow)
        .where(HarvestRunRow.id == run_id)
        .values(
            outcome=RunOutcome.DONE if problem is None else RunOutcome.FAILED,
            finished_at=func.now(),
            problem=problem,
            counts=added,
        )
    )


async def save_page(
    session: AsyncSession, run_id: int, source: str, event: FetchedPage, *, page_number: int = 1
) -> int:
    """Keep a page as it came; its fetch's number. `page_number` is its place in its thread or list."""
    fetched = event.fetched
    body = fetched.body if not fetched.not_modified else None
    added = await session.execute(
        insert(FetchRow)
        .values(
            run_id=run_id,
            source=source,
            kind=event.kind,
            thread_id=event.thread_id,
            page_number=page_number,
            url=fetched.url,
            status=fetched.status,
            fetched_at=fetched.fetched_at,
            elapsed_ms=fetched.elapsed_ms,
            body_digest=None if body is None else digest_bytes(body),
            content_type=fetched.content_type or None,
            etag=fetched.headers.get("etag"),
            last_modified=fetched.headers.get("last-modified"),
            # Without the time in its header, so that equal bodies are equal bytes.
            body=None if body is None else gzip.compress(body, compresslevel=6, mtime=0),
        )
        .returning(FetchRow.id)
    )
    fetch_id: int = added.scalar_one()
    return fetch_id


async def save_harvest_problem(session: AsyncSession, run_id: int, source: str, problem: HarvestProblem) -> int:
    """Keep what was not read, and why; its fetch's number."""
    added = await session.execute(
        insert(FetchRow)
        .values(
            run_id=run_id,
            source=source,
            kind=PageKind.LISTING if problem.thread_id is None else PageKind.THREAD,
            thread_id=problem.thread_id,
            url=problem.url,
            fetched_at=now(),
            error=f"{problem.kind.value}: {problem.message}",
        )
        .returning(FetchRow.id)
    )
    fetch_id: int = added.scalar_one()
    return fetch_id


async def mark_read(session: AsyncSession, first_fetch_id: int, page_count: int) -> None:
    """Note that a thread was read from its pages and saved: only then need an unchanged one not be sent again."""
    await session.execute(update(FetchRow).where(FetchRow.id == first_fetch_id).values(pages_read=page_count))


async def known_threads(session: AsyncSession, source: str) -> dict[str, KnownThread]:
    """Thread's id at the source → what its last reading was sent with."""
    query = (
        select(FetchRow.thread_id, FetchRow.etag, FetchRow.last_modified, FetchRow.pages_read)
        .where(FetchRow.source == source, FetchRow.pages_read.is_not(None))
        .ext(distinct_on(FetchRow.thread_id))
        .order_by(FetchRow.thread_id, FetchRow.id.desc())
    )
    return {
        thread_id: KnownThread(etag=etag, last_modified=modified, page_count=pages or 1)
        for thread_id, etag, modified, pages in await session.execute(query)
        if thread_id is not None
    }


async def load_body(session: AsyncSession, fetch_id: int) -> bytes | None:
    """A page's bytes as they came; None when there are none."""
    body = await session.scalar(select(FetchRow.body).where(FetchRow.id == fetch_id))
    return None if body is None else gzip.decompress(body)


async def quarantine(session: AsyncSession, source: str, reason: str | None) -> None:
    """Leave a source out of harvests from now on, or with None take it in again.

    Raises UsageError when there is no such source.
    """
    done = await session.scalar(
        update(SourceRow)
        .where(SourceRow.name == source)
        .values(quarantined_at=None if reason is None else func.now(), quarantine_reason=reason)
        .returning(SourceRow.name)
    )
    if done is None:
        raise UsageError(f"there is no source {source}")


async def harvest_outcomes(session: AsyncSession, iso_week: str) -> dict[str, RunOutcome]:
    """Source → how its harvest of that week stands, for those that were begun."""
    row = HarvestRunRow
    query = select(row.source, row.outcome).where(row.iso_week == iso_week)
    return {row.source: row.outcome for row in await session.execute(query)}


async def list_sources(session: AsyncSession) -> list[SourceInfo]:
    """Every source with its latest harvest, by name."""
    latest = (
        select(HarvestRunRow.source, HarvestRunRow.iso_week, HarvestRunRow.outcome)
        .ext(distinct_on(HarvestRunRow.source))
        .order_by(HarvestRunRow.source, HarvestRunRow.iso_week.desc())
        .subquery()
    )
    query = (
        select(SourceRow, latest.c.iso_week, latest.c.outcome)
        .outerjoin(latest, latest.c.source == SourceRow.name)
        .order_by(SourceRow.name)
    )
    return [
        SourceInfo(row.name, row.kind, row.quarantined_at, row.quarantine_reason, week, outcome)
        for row, week, outcome in await session.execute(query)
    ]
