"""Harvest a community: follow its lists, then read their threads.

Everything read is stored in a ledger before the next page is requested, with what waits and how far each list was
followed, so that a killed harvest continues where it was.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import ParamSpec, Protocol, TypeVar

from medlive.clock import now
from medlive.digest import digest_json
from medlive.errors import MedliveError
from medlive.sources.fetching.page import (
    Blocked,
    Fetched,
    FetchError,
    FetchFailed,
    FetchPolicy,
    FetchReason,
    HostDown,
    HostRefused,
    RobotsDenied,
)
from medlive.sources.ledger import (
    REFUSALS,
    FetchedPage,
    HarvestedThread,
    HarvestProblem,
    HarvestSkipped,
    KnownThread,
    Ledger,
    Listed,
    PageKind,
    ProblemKind,
    SkipReason,
)
from medlive.sources.source import (
    Anonymiser,
    IncompleteThread,
    LayoutError,
    ListEntry,
    Listing,
    NotAThread,
    Page,
    PageRequest,
    Site,
    allowed_hosts,
    host_of,
)

P = ParamSpec("P")
T = TypeVar("T")

MAX_LIST_PAGES = 500
"""Most pages of one list that a run follows, against lists without an end."""
MAX_THREAD_PAGES = 100
"""Most pages of one thread; a longer one is reported and left out."""
LAYOUT_STREAK = 5
"""Threads in a row of an unknown layout that end a harvest: the pages have changed."""
KNOWN_PAGES = 2
"""A list without dates ends after this many pages in a row with only threads that earlier runs have met."""
MAX_ID_CHARACTERS = 500
"""Longest id of a thread; a longer one is a damaged address."""
MAX_VALIDATOR_CHARACTERS = 1000
"""Longest ETag or Last-Modified that is sent back."""


class PageFetcher(Protocol):
    """What the harvest needs of a `Fetcher`."""

    async def fetch(
        self,
        url: str,
        policy: FetchPolicy,
        *,
        form: tuple[tuple[str, str], ...] | None = None,
        etag: str | None = None,
        last_modified: str | None = None,
    ) -> Fetched:
        """See `medlive.sources.fetching.fetch.Fetcher.fetch`."""
        ...


class _Origin(StrEnum):
    """Why a thread is read."""

    LISTED = "listed"
    LEFT_OVER = "left_over"
    MISSING = "missing"
    """It is on no list any more."""


class HarvestEnd(StrEnum):
    """How a harvest ended."""

    COMPLETE = "complete"
    """Every list was read to its end, and every thread was requested."""
    LIMITED = "limited"
    """The limit was reached."""
    LISTS_MISSING = "lists_missing"
    """A list could not be read to its end."""
    GIVEN_UP = "given_up"
    """The source blocks, or its pages cannot be read any more."""


def list_key(request: PageRequest) -> str:
    """Return a list's name in the ledger: its first address, with a digest of the form if it is posted."""
    return request.url if request.form is None else f"{request.url} {digest_json([list(f) for f in request.form])}"


