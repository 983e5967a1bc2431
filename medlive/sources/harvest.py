"""A harvest: from a community's lists to its threads; whatever is met is handed to a ledger before the next page.

What was read, what waits and how far each list was followed live in the ledger, so that a harvest that was
killed goes on where it stood.
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
"""Most pages of one list that a run follows: a list that never ends is a trap, not a list."""
MAX_THREAD_PAGES = 100
"""Most pages of one thread; a longer one is reported and left out, as half of it would be no thread."""
LAYOUT_STREAK = 5
"""Threads in a row that fit no layout before the source is left alone: its pages have changed."""
KNOWN_PAGES = 2
"""Pages in a row that show only what an earlier run saw, which read the list to its end, before a list without
dates is taken as read."""


MAX_ID_CHARACTERS = 500
"""Longest id of a thread; a longer one is an address gone wrong."""
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
    """How a thread to ask for was met."""

    LISTED = "listed"
    LEFT_OVER = "left_over"
    MISSING = "missing"
    """No list shows it any more."""


class HarvestEnd(StrEnum):
    """How a harvest ended."""

    COMPLETE = "complete"
    """Every list was read to its end and every thread asked for."""
    LIMITED = "limited"
    """The limit was reached."""
    LISTS_MISSING = "lists_missing"
    """A list could not be read to its end."""
    GIVEN_UP = "given_up"
    """The source was left alone: it blocks, or its pages make no sense any more."""


def list_key(request: PageRequest) -> str:
    """What names a list in the ledger: its first page's address, with a digest of the form where it is posted."""
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
    """Read a community's lists, the latest activity first, and every thread that they show.

    Threads that were opened before `since` (aware) are skipped; a list ends where all of a page is older than
    `since` or than what earlier runs saw. `limit` is the most threads to ask for, `concurrency` how many at a
    time. A page that fails is a problem in the ledger and the harvest goes on; a host that blocks, a list that
    fits no layout and LAYOUT_STREAK threads in a row that fit none end the source. Raises what the ledger raises.
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
    """One harvest: a task that finds threads, and others that read them."""

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
        """Hand every thread to read to the workers: left over, listed, and gone from the lists."""
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
        """The remembered entries that can be asked for; the source may have moved since they were met."""
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
            answer = await self._get(request)
            if isinstance(answer, HarvestProblem):
                self.lists_missing = True
                await self._report(answer)
                return
            page, fetched = answer
            fetched_page = FetchedPage(PageKind.LISTING, page, fetched, None, number)
            try:
                listing = parse_with(page.url, self._site.parse_listing, page)
            except (LayoutError, NotAThread, ParserFault) as error:
                self.lists_missing = True
                problem = HarvestProblem(page.url, parse_problem(error), error.message, ends_source=True)
                await self._report(problem, fetched_page)
                return
            listing, problems = _without_invalid_ids(page.url, listing)
            known = await self._ledger.look_up([entry.thread_id for entry in listing.entries])
            ids = {entry.thread_id for entry in listing.entries}
            undated = all(_activity(entry) is None for entry in listing.entries)
            all_seen = all(_was_seen(known.get(i), state.read_by) for i in ids)
            known_pages = known_pages + 1 if ids and undated and all_seen else 0
            finished = (
                listing.next_page is None
                # A page that shows nothing new ends a list whose pager always names another page.
                or bool(ids and ids <= seen)
                # Rows that stand on every page whatever their age say nothing of how far it has come.
                or bool(
                    ids
                    and all(
                        self._is_seen_before(e, state.cutoff) for e in listing.entries if e.thread_id not in seen
                    )
                )
                or known_pages >= KNOWN_PAGES
                or number == MAX_LIST_PAGES
            )
            if number == MAX_LIST_PAGES and listing.next_page is not None:
                problems_found = f"the list goes on after {MAX_LIST_PAGES} pages; what follows is left out"
                problems.append(HarvestProblem(page.url, ProblemKind.INCOMPLETE, problems_found))
            listed = self._plan_page(key, listing, known, seen, state.cutoff, finished=finished)
            seen |= ids
            await self._ledger.keep(fetched_page, listed, *problems)
            await self._enqueue(listed.waiting)
            request = None if finished else listing.next_page

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
        """What a list page asks to be done."""
        waiting: dict[str, ListEntry] = {}
        skipped: list[HarvestSkipped] = []
        for entry in listing.entries:
            before = known.get(entry.thread_id)
            if before is not None and before.taken_down:
                # Told each time: a page that shows such a thread is not kept.
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

    def _is_seen_before(self, entry: ListEntry, cutoff: datetime | None) -> bool:
        """Whether an entry's activity lies before what this run is to see."""
        activity = _activity(entry)
        return _is_before(activity, self._since) or _is_before(activity, cutoff)

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
        """All pages of a thread, then the thread or the problem."""
        pages = list(await self._ledger.kept_pages(entry.thread_id)) if origin is _Origin.LEFT_OVER else []
        unchanged = known if known is not None and known.page_count == 1 and not pages else None
        first: Fetched | None = None
        new_page: list[FetchedPage] = []
        try:
            url = parse_with(entry.url, self._site.next_page, pages[-1]) if pages else entry.url
            while url is not None and all(page.url != url for page in pages):  # a pager may lead in a circle
                if len(pages) == MAX_THREAD_PAGES:
                    raise IncompleteThread(f"{entry.url} has more than {MAX_THREAD_PAGES} pages")
                # Kept before the next one is asked for: a kill loses the page in flight and no other.
                await self._ledger.keep(*new_page)
                new_page = []
                answer = await self._get(PageRequest(url), entry.thread_id, None if pages else unchanged)
                if isinstance(answer, HarvestProblem):
                    await self._report(answer)
                    return
                page, fetched = answer
                if fetched.not_modified:
                    skipped = HarvestSkipped(entry.url, entry.thread_id, SkipReason.NOT_MODIFIED)
                    await self._ledger.keep(skipped)
                    return
                first = first or fetched
                pages.append(page)
                new_page = [FetchedPage(PageKind.THREAD, page, fetched, entry.thread_id, len(pages))]
                url = parse_with(page.url, self._site.next_page, page)
            thread = parse_with(entry.url, self._site.parse_thread, pages, self._anonymise)
        except (LayoutError, NotAThread, ParserFault) as error:
            kind = parse_problem(error)
            if origin is _Origin.MISSING:
                # Many sites say that it is gone with status 200, or lead to a list. Where other threads can be
                # read, it is not the layout that changed.
                gone = (ProblemKind.NOT_A_THREAD, *([ProblemKind.LAYOUT] if self._reads else []))
                kind = ProblemKind.GONE if kind in gone else kind
            else:
                self._layout_streak += not isinstance(error, NotAThread)
            ends = self._layout_streak >= LAYOUT_STREAK
            problem = HarvestProblem(entry.url, kind, error.message, entry.thread_id, ends_source=ends)
            await self._report(problem, *new_page)
            return
        self._layout_streak = 0
        self._reads = True
        if _is_before(thread.posted_at, self._since):
            skipped = HarvestSkipped(entry.url, entry.thread_id, SkipReason.OLDER_THAN_SINCE)
            await self._ledger.keep(*new_page, skipped)
            return
        headers = first.headers if first is not None else {}
        etag, last_modified = _validator(headers.get("etag")), _validator(headers.get("last-modified"))
        read = HarvestedThread(thread, entry, len(pages), etag, last_modified)
        await self._ledger.keep(*new_page, read)

    async def _report(self, problem: HarvestProblem, *pages: FetchedPage) -> None:
        if self.ended and problem.kind in REFUSALS:
            return  # told before: the host is left alone
        self.ended = self.ended or problem.ends_source
        await self._ledger.keep(*pages, problem)


def _without_invalid_ids(url: str, listing: Listing) -> tuple[Listing, list[HarvestProblem]]:
    """A list without the entries that have no usable id, and a problem for each of those."""
    valid = tuple(e for e in listing.entries if 1 <= len(e.thread_id) <= MAX_ID_CHARACTERS)
    problems_found = [
        HarvestProblem(url, ProblemKind.FAULT, f"a thread's id has {len(e.thread_id)} characters: {e.url[:200]}")
        for e in listing.entries
        if e not in valid
    ]
    return (replace(listing, entries=valid), problems_found) if problems_found else (listing, problems_found)


def _validator(value: str | None) -> str | None:
    """A validator as it may be sent back; None for one that no request can carry."""
    usable = (
        value is not None and value.isascii() and value.isprintable() and len(value) <= MAX_VALIDATOR_CHARACTERS
    )
    return value if usable else None


def _was_seen(known: KnownThread | None, read_by: int | None) -> bool:
    """Whether an earlier run that read its list to the end had met a thread: what follows was met as well."""
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
    """An adapter failed on a page with an error that is none of its own."""


def parse_with(url: str, parse: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What a parser makes of a page. Raises the parser's own errors, and ParserFault for any other: one page
    that no test foresaw must not end an unattended harvest."""
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
