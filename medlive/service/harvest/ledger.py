"""Save what a harvest reads, so that it can resume: rows in PostgreSQL, the bytes of pages in WARC files.

Events that arrive while the database is busy are saved as one batch: bytes first, flushed to disk, then the rows
that name their offsets, in one transaction. A kill in between leaves bytes without rows, which the next harvest
truncates.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TypeVar

from medlive import __version__
from medlive.db.batching import Batcher
from medlive.db.harvest import fetches, frontier, harvests
from medlive.db.session import Database, Session
from medlive.db.tables.intake import FrontierRow, FrontierState
from medlive.db.threads.takedowns import taken_down_ids
from medlive.db.threads.threads import (
    check_storable,
    mark_seen,
    save_identifiers,
    save_threads,
)
from medlive.deidentify.identifiers import Identifier
from medlive.errors import BadInput, ServiceUnavailable, describe
from medlive.guard.bounds import MESSAGE_CHARS
from medlive.sources.archive import ArchiveWriter, read_page
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
    Place,
)
from medlive.sources.source import Fetched, ListEntry
from medlive.threads.model import Thread
from medlive.threads.prepare import thread_identifiers

T = TypeVar("T")
Tick = Callable[[int], None]
"""Called with the number of threads done so far."""


@dataclass
class PostgresLedger:
    """One run's `medlive.sources.ledger.Ledger`, as one process writes it."""

    database: Database
    run: harvests.StartedRun
    source: str
    iso_week: str
    folder: Path  # The folder of WARC files
    operator: str | None  # The contact named in the WARC file
    # How far before earlier runs' latest activity lists are read again
    overlap: timedelta
    fetcher: Fetcher
    tick: Tick = lambda _: None  # Gets the number of threads read
    counts: Counter[str] = field(default_factory=Counter)
    """What this ledger saved: requests, conditional, retried_<reason>, pages, listed, new, revised, unchanged,
    identifiers, and each skip's and problem's name. They are added to the run's row as well."""
    problems: list[HarvestProblem] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin without a file; the first page opens it."""
        self._batcher = Batcher[tuple[HarvestEvent, ...]](self._save_all, largest=64)
        self._writer: ArchiveWriter | None = None
        self._archive_id = 0
        # Thread → the fetch of its first page
        self._first_fetch: dict[str, int] = {}
        self._identifiers: dict[str, list[list[Identifier]]] = {}
        # How many robots.txt, and which requests, are saved
        self._robots_saved = 0
        self._saved_requests: Counter[str] = Counter()

    async def keep(self, *events: HarvestEvent) -> None:
        """Save the events together, all or none."""
        if events:
            await self._batcher(tuple([await self._prepare(event) for event in events]))

    async def look_up(self, thread_ids: Sequence[str]) -> Mapping[str, KnownThread]:
        """What this and earlier runs know of listed threads, by id."""
        return await self.database.ask(
            frontier.look_up, self.source, self.run.run_id, thread_ids
        )

    async def list_state(self, list_key: str) -> ListState:
        """How far a list was read in this run."""
        return await self.database.ask(
            harvests.list_state,
            self.run.run_id,
            self.source,
            list_key,
            self.overlap,
        )

    async def left_over(self) -> Sequence[ListEntry]:
        """Threads that were listed and not read."""
        return await self.database.ask(
            frontier.take_left_over, self.source, self.run.run_id
        )

    async def not_listed(self) -> Sequence[ListEntry]:
        """Recent threads that no list of this run has shown."""
        return await self.database.ask(
            frontier.take_not_listed, self.source, self.run.run_id, self.overlap
        )

    async def kept_pages(self, thread_id: str) -> Sequence[Fetched]:
        """The pages of a waiting thread that this run has kept already, in order."""
        async with self.database.begin() as session:
            after = await frontier.reading_began(session, self.source, thread_id)
            kept = await fetches.kept_pages(
                session, self.source, thread_id, after_fetch=after
            )
        if kept:
            self._first_fetch[thread_id] = kept[0].fetch_id
        pages = []
        for page in kept:
            path = self.folder / (page.path or "")
            pages.append(await asyncio.to_thread(read_page, path, page.place))
        return pages

    async def aclose(self) -> None:
        """Wait until all events are saved, add requests that no event followed, and close the WARC file."""
        await self._batcher.aclose()
        await self._save_all(())
        if self._writer:
            await asyncio.to_thread(self._writer.close)
            await self.database.ask(fetches.mark_sealed, self._archive_id)

    async def _prepare(self, event: HarvestEvent) -> HarvestEvent:
        """Find a thread's identifiers before its batch is saved; one that cannot be stored becomes a problem."""
        if not isinstance(event, HarvestedThread):
            return event
        entry, thread = event.entry, event.thread
        try:
            check_harvested(thread)
            self._identifiers[entry.thread_id] = await asyncio.to_thread(
                thread_identifiers, thread
            )
        except Exception as error:
            return HarvestProblem(entry.url, "fault", describe(error), entry.thread_id)
        return event

    async def _save_all(self, groups: Sequence[tuple[HarvestEvent, ...]]) -> None:
        """Save groups of events in one transaction, the bytes of their pages before it."""
        events, pages, to_taken_down = await self._sort(groups)
        places = await self._archive(pages) if pages else []
        read, problems = _of(events, HarvestedThread), _of(events, HarvestProblem)
        robots, sent = self.fetcher.robots, self.fetcher.counts - self._saved_requests
        counts, run_id = Counter(sent), self.run.run_id
        async with self.database.begin() as session:
            if len(robots) > self._robots_saved:
                await harvests.save_robots(session, run_id, robots)
            if pages:
                ids = await fetches.save_pages(
                    session, run_id, self.source, pages, self._archive_id, places
                )
                counts["pages"] += len(pages)
                for page, fetch_id in zip(pages, ids, strict=True):
                    if page.thread_id is not None and page.number == 1:
                        self._first_fetch[page.thread_id] = fetch_id
            for listed in _of(events, Listed):
                await self._save_listed(session, listed, counts)
            await self._save_threads(session, read, counts)
            await self._save_outcomes(session, events, counts)
            for entry in to_taken_down:
                name = entry.thread_id
                # The next removal of raw pages takes their bytes out of the file.
                began = await frontier.reading_began(session, self.source, name)
                in_archives = await fetches.forget_pages(
                    session, self.source, name, entry.url, after_fetch=began
                )
                await fetches.mark_unswept(session, in_archives)
                self._first_fetch.pop(name, None)
            await fetches.save_failed_fetches(session, run_id, self.source, problems)
            await harvests.add_counts(session, self.run, counts)
        self._saved_requests += sent
        self._robots_saved = len(robots)
        self.counts += counts
        ends = ("new", "revised", "unchanged", "not_modified")
        self.tick(sum(self.counts[end] for end in ends))
        self.problems += problems
        for event in read:
            self._first_fetch.pop(event.entry.thread_id, None)
            self._identifiers.pop(event.entry.thread_id, None)

    async def _sort(
        self, groups: Sequence[tuple[HarvestEvent, ...]]
    ) -> tuple[list[HarvestEvent], list[FetchedPage], list[ListEntry]]:
        """Drop what shows a taken-down thread; the events, the pages, and the list entries that led to one."""
        events, pages = list[HarvestEvent](), list[FetchedPage]()
        to_taken_down = list[ListEntry]()
        # Also threads taken down meanwhile, after the connection that held the lock was lost.
        erased: set[str] = set()
        every = list(chain.from_iterable(groups))
        shown = {event.thread.thread_id for event in _of(every, HarvestedThread)}
        for page in _of(every, FetchedPage):
            if page.thread_id is not None:
                shown.add(page.thread_id)
        if shown:
            erased = await self.database.ask(taken_down_ids, self.source, sorted(shown))
        for group in groups:
            for event in _of(group, HarvestedThread):
                if event.thread.thread_id in erased:
                    # Its address shows a thread that was taken down: of the group keep only that fact.
                    entry = event.entry
                    to_taken_down.append(entry)
                    group = (HarvestSkipped(entry.url, entry.thread_id, "taken_down"),)
                    break
            events += group
            skipped = [skip for listed in _of(group, Listed) for skip in listed.skipped]
            if not any(skip.reason == "taken_down" for skip in skipped):
                # Else a list shows a thread that was taken down: storing the page would restore what was erased.
                for page in _of(group, FetchedPage):
                    if page.thread_id not in erased:
                        pages.append(page)
        return events, pages, to_taken_down

    async def _archive(self, pages: Sequence[FetchedPage]) -> list[Place]:
        """Write the bytes of pages to disk; their places in the file."""
        try:
            if self._writer is None:
                stem = f"{self.source}/{self.source}-{self.iso_week}-{self.run.run_id}.{self.run.start}"
                path, number = f"{stem}.warc.gz", 1
                # A file of an earlier database in the same folder is left alone.
                while (self.folder / path).exists():
                    number += 1
                    path = f"{stem}-{number}.warc.gz"
                self._writer = await asyncio.to_thread(
                    ArchiveWriter,
                    self.folder / path,
                    software=f"medlive/{__version__}",
                    operator=self.operator,
                )
                self._archive_id = await self.database.ask(
                    fetches.start_archive, self.run.run_id, path, self._writer.size
                )
            return await asyncio.to_thread(
                self._writer.append, [event.page for event in pages]
            )
        except OSError as error:
            raise ServiceUnavailable(
                f"cannot write pages to {self.folder / self.source}: {error.strerror or error}",
                hint="free disk space or repair the folder; the next harvest resumes where this one stopped",
            ) from error

    async def _save_listed(
        self, session: Session, listed: Listed, counts: Counter[str]
    ) -> None:
        """Save the threads that a list page shows, and how far the list is read; add to `counts`."""
        skipped = {}
        for skip in listed.skipped:
            counts[skip.reason] += 1
            # The address of a thread that was taken down may hold its title.
            if skip.reason != "taken_down":
                skipped[skip.thread_id] = (skip.url, skip.reason)
        counts["listed"] += len(listed.waiting)
        run_id, key = self.run.run_id, listed.list_key
        await frontier.save_listed(
            session, self.source, run_id, key, listed.waiting, skipped
        )
        await harvests.save_cursor(session, run_id, listed)

    async def _save_threads(
        self, session: Session, read: Sequence[HarvestedThread], counts: Counter[str]
    ) -> None:
        """Save threads that were read, with their identifiers; add to `counts`."""
        if not read:
            return
        ids = [event.entry.thread_id for event in read]
        threads = [event.thread for event in read]
        first = list(map(self._first_fetch.get, ids))
        saved = await save_threads(session, threads, fetch_ids=first)
        identifiers = [self._identifiers[thread_id] for thread_id in ids]
        counts["identifiers"] += await save_identifiers(session, saved, identifiers)
        counts.update(thread.status for thread in saved)
        shown, merged = list[str](), list[str]()
        for listed, thread in zip(ids, threads, strict=True):
            shown.append(thread.thread_id)
            if listed != thread.thread_id:
                merged.append(listed)  # A redirected thread was merged into its target
        await mark_seen(session, self.source, shown, gone=merged)

    async def _save_outcomes(
        self, session: Session, events: Sequence[HarvestEvent], counts: Counter[str]
    ) -> None:
        """Save how the reading of each thread ended; add to `counts`."""
        settled, gone, seen = list[FrontierRow](), list[str](), list[str]()

        def settle(name: str, state: FrontierState, reason: str | None = None) -> None:
            settled.append(FrontierRow(thread_id=name, state=state, reason=reason))

        for event in events:
            match event:
                case HarvestedThread(entry=entry, thread=thread):
                    settled.append(
                        FrontierRow(
                            thread_id=entry.thread_id,
                            state=FrontierState.READ,
                            etag=event.headers.get("etag"),
                            last_modified=event.headers.get("last-modified"),
                            page_count=event.page_count,
                            posted_at=thread.posted_at,
                            fields=thread_fields(thread),
                        )
                    )
                case HarvestSkipped(thread_id=thread_id, reason=reason):
                    counts[reason] += 1
                    if reason == "not_modified":
                        seen.append(thread_id)
                        settle(thread_id, FrontierState.NOT_MODIFIED)
                    else:
                        settle(thread_id, FrontierState.SKIPPED, reason)
                case HarvestProblem(thread_id=name, kind=kind):
                    counts[kind] += 1
                    if name is not None and kind == "gone":
                        gone.append(name)
                        settle(name, FrontierState.GONE)
                    # Where only the host is down, the thread waits for the next harvest.
                    elif name is not None and kind != "down":
                        settle(name, FrontierState.FAILED, kind)
        await frontier.settle(session, self.source, self.run.run_id, settled)
        await mark_seen(session, self.source, seen, gone)


def check_harvested(thread: Thread) -> None:
    """Raise BadInput for a thread of a page that `check_storable` refuses, or whose texts are too long to read."""
    check_storable(thread)
    texts = (thread.title, *(message.text for message in thread.messages))
    if (longest := max(map(len, texts))) > MESSAGE_CHARS:
        raise BadInput(
            f"a message has {longest} characters, more than the {MESSAGE_CHARS} that are read"
        )


def _of(
    events: Sequence[HarvestEvent],
    kind: type[T],
) -> list[T]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]
