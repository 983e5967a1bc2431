"""A harvest: from a community's lists to its threads, each event handed over as it comes."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from medlive.errors import MedliveError
from medlive.sources.fetched import (
    Blocked,
    Fetched,
    FetchError,
    FetchPolicy,
    HostRefused,
    RobotsDenied,
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
)
from medlive.threads.model import Thread

MAX_LIST_PAGES = 500
"""Most pages of one list that a run follows: a list that never ends is a trap, not a list."""
MAX_THREAD_PAGES = 100
"""Most pages of one thread; a longer one is reported and left out, as half of it would be no thread."""


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
        """See `medlive.sources.fetch.Fetcher.fetch`."""
        ...


@dataclass(frozen=True, slots=True)
class KnownThread:
    """What is stored of a thread's last fetch, so that an unchanged one is not sent again."""

    etag: str | None = None
    last_modified: str | None = None
    page_count: int = 1


class PageKind(StrEnum):
    """What a fetched page was asked for."""

    LISTING = "listing"
    THREAD = "thread"


class ProblemKind(StrEnum):
    """Why a page or thread was not read."""

    LAYOUT = "layout"
    NOT_A_THREAD = "not_a_thread"
    INCOMPLETE = "incomplete"
    FETCH = "fetch"
    ROBOTS = "robots"
    HOST_REFUSED = "host_refused"
    BLOCKED = "blocked"