async def harvest(
    site: Site,
    base_url: str,
    fetcher: PageFetcher,
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

    Args:
        site: The community's adapter.
        base_url: Where the community is.
        fetcher: Fetches the pages.
        ledger: Stores what is read.
        anonymise: Hashes the handles of authors.
        since: Aware; threads opened before are skipped, and a list ends where a page is older than this or than
            what earlier runs saw.
        limit: The most threads to read.
        concurrency: How many threads are read at a time.
    """
    policy = FetchPolicy(
        allowed_hosts=allowed_hosts(site, base_url),
        min_interval_s=site.settings.min_interval_s,
        stop_statuses=site.settings.stop_statuses,
    )
    run = _Run(site, fetcher, ledger, policy, anonymise, since, limit, concurrency)
    tasks = [asyncio.create_task(run.work()) for _ in range(concurrency)]
    tasks.append(asyncio.create_task(run.find(base_url)))
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if run.ended:
        return HarvestEnd.GIVEN_UP
    if run.limited:
        return HarvestEnd.LIMITED
    return HarvestEnd.LISTS_MISSING if run.lists_missing else HarvestEnd.COMPLETE


class _Run:
    """One harvest: one task finds threads, the others read them."""

    def __init__(
        self,
        site: Site,
        fetcher: PageFetcher,
        ledger: Ledger,
        policy: FetchPolicy,
        anonymise: Anonymiser,
        since: datetime | None,
        limit: int | None,
        concurrency: int,
    ) -> None:
        self._site = site
        self._fetcher = fetcher
        self._ledger = ledger
        self._policy = policy
        self._anonymise = anonymise
        self._since = since
        self._limit = limit
        self._concurrency = concurrency
        self._queue: asyncio.Queue[tuple[ListEntry, KnownThread | None, _Origin] | None] = asyncio.Queue(
            maxsize=2 * concurrency
        )
        self._in_progress: set[str] = set()
        self._requested = 0
        self._layout_streak = 0
        self._reads = False
        self.ended = False
        self.limited = False
        self.lists_missing = False

    async def find(self, base_url: str) -> None:
        """Queue every thread to read: left over from earlier runs, listed, and missing from the lists."""
        await self._enqueue(await self._on_allowed_hosts(await self._ledger.left_over()), _Origin.LEFT_OVER)
        for first in self._site.listing_requests(base_url):
            if not self._stopped():
                await self._follow(first)
        if not self._stopped() and not self.lists_missing and self._since is None:
            await self._enqueue(await self._on_allowed_hosts(await self._ledger.not_listed()), _Origin.MISSING)
        for _ in range(self._concurrency):
            await self._queue.put(None)

    async def work(self) -> None:
        """Read threads until there are no more."""
        while (item := await self._queue.get()) is not None:
            entry, known, origin = item
            if not self.ended:
                await self._read(entry, known, origin)
            self._in_progress.discard(entry.thread_id)

    def _stopped(self) -> bool:
        return self.ended or self.limited

    async def _enqueue(self, entries: Sequence[ListEntry], origin: _Origin = _Origin.LISTED) -> None:
        known = await self._ledger.look_up([entry.thread_id for entry in entries]) if entries else {}
        for entry in entries:
            if self._limit is not None and self._requested >= self._limit:
                self.limited = True
            if self._stopped():
                return
            self._requested += 1
            self._in_progress.add(entry.thread_id)
            await self._queue.put((entry, known.get(entry.thread_id), origin))

    async def _on_allowed_hosts(self, entries: Sequence[ListEntry]) -> list[ListEntry]:
        """Keep the entries on hosts of the source, which may have moved since; the others are skipped."""
        current = [entry for entry in entries if host_of(entry.url) in self._policy.allowed_hosts]
        moved = [e for e in entries if host_of(e.url) not in self._policy.allowed_hosts]
        await self._ledger.keep(*(HarvestSkipped(e.url, e.thread_id, SkipReason.OTHER_HOST) for e in moved))
        return current

    async def _follow(self, first: PageRequest) -> None:
        """Read a list from where this run left it to where it may stop."""
        key = list_key(first)
        state = await self._ledger.list_state(key)
        if state.finished:
            return
        request: PageRequest | None = state.next_page or first
        seen: set[str] = set()
        known_pages = 0
        for number in range(1, MAX_LIST_PAGES + 1):
            if request is None or self._stopped():
                return
            read = await self._read_listing(request, number)
            if read is None:
                self.lists_missing = True
                return
            listing, page, problems = read
            known = await self._ledger.look_up([entry.thread_id for entry in listing.entries])
            ids = {entry.thread_id for entry in listing.entries}
            undated = all(_activity(entry) is None for entry in listing.entries)
            all_known = all(_was_seen(known.get(i), state.read_by) for i in ids)
            known_pages = known_pages + 1 if ids and undated and all_known else 0
            finished = (
                number == MAX_LIST_PAGES
                or known_pages >= KNOWN_PAGES
                or self._is_last(listing, seen, state.cutoff)
            )
            listed = self._plan_page(key, listing, known, seen, state.cutoff, finished=finished)
            seen |= ids
            await self._ledger.keep(page, listed, *problems)
            await self._enqueue(listed.waiting)
            request = None if finished else listing.next_page

    async def _read_listing(
        self, request: PageRequest, number: int
    ) -> tuple[Listing, FetchedPage, list[HarvestProblem]] | None:
        """Fetch and parse page `number` of a list; None, with the problem reported, if that failed."""
        answer = await self._get(request)
        if isinstance(answer, HarvestProblem):
            await self._report(answer)
            return None
        page, fetched = answer
        fetched_page = FetchedPage(PageKind.LISTING, page, fetched, None, number)
        try:
            listing = parse_with(page.url, self._site.parse_listing, page)
        except (LayoutError, NotAThread, ParserFault) as error:
            problem = HarvestProblem(page.url, parse_problem(error), error.message, ends_source=True)
            await self._report(problem, fetched_page)
            return None
        listing, problems = _without_invalid_ids(page.url, listing)
        if number == MAX_LIST_PAGES and listing.next_page is not None:
            message = f"the list has more than {MAX_LIST_PAGES} pages; the rest is left out"
            problems.append(HarvestProblem(page.url, ProblemKind.INCOMPLETE, message))
        return listing, fetched_page, problems

    def _is_last(self, listing: Listing, seen: set[str], cutoff: datetime | None) -> bool:
        if listing.next_page is None:
            return True
        if not listing.entries:
            return False
        # Rows that are on every page whatever their age do not show how far the list has come; a page without any
        # other row ends a list whose pager always names another page.
        fresh = [entry for entry in listing.entries if entry.thread_id not in seen]
        return all(
            _is_before(_activity(entry), self._since) or _is_before(_activity(entry), cutoff) for entry in fresh
        )

    def _plan_page(
        self,
        key: str,
        listing: Listing,
        known: Mapping[str, KnownThread],
        seen: set[str],
        cutoff: datetime | None,
        *,
        finished: bool,
    ) -> Listed:
        """Decide which threads of a list page to read and which to skip."""
        waiting: dict[str, ListEntry] = {}
        skipped: list[HarvestSkipped] = []
        for entry in listing.entries:
            before = known.get(entry.thread_id)
            if before is not None and before.taken_down:
                # Reported each time: a page that shows such a thread is not kept.
                skipped.append(HarvestSkipped(entry.url, entry.thread_id, SkipReason.TAKEN_DOWN))
                continue
            if entry.thread_id in seen or entry.thread_id in self._in_progress or (before and before.handled):
                continue
            if self._since is not None and entry.posted_at is not None and entry.posted_at < self._since:
                skipped.append(HarvestSkipped(entry.url, entry.thread_id, SkipReason.OLDER_THAN_SINCE))
            elif before is None or before.page_count is None or not _is_before(_activity(entry), cutoff):
                waiting[entry.thread_id] = entry
        moment = now()
        dates = [date for entry in listing.entries if (date := _activity(entry)) is not None and date <= moment]
        following = None if finished else listing.next_page
        # Where `since` ends the list before what earlier runs saw, this run must not stand for what lies between.
        gap = cutoff is not None and self._since is not None and self._since > cutoff
        newest = None if gap else max(dates, default=None)
        return Listed(key, tuple(waiting.values()), tuple(skipped), following, newest, finished)

    async def _get(
        self, request: PageRequest, thread_id: str | None = None, known: KnownThread | None = None
    ) -> tuple[Page, Fetched] | HarvestProblem:
        try:
            fetched = await self._fetcher.fetch(
                request.url,
                self._policy,
                form=request.form,
                etag=known.etag if known else None,
                last_modified=known.last_modified if known else None,
            )
        except FetchError as error:
            kind = _fetch_problem(error, thread_id)
            ends = kind in REFUSALS
            return HarvestProblem(request.url, kind, error.message, thread_id, ends_source=ends)
        page = Page(fetched.url, fetched.body, fetched.content_type, fetched.status, request.form)
        return page, fetched

    async def _read(self, entry: ListEntry, known: KnownThread | None, origin: _Origin) -> None:
        """Read all pages of a thread, and store the thread or the problem."""
        pages = list(await self._ledger.kept_pages(entry.thread_id)) if origin is _Origin.LEFT_OVER else []
        unchanged = known if known is not None and known.page_count == 1 and not pages else None
        validators: tuple[str | None, str | None] = None, None
        new_page: list[FetchedPage] = []
        try:
            url = parse_with(entry.url, self._site.next_page, pages[-1]) if pages else entry.url
            while url is not None and all(page.url != url for page in pages):  # a pager may lead in a circle
                if len(pages) == MAX_THREAD_PAGES:
                    raise IncompleteThread(f"{entry.url} has more than {MAX_THREAD_PAGES} pages")
                # Stored before the next one is requested: a kill loses only the page in flight.
                await self._ledger.keep(*new_page)
                answer = await self._get(PageRequest(url), entry.thread_id, None if pages else unchanged)
                if isinstance(answer, HarvestProblem):
                    await self._report(answer)
                    return
                page, fetched = answer
                if fetched.not_modified:
                    await self._ledger.keep(HarvestSkipped(entry.url, entry.thread_id, SkipReason.NOT_MODIFIED))
                    return
                if not new_page:
                    headers = fetched.headers
                    validators = _validator(headers.get("etag")), _validator(headers.get("last-modified"))
                pages.append(page)
                new_page = [FetchedPage(PageKind.THREAD, page, fetched, entry.thread_id, len(pages))]
                url = parse_with(page.url, self._site.next_page, page)
            thread = parse_with(entry.url, self._site.parse_thread, pages, self._anonymise)
        except (LayoutError, NotAThread, ParserFault) as error:
            await self._report(self._parse_failure(entry, error, origin), *new_page)
            return
        self._layout_streak = 0
        self._reads = True
        if _is_before(thread.posted_at, self._since):
            skipped = HarvestSkipped(entry.url, entry.thread_id, SkipReason.OLDER_THAN_SINCE)
            await self._ledger.keep(*new_page, skipped)
        else:
            await self._ledger.keep(*new_page, HarvestedThread(thread, entry, len(pages), *validators))

    def _parse_failure(self, entry: ListEntry, error: MedliveError, origin: _Origin) -> HarvestProblem:
        kind = parse_problem(error)
        if origin is _Origin.MISSING:
            # Many sites answer for a deleted thread with status 200, or lead to a list. While other threads can
            # be read, the layout has not changed.
            if kind is ProblemKind.NOT_A_THREAD or (kind is ProblemKind.LAYOUT and self._reads):
                kind = ProblemKind.GONE
        else:
            self._layout_streak += not isinstance(error, NotAThread)
        ends = self._layout_streak >= LAYOUT_STREAK
        return HarvestProblem(entry.url, kind, error.message, entry.thread_id, ends_source=ends)

    async def _report(self, problem: HarvestProblem, *pages: FetchedPage) -> None:
        if self.ended and problem.kind in REFUSALS:
            return  # reported before
        self.ended = self.ended or problem.ends_source
        await self._ledger.keep(*pages, problem)


def _without_invalid_ids(url: str, listing: Listing) -> tuple[Listing, list[HarvestProblem]]:
    """Remove the entries without a usable id, and return a problem for each of them."""
    valid = tuple(e for e in listing.entries if 1 <= len(e.thread_id) <= MAX_ID_CHARACTERS)
    problems = [
        HarvestProblem(url, ProblemKind.FAULT, f"a thread's id has {len(e.thread_id)} characters: {e.url[:200]}")
        for e in listing.entries
        if e not in valid
    ]
    return replace(listing, entries=valid), problems


def _validator(value: str | None) -> str | None:
    """Return the validator, or None if a request cannot carry it."""
    usable = (
        value is not None and value.isascii() and value.isprintable() and len(value) <= MAX_VALIDATOR_CHARACTERS
    )
    return value if usable else None


def _was_seen(known: KnownThread | None, read_by: int | None) -> bool:
    """Whether a run that read its list to the end has met the thread, and so everything listed after it."""
    if known is None or known.taken_down:
        return known is not None
    return known.met_by is not None and read_by is not None and known.met_by <= read_by


def _activity(entry: ListEntry) -> datetime | None:
    return entry.last_post_at or entry.posted_at


def _is_before(moment: datetime | None, limit: datetime | None) -> bool:
    return moment is not None and limit is not None and moment < limit


def _fetch_problem(error: FetchError, thread_id: str | None) -> ProblemKind:
    if isinstance(error, HostDown):
        return ProblemKind.DOWN
    if isinstance(error, Blocked):
        return ProblemKind.BLOCKED
    if isinstance(error, RobotsDenied):
        return ProblemKind.ROBOTS
    if thread_id is not None and isinstance(error, FetchFailed) and error.reason is FetchReason.NOT_FOUND:
        return ProblemKind.GONE
    return ProblemKind.HOST_REFUSED if isinstance(error, HostRefused) else ProblemKind.FETCH


class ParserFault(MedliveError):
    """An adapter failed on a page with an unexpected error."""


def parse_with(url: str, parse: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a parser of an adapter.

    Raises:
        MedliveError: as the parser does.
        ParserFault: for any other exception, so that one unforeseen page does not end an unattended harvest.
    """
    try:
        return parse(*arguments, **named)
    except MedliveError:
        raise
    except Exception as error:
        raise ParserFault(f"{url}: the adapter failed: {type(error).__name__}: {error}") from error


def parse_problem(error: MedliveError) -> ProblemKind:
    if isinstance(error, ParserFault):
        return ProblemKind.FAULT
    if isinstance(error, LayoutError):
        return ProblemKind.LAYOUT
    return ProblemKind.INCOMPLETE if isinstance(error, IncompleteThread) else ProblemKind.NOT_A_THREAD
