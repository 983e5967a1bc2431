"""Harvest a community: follow its lists, then read their threads.

Everything read is stored in a ledger before the next page is requested, with what waits and how far each list was
followed, so that a killed harvest continues where it was.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, ParamSpec, TypeVar

from medlive.clock import now
from medlive.errors import MedliveError, describe
from medlive.guard.bounds import LIST_PAGES, THREAD_PAGES
from medlive.integrity.digest import digest_json
from medlive.threads.model import is_thread_id

from .fetching.policy import FetchError
from .ledger import (
    FetchedPage,
    HarvestedThread,
    HarvestEvent,
    HarvestProblem,
    HarvestSkipped,
    KnownThread,
    Ledger,
    Listed,
    SkipReason,
)
from .source import (
    REFUSALS,
    Anonymiser,
    Fetched,
    IncompleteThread,
    ListEntry,
    Listing,
    NotAThread,
    PageRequest,
    Site,
    SourceError,
    host_of,
)

P = ParamSpec("P")
T = TypeVar("T")
Fetch = Callable[..., Awaitable[Fetched]]
"""`Fetcher.fetch`."""

LAYOUT_STREAK = 5
"""Threads in a row of an unknown layout that end a harvest: the pages have changed."""
KNOWN_PAGES = 2
"""A list without dates ends after this many pages in a row with only threads that earlier runs have met."""

_UNKNOWN = KnownThread()

_Origin = Literal["listed", "left over", "missing"]
"""Why a thread is read; a missing one is on no list any more."""


HarvestEnd = Literal["complete", "limited", "lists_missing", "given_up"]
"""How a harvest ended. `complete`: every list was read to its end, and every thread was requested; `limited`: the
limit was reached; `lists_missing`: a list could not be read to its end; `given_up`: the source blocks, or its pages
cannot be read any more."""


def list_key(request: PageRequest) -> str:
    """Return a list's name in the ledger: its first address, with a digest of the form if it is posted."""
    if request.form is None:
        return request.url
    return f"{request.url} {digest_json(request.form)}"


async def harvest(
    site: Site,
    fetch: Fetch,
    ledger: Ledger,
    *,
    anonymise: Anonymiser,
    since: datetime | None = None,
    limit: int | None = None,
    concurrency: int = 1,
) -> HarvestEnd:
    """Read a community's lists, the latest activity first, and every thread on them.

    A page that fails is a problem in the ledger and the harvest goes on. A host that blocks, a list of an unknown
    layout, and LAYOUT_STREAK threads in a row of an unknown layout end the harvest.

    Threads opened before `since` (aware) are skipped, and a list ends where a page is older than this or than what
    earlier runs saw. At most `limit` threads are read, `concurrency` at a time.
    """
    run = _Run(
        site=site,
        fetch=fetch,
        ledger=ledger,
        anonymise=anonymise,
        since=since,
        limit=limit,
        queue=asyncio.Queue(2 * concurrency),
    )
    tasks = [asyncio.create_task(run.work()) for _ in range(concurrency)]
    tasks.append(asyncio.create_task(run.find(concurrency)))
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if run.ended:
        return "given_up"
    if run.limited:
        return "limited"
    return "lists_missing" if run.lists_missing else "complete"


