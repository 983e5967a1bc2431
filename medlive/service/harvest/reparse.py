"""Parse stored pages again after a parser was repaired; changed threads become new revisions. No host is asked."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    nullcontext,
)
from dataclasses import dataclass, field
from pathlib import Path

from medlive.config import Settings
from medlive.db.harvest.fetches import Reading, latest_readings, read_threads_after
from medlive.db.harvest.frontier import settle
from medlive.db.harvest.harvests import latest_run, save_measures
from medlive.db.runs import recorded_run
from medlive.db.session import Database, Session, advisory_lock
from medlive.db.tables.intake import FrontierRow, FrontierState
from medlive.db.tables.release import PipelineRunRow
from medlive.db.threads.threads import latest_fetches
from medlive.deidentify.detect import keyed_handle
from medlive.errors import BadInput
from medlive.instance.paths import archive_path
from medlive.service.database import handle_key
from medlive.service.harvest.harvest import compare_run, find_source, store_threads
from medlive.service.harvest.ledger import Tick, check_harvested
from medlive.sources.archive import ArchiveDamaged, read_page
from medlive.sources.drift import Compared, thread_fields
from medlive.sources.harvest import parse_with
from medlive.sources.registry import build_site
from medlive.sources.source import Site, SourceError
from medlive.threads.model import Thread

COMMAND = "source reparse"
BATCH = 100
"""Threads read and saved in one transaction."""
MAX_PROBLEMS = 50
"""Most problems listed in full; all are counted."""
_PARSER_REASONS = {"layout", "fault", "not_a_thread", "incomplete"}
"""Failure reasons that a parser may have caused."""


@dataclass(slots=True)
class ReparseResult:
    """The result of parsing a source's pages again."""

    source: str
    counts: Counter[str] = field(default_factory=Counter)
    """Threads: unchanged, new, revised; layout, fault, not_a_thread, incomplete (they fail); bytes_gone, damaged
    (a page cannot be had); skipped (left out when they were harvested), waiting (never read as yet), taken_down.
    And pages read."""
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    """(thread id, kind, message) of the first MAX_PROBLEMS threads that fail."""
    damaged: set[Path] = field(default_factory=set)
    # Whether another process is harvesting the source; nothing was done then
    busy: bool = False
    quarantined: str | None = None  # Why it is left out of harvests
    drift: list[Compared] = field(default_factory=list)
    """The figures of the latest harvest with the new readings, beside those of earlier harvests."""


async def reparse_sources(
    database: Database,
    settings: Settings,
    sources: Sequence[str],
    *,
    dry_run: bool,
    progress: Callable[[str], AbstractContextManager[Tick]],
) -> list[ReparseResult]:
    """`reparse_source` of each source, recorded as a run unless it is dry; `progress` shows a source's threads."""
    async with AsyncExitStack() as stack:
        run = PipelineRunRow()
        if not dry_run:
            run = await stack.enter_async_context(
                recorded_run(database, COMMAND, {"sources": sorted(sources)})
            )
        done = []
        for source in sources:
            with progress(source) as tick:
                done.append(
                    await reparse_source(database, settings, source, dry_run, tick)
                )
        run.counts = {result.source: dict(result.counts) for result in done}
        run.failed = any(result.busy or result.damaged for result in done)
    return done


async def reparse_source(
    database: Database,
    settings: Settings,
    source: str,
    dry_run: bool,
    tick: Tick = lambda _: None,
) -> ReparseResult:
    """Parse the latest pages of a source's threads again with the current adapter.

    Each batch is committed, so that a killed run keeps its work; a second run finds all unchanged. A thread that
    can no longer be parsed is reported and left as it was. `dry_run` does the same in one transaction that is
    rolled back. Raises DatabaseUnavailable.
    """
    done = ReparseResult(source)
    async with advisory_lock(database, f"harvest {source}") as acquired:
        if not acquired:
            done.busy = True
        elif not dry_run:
            await _reparse(done, settings, database.begin, tick)
        else:
            async with database.begin() as session:
                await _reparse(done, settings, lambda: nullcontext(session), tick)
                await session.rollback()
    return done


