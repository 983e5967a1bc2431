"""A harvest over real HTTP: every page is an event, a failing page ends nothing, a block ends the source."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from medlive.clock import now
from medlive.errors import ConfigError
from medlive.sources.fetching import fetch
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.fetching.policy import (
    FetchError,
    FetchSettings,
)
from medlive.sources.harvest import LAYOUT_STREAK, harvest
from medlive.sources.ledger import (
    FetchedPage,
    HarvestedThread,
    HarvestEvent,
    HarvestProblem,
    HarvestSkipped,
    KnownThread,
    Listed,
    ListState,
)
from medlive.sources.registry import SITES, build_site
from medlive.sources.source import (
    Fetched,
    LayoutError,
    ListEntry,
    Listing,
    Page,
    Site,
)
from medlive.threads.model import Thread
from tests.support.ledger import Killed, MemoryLedger

PAGES = Path(__file__).parents[2] / "pages"


def saved(name: str, kind: str = "text/html") -> tuple[bytes, str]:
    return (PAGES / name).read_bytes(), kind


class Communities:
    """The sample pages under one path prefix a site, as the real sites lay them out."""

    def __init__(self) -> None:
        board = "/sdn/forums/internal-medicine.41/"
        thread = "/sdn/threads/furosemide-stopped-working.77001/"
        self.answers: dict[str, tuple[bytes, str] | int] = {
            "/icliniq/qa": self.under("icliniq/list_2019.html", "icliniq"),
            "/icliniq/qa/heel-pain/my-heel-hurts-every-morning": saved(
                "icliniq/detail_2020.html"
            ),
            board: self.under("sdn/list.html", "sdn"),
            "/sdn/forums/internal-medicine.41/page-2": 404,
            "/sdn/threads/read-this-first.9/": 500,
            thread: self.under("sdn/thread_page1.html", "sdn"),
            thread + "page-2": self.under("sdn/thread_page2.html", "sdn"),
            "/dxy/questions/neike": self.under("dxy/list.html", "dxy"),
            "/dxy/question/33001": saved("dxy/question_state.html"),
            "/medlive/new/": saved("medlive/front.html"),
            "/medlive/new/articlelist": self.under(
                "medlive/articlelist.json", "medlive", "application/json"
            ),
            "/medlive/case/show-140001_53.html": saved(
                "medlive/case_gbk.html", "text/html; charset=utf-8"
            ),
        }
        self.asked: list[str] = []
        self.base = ""
        self.etag = '"same"'

    def under(
        self, name: str, prefix: str, kind: str = "text/html"
    ) -> tuple[bytes, str]:
        body, kind = saved(name, kind)
        for path in (b"/qa", b"/forums/", b"/threads/", b"/question", b"/case/show"):
            for quote in (b'"', b'": "'):
                body = body.replace(quote + path, quote + b"/" + prefix.encode() + path)
        return body, kind

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        found = self.answers.get(request.path, 404)
        if isinstance(found, int):
            return web.Response(status=found)
        body, kind = found
        if request.headers.get("If-None-Match") == '"same"':
            return web.Response(status=304)
        return web.Response(
            body=body, headers={"Content-Type": kind, "ETag": self.etag}
        )


@pytest.fixture
async def served() -> AsyncIterator[Communities]:
    communities = Communities()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", communities.answer)
    async with TestServer(app) as server:
        communities.base = f"http://127.0.0.1:{server.port}"
        yield communities


def site_for(served: Communities, name: str) -> Site:
    boards = {"boards": ["internal-medicine.41"]} if name == "sdn" else {}
    base = {"base_url": f"{served.base}/{name}", "min_interval_s": 0}
    return build_site(name, base | boards)


async def run(
    served: Communities,
    name: str,
    ledger: MemoryLedger | None = None,
    **options: object,
) -> list[HarvestEvent]:
    """What a harvest told its ledger."""
    ledger = ledger or MemoryLedger()
    settings = FetchSettings(allow_loopback=True, retries={})
    async with Fetcher(settings) as fetcher:
        await harvest(
            site_for(served, name),
            fetcher.fetch,
            ledger,
            anonymise=lambda a: "h" + a,
            **options,  # type: ignore[arg-type]
        )
    return ledger.events


@pytest.mark.parametrize(
    ("name", "messages"), [("icliniq", 4), ("sdn", 5), ("dxy", 4), ("medlive", 5)]
)
async def test_every_community_gives_its_thread(
    served: Communities, name: str, messages: int
) -> None:
    events = await run(served, name)
    (harvested,) = [e for e in events if isinstance(e, HarvestedThread)]
    assert len(harvested.thread.messages) == messages
    assert harvested.thread.source == name
    assert harvested.headers["etag"] == '"same"'
    assert harvested.page_count == (2 if name == "sdn" else 1)
    assert all(m.author.startswith("h") for m in harvested.thread.messages)
    pages = [e for e in events if isinstance(e, FetchedPage)]
    assert all(e.page.body for e in pages), "raw bytes are handed over for keeping"
    assert sum(e.thread_id is not None for e in pages) == harvested.page_count


async def test_a_failing_page_ends_nothing(served: Communities) -> None:
    events = await run(served, "sdn")
    problems = {
        (e.url.removeprefix(served.base), e.kind)
        for e in events
        if isinstance(e, HarvestProblem)
    }
    assert problems == {
        ("/sdn/threads/read-this-first.9/", "fetch"),
        (
            "/sdn/forums/internal-medicine.41/page-2?order=last_post_date&direction=desc",
            "fetch",
        ),
    }
    assert sum(isinstance(e, HarvestedThread) for e in events) == 1


async def test_a_layout_that_does_not_fit_is_a_problem_of_that_thread_and_keeps_the_page(
    served: Communities,
) -> None:
    url = "/sdn/threads/furosemide-stopped-working.77001/"
    body, kind = served.under("sdn/thread_page1.html", "sdn")
    served.answers[url] = (body.replace(b"message--post", b"m-post"), kind)
    events = await run(served, "sdn")
    (problem,) = [
        e for e in events if isinstance(e, HarvestProblem) and e.kind == "layout"
    ]
    assert problem.thread_id == "77001"
    assert not problem.ends_source
    assert any(isinstance(e, FetchedPage) and e.thread_id == "77001" for e in events)
    served.answers[url + "page-2"] = 404
    served.answers[url] = (body, kind)
    events = await run(served, "sdn")
    assert not any(isinstance(e, HarvestedThread) for e in events), (
        "one page of two is no thread"
    )


async def test_a_block_ends_the_source_and_the_thread_waits(
    served: Communities,
) -> None:
    served.answers["/sdn/threads/read-this-first.9/"] = 403
    ledger = MemoryLedger()
    events = await run(served, "sdn", ledger)
    blocks = [
        e for e in events if isinstance(e, HarvestProblem) and e.kind == "blocked"
    ]
    assert [block.ends_source for block in blocks] == [True]
    assert blocks[0].thread_id == "9"
    assert not any("furosemide" in path for path in served.asked)
    assert "77001" in ledger.waiting


async def test_a_host_that_is_down_ends_the_source_and_the_thread_waits(
    served: Communities, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = MemoryLedger()
    served.answers["/sdn/threads/furosemide-stopped-working.77001/"] = 500
    monkeypatch.setattr(fetch, "MOST_FAILURES", 1)
    async with Fetcher(FetchSettings(allow_loopback=True, retries={})) as fetcher:
        end = await harvest(
            site_for(served, "sdn"), fetcher.fetch, ledger, anonymise=str
        )
    assert end == "given_up"
    problems = [
        e for e in ledger.events if isinstance(e, HarvestProblem) and e.thread_id
    ]
    assert [(e.kind, e.ends_source) for e in problems] == [
        ("fetch", False),
        ("down", True),
    ]
    assert list(ledger.waiting) == ["77001"]


async def test_older_threads_are_skipped_and_end_the_list(served: Communities) -> None:
    events = await run(served, "sdn", since=datetime(2020, 1, 1, tzinfo=UTC))
    skipped = [s for e in events if isinstance(e, Listed) for s in e.skipped]
    assert [(s.thread_id, s.reason) for s in skipped] == [("9", "older_than_since")]
    before = len(served.asked)
    events = await run(served, "sdn", since=datetime(2027, 1, 1, tzinfo=UTC))
    assert not any(isinstance(e, HarvestedThread) for e in events)
    assert "/sdn/forums/internal-medicine.41/page-2" not in served.asked[before:]
    events = await run(served, "icliniq", since=datetime(2019, 1, 1, tzinfo=UTC))
    assert [type(e) for e in events] == [
        FetchedPage,
        Listed,
        FetchedPage,
        HarvestSkipped,
    ], "dated by its page"


async def test_an_unchanged_thread_is_not_sent_again(served: Communities) -> None:
    events = await run(served, "icliniq")
    (harvested,) = [e for e in events if isinstance(e, HarvestedThread)]
    known = {harvested.entry.thread_id: KnownThread(etag='"same"', page_count=1)}
    events = await run(served, "icliniq", MemoryLedger(known=known))
    (skipped,) = [e for e in events if isinstance(e, HarvestSkipped)]
    assert skipped.reason == "not_modified"
    longer = {"77001": KnownThread(etag='"same"', page_count=2)}
    events = await run(served, "sdn", MemoryLedger(known=longer))
    assert sum(isinstance(e, HarvestedThread) for e in events) == 1, (
        "page 1 says nothing of page 2"
    )


async def test_a_validator_that_no_request_can_carry_is_not_sent(
    served: Communities,
) -> None:
    (harvested,) = [
        e for e in await run(served, "icliniq") if isinstance(e, HarvestedThread)
    ]
    for etag in ('"caf\xe9"', '"' + "x" * 9000 + '"'):
        known = {harvested.entry.thread_id: KnownThread(etag=etag, page_count=1)}
        events = await run(served, "icliniq", MemoryLedger(known=known))
        assert sum(isinstance(e, HarvestedThread) for e in events) == 1


async def test_the_limit_counts_threads(served: Communities) -> None:
    events = await run(served, "sdn", limit=1)
    assert not any("77001" in path for path in served.asked)
    assert [type(e) for e in events] == [FetchedPage, Listed, HarvestProblem]
    assert [type(e) for e in await run(served, "icliniq", limit=0)] == [
        FetchedPage,
        Listed,
    ]


async def test_a_pager_in_a_circle_ends(served: Communities) -> None:
    board = "/sdn/forums/internal-medicine.41/"
    served.answers[board + "page-2"] = served.answers[board]
    thread = "/sdn/threads/furosemide-stopped-working.77001/"
    served.answers[thread + "page-2"] = served.answers[thread]
    events = await run(served, "sdn")
    assert served.asked.count(board + "page-2") == 1
    assert served.asked.count(thread + "page-2") == 1
    assert any(isinstance(e, HarvestProblem) and e.kind == "incomplete" for e in events)


@pytest.mark.parametrize(
    "name", ["sdn", pytest.param("medlive", marks=pytest.mark.thorough)]
)
async def test_killed_anywhere_it_goes_on_and_loses_only_the_page_in_flight(
    served: Communities, name: str
) -> None:
    body, kind = served.under("sdn/list.html", "sdn")
    last = (
        body.replace(b"pageNav", b"p")
        .replace(b"page-2", b"page-x")
        .replace(b"77001", b"9")
    )
    served.answers["/sdn/forums/internal-medicine.41/page-2"] = (last, kind)
    second = served.answers["/sdn/threads/furosemide-stopped-working.77001/page-2"]
    served.answers["/sdn/threads/read-this-first.9/"] = second
    whole = await run(served, name)
    wanted = {e.thread.digest for e in whole if isinstance(e, HarvestedThread)}
    assert wanted
    pages = [path for path in served.asked if path != "/robots.txt"]
    for kept in range(len(whole)):
        ledger = MemoryLedger(die_after=kept)
        served.asked.clear()
        with pytest.raises(Killed):
            await run(served, name, ledger)
        assert len(ledger.events) <= kept
        ledger.die_after = None
        await run(served, name, ledger)
        found = [
            e.thread.digest for e in ledger.events if isinstance(e, HarvestedThread)
        ]
        assert set(found) == wanted
        assert len(found) == len(wanted), "nothing is read twice"
        again = Counter(
            path for path in served.asked if path != "/robots.txt"
        ) - Counter(pages)
        assert sum(again.values()) <= 2, "what each of the two tasks had in flight"
        assert sum(n for path, n in again.items() if "/threads/" in path) <= 1


async def test_a_list_is_read_to_where_earlier_runs_saw_it_and_known_threads_there_are_left(
    served: Communities,
) -> None:
    board = "/sdn/forums/internal-medicine.41/"
    first = f"{served.base}{board}?order=last_post_date&direction=desc"
    late = datetime(2027, 1, 1, tzinfo=UTC)
    known = {"77001": KnownThread(page_count=2), "9": KnownThread(page_count=1)}
    ledger = MemoryLedger(known=known, lists={first: ListState(cutoff=late)})
    events = await run(served, "sdn", ledger)
    assert served.asked.count(board) == 1
    assert board + "page-2" not in served.asked
    assert not [path for path in served.asked if "/threads/" in path]
    (listed,) = [e for e in events if isinstance(e, Listed)]
    assert listed.next_page is None
    # One that was never read is asked for however old it is.
    ledger = MemoryLedger(
        known={"9": KnownThread(page_count=1)}, lists={first: ListState(cutoff=late)}
    )
    await run(served, "sdn", ledger)
    assert [path for path in served.asked if "77001" in path]


async def test_what_no_list_shows_is_asked_for_and_may_be_gone(
    served: Communities,
) -> None:
    gone = ListEntry(f"{served.base}/icliniq/qa/heel-pain/gone", "qa/heel-pain/gone")
    there = ListEntry(
        f"{served.base}/icliniq/qa/heel-pain/my-heel-hurts-every-morning", "there"
    )
    events = await run(served, "icliniq", MemoryLedger(unlisted=[gone, there]))
    (problem,) = [e for e in events if isinstance(e, HarvestProblem)]
    assert (problem.kind, problem.thread_id) == ("gone", gone.thread_id)
    assert {e.entry.thread_id for e in events if isinstance(e, HarvestedThread)} >= {
        "there"
    }
    served.answers["/icliniq/qa/heel-pain/gone"] = served.answers["/icliniq/qa"]
    many = [
        replace(gone, url=f"{gone.url}?{n}", thread_id=f"gone-{n}")
        for n in range(LAYOUT_STREAK)
    ]
    events = await run(served, "icliniq", MemoryLedger(unlisted=many))
    problems = [e for e in events if isinstance(e, HarvestProblem)]
    assert {p.kind for p in problems} == {"gone"}, (
        "the list answers instead, and others can be read"
    )
    assert len(problems) == LAYOUT_STREAK
    served.answers["/icliniq/qa/heel-pain/my-heel-hurts-every-morning"] = 500
    events = await run(served, "icliniq", MemoryLedger(unlisted=many))
    kinds = Counter(e.kind for e in events if isinstance(e, HarvestProblem))
    assert kinds == {"fetch": 1, "layout": LAYOUT_STREAK}, (
        "nothing shows that it is not the site"
    )
    assert not any(e.ends_source for e in events if isinstance(e, HarvestProblem))
    served.answers["/icliniq/qa/heel-pain/my-heel-hurts-every-morning"] = saved(
        "icliniq/detail_2020.html"
    )
    limited = await run(served, "icliniq", MemoryLedger(unlisted=[gone]), limit=1)
    assert not [e for e in limited if isinstance(e, HarvestProblem)], (
        "after the lists, or not at all"
    )


async def test_a_thread_that_was_taken_down_is_not_asked_for(
    served: Communities,
) -> None:
    events = await run(
        served,
        "sdn",
        MemoryLedger(known={"77001": KnownThread(page_count=2, taken_down=True)}),
    )
    assert not any("77001" in path for path in served.asked)
    skipped = [s for e in events if isinstance(e, Listed) for s in e.skipped]
    assert [(s.thread_id, s.reason) for s in skipped] == [("77001", "taken_down")]


class Renaming:
    """A site whose lists give its threads other fields."""

    def __init__(self, site: Site, **changes: Any) -> None:
        self._site, self._changes = site, changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site, name)

    def parse_listing(self, page: Page) -> Listing:
        listing = self._site.parse_listing(page)
        entries = [replace(e, **self._changes) for e in listing.entries]
        return replace(listing, entries=tuple(entries))


@pytest.mark.parametrize(
    "thread_id", ["", "x" * 501, "..", "1/../2", "1//2", "..%2f2", "1\\..\\2"]
)
async def test_an_id_that_leads_to_another_threads_page_is_skipped(
    served: Communities, thread_id: str
) -> None:
    ledger, site = MemoryLedger(), site_for(served, "icliniq")
    async with Fetcher(FetchSettings(allow_loopback=True, retries={})) as fetcher:
        await harvest(
            cast(Site, Renaming(site, thread_id=thread_id)),
            fetcher.fetch,
            ledger,
            anonymise=str,
        )
    skipped = [s for e in ledger.events if isinstance(e, Listed) for s in e.skipped]
    assert {(s.thread_id, s.reason) for s in skipped} == {(thread_id, "bad_id")}
    with pytest.raises(LayoutError, match="a thread's id"):
        site.build_thread(thread_id, "http://x/", "", (), None, (), str)


async def test_a_link_to_another_host_is_skipped(served: Communities) -> None:
    ledger, site = MemoryLedger(), site_for(served, "icliniq")
    elsewhere = Renaming(site, url="https://elsewhere.example/qa/a/b")
    async with Fetcher(FetchSettings(allow_loopback=True, retries={})) as fetcher:
        await harvest(
            cast(Site, elsewhere),
            fetcher.fetch,
            ledger,
            anonymise=str,
        )
    skipped = [e for e in ledger.events if isinstance(e, HarvestSkipped)]
    assert {s.reason for s in skipped} == {"other_host"}
    assert not any(isinstance(e, HarvestProblem) for e in ledger.events)


async def test_a_list_that_fits_no_layout_ends_the_source_and_its_page_is_kept(
    served: Communities,
) -> None:
    board = "/sdn/forums/internal-medicine.41/"
    body, kind = served.under("sdn/list.html", "sdn")
    served.answers[board] = (
        body.replace(b"structItem", b"sI").replace(b"forum_view", b"other"),
        kind,
    )
    events = await run(served, "sdn")
    assert [type(e) for e in events] == [FetchedPage, HarvestProblem]
    assert isinstance(events[1], HarvestProblem)
    assert (events[1].kind, events[1].ends_source) == ("layout", True)


class Broken:
    """A site whose adapter fails as none should."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site, name)

    def whole_thread(self, pages: object, anonymise: object) -> Thread:
        raise ZeroDivisionError("by a page that nobody foresaw")


