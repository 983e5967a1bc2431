"""The fetcher against a real local server: polite, bounded, and out of private networks."""

import asyncio
import gzip
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from medlive.errors import ConfigError
from medlive.sources.fetching import fetch
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.fetching.policy import (
    FetchError,
    FetchSettings,
)
from medlive.sources.source import Site
from tests.support.communities import site_at
from tests.support.refusals import refused

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PAGE = "<html><p>a page</p></html>"


@dataclass
class Community:
    """A server whose answers a test sets, and what it was asked."""

    robots: Handler
    pages: dict[str, Handler] = field(default_factory=dict)
    asked: list[tuple[str, float]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    base: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path_qs, time.monotonic()))
        self.headers.append(dict(request.headers))
        if request.path == "/robots.txt":
            return await self.robots(request)
        handler = self.pages.get(request.path)
        return (
            await handler(request)
            if handler
            else web.Response(text=PAGE, content_type="text/html")
        )

    def site(self, **changes: Any) -> Site:
        return site_at(self.base, **changes)

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked if path != "/robots.txt"]


def text(body: str, status: int = 200, **headers: str) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(
            text=body, status=status, content_type="text/html", headers=headers
        )

    return answer


def robots(body: str, status: int = 200) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=body, status=status)

    return answer


@pytest.fixture
async def community() -> AsyncIterator[Community]:
    served = Community(robots=robots("User-agent: *\nAllow: /\n"))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    async with TestServer(app) as server:
        served.base = f"http://127.0.0.1:{server.port}"
        yield served


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "ATTEMPT_SECONDS", 2.0)


def quick(**changes: Any) -> FetchSettings:
    return FetchSettings(
        **{
            "allow_loopback": True,
            "backoff_s": 0.001,
            **changes,
        }
    )


async def failure(fetcher: Fetcher, url: str, site: Site) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await fetcher.fetch(url, site)
    return caught.value


async def test_a_page_comes_with_an_honest_name_and_robots_is_asked_once(
    community: Community,
) -> None:
    community.pages["/a"] = text(PAGE, ETag='"v1"')
    async with Fetcher(quick(contact="ops@example.org")) as fetcher:
        for _ in range(3):
            got = await fetcher.fetch(community.base + "/a", community.site())
    assert (got.status, got.body, got.not_modified) == (200, PAGE.encode(), False)
    assert got.headers["etag"] == '"v1"'
    assert got.headers["content-type"].startswith("text/html")
    assert got.fetched_at.tzinfo is not None
    assert [path for path, _ in community.asked].count("/robots.txt") == 1
    assert community.asked[0][0] == "/robots.txt"
    agents = {h["User-Agent"] for h in community.headers}
    assert len(agents) == 1
    assert next(iter(agents)).startswith("medlive/")
    assert "ops@example.org" in next(iter(agents))


async def test_robots_rules_are_obeyed_with_wildcards(community: Community) -> None:
    community.robots = robots(
        "User-agent: medlive\nDisallow: /*/private$\nDisallow: /x?\n"
    )
    async with Fetcher(quick()) as fetcher:
        await fetcher.fetch(community.base + "/a/private/more", community.site())
        for denied in ("/a/private", "/x?y=1"):
            with refused("robots"):
                await fetcher.fetch(community.base + denied, community.site())
        assert [r.state for r in fetcher.robots] == ["rules"]
    assert community.paths() == ["/a/private/more"]


@pytest.mark.thorough
async def test_requests_keep_the_longest_interval_asked_for(
    community: Community,
) -> None:
    community.robots = robots("User-agent: *\nCrawl-delay: 0.2\n")
    async with Fetcher(quick(concurrency_per_host=2)) as fetcher:
        started = time.monotonic()
        await asyncio.gather(
            *(
                fetcher.fetch(f"{community.base}/{n}", community.site())
                for n in range(4)
            )
        )
    assert community.asked[-1][1] - started >= 0.6, (
        "four pages have three pauses between them"
    )
    community.asked.clear()
    community.robots = robots("User-agent: *\nCrawl-delay: 10\n")
    async with Fetcher(quick()) as fetcher:
        await fetcher.fetch(f"{community.base}/0", community.site(min_interval_s=0.2))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(
                fetcher.fetch(f"{community.base}/1", community.site()), 0.5
            )
    community.robots = robots("")
    community.asked.clear()
    async with Fetcher(quick()) as fetcher:
        started = time.monotonic()
        for n in range(2):
            await fetcher.fetch(
                f"{community.base}/{n}", community.site(min_interval_s=0.2)
            )
    assert community.asked[-1][1] - started >= 0.4, "robots.txt takes its turn as well"


