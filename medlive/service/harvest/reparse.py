"""Parse stored pages again after a parser was repaired; changed threads become new revisions. No host is asked."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from medlive.config import Settings
from medlive.db.harvest.frontier import Settled, settle
from medlive.db.harvest.harvests import list_sources, past_measures, run_figures, save_measures
from medlive.db.harvest.readings import Reading, latest_readings, latest_run, read_threads_after
from medlive.db.runs import finish_run, start_run
from medlive.db.session import Database, Session, advisory_lock
from medlive.db.tables.intake import FrontierState
from medlive.db.threads.identifiers import save_identifiers
from medlive.db.threads.takedowns import TAKEN_DOWN, keep_out
from medlive.db.threads.threads import check_storable, save_threads
from medlive.deidentify.detect import keyed_handle
from medlive.errors import BadInput, UsageError
from medlive.service.database import handle_key
from medlive.service.harvest.ledger import read_stored_page
from medlive.service.paths import archive_path
from medlive.sources.archive.warc import ArchiveDamaged
from medlive.sources.drift import HISTORY, Compared, compare, measures, thread_fields
from medlive.sources.harvest import ParserFault, parse_with, problem_kind
from medlive.sources.ledger import ProblemKind
from medlive.sources.registry import build_site
from medlive.sources.source import LayoutError, NotAThread, Site
from medlive.threads.model import Thread
from medlive.threads.prepare import thread_identifiers

COMMAND: Final = "source reparse"
BATCH: Final = 100
"""Threads read and saved in one transaction."""
MAX_PROBLEMS: Final = 50
"""Most problems listed in full; all are counted."""
_PARSER_REASONS: Final = ("layout", "fault", "not_a_thread", "incomplete")
"""Failure reasons that a parser may have caused."""

BYTES_GONE: Final = "bytes_gone"
DAMAGED: Final = "damaged"


@dataclass(slots=True)
class ReparseResult:
    """The result of parsing a source's pages again."""

    source: str
    counts: Counter[str] = field(default_factory=Counter)
    """Threads: unchanged, new, revised; layout, fault, not_a_thread, incomplete (they fail); bytes_gone, damaged
    (a page cannot be had); skipped (left out when they were harvested), waiting (never read as yet), taken_down.
    And pages read."""
    before: Counter[str] = field(default_factory=Counter)
    """Field → threads that had it when last parsed, of those that can be parsed now."""
    after: Counter[str] = field(default_factory=Counter)
    """Field → threads that have it now."""
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    """(thread id, kind, message) of the first MAX_PROBLEMS threads that fail."""
    damaged: set[Path] = field(default_factory=set)
    """Files that are damaged or missing."""
    busy: bool = False
    """Whether another process is harvesting the source; nothing was done then."""
    quarantined: str | None = None
    """Why it is left out of harvests."""
    drift: list[Compared] = field(default_factory=list)
    """The figures of the latest harvest with the new readings, beside those of earlier harvests."""

    @property
    def threads(self) -> int:
        """The number of threads parsed or skipped."""
        return sum(self.counts.values()) - self.counts["pages"]


@dataclass(frozen=True, slots=True)
class _Reread:
    reading: Reading
    thread: Thread | None = None
    reason: str = ""
    """Why there is no thread; a key of `ReparseResult.counts`."""
    message: str = ""


async def reparse_source(
    database: Database,
    settings: Settings,
    source: str,
    overrides: Mapping[str, Any],
    *,
    thread_ids: Sequence[str] = (),
    dry_run: bool = False,
    tick: Callable[[int], None] = lambda _: None,
) -> ReparseResult:
    """Parse the latest pages of a source's threads (or of those named) again with the current adapter.

    Each batch is committed, so that a killed run keeps its work; a second run finds all unchanged. A thread that
    can no longer be parsed is reported and left as it was. `dry_run` does the same in one transaction that is
    rolled back. Raises UsageError for a named thread without stored pages, and DatabaseUnavailable.
    """
    work = _Reparse(ReparseResult(source), settings, build_site(source, overrides), dry_run)
    async with advisory_lock(database, f"harvest {source}") as acquired:
        if not acquired:
            work.done.busy = True
            return work.done
        if not dry_run:
            await work.run(database.begin, thread_ids, tick)
            return work.done
        async with database.begin() as session:
            await work.run(lambda: nullcontext(session), thread_ids, tick)
            await session.rollback()
        return work.done


@asynccontextmanager
async def reparse_run(
    database: Database, sources: Collection[str], done: Sequence[ReparseResult], *, dry_run: bool
) -> AsyncIterator[None]:
    """Record a reparse command with the counts of `done` at its end; a dry run is not recorded."""
    if dry_run:
        yield
        return
    async with database.begin() as session:
        run = await start_run(session, COMMAND, {"sources": sorted(sources)})
    yield
    counts = {one.source: dict(one.counts) for one in done}
    async with database.begin() as session:
        await finish_run(session, run, counts, failed=any(one.busy or one.damaged for one in done))