class SkipReason(StrEnum):
    """Why a listed thread was not harvested although nothing went wrong."""

    OLDER_THAN_SINCE = "older_than_since"
    NOT_MODIFIED = "not_modified"


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page arrived; its bytes are to be kept whatever becomes of it."""

    kind: PageKind
    page: Page
    fetched: Fetched
    thread_id: str | None
    """The thread that the page belongs to; None for a list."""


@dataclass(frozen=True, slots=True)
class HarvestedThread:
    """A whole thread was read."""

    thread: Thread
    pages: tuple[Page, ...]
    first: Fetched
    """The first page's answer: its etag and last_modified make the next harvest's request conditional."""


@dataclass(frozen=True, slots=True)
class HarvestSkipped:
    """A listed thread was passed over, for a reason that is no fault."""

    url: str
    thread_id: str
    reason: SkipReason


@dataclass(frozen=True, slots=True)
class HarvestProblem:
    """A page or thread was not read; the harvest goes on unless `ends_source`."""

    url: str
    kind: ProblemKind
    message: str
    thread_id: str | None = None
    ends_source: bool = False


HarvestEvent = FetchedPage | HarvestedThread | HarvestSkipped | HarvestProblem


async def harvest(
    site: Site,
    base_url: str,
    fetcher: PageFetcher,
    *,
    anonymise: Anonymiser,
    since: datetime | None = None,
    limit: int | None = None,
    known: Callable[[str], KnownThread | None] | None = None,
) -> AsyncIterator[HarvestEvent]:
    """Read a community's lists, newest first, and every thread that they show.

    Threads that were opened before `since` (aware) are skipped, and a list ends at the first page whose
    threads are all older. `limit` is the most threads to ask for. `known` answers for a thread's id what is
    stored of it. A page that fails is an event and the harvest goes on; a host that blocks ends the source.
    """
    policy = FetchPolicy(
        allowed_hosts=allowed_hosts(site, base_url),
        min_interval_s=site.settings.min_interval_s,
        stop_statuses=site.settings.stop_statuses,
    )
    run = _Run(site, fetcher, policy, anonymise, since, known)
    for first in site.listing_requests(base_url):
        request: PageRequest | None = first
        for _ in range(MAX_LIST_PAGES):
            if request is None:
                break
            got = await run.get(request)
            if isinstance(got, HarvestProblem):
                yield got
                if got.ends_source:
                    return
                break
            page, fetched = got
            yield FetchedPage(PageKind.LISTING, page, fetched, None)
            listing = run.read_listing(page)
            if isinstance(listing, HarvestProblem):
                yield listing
                break
            fresh = run.take_new(listing)
            for entry in fresh:
                if run.is_old(entry.posted_at):
                    yield HarvestSkipped(entry.url, entry.thread_id, SkipReason.OLDER_THAN_SINCE)
                    continue
                if limit is not None and run.asked >= limit:
                    return
                async for event in run.thread(entry):
                    yield event
                    if isinstance(event, HarvestProblem) and event.ends_source:
                        return
            old_page = bool(listing.entries) and all(run.is_old(e.posted_at) for e in listing.entries)
            # A page that shows nothing new is the end of a list whose pager always names another page.
            request = None if old_page or (listing.entries and not fresh) else listing.next_page


class _Run:
    """One harvest's memory."""

    def __init__(
        self,
        site: Site,
        fetcher: PageFetcher,
        policy: FetchPolicy,
        anonymise: Anonymiser,
        since: datetime | None,
        known: Callable[[str], KnownThread | None] | None,
    ) -> None:
        self._site = site
        self._fetcher = fetcher
        self._policy = policy
        self._anonymise = anonymise
        self._since = since
        self._known = known
        self._seen: set[str] = set()
        self.asked = 0
        """Threads asked for."""

    def is_old(self, posted_at: datetime | None) -> bool:
        return self._since is not None and posted_at is not None and posted_at < self._since

    def take_new(self, listing: Listing) -> list[ListEntry]:
        """The entries not met before in this run."""
        fresh = []
        for entry in listing.entries:
            if entry.thread_id not in self._seen:
                self._seen.add(entry.thread_id)
                fresh.append(entry)
        return fresh

    async def get(
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
            kind = _fetch_problem(error)
            ends = kind is ProblemKind.BLOCKED
            return HarvestProblem(request.url, kind, error.message, thread_id, ends_source=ends)
        page = Page(fetched.url, fetched.body, fetched.content_type, fetched.status, request.form)
        return page, fetched

    def read_listing(self, page: Page) -> Listing | HarvestProblem:
        try:
            return self._site.parse_listing(page)
        except (LayoutError, NotAThread) as error:
            return HarvestProblem(page.url, _parse_problem(error), error.message)

    async def thread(self, entry: ListEntry) -> AsyncIterator[HarvestEvent]:
        """All pages of a thread, then the thread or the problem."""
        self.asked += 1
        known = self._known(entry.thread_id) if self._known is not None else None
        if known is not None and known.page_count > 1:
            known = None  # the first page says nothing about replies on later ones
        pages: list[Page] = []
        first: Fetched | None = None
        url: str | None = entry.url
        while url is not None and _first_visit(url, pages):
            if len(pages) == MAX_THREAD_PAGES:
                message = f"the thread has more than {MAX_THREAD_PAGES} pages"
                yield HarvestProblem(entry.url, ProblemKind.INCOMPLETE, message, entry.thread_id)
                return
            got = await self.get(PageRequest(url), entry.thread_id, None if pages else known)
            if isinstance(got, HarvestProblem):
                yield got
                return
            page, fetched = got
            if fetched.not_modified:
                yield HarvestSkipped(entry.url, entry.thread_id, SkipReason.NOT_MODIFIED)
                return
            yield FetchedPage(PageKind.THREAD, page, fetched, entry.thread_id)
            first = first or fetched
            pages.append(page)
            try:
                url = self._site.next_page(page)
            except LayoutError as error:
                yield HarvestProblem(page.url, ProblemKind.LAYOUT, error.message, entry.thread_id)
                return
        assert first is not None
        yield self._read_thread(entry, pages, first)

    def _read_thread(self, entry: ListEntry, pages: Sequence[Page], first: Fetched) -> HarvestEvent:
        try:
            thread = self._site.parse_thread(pages, self._anonymise)
        except (LayoutError, NotAThread) as error:
            return HarvestProblem(entry.url, _parse_problem(error), error.message, entry.thread_id)
        self._seen.add(thread.thread_id)
        if self.is_old(thread.posted_at):
            return HarvestSkipped(entry.url, thread.thread_id, SkipReason.OLDER_THAN_SINCE)
        return HarvestedThread(thread, tuple(pages), first)


def _first_visit(url: str, pages: Sequence[Page]) -> bool:
    """Whether an address is not among the pages already fetched: a pager may lead in a circle."""
    return all(page.url != url for page in pages)


def _fetch_problem(error: FetchError) -> ProblemKind:
    if isinstance(error, Blocked):
        return ProblemKind.BLOCKED
    if isinstance(error, RobotsDenied):
        return ProblemKind.ROBOTS
    return ProblemKind.HOST_REFUSED if isinstance(error, HostRefused) else ProblemKind.FETCH


def _parse_problem(error: MedliveError) -> ProblemKind:
    if isinstance(error, LayoutError):
        return ProblemKind.LAYOUT
    return ProblemKind.INCOMPLETE if isinstance(error, IncompleteThread) else ProblemKind.NOT_A_THREAD
