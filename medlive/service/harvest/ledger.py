"""The harvest's ledger in PostgreSQL, with the bytes of pages in WARC files.

Events that arrive while the database is busy are saved as one batch: bytes first, flushed to disk, then the rows
that name their offsets, in one transaction. A kill in between leaves bytes without rows, which the next start
truncates.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeGuard

from medlive import __version__
from medlive.db.batching import Batcher
from medlive.db.harvest.archives import grow_archive, mark_sealed, start_archive
from medlive.db.harvest.fetches import kept_pages, save_failed_fetches, save_pages
from medlive.db.harvest.frontier import (
    Settled,
    look_up,
    reading_began,
    save_listed,
    settle,
    take_left_over,
    take_not_listed,
)
from medlive.db.harvest.harvests import StartedRun, add_counts, list_state, save_cursor, save_robots
from medlive.db.session import Database, Session
from medlive.db.tables.intake import FrontierState
from medlive.db.threads.takedowns import taken_down_ids
from medlive.db.threads.threads import check_storable, mark_gone, mark_seen, save_identifiers, save_threads
from medlive.errors import BadInput, MedliveError, ServiceUnavailable
from medlive.service.harvest.raw_files import read_stored_page
from medlive.sources.archive.warc import ArchivedPage, ArchiveWriter, Place
from medlive.sources.drift import thread_fields
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.ledger import (
    FetchedPage,
    HarvestedThread,
    HarvestEvent,
    HarvestProblem,
    HarvestSkipped,
    KnownThread,
    Listed,
    ListState,
    ProblemKind,
    SkipReason,
)
from medlive.sources.source import ListEntry, Page
from medlive.threads.model import Thread
from medlive.threads.prepare import FoundIdentifier, thread_identifiers

BATCH_WAIT_S = 0.03
SOFTWARE = f"medlive/{__version__}"
LONGEST_MESSAGE = 200_000
"""Characters of a message that are read: no community allows a tenth of that, and longer ones take seconds."""


class PostgresLedger:
    """One run's ledger, as one process writes it."""

    def __init__(
        self,
        database: Database,
        run: StartedRun,
        source: str,
        iso_week: str,
        *,
        folder: Path,
        operator: str | None,
        overlap: timedelta,
        fetcher: Fetcher,
        concurrency: int = 1,
        tick: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Open the ledger of a run.

        Args:
            folder: The archive's folder.
            operator: The contact named in its files.
            overlap: How far before the latest activity of earlier runs lists are read again.
            concurrency: How many readers save events at a time.
            tick: Called with the number of threads that were read.
        """
        self._database = database
        self._run = run
        self._source = source
        self._folder = folder
        self._stem = f"{source}/{source}-{iso_week}-{run.run_id}.{run.start}"
        self._operator = operator
        self._overlap = overlap
        self._fetcher = fetcher
        self._tick = tick
        # Several connections gain by committing more at a time.
        self._batcher: Batcher[tuple[HarvestEvent, ...], None] = Batcher(
            self._save_all, largest=64, gather_s=BATCH_WAIT_S if concurrency > 1 else 0.0
        )
        self._writer: ArchiveWriter | None = None
        self._archive_id = 0
        self._first_fetch: dict[str, int] = {}
        self._identifiers: dict[str, tuple[FoundIdentifier, ...]] = {}
        self._robots_saved = 0
        self._request_counts: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        """What this start saved: requests, conditional, retried_<reason>, pages, listed, new, revised, unchanged,
        identifiers, and each skip's and problem's name. The run's row has them as well."""
        self.problems: list[HarvestProblem] = []

    async def keep(self, *events: HarvestEvent) -> None:
        """See `medlive.sources.ledger.Ledger`."""
        if events:
            await self._batcher(tuple([await self._prepare(event) for event in events]))

    async def look_up(self, thread_ids: Sequence[str]) -> Mapping[str, KnownThread]:
        """See `medlive.sources.ledger.Ledger`."""
        async with self._database.begin() as session:
            return await look_up(session, self._source, self._run.run_id, thread_ids)

    async def list_state(self, list_key: str) -> ListState:
        """See `medlive.sources.ledger.Ledger`."""
        async with self._database.begin() as session:
            return await list_state(session, self._run.run_id, self._source, list_key, self._overlap)

    async def left_over(self) -> Sequence[ListEntry]:
        """See `medlive.sources.ledger.Ledger`."""
        async with self._database.begin() as session:
            return await take_left_over(session, self._source, self._run.run_id)

    async def not_listed(self) -> Sequence[ListEntry]:
        """See `medlive.sources.ledger.Ledger`."""
        async with self._database.begin() as session:
            return await take_not_listed(session, self._source, self._run.run_id, self._overlap)

    async def kept_pages(self, thread_id: str) -> Sequence[Page]:
        """See `medlive.sources.ledger.Ledger`."""
        async with self._database.begin() as session:
            after = await reading_began(session, self._source, thread_id)
            kept = await kept_pages(session, self._source, thread_id, after_fetch=after)
        if not kept:
            return []
        self._first_fetch[thread_id] = kept[0].fetch_id
        return [await asyncio.to_thread(read_stored_page, self._folder / (k.path or ""), k.place) for k in kept]

    @property
    def unsaved_counts(self) -> Counter[str]:
        """Requests sent since the last event was saved."""
        return _request_counts(self._fetcher) - self._request_counts

    async def aclose(self) -> None:
        """Wait until all events are saved, and close the WARC file."""
        await self._batcher.aclose()
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)
            async with self._database.begin() as session:
                await mark_sealed(session, self._archive_id)

    async def _prepare(self, event: HarvestEvent) -> HarvestEvent:
        """Find a thread's identifiers; a thread that cannot be stored becomes a problem.

        Done before the batch is saved, so that one invalid thread does not fail the others.
        """
        if isinstance(event, HarvestedThread):
            try:
                check_storable(event.thread)
                self._identifiers[event.entry.thread_id] = await asyncio.to_thread(_find_identifiers, event.thread)
            except Exception as error:
                message = error.message if isinstance(error, MedliveError) else f"{type(error).__name__}: {error}"
                return HarvestProblem(event.entry.url, ProblemKind.FAULT, message, event.entry.thread_id)
        return event

    async def _save_all(self, groups: Sequence[tuple[HarvestEvent, ...]]) -> Sequence[None]:
        groups = await self._drop_taken_down(groups)
        events = [event for group in groups for event in group]
        pages = [e for g in groups if not _lists_taken_down(g) for e in g if isinstance(e, FetchedPage)]
        places = await self._archive(pages) if pages else []
        counts: Counter[str] = Counter()
        robots = self._fetcher.robots
        async with self._database.begin() as session:
            if len(robots) > self._robots_saved:
                await save_robots(session, self._run.run_id, robots)
            await self._save_pages(session, pages, places, counts)
            for event in events:
                if isinstance(event, Listed):
                    await self._save_listed(session, event, counts)
            await self._save_outcomes(session, events, counts)
            sent = _request_counts(self._fetcher)
            counts += sent - self._request_counts
            await add_counts(session, self._run, counts)
        self._request_counts = sent
        self._robots_saved = len(robots)
        self.counts += counts
        self._tick(sum(self.counts[s] for s in ("new", "revised", "unchanged", "not_modified")))
        self.problems += [event for event in events if isinstance(event, HarvestProblem)]
        for event in events:
            if isinstance(event, HarvestedThread):
                self._first_fetch.pop(event.entry.thread_id, None)
                self._identifiers.pop(event.entry.thread_id, None)
        return [None] * len(groups)

    async def _drop_taken_down(
        self, groups: Sequence[tuple[HarvestEvent, ...]]
    ) -> Sequence[tuple[HarvestEvent, ...]]:
        """Replace each group whose address redirects to a thread that was taken down by that fact alone."""
        redirected = {e.thread.thread_id for g in groups for e in g if _is_redirected(e)}
        if not redirected:
            return groups
        async with self._database.begin() as session:
            erased = await taken_down_ids(session, self._source, sorted(redirected))
        return [
            next(
                (
                    (HarvestSkipped(e.entry.url, e.entry.thread_id, SkipReason.TAKEN_DOWN),)
                    for e in group
                    if _is_redirected(e) and e.thread.thread_id in erased
                ),
                group,
            )
            for group in groups
        ]

    async def _archive(self, pages: Sequence[FetchedPage]) -> list[Place]:
        """Write the bytes of pages to disk; their places in the file."""
        archived = [
            ArchivedPage(e.fetched.url, e.fetched.status, e.fetched.headers, e.fetched.body, e.fetched.fetched_at,
                         e.page.form)
            for e in pages
        ]  # fmt: skip
        try:
            writer = self._writer or await self._begin_archive()
            return await asyncio.to_thread(writer.append, archived)
        except OSError as error:
            raise ServiceUnavailable(
                f"cannot write pages to {self._folder / self._stem}: {error.strerror or error}",
                hint="free disk space or repair the folder; the next harvest resumes where this one stopped",
            ) from error

    async def _begin_archive(self) -> ArchiveWriter:
        path, number = f"{self._stem}.warc.gz", 1
        # A file of an earlier database in the same folder is left alone.
        while (self._folder / path).exists():
            number += 1
            path = f"{self._stem}-{number}.warc.gz"
        self._writer = await asyncio.to_thread(
            ArchiveWriter, self._folder / path, software=SOFTWARE, operator=self._operator
        )
        async with self._database.begin() as session:
            self._archive_id = await start_archive(session, self._run.run_id, path, self._writer.size)
        return self._writer

    async def _save_pages(
        self, session: Session, pages: Sequence[FetchedPage], places: Sequence[Place], counts: Counter[str]
    ) -> None:
        if not pages:
            return
        assert self._writer is not None
        ids = await save_pages(session, self._run.run_id, self._source, pages, self._archive_id, places)
        await grow_archive(session, self._archive_id, self._writer.size)
        counts["pages"] += len(pages)
        for event, fetch_id in zip(pages, ids, strict=True):
            if event.thread_id is not None and event.number == 1:
                self._first_fetch[event.thread_id] = fetch_id

    async def _save_listed(self, session: Session, listed: Listed, counts: Counter[str]) -> None:
        skipped = {
            s.thread_id: (s.url, s.reason.value)
            for s in listed.skipped
            if s.reason is not SkipReason.TAKEN_DOWN  # its address may hold its title
        }
        await save_listed(session, self._source, self._run.run_id, listed.list_key, listed.waiting, skipped)
        await save_cursor(session, self._run.run_id, listed)
        counts["listed"] += len(listed.waiting)
        counts.update(s.reason.value for s in listed.skipped)

    async def _save_outcomes(self, session: Session, events: Sequence[HarvestEvent], counts: Counter[str]) -> None:
        read = [event for event in events if isinstance(event, HarvestedThread)]
        if read:
            threads = [event.thread for event in read]
            fetches = [self._first_fetch.get(event.entry.thread_id) for event in read]
            saved = await save_threads(session, threads, fetch_ids=fetches)
            found = [self._identifiers[event.entry.thread_id] for event in read]
            counts["identifiers"] += await save_identifiers(session, saved, found)
            counts.update(one.status for one in saved)
        problems = [event for event in events if isinstance(event, HarvestProblem)]
        await save_failed_fetches(session, self._run.run_id, self._source, problems)
        counts.update(problem.kind.value for problem in problems)
        skipped = [event for event in events if isinstance(event, HarvestSkipped)]
        counts.update(event.reason.value for event in skipped)
        settled = [s for event in events if (s := _settled_state(event)) is not None]
        await settle(session, self._source, self._run.run_id, settled)
        gone = [s.thread_id for s in settled if s.state is FrontierState.GONE]
        # A redirected thread was merged into its target.
        gone += [event.entry.thread_id for event in read if _is_redirected(event)]
        await mark_gone(session, self._source, gone)
        unchanged = [s.thread_id for s in settled if s.state is FrontierState.NOT_MODIFIED]
        await mark_seen(session, self._source, unchanged + [event.thread.thread_id for event in read])