async def _reparse(
    done: ReparseResult,
    settings: Settings,
    begin: Callable[[], AbstractAsyncContextManager[Session]],
    tick: Tick,
) -> None:
    """Parse batch after batch, each saved in a session of `begin`, then update the latest harvest's figures."""
    site = build_site(done.source, settings.sources.get(done.source, {}))
    folder, key, after = archive_path(settings), handle_key(settings), ""
    while True:
        async with begin() as session:
            ids = await read_threads_after(session, done.source, after, BATCH)
            batch = await latest_readings(session, done.source, ids) if ids else []
        if not batch:
            break
        parsed = []
        for reading in batch:
            reread = await asyncio.to_thread(_reread, done, site, folder, key, reading)
            parsed.append((reading, *reread))
        async with begin() as session:
            await _save(session, done, parsed)
        tick(done.counts.total() - done.counts["pages"])
        after = batch[-1].thread_id
    async with begin() as session:
        if info := await find_source(session, done.source):
            done.quarantined = info.quarantine_reason
        if latest := await latest_run(session, done.source):
            run_id, measured = latest
            done.drift, _ = await compare_run(session, done.source, run_id)
            if measured:
                await save_measures(session, run_id, done.drift)


def _reread(
    done: ReparseResult, site: Site, folder: Path, key: bytes, reading: Reading
) -> tuple[Thread | None, str, str]:
    """Parse a thread's pages with the current adapter; the thread, or a key of the counts and a message."""
    if not reading.pages:
        return None, "waiting", ""
    if reading.state is FrontierState.SKIPPED and not reading.stored:
        return None, "skipped", ""
    if any(page.path is None for page in reading.pages):
        return None, "bytes_gone", ""
    try:
        pages = [read_page(folder / str(p.path), p.place) for p in reading.pages]
        done.counts["pages"] += len(pages)
        thread = parse_with(
            pages[0].url,
            site.parse_thread,
            pages,
            lambda handle: keyed_handle(handle, key),
        )
        check_harvested(thread)
    except ArchiveDamaged as error:
        done.damaged.add(error.path)
        return None, "damaged", error.message
    except BadInput as error:
        return None, "fault", error.message
    except SourceError as error:
        return None, error.kind, error.message
    return thread, "", ""


async def _save(
    session: Session,
    done: ReparseResult,
    parsed: Sequence[tuple[Reading, Thread | None, str, str]],
) -> None:
    settled = defaultdict[int, list[FrontierRow]](list)
    threads, first_fetches = [], []
    # Thread → the newest first page that it was stored from or is read from now
    names = [thread.thread_id for _, thread, _, _ in parsed if thread]
    newest = await latest_fetches(session, done.source, names)
    for reading, thread, _, _ in parsed:
        if thread:
            first_fetch = reading.pages[0].fetch_id
            known = newest.get(thread.thread_id, 0)
            newest[thread.thread_id] = max(first_fetch, known)
    for reading, thread, reason, message in parsed:
        state = _settled_state(reading, thread, reason)
        if state and reading.run_id is not None:
            settled[reading.run_id].append(state)
        if thread is None:
            done.counts[reason] += 1
            if message:
                done.problems.append((reading.thread_id, reason, message))
        elif reading.pages[0].fetch_id < newest[thread.thread_id]:
            # Its address led to a thread that was read again since, by its own or another address.
            done.counts["unchanged"] += 1
        else:
            threads.append(thread)
            first_fetches.append(reading.pages[0].fetch_id)
    del done.problems[MAX_PROBLEMS:]
    done.counts += await store_threads(
        session, threads, fetch_ids=first_fetches, is_seen=False
    )
    for run_id, rows in sorted(settled.items()):
        await settle(session, done.source, run_id, rows)


def _settled_state(
    was: Reading, thread: Thread | None, reason: str
) -> FrontierRow | None:
    """The state of a thread that parses now, or fails for another reason of the parser; None where it stays."""
    if was.state is None or not was.pages:
        return None
    failed = was.state is FrontierState.FAILED
    if thread:
        return FrontierRow(
            thread_id=was.thread_id,
            state=FrontierState.READ if failed else was.state,
            reason=None if failed else was.reason,
            etag=was.pages[0].etag,
            last_modified=was.pages[0].last_modified,
            page_count=len(was.pages),
            posted_at=thread.posted_at,
            fields=thread_fields(thread),
        )
    if failed and was.reason != reason and {was.reason, reason} <= _PARSER_REASONS:
        return FrontierRow(thread_id=was.thread_id, state=was.state, reason=reason)
    return None