async def test_an_adapter_s_own_fault_is_a_problem_and_its_page_is_kept(
    served: Communities,
) -> None:
    ledger = MemoryLedger()
    async with Fetcher(FetchSettings(allow_loopback=True, retries={})) as fetcher:
        end = await harvest(
            cast(Site, Broken(site_for(served, "icliniq"))),
            fetcher.fetch,
            ledger,
            anonymise=str,
        )
    assert end == "complete"
    assert [type(e) for e in ledger.events] == [
        FetchedPage,
        Listed,
        FetchedPage,
        HarvestProblem,
    ]
    problem = ledger.events[-1]
    assert isinstance(problem, HarvestProblem)
    assert problem.kind == "fault"
    assert "ZeroDivisionError" in problem.message


async def test_threads_in_a_row_that_fit_no_layout_end_the_source(
    served: Communities,
) -> None:
    body, kind = saved("icliniq/detail_2020.html")
    rows = "".join(
        f'<div class="card-title"><a href="/icliniq/qa/t/q-{n}">Q{n}</a></div>'
        for n in range(12)
    )
    served.answers["/icliniq/qa"] = (
        f"<html><body>{rows}</body></html>".encode(),
        "text/html",
    )
    for n in range(12):
        served.answers[f"/icliniq/qa/t/q-{n}"] = (
            body.replace(b"class=", b"klass="),
            kind,
        )
    ledger = MemoryLedger()
    await run(served, "icliniq", ledger)
    problems = [e for e in ledger.events if isinstance(e, HarvestProblem)]
    assert [p.ends_source for p in problems] == [False] * (LAYOUT_STREAK - 1) + [True]
    assert len(ledger.waiting) == 12 - LAYOUT_STREAK, (
        "the others wait until the parser is mended"
    )