async def test_no_more_than_the_allowed_requests_at_a_time(
    community: Community,
) -> None:
    running, most = 0, 0

    async def slow(request: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return web.Response(text=PAGE, content_type="text/html")

    community.pages["/s"] = slow
    for allowed in (1, 2):
        most = 0
        async with Fetcher(quick(concurrency_per_host=allowed)) as fetcher:
            url, site = community.base + "/s", community.site()
            await asyncio.gather(*(fetcher.fetch(url, site) for _ in range(5)))
        assert most == allowed


async def test_temporary_failures_are_retried_within_their_own_bound(
    community: Community,
) -> None:
    answers = iter([503, 500, 200])

    async def flaky(request: web.Request) -> web.Response:
        return web.Response(text=PAGE, status=next(answers), content_type="text/html")

    community.pages["/flaky"] = flaky
    community.pages["/dead"] = text("", 503)
    community.pages["/gone"] = text("", 404)

    async def image(request: web.Request) -> web.Response:
        return web.Response(body=b"PNG", content_type="image/png")

    community.pages["/image"] = image
    retries = {"server_error": 2, "content_type": 1}
    async with Fetcher(quick(retries=retries)) as fetcher:
        assert (
            await fetcher.fetch(community.base + "/flaky", community.site())
        ).status == 200
        assert fetcher.counts["retried_server_error"] == 2
        error = await failure(fetcher, community.base + "/dead", community.site())
        assert (error.reason, error.status) == ("server_error", 503)
        error = await failure(fetcher, community.base + "/gone", community.site())
        assert (error.reason, error.status) == ("not_found", 404)
        error = await failure(fetcher, community.base + "/image", community.site())
        assert error.reason == "content_type"
    asked = ["/flaky"] * 3 + ["/dead"] * 3 + ["/gone"] + ["/image"] * 2
    assert community.paths() == asked


@pytest.mark.thorough
async def test_retry_after_is_waited_for_or_respected_without_asking(
    community: Community, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "RETRY_AFTER_S", 5)
    answers = iter([text("", 429, **{"Retry-After": "1"}), text(PAGE)])

    async def limited(request: web.Request) -> web.StreamResponse:
        return await next(answers)(request)

    community.pages["/limited"] = limited
    community.pages["/long"] = text("", 503, **{"Retry-After": "9999"})
    async with Fetcher(quick()) as fetcher:
        await fetcher.fetch(community.base + "/limited", community.site())
        first, second = [
            moment for path, moment in community.asked if path == "/limited"
        ]
        assert second - first >= 0.95
        error = await failure(fetcher, community.base + "/long", community.site())
        assert error.reason == "rate_limited"
        # It was not asked for, so that it must not count as failed.
        with refused("down"):
            await fetcher.fetch(community.base + "/other", community.site())
    assert community.paths()[2:] == ["/long"], (
        "neither a retry nor another page while the host wants rest"
    )


@pytest.mark.parametrize(
    "answer", [text("", 403), text("", 503, **{"cf-mitigated": "challenge"})]
)
async def test_the_first_block_ends_the_host(
    community: Community, answer: Handler
) -> None:
    community.pages["/b"] = answer
    async with Fetcher(quick()) as fetcher:
        for path in ("/b", "/b", "/other"):
            with refused("blocked"):
                await fetcher.fetch(community.base + path, community.site())
    assert community.paths() == ["/b"]


async def test_a_source_may_count_429_as_a_block(community: Community) -> None:
    community.pages["/b"] = text("", 429)
    async with Fetcher(quick()) as fetcher:
        with refused("blocked"):
            await fetcher.fetch(
                community.base + "/b",
                community.site(stop_statuses=frozenset({403, 429})),
            )
    assert community.paths() == ["/b"]


async def test_conditional_requests(community: Community) -> None:
    async def page(request: web.Request) -> web.Response:
        same = request.headers.get("If-None-Match") == '"v1"'
        return web.Response(
            status=304 if same else 200,
            text=None if same else PAGE,
            content_type="text/html",
        )

    community.pages["/c"] = page
    async with Fetcher(quick()) as fetcher:
        unchanged = await fetcher.fetch(
            community.base + "/c", community.site(), etag='"v1"'
        )
        changed = await fetcher.fetch(
            community.base + "/c", community.site(), etag='"v0"'
        )
    assert (unchanged.not_modified, unchanged.status, unchanged.body) == (
        True,
        304,
        b"",
    )
    assert (changed.not_modified, changed.body) == (False, PAGE.encode())


async def test_a_page_that_an_address_leads_to_now_is_not_unchanged_by_its_date(
    community: Community,
) -> None:
    async def older(request: web.Request) -> web.Response:
        status = 304 if "If-Modified-Since" in request.headers else 200
        body = PAGE if status == 200 else None
        return web.Response(status=status, text=body, content_type="text/html")

    community.pages["/merged"] = text("", 301, Location="/older")
    community.pages["/older"] = older
    address, site = community.base + "/merged", community.site()
    day = "Sun, 01 Mar 2026 12:00:00 GMT"
    async with Fetcher(quick()) as fetcher:
        page = await fetcher.fetch(address, site, last_modified=day)
    assert (page.not_modified, page.body) == (False, PAGE.encode())


async def test_redirects_stay_with_the_source_and_end(community: Community) -> None:
    community.pages["/r"] = text("", 302, Location="/a")
    community.pages["/away"] = text("", 302, Location="http://example.com/a")
    community.pages["/file"] = text("", 302, Location="file:///etc/passwd")
    community.pages["/loop"] = text("", 301, Location="/loop")
    async with Fetcher(quick()) as fetcher:
        assert (
            await fetcher.fetch(community.base + "/r", community.site())
        ).url == community.base + "/a"
        for path in ("/away", "/file"):
            with refused("host_refused"):
                await fetcher.fetch(community.base + path, community.site())
        error = await failure(fetcher, community.base + "/loop", community.site())
        assert error.reason == "redirect"
        with pytest.raises(FetchError, match="not followed"):
            await fetcher.fetch(
                community.base + "/r", community.site(), form=(("a", "b"),)
            )
    assert community.paths().count("/loop") == 6


async def test_hosts_beyond_the_list_and_private_addresses_are_refused(
    community: Community,
) -> None:
    async with Fetcher(quick(contact="ops@example.org")) as fetcher:
        for url in (
            "http://example.com/",
            "ftp://127.0.0.1/",
            "http://user:pw@127.0.0.1/",
            "http://[::1",
            "x",
        ):
            with refused("host_refused"):
                await fetcher.fetch(url, community.site())
        for private in (
            "10.0.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "[::ffff:10.0.0.1]",
            "[fd00::1]",
        ):
            with refused("robots", match="public"):
                await fetcher.fetch(
                    f"http://{private}/",
                    site_at(f"http://{private}"),
                )
        assert {r.state for r in fetcher.robots} == {"unreadable"}
    async with Fetcher(FetchSettings(backoff_s=0.0)) as fetcher:
        with refused("robots"):
            await fetcher.fetch(community.base + "/a", community.site())
        by_name = community.base.replace("127.0.0.1", "localhost")
        with refused("robots"):
            await fetcher.fetch(by_name + "/a", site_at(by_name))
        with pytest.raises(ConfigError):
            await fetcher.fetch("http://example.com/", site_at("http://example.com"))
    assert community.asked == []


async def test_a_pinned_connection_still_names_its_host_to_tls() -> None:
    named: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _socket, name, _context: named.append(name)
    server = await asyncio.start_server(
        lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    port = server.sockets[0].getsockname()[1]
    async with server, Fetcher(quick(retries={})) as fetcher:
        with refused("robots"):
            await fetcher.fetch(
                f"https://localhost:{port}/",
                site_at(f"https://localhost:{port}"),
            )
    assert named == ["localhost"], (
        "the name, not the address that the connection was pinned to"
    )


async def test_a_bomb_is_cut_off_inside_a_chunk_and_several_members_are_one_body(
    community: Community, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PAGE_BYTES", 1_000_000)
    bomb = gzip.compress(b"<p>" + b"0" * 15_000_000)
    members = gzip.compress(PAGE.encode()) + gzip.compress(b"<!-- second member -->")

    def packed(body: bytes) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(
                body=body,
                headers={"Content-Encoding": "gzip", "Content-Type": "text/html"},
            )

        return answer

    community.pages.update({"/bomb": packed(bomb), "/members": packed(members)})
    async with Fetcher(quick(retries={})) as fetcher:
        tracemalloc.start()
        error = await failure(fetcher, community.base + "/bomb", community.site())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert error.reason == "too_large"
        assert peak < 10_000_000, (
            "the limit holds inside a chunk, not only after it is unpacked"
        )
        got = await fetcher.fetch(community.base + "/members", community.site())
        assert got.body == PAGE.encode() + b"<!-- second member -->"


async def test_a_closed_port_and_a_broken_answer_are_connection_failures(
    community: Community,
) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        request.transport.close()
        return web.Response()

    community.pages["/broken"] = broken
    async with Fetcher(quick(retries={"connection": 1})) as fetcher:
        error = await failure(fetcher, community.base + "/broken", community.site())
        assert error.reason == "connection"
        assert fetcher.counts["retried_connection"] == 1
        with refused("robots"):
            await fetcher.fetch("http://127.0.0.1:9/", site_at("http://127.0.0.1:9"))


async def test_forms_are_posted_and_cookies_of_the_run_kept(
    community: Community,
) -> None:
    seen: dict[str, str] = {}

    async def front(request: web.Request) -> web.Response:
        response = web.Response(text=PAGE, content_type="text/html")
        response.set_cookie("session", "s1")
        return response

    async def listing(request: web.Request) -> web.Response:
        seen.update(
            {k: str(v) for k, v in (await request.post()).items()},
            cookie=request.cookies.get("session", ""),
        )
        return web.json_response({})

    community.pages.update({"/front": front, "/list": listing})
    async with Fetcher(quick()) as fetcher:
        await fetcher.fetch(community.base + "/front", community.site())
        await fetcher.fetch(
            community.base + "/list",
            community.site(),
            form=(("branch", "病例"), ("page", "1")),
        )
    assert seen == {"branch": "病例", "page": "1", "cookie": "s1"}