class _Reparse:
    """The reparse of one source."""

    def __init__(self, done: ReparseResult, settings: Settings, site: Site, dry_run: bool) -> None:
        self.done = done
        self._source = done.source
        self._site = site
        self._folder = archive_path(settings)
        self._key = handle_key(settings)
        self._dry_run = dry_run

    async def run(
        self,
        begin: Callable[[], AbstractAsyncContextManager[Session]],
        thread_ids: Sequence[str],
        tick: Callable[[int], None],
    ) -> None:
        """Parse batch after batch, each saved in a session of `begin`, then update the figures."""
        after = ""
        while True:
            async with begin() as session:
                if thread_ids:
                    ids = [i for i in sorted(set(thread_ids)) if i > after][:BATCH]
                else:
                    ids = await read_threads_after(session, self._source, after, BATCH)
                batch = await latest_readings(session, self._source, ids) if ids else []
            if not batch:
                break
            self._check_known(batch, thread_ids)
            rereads = await asyncio.to_thread(list, map(self._reread, batch))
            async with begin() as session:
                await self._save(session, rereads)
            tick(self.done.threads)
            after = batch[-1].thread_id
        async with begin() as session:
            await self._measure(session)

    def _check_known(self, batch: Sequence[Reading], thread_ids: Sequence[str]) -> None:
        for one in batch:
            if thread_ids and not one.pages and one.state is None:
                raise UsageError(f"no page of {self._source}/{one.thread_id} is stored")

    def _reread(self, one: Reading) -> _Reread:
        """Parse a thread's pages with the current adapter."""
        if not one.pages:
            return _Reread(one, reason="waiting")
        if one.state is FrontierState.SKIPPED and not one.stored:
            return _Reread(one, reason="skipped")
        files = [page.file for page in one.pages if page.file is not None]
        if len(files) < len(one.pages):
            return _Reread(one, reason=BYTES_GONE)
        try:
            pages = [read_stored_page(self._folder / path, place) for path, place in files]
            self.done.counts["pages"] += len(pages)
            thread = parse_with(pages[0].url, self._site.parse_thread, pages, self._anonymise)
            check_storable(thread)
        except ArchiveDamaged as error:
            self.done.damaged.add(error.path)
            return _Reread(one, reason=DAMAGED, message=error.message)
        except BadInput as error:
            return _Reread(one, reason=ProblemKind.FAULT.value, message=error.message)
        except (LayoutError, NotAThread, ParserFault) as error:
            return _Reread(one, reason=problem_kind(error).value, message=error.message)
        return _Reread(one, thread)

    def _anonymise(self, handle: str) -> str:
        return keyed_handle(handle, self._key)

    async def _save(self, session: Session, rereads: Sequence[_Reread]) -> None:
        done = self.done
        threads = [(one, one.thread) for one in rereads if one.thread is not None]
        erased = await keep_out(session, [thread for _, thread in threads])
        if erased:
            done.counts[TAKEN_DOWN] += len(threads)
            threads = [(one, t) for one, t in threads if (t.source, t.thread_id) not in erased]
            done.counts[TAKEN_DOWN] -= len(threads)
        saved = await save_threads(
            session,
            [thread for _, thread in threads],
            fetch_ids=[one.reading.pages[0].fetch_id for one, _ in threads],
        )
        found = [
            () if one.status == "unchanged" else thread_identifiers(thread)
            for one, (_, thread) in zip(saved, threads, strict=True)
        ]
        await save_identifiers(session, saved, found)
        done.counts.update(one.status for one in saved)
        for one, thread in threads:
            done.before.update(_field_counts(one.reading.fields or {}))
            done.after.update(_field_counts(thread_fields(thread)))
        for one in rereads:
            if one.thread is None:
                done.counts[one.reason] += 1
                if one.message and len(done.problems) < MAX_PROBLEMS:
                    done.problems.append((one.reading.thread_id, one.reason, one.message))
        settled = [(one.reading.run_id, s) for one in rereads if (s := _settled_state(one)) is not None]
        for run_id in sorted({run_id for run_id, _ in settled if run_id is not None}):
            await settle(session, self._source, run_id, [s for mine, s in settled if mine == run_id])

    async def _measure(self, session: Session) -> None:
        """Recompute the latest harvest's figures and store them in place of the old ones."""
        info = next((s for s in await list_sources(session) if s.name == self._source), None)
        self.done.quarantined = info.quarantine_reason if info is not None else None
        latest = await latest_run(session, self._source)
        if latest is None:
            return
        run_id, measured = latest
        shares, ends = await run_figures(session, run_id)
        past = await past_measures(session, self._source, before_run=run_id, runs=HISTORY)
        self.done.drift = compare(measures(shares, ends), past)
        if measured:
            await save_measures(session, run_id, self.done.drift)


def _field_counts(fields: Mapping[str, Any]) -> Counter[str]:
    return Counter({name: int(value) for name, value in fields.items() if value})


def _settled_state(one: _Reread) -> Settled | None:
    """The thread's new frontier state: a failed thread that parses now is read, any other keeps its state.

    None where nothing changed, or where the thread was read before and does not parse now.
    """
    was, first = one.reading, one.reading.pages[0] if one.reading.pages else None
    if was.state is None or first is None:
        return None
    if one.thread is not None:
        failed = was.state is FrontierState.FAILED
        return Settled(
            was.thread_id,
            FrontierState.READ if failed else was.state,
            reason=None if failed else was.reason,
            etag=first.etag,
            last_modified=first.last_modified,
            page_count=len(was.pages),
            posted_at=one.thread.posted_at,
            fields=thread_fields(one.thread),
        )
    if (
        was.state is FrontierState.FAILED
        and was.reason in _PARSER_REASONS
        and one.reason in _PARSER_REASONS
        and one.reason != was.reason
    ):
        return Settled(was.thread_id, FrontierState.FAILED, reason=one.reason)
    return None