async def test_a_list_without_dates_ends_after_pages_of_known_threads(
    served: Communities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medlive.sources.harvest.LIST_PAGES", 40)

    def page(number: int) -> bytes:
        rows = f'<div class="card-title"><a href="/icliniq/qa/t/q-{number}">Q{number}</a></div>'
        pager = f'<a rel="next" href="/icliniq/qa?page={number + 1}">next</a>'
        return f"<html><body>{rows}{pager}</body></html>".encode()

    asked: list[int] = []

    class Endless:
        async def fetch(self, url: str, site: object, **_: object) -> Fetched:
            if "/qa/t/" in url:
                raise FetchError(url, reason="timeout", message="late")
            number = int(url.partition("page=")[2] or 1)
            asked.append(number)
            return Fetched(
                url,
                page(number),
                headers={"content-type": "text/html"},
                fetched_at=now(),
            )

    class Ids(MemoryLedger):
        async def look_up(self, thread_ids: Sequence[str]) -> Mapping[str, KnownThread]:
            numbers = {i: int(i.rpartition("-")[2]) for i in thread_ids}
            # 4 to 7 were met by a run that was killed before it came to those that follow.
            return {
                i: KnownThread(page_count=1, met_by=2 if n < 8 else 1)
                for i, n in numbers.items()
                if n >= 4
            }

    first = f"{served.base}/icliniq/qa?page=1"
    ledger = Ids(lists={first: ListState(read_by=1)})
    await harvest(
        site_for(served, "icliniq"),
        Endless().fetch,
        ledger,
        anonymise=str,
    )
    assert asked == list(range(1, 10))
    asked.clear()
    ledger = Ids()
    await harvest(
        site_for(served, "icliniq"),
        Endless().fetch,
        ledger,
        anonymise=str,
    )
    assert len(asked) == 40, "no run read it to its end"
    (told,) = [
        e
        for e in ledger.events
        if isinstance(e, HarvestProblem) and e.thread_id is None
    ]
    assert "left out" in told.message


@pytest.mark.parametrize("name", sorted(SITES))
def test_another_server_is_asked_alone(name: str) -> None:
    site = build_site(name)
    assert site.hosts == site.allowed_hosts
    mirror = build_site(name, {"base_url": "http://127.0.0.1:8123/x"})
    assert mirror.hosts == {"127.0.0.1:8123"}


def test_settings_that_do_not_fit_are_told() -> None:
    with pytest.raises(ConfigError):
        build_site("unknown")
    for wrong in (
        {"base_url": "ftp://x"},
        {"base_url": "nowhere"},
        {"base_url": "https://x:99999"},
        {"base_url": "https://a:b@x"},
        {"min_interval_s": -1},
        {"nonsense": 1},
    ):
        with pytest.raises(ConfigError):
            build_site("sdn", wrong)
