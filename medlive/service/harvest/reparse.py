"""Parse stored pages again after a parser was repaired; changed threads become new revisions. No host is asked."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from medlive.config import Settings
from medlive.db.harvest.fetches import Reading, latest_readings, read_threads_after
from medlive.db.harvest.frontier import settle
from medlive.db.runs import recorded_run
from medlive.db.session import Database, Session, advisory_lock
from medlive.db.tables.intake import FrontierRow, FrontierState
from medlive.db.threads.threads import latest_fetches
from medlive.deidentify.detect import keyed_handle
from medlive.errors import BadInput
from medlive.instance.paths import archive_path
from medlive.service.database import handle_key
from medlive.sources.archive import ArchiveDamaged, read_page
from medlive.sources.drift import thread_fields
from medlive.sources.harvest import parse_with
from medlive.sources.registry import build_site
from medlive.sources.source import Site, SourceError
from medlive.threads.model import Thread

from .harvest import store_threads
from .ledger import Tick, check_harvested

COMMAND = "source reparse"
BATCH = 100
"""Threads read and saved in one transaction."""
MAX_PROBLEMS = 50
"""Most problems listed in full; all are counted."""


@dataclass
class ReparseResult:
    """The result of parsing a source's pages again."""

    source: str
    counts: Counter[str] = field(default_factory=Counter)
    """Threads: unchanged, new, revised; layout, fault, not_a_thread, incomplete (they fail); bytes_gone, damaged
    (a page cannot be had); skipped (left out when they were harvested), waiting (never read as yet), taken_down.
    And pages read."""
    problems: list[str] = field(default_factory=list)
    """The first MAX_PROBLEMS threads that fail, and why."""
    damaged: set[Path] = field(default_factory=set)
    # Whether another process is harvesting the source; nothing was done then
    busy: bool = False


async def reparse_sources(
    database: Database,
    settings: Settings,
    sources: Sequence[str],
    *,
    progress: Callable[[str], AbstractContextManager[Tick]],
) -> list[ReparseResult]:
    """`reparse_source` of each source, recorded as a run; `progress` shows a source's threads."""
    async with recorded_run(database, COMMAND, {"sources": sorted(sources)}) as run:
        done = []
        for source in sources:
            with progress(source) as tick:
                done.append(await reparse_source(database, settings, source, tick))
        run.counts = {result.source: dict(result.counts) for result in done}
        run.failed = any(result.busy or result.damaged for result in done)
    return done


async def reparse_source(
    database: Database,
    settings: Settings,
    source: str,
    tick: Tick = lambda _: None,
) -> ReparseResult:
    """Parse the latest pages of a source's threads again with the current adapter.

    Each batch is committed, so that a killed run keeps its work; a second run finds all unchanged. A thread that
    can no longer be parsed is reported and left as it was. Raises DatabaseUnavailable.
    """
    done = ReparseResult(source)
    site = build_site(source, settings.sources.get(source))
    reread = partial(_reread, done, site, archive_path(settings), handle_key(settings))
    async with advisory_lock(database, f"harvest {source}") as acquired:
        if not acquired:
            done.busy = True
            return done
        after = ""
        while True:
            async with database.begin() as session:
                ids = await read_threads_after(session, source, after, BATCH)
                batch = await latest_readings(session, source, ids)
            if not batch:
                break
            parsed = []
            for reading in batch:
                parsed.append(await asyncio.to_thread(reread, reading))
            await database.ask(_save, done, parsed)
            tick(done.counts.total() - done.counts["pages"])
            after = ids[-1]
    return done


class _Reread(NamedTuple):
    """A thread as the current adapter reads it; where there is none, `reason` (a key of the counts) and `message`."""

    reading: Reading
    thread: Thread | None = None
    reason: str = ""
    message: str = ""


def _reread(
    done: ReparseResult, site: Site, folder: Path, key: bytes, reading: Reading
) -> _Reread:
    """Parse a thread's pages with the current adapter."""
    if not reading.pages:
        return _Reread(reading, reason="waiting")
    if reading.state is FrontierState.SKIPPED and not reading.stored:
        return _Reread(reading, reason="skipped")
    if any(page.path is None for page in reading.pages):
        return _Reread(reading, reason="bytes_gone")
    try:
        pages = [read_page(folder / str(p.path), p.place) for p in reading.pages]
        done.counts["pages"] += len(pages)
        anonymise = partial(keyed_handle, key=key)
        thread = parse_with(pages[0].url, site.whole_thread, pages, anonymise)
        check_harvested(thread)
    except ArchiveDamaged as error:
        done.damaged.add(error.path)
        return _Reread(reading, reason="damaged", message=error.message)
    except BadInput as error:
        return _Reread(reading, reason="fault", message=error.message)
    except SourceError as error:
        return _Reread(reading, reason=error.kind, message=error.message)
    return _Reread(reading, thread)


async def _save(
    session: Session, done: ReparseResult, parsed: Sequence[_Reread]
) -> None:
    """Save the threads that parse, with their state in the run that read them; count the others."""
    settled = defaultdict[int, list[FrontierRow]](list)
    threads, first_fetches = [], []
    # Thread → the newest first page that it was stored from or is read from now
    names = [item.thread.thread_id for item in parsed if item.thread]
    newest = await latest_fetches(session, done.source, names)
    for reading, thread, _, _ in parsed:
        if thread:
            first_fetch = reading.pages[0].fetch_id
            known = newest.get(thread.thread_id, 0)
            newest[thread.thread_id] = max(first_fetch, known)
    for reading, thread, reason, message in parsed:
        if thread is None:
            done.counts[reason] += 1
            if message and len(done.problems) < MAX_PROBLEMS:
                name = f"{done.source}/{reading.thread_id}"
                done.problems.append(f"{name}: {reason}: {message}")
            continue
        if reading.state and reading.run_id is not None:
            settled[reading.run_id].append(_settled_state(reading, thread))
        if reading.pages[0].fetch_id < newest[thread.thread_id]:
            # Its address led to a thread that was read again since, by its own or another address.
            done.counts["unchanged"] += 1
        else:
            threads.append(thread)
            first_fetches.append(reading.pages[0].fetch_id)
    done.counts += await store_threads(
        session, threads, fetch_ids=first_fetches, is_seen=False
    )
    for run_id, rows in sorted(settled.items()):
        await settle(session, done.source, run_id, rows)


def _settled_state(was: Reading, thread: Thread) -> FrontierRow:
    """The state of a thread that parses now."""
    has_failed = was.state is FrontierState.FAILED
    return FrontierRow(
        thread_id=was.thread_id,
        state=FrontierState.READ if has_failed else was.state,
        reason=None if has_failed else was.reason,
        etag=was.pages[0].etag,
        last_modified=was.pages[0].last_modified,
        page_count=len(was.pages),
        posted_at=thread.posted_at,
        fields=thread_fields(thread),
    )
