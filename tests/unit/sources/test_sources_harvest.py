"""A harvest over real HTTP: every page is an event, a failing page ends nothing, a block ends the source."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from medlive.errors import ConfigError
from medlive.sources.fetch import Fetcher, FetchSettings
from medlive.sources.harvest import (
    FetchedPage,
    HarvestedThread,
    HarvestEvent,
    HarvestProblem,
    HarvestSkipped,
    KnownThread,
    PageKind,
    ProblemKind,
    SkipReason,
    harvest,
)
from medlive.sources.registry import SITES, build_site
from medlive.sources.source import Site, allowed_hosts

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
            "/icliniq/qa/heel-pain/my-heel-hurts-every-morning": saved("icliniq/detail_2020.html"),
            board: self.under("sdn/list.html", "sdn"),
            "/sdn/forums/internal-medicine.41/page-2": 404,
            "/sdn/threads/read-this-first.9/": 500,
            thread: self.under("sdn/thread_page1.html", "sdn"),
            thread + "page-2": self.under("sdn/thread_page2.html", "sdn"),
            "/dxy/questions/neike": self.under("dxy/list.html", "dxy"),
            "/dxy/question/33001": saved("dxy/question_state.html"),
            "/medlive/new/": saved("medlive/front.html"),
            "/medlive/new/articlelist": self.under("medlive/articlelist.json", "medlive", "application/json"),
            "/medlive/case/show-140001_53.html": saved("medlive/case_gbk.html", "text/html; charset=utf-8"),
        }
        self.asked: list[str] = []
        self.base = ""

    def under(self, name: str, prefix: str, kind: str = "text/html") -> tuple[bytes, str]:
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
        return web.Response(body=body, headers={"Content-Type": kind, "ETag": '"same"'})


@pytest.fixture
async def served() -> AsyncIterator[Communities]:
    communities = Communities()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", communities.answer)
    async with TestServer(app) as server:
        communities.base = f"http://127.0.0.1:{server.port}"
        yield communities


def site_for(name: str) -> Site:
    boards = {"sdn": ["internal-medicine.41"]}
    return build_site(name, {"min_interval_s": 0, **({"boards": boards[name]} if name in boards else {})})


async def run(served: Communities, name: str, **options: object) -> list[HarvestEvent]:
    settings = FetchSettings(allow_loopback=True, retries={})
    async with Fetcher(settings) as fetcher:
        events = harvest(
            site_for(name), f"{served.base}/{name}", fetcher, anonymise=lambda a: "h" + a, **options  # type: ignore[arg-type]
        )  # fmt: skip
        return [event async for event in events]


@pytest.mark.parametrize(("name", "messages"), [("icliniq", 4), ("sdn", 5), ("dxy", 4), ("medlive", 5)])
async def test_every_community_gives_its_thread(served: Communities, name: str, messages: int) -> None:
    events = await run(served, name)
    (harvested,) = [e for e in events if isinstance(e, HarvestedThread)]
    assert len(harvested.thread.messages) == messages
    assert harvested.thread.source == name
    assert harvested.first.headers["etag"] == '"same"'
    assert len(harvested.pages) == (2 if name == "sdn" else 1)
    assert all(m.author.startswith("h") for m in harvested.thread.messages)
    pages = [e for e in events if isinstance(e, FetchedPage)]
    assert all(e.page.body for e in pages), "raw bytes are handed over for keeping"
    assert [e.kind for e in pages].count(PageKind.THREAD) == len(harvested.pages)


async def test_a_failing_page_ends_nothing(served: Communities) -> None:
    events = await run(served, "sdn")
    problems = {(e.url.removeprefix(served.base), e.kind) for e in events if isinstance(e, HarvestProblem)}
    assert problems == {
        ("/sdn/threads/read-this-first.9/", ProblemKind.FETCH),
        ("/sdn/forums/internal-medicine.41/page-2?order=last_post_date&direction=desc", ProblemKind.FETCH),
    }
    assert sum(isinstance(e, HarvestedThread) for e in events) == 1


async def test_a_layout_that_does_not_fit_is_a_problem_of_that_thread_and_keeps_the_page(
    served: Communities,
) -> None:
    url = "/sdn/threads/furosemide-stopped-working.77001/"
    body, kind = served.under("sdn/thread_page1.html", "sdn")
    served.answers[url] = (body.replace(b"message--post", b"m-post"), kind)
    events = await run(served, "sdn")
    (problem,) = [e for e in events if isinstance(e, HarvestProblem) and e.kind is ProblemKind.LAYOUT]
    assert problem.thread_id == "77001"
    assert not problem.ends_source
    assert any(isinstance(e, FetchedPage) and e.thread_id == "77001" for e in events)
    served.answers[url + "page-2"] = 404
    served.answers[url] = (body, kind)
    events = await run(served, "sdn")
    assert not any(isinstance(e, HarvestedThread) for e in events), "one page of two is no thread"


async def test_a_block_ends_the_source(served: Communities) -> None:
    served.answers["/sdn/threads/read-this-first.9/"] = 403
    events = await run(served, "sdn")
    last = events[-1]
    assert isinstance(last, HarvestProblem)
    assert (last.kind, last.ends_source) == (ProblemKind.BLOCKED, True)
    assert served.asked[-1] == "/sdn/threads/read-this-first.9/"


async def test_older_threads_are_skipped_and_end_the_list(served: Communities) -> None:
    events = await run(served, "sdn", since=datetime(2020, 1, 1, tzinfo=UTC))
    (skipped,) = [e for e in events if isinstance(e, HarvestSkipped)]
    assert (skipped.thread_id, skipped.reason) == ("9", SkipReason.OLDER_THAN_SINCE)
    events = await run(served, "sdn", since=datetime(2026, 1, 1, tzinfo=UTC))
    assert not any(isinstance(e, HarvestedThread) for e in events)
    assert "/sdn/forums/internal-medicine.41/page-2" not in served.asked[-2:]
    events = await run(served, "icliniq", since=datetime(2019, 1, 1, tzinfo=UTC))
    assert [type(e) for e in events] == [FetchedPage, FetchedPage, HarvestSkipped], "dated by its own page only"


async def test_an_unchanged_thread_is_not_sent_again(served: Communities) -> None:
    known = KnownThread(etag='"same"')
    events = await run(served, "icliniq", known=lambda thread_id: known)
    (skipped,) = [e for e in events if isinstance(e, HarvestSkipped)]
    assert skipped.reason is SkipReason.NOT_MODIFIED
    longer = KnownThread(etag='"same"', page_count=2)
    events = await run(served, "sdn", known=lambda thread_id: longer)
    assert sum(isinstance(e, HarvestedThread) for e in events) == 1, "page 1 says nothing of page 2"


async def test_the_limit_counts_threads(served: Communities) -> None:
    events = await run(served, "sdn", limit=1)
    assert not any("77001" in path for path in served.asked)
    assert [type(e) for e in events] == [FetchedPage, HarvestProblem]
    assert [type(e) for e in await run(served, "icliniq", limit=0)] == [FetchedPage]


async def test_a_pager_in_a_circle_ends(served: Communities) -> None:
    board = "/sdn/forums/internal-medicine.41/"
    served.answers[board + "page-2"] = served.answers[board]
    thread = "/sdn/threads/furosemide-stopped-working.77001/"
    served.answers[thread + "page-2"] = served.answers[thread]
    events = await run(served, "sdn")
    assert served.asked.count(board + "page-2") == 1
    assert served.asked.count(thread + "page-2") == 1
    assert any(isinstance(e, HarvestProblem) and e.kind is ProblemKind.INCOMPLETE for e in events)


@pytest.mark.parametrize("name", sorted(SITES))
def test_another_server_is_asked_alone(name: str) -> None:
    site = build_site(name)
    assert allowed_hosts(site, site.settings.base_url) == site.allowed_hosts
    assert allowed_hosts(site, "http://127.0.0.1:8123/x") == {"127.0.0.1:8123"}
    with pytest.raises(ConfigError):
        allowed_hosts(site, "nowhere")


def test_settings_that_do_not_fit_are_told() -> None:
    with pytest.raises(ConfigError, match="is named"):
        build_site("unknown")
    for wrong in ({"base_url": "ftp://x"}, {"base_url": "https://a:b@x"}, {"min_interval_s": -1}, {"nonsense": 1}):
        with pytest.raises(ConfigError, match="do not fit"):
            build_site("sdn", wrong)