@dataclass
class _Run:
    """One harvest: one task finds threads (`find`), the others read them (`work`)."""

    site: Site
    fetch: Fetch
    ledger: Ledger
    anonymise: Anonymiser
    since: datetime | None
    limit: int | None
    queue: asyncio.Queue[tuple[ListEntry, KnownThread, _Origin] | None]
    in_progress: set[str] = field(default_factory=set)
    requested: int = 0
    layout_streak: int = 0  # Threads in a row of an unknown layout
    reads: bool = False
    """Whether a thread of this run could be read."""
    ended: bool = False
    limited: bool = False
    lists_missing: bool = False
    gone: set[str] = field(default_factory=set)
    """Addresses that were answered with 404 or 410."""

    async def find(self, workers: int) -> None:
        """Queue every thread to read: left over from earlier runs, listed, and missing from the lists."""
        await self._enqueue(await self.ledger.left_over(), "left over")
        for first in self.site.listing_requests():
            if not self._stopped():
                await self._follow(first)
        if not self._stopped() and not self.lists_missing and self.since is None:
            await self._enqueue(await self.ledger.not_listed(), "missing")
        for _ in range(workers):
            await self.queue.put(None)

    async def work(self) -> None:
        """Read threads until there are no more."""
        while (item := await self.queue.get()) is not None:
            if not self.ended:
                await self._read(*item)
            self.in_progress.discard(item[0].thread_id)

    def _stopped(self) -> bool:
        return self.ended or self.limited

    async def _enqueue(
        self, entries: Sequence[ListEntry], origin: _Origin = "listed"
    ) -> None:
        """Queue the threads of a source's host to read, until the limit is reached."""
        if not entries:
            return
        known = await self.ledger.look_up([entry.thread_id for entry in entries])
        for entry in entries:
            thread_id = entry.thread_id
            if host_of(entry.url) not in self.site.hosts:
                await self.ledger.keep(
                    HarvestSkipped(entry.url, thread_id, "other_host")
                )
                continue
            if self.limit is not None and self.requested >= self.limit:
                self.limited = True
            if self._stopped():
                return
            self.requested += 1
            self.in_progress.add(thread_id)
            await self.queue.put((entry, known.get(thread_id, _UNKNOWN), origin))

    async def _follow(self, first: PageRequest) -> None:
        """Read a list from where this run left it to where it may stop."""
        key = list_key(first)
        state = await self.ledger.list_state(key)
        request = None if state.finished else state.next_page or first
        seen: set[str] = set()
        known_pages = 0
        for number in range(1, LIST_PAGES + 1):
            if request is None or self._stopped():
                return
            read = await self._read_listing(request, number)
            if read is None:
                if request != first and number == 1 and request.url in self.gone:
                    # The page to go on with is gone: the list has changed, and is read from its beginning.
                    request = first
                    continue
                self.lists_missing = True
                return
            events, listing = read
            known = await self.ledger.look_up(
                [entry.thread_id for entry in listing.entries]
            )
            known_pages = (known_pages + 1) * _is_known(listing, known, state.read_by)
            is_past = self._is_past(listing, seen, state.cutoff)
            if is_past or known_pages >= KNOWN_PAGES:
                listing = Listing(listing.entries)
            listed = self._plan_page(key, listing, known, seen, state.cutoff)
            seen |= {entry.thread_id for entry in listing.entries}
            await self.ledger.keep(*events, listed)
            await self._enqueue(listed.waiting)
            request = listed.next_page

    async def _read_listing(
        self, request: PageRequest, number: int
    ) -> tuple[list[HarvestEvent], Listing] | None:
        """Fetch and parse page `number` of a list; None, with the problem reported, if that failed."""
        page = await self._get(request)
        if page is None:
            return None
        fetched_page = FetchedPage(page, None, number)
        try:
            listing = parse_with(page.url, self.site.parse_listing, page)
        except SourceError as error:
            problem = HarvestProblem(
                page.url, error.kind, error.message, ends_source=True
            )
            await self._report(problem, fetched_page)
            return None
        events: list[HarvestEvent] = [fetched_page]
        if number == LIST_PAGES and listing.next_page is not None:
            message = f"the list has more than {LIST_PAGES} pages; the rest is left out"
            events.append(HarvestProblem(page.url, "incomplete", message))
            listing = Listing(listing.entries)
        return events, listing

    def _is_past(
        self, listing: Listing, seen: set[str], cutoff: datetime | None
    ) -> bool:
        """Whether all new rows of a page are older than `since` or `cutoff`."""
        # Rows that are on every page whatever their age do not show how far the list has come; a page without any
        # other row ends a list whose pager always names another page.
        for entry in listing.entries:
            if entry.thread_id in seen:
                continue
            moment = _activity(entry)
            if not (_is_before(moment, self.since) or _is_before(moment, cutoff)):
                return False
        return bool(listing.entries)

    def _plan_page(
        self,
        key: str,
        listing: Listing,
        known: Mapping[str, KnownThread],
        seen: set[str],
        cutoff: datetime | None,
    ) -> Listed:
        """Decide which threads of a list page to read and which to skip."""
        waiting: dict[str, ListEntry] = {}
        skipped: list[HarvestSkipped] = []
        met = seen | self.in_progress
        for entry in listing.entries:
            before = known.get(entry.thread_id, _UNKNOWN)
            reason: SkipReason | None = None
            if before.taken_down:
                # Reported each time: a page that shows such a thread is not kept.
                reason = "taken_down"
            elif entry.thread_id in met or before.handled:
                continue
            elif not is_thread_id(entry.thread_id):
                reason = "bad_id"
            elif _is_before(entry.posted_at, self.since):
                reason = "older_than_since"
            if reason is not None:
                skipped.append(HarvestSkipped(entry.url, entry.thread_id, reason))
            elif before.page_count is None or not _is_before(_activity(entry), cutoff):
                waiting[entry.thread_id] = entry
        # Where `since` ends the list before what earlier runs saw, the next cutoff must not cover what lies between.
        newest = None
        if not _is_before(cutoff, self.since):
            moment = now()
            dates = filter(None, map(_activity, listing.entries))
            newest = max((date for date in dates if date <= moment), default=None)
        return Listed(
            list_key=key,
            waiting=tuple(waiting.values()),
            skipped=tuple(skipped),
            next_page=listing.next_page,
            newest_at=newest,
        )

    async def _get(
        self,
        request: PageRequest,
        thread_id: str | None = None,
        known: KnownThread = _UNKNOWN,
        number: int = 1,
    ) -> Fetched | None:
        """Fetch page `number` of a list or thread; None, with the problem reported, if that failed."""
        try:
            return await self.fetch(
                request.url,
                self.site,
                form=request.form,
                etag=known.etag,
                last_modified=known.last_modified,
            )
        except FetchError as error:
            missing = error.reason == "not_found"
            if missing:
                self.gone.add(request.url)
            # Without a later page a thread has shrunk meanwhile, and is read again from its first.
            is_gone = missing and thread_id is not None and number == 1
            kind = "gone" if is_gone else error.kind
            problem = HarvestProblem(
                request.url,
                kind,
                error.message,
                thread_id,
                ends_source=kind in REFUSALS,
            )
            await self._report(problem)
            return None

    async def _read(
        self, entry: ListEntry, known: KnownThread, origin: _Origin
    ) -> None:
        """Read all pages of a thread, and store the thread or the problem."""
        pages, unsaved = list[Fetched](), list[FetchedPage]()
        if origin == "left over":
            pages += await self.ledger.kept_pages(entry.thread_id)
        try:
            if not await self._fetch_pages(entry, known, pages, unsaved):
                return
            thread = parse_with(
                entry.url, self.site.whole_thread, pages, self.anonymise
            )
        except SourceError as error:
            kind = error.kind
            if origin != "missing":
                self.layout_streak += not isinstance(error, NotAThread)
            elif kind == "not_a_thread" or (kind == "layout" and self.reads):
                # Many sites answer for a deleted thread with status 200, or lead to a list. While other threads can
                # be read, the layout has not changed.
                kind = "gone"
            problem = HarvestProblem(
                entry.url,
                kind,
                error.message,
                entry.thread_id,
                ends_source=self.layout_streak >= LAYOUT_STREAK,
            )
            await self._report(problem, *unsaved)
            return
        self.layout_streak = 0
        self.reads = True
        outcome: HarvestSkipped | HarvestedThread
        if _is_before(thread.posted_at, self.since):
            outcome = HarvestSkipped(entry.url, entry.thread_id, "older_than_since")
        else:
            outcome = HarvestedThread(
                thread=thread,
                entry=entry,
                page_count=len(pages),
                headers=pages[0].headers,
            )
        await self.ledger.keep(*unsaved, outcome)

    async def _fetch_pages(
        self,
        entry: ListEntry,
        known: KnownThread,
        pages: list[Fetched],
        unsaved: list[FetchedPage],
    ) -> bool:
        """Fetch the pages of a thread that are missing; False, with the reason stored, if that ends its reading.

        `pages` gets all of them, `unsaved` the last, which is stored together with the result. Raises LayoutError,
        NotAThread and SourceError.
        """
        url: str | None = entry.url
        if pages:
            url = parse_with(entry.url, self.site.next_page, pages[-1])
        # A pager may lead in a circle.
        while url is not None and all(page.url != url for page in pages):
            if len(pages) == THREAD_PAGES:
                raise IncompleteThread(
                    f"{entry.url} has more than {THREAD_PAGES} pages"
                )
            # Stored before the next one is requested: a kill loses only the page in flight.
            await self.ledger.keep(*unsaved)
            unsaved.clear()
            number = len(pages) + 1
            # A condition on its first page says nothing of the others.
            condition = known if number == known.page_count == 1 else _UNKNOWN
            page = await self._get(PageRequest(url), entry.thread_id, condition, number)
            if page is None:
                return False
            if page.not_modified:
                await self.ledger.keep(
                    HarvestSkipped(entry.url, entry.thread_id, "not_modified")
                )
                return False
            pages.append(page)
            unsaved.append(FetchedPage(page, entry.thread_id, number))
            url = parse_with(page.url, self.site.next_page, page)
        return True

    async def _report(self, problem: HarvestProblem, *pages: FetchedPage) -> None:
        """Store a problem with its pages, which may end the harvest; a host's refusal only once."""
        if self.ended and problem.kind in REFUSALS:
            return  # reported before
        self.ended = self.ended or problem.ends_source
        await self.ledger.keep(*pages, problem)


def _is_known(
    listing: Listing, known: Mapping[str, KnownThread], read_by: int | None
) -> bool:
    """Whether a page without dates shows only threads first met by run `read_by` (see `ListState`) or before it."""
    for entry in listing.entries:
        if _activity(entry) is not None:
            return False
        thread = known.get(entry.thread_id, _UNKNOWN)
        if thread.taken_down:
            continue
        if thread.met_by is None or read_by is None or thread.met_by > read_by:
            return False
    return bool(listing.entries)


def _activity(entry: ListEntry) -> datetime | None:
    """A thread's latest activity, as the list shows it."""
    return entry.last_post_at or entry.posted_at


def _is_before(moment: datetime | None, limit: datetime | None) -> bool:
    return moment is not None and limit is not None and moment < limit


def parse_with(
    url: str, parse: Callable[P, T], *arguments: P.args, **named: P.kwargs
) -> T:
    """Call an adapter's parser `parse` on the page at `url`.

    Raises SourceError for an unforeseen exception, so that one page does not end an unattended harvest.
    """
    try:
        return parse(*arguments, **named)
    except MedliveError:
        raise
    except Exception as error:
        raise SourceError(f"{url}: the adapter failed: {describe(error)}") from error