def _is_redirected(event: HarvestEvent) -> TypeGuard[HarvestedThread]:
    """Whether a thread's address shows another thread."""
    return isinstance(event, HarvestedThread) and event.thread.thread_id != event.entry.thread_id


def _lists_taken_down(events: Sequence[HarvestEvent]) -> bool:
    """Whether a list page among these events shows a thread that was taken down; storing it would restore what
    was erased."""
    return any(
        skipped.reason is SkipReason.TAKEN_DOWN
        for event in events
        if isinstance(event, Listed)
        for skipped in event.skipped
    )


def _find_identifiers(thread: Thread) -> tuple[FoundIdentifier, ...]:
    longest = max(len(text) for text in (thread.title, *(m.text for m in thread.messages)))
    if longest > LONGEST_MESSAGE:
        raise BadInput(f"a message has {longest} characters, more than the {LONGEST_MESSAGE} that are read")
    return thread_identifiers(thread)


def _request_counts(fetcher: Fetcher) -> Counter[str]:
    """Requests sent to the host, and retries by reason."""
    counts = Counter({"requests": fetcher.requests, "conditional": fetcher.conditional})
    counts.update({f"retried_{reason.value}": n for reason, n in fetcher.retries.items()})
    return counts


def _settled_state(event: HarvestEvent) -> Settled | None:
    """The state in which an event leaves its thread; None without a thread, or while the thread still waits."""
    if isinstance(event, HarvestedThread):
        return Settled(
            event.entry.thread_id,
            FrontierState.READ,
            etag=event.etag,
            last_modified=event.last_modified,
            page_count=event.page_count,
            posted_at=event.thread.posted_at,
            fields=thread_fields(event.thread),
        )
    if isinstance(event, HarvestSkipped):
        if event.reason is SkipReason.NOT_MODIFIED:
            return Settled(event.thread_id, FrontierState.NOT_MODIFIED)
        return Settled(event.thread_id, FrontierState.SKIPPED, reason=event.reason.value)
    if isinstance(event, HarvestProblem) and event.thread_id is not None:
        if event.kind is ProblemKind.GONE:
            return Settled(event.thread_id, FrontierState.GONE)
        # The host is down, not the thread: it waits for the next start.
        if event.kind is not ProblemKind.DOWN:
            return Settled(event.thread_id, FrontierState.FAILED, reason=event.kind.value)
    return None
