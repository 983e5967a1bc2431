"""The fetcher against servers that fail, lie, drip or lead astray: every answer ends within its bounds."""

import asyncio
import contextlib
import gzip
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from medlive.guard.http import may_connect
from medlive.sources.fetching import fetch
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.fetching.policy import (
    FetchError,
    FetchReason,
    FetchSettings,
    RobotsState,
)
from medlive.sources.source import Site
from tests.support.communities import site_at
from tests.support.refusals import refused

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
PAGE = b"<html><p>a page</p></html>"


def raw(*parts: bytes, reset: bool = False) -> Answer:
    """These bytes, then the end of the connection; abruptly with `reset`."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if reset:
            writer.transport.abort()

    return answer


def response(
    body: bytes = PAGE, status: int = 200, *, length: int | None = None, **headers: str
) -> Answer:
    given = {
        "Content-Type": "text/html",
        "Content-Length": str(len(body) if length is None else length),
    }
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(
        f"{name}: {value}\r\n" for name, value in given.items() if value != "-"
    )
    return raw(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode(), body)


def endless(head: bytes, part: bytes, pause_s: float = 0.0) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return answer


@dataclass
class Server:
    """Answers by path with whatever bytes a test wants."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    port: int = 0

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            self.asked.append(path)
            missing = response(b"", 404)
            await self.answers.get(
                path, missing if path == "/robots.txt" else response()
            )(writer)
        writer.close()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def count(self, path: str) -> int:
        return self.asked.count(path)

    @property
    def site(self) -> Site:
        return site_at(self.url(""))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    served = Server()
    running: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(served.serve(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    served.port = listening.sockets[0].getsockname()[1]
    yield served
    listening.close()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for writer in served.writers:
        writer.transport.abort()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MOST_FAILURES", 99)


def quick(**changes: object) -> FetchSettings:
    values: dict[str, object] = {
        "allow_loopback": True,
        "backoff_s": 0.0,
        "retries": {},
    }
    return FetchSettings.model_validate({**values, **changes})


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_BOMB_OF_MEMBERS = b"".join(gzip.compress(b"0" * 200_000) for _ in range(6))
_TWICE = gzip.compress(gzip.compress(b"0" * 2_000_000))

HOSTILE: dict[str, tuple[Answer, FetchReason]] = {
    "two megabytes": (response(b"x" * 2_000_000), "too_large"),
    "a bomb": (
        response(gzip.compress(b"0" * 3_000_000), Content_Encoding="gzip"),
        "too_large",
    ),
    "a bomb of many members": (
        response(_BOMB_OF_MEMBERS, Content_Encoding="gzip"),
        "too_large",
    ),
    "twice packed": (
        response(_TWICE, Content_Encoding="gzip, gzip"),
        "encoding",
    ),
    "gzip cut off": (
        response(gzip.compress(PAGE * 99)[:-9], Content_Encoding="gzip"),
        "connection",
    ),
    "rubbish behind gzip": (
        response(gzip.compress(PAGE) + b"rubbish", Content_Encoding="gzip"),
        "encoding",
    ),
    "endless rubbish behind gzip": (
        endless(
            _HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(PAGE),
            b"x" * 65536,
        ),
        "encoding",
    ),
    "deflate": (response(b"x", Content_Encoding="deflate"), "encoding"),
    "br": (response(b"x", Content_Encoding="br"), "encoding"),
    "zstd": (response(b"x", Content_Encoding="zstd"), "encoding"),
    "an endless redirect": (
        response(b"", 302, Location="?again"),
        "redirect",
    ),
    "a redirect nowhere": (response(b"", 302), "redirect"),
    "a redirect to rubbish": (
        response(b"", 302, Location="http://[::1"),
        "redirect",
    ),
    "a slow drip": (endless(_HEAD + b"\r\n", b"x", 0.02), "timeout"),
    "a slow head": (endless(_HEAD, b"X: y\r\n", 0.02), "timeout"),
    "an endless head": (
        endless(_HEAD, b"X-Filler: " + b"y" * 4000 + b"\r\n"),
        "connection",
    ),
    "an endless header": (endless(_HEAD + b"X: ", b"y" * 4000), "connection"),
    "an endless body": (endless(_HEAD + b"\r\n", b"x" * 65536), "too_large"),
    "silence": (endless(b"", b"", 0.05), "timeout"),
    "shorter than said": (response(PAGE, length=5000), "connection"),
    "a length below nought": (response(PAGE, length=-5), "connection"),
    "a reset in the body": (
        raw(_HEAD + b"Content-Length: 900\r\n\r\nabc", reset=True),
        "connection",
    ),
    "chunks cut off": (raw(_CHUNKED + b"5\r\nabc"), "connection"),
    "a chunk of no length": (
        raw(_CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n"),
        "connection",
    ),
    "no http": (raw(b"SSH-2.0-x\r\n\r\n"), "connection"),
    "nothing": (raw(b""), "connection"),
    "a document": (
        response(b"%PDF", Content_Type="application/pdf"),
        "content_type",
    ),
    "bytes": (
        response(Content_Type="application/octet-stream"),
        "content_type",
    ),
    "gone": (response(b"", 404), "not_found"),
    "gone with a bomb": (
        response(gzip.compress(b"0" * 2_000_000), 410, Content_Encoding="gzip"),
        "not_found",
    ),
    "gone with a broken body": (
        response(b"x", 404, length=5000),
        "not_found",
    ),
    "not modified though never asked": (response(b"", 304), "http_status"),
    "a teapot": (response(b"", 418), "http_status"),
}


async def test_a_hostile_answer_ends_within_its_bounds(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PAGE_BYTES", 1_000_000)
    async with Fetcher(quick()) as fetcher:
        for name, (answer, reason) in HOSTILE.items():
            patient = reason != "timeout"
            server.answers |= {"/h": answer, "/h?again": answer}
            monkeypatch.setattr(fetch, "ATTEMPT_SECONDS", 60 if patient else 0.15)
            with pytest.raises(FetchError) as caught:
                await fetcher.fetch(server.url("/h"), server.site)
            assert caught.value.reason == reason, f"{name}: {caught.value}"
            following = await fetcher.fetch(server.url("/next"), server.site)
            assert following.body == PAGE, name


HARMLESS: dict[str, tuple[Answer, bytes]] = {
    "no content type": (response(Content_Type="-"), PAGE),
    "a type in capitals": (response(Content_Type="TEXT/HTML; CHARSET=utf-8"), PAGE),
    "a type said twice": (response(Content_Type="text/html, text/html"), PAGE),
    "a charset of rubbish": (
        response(Content_Type="text/html; charset=\xff'\";;charset=x-none"),
        PAGE,
    ),
    "longer than said": (response(PAGE + b"more", length=len(PAGE)), PAGE),
    "chunks of one byte": (
        raw(_CHUNKED, *(b"1\r\n%c\r\n" % byte for byte in PAGE), b"0\r\n\r\n"),
        PAGE,
    ),
    "no length": (raw(_HEAD + b"\r\n", PAGE), PAGE),
    "members of gzip": (
        response(gzip.compress(PAGE) * 3, Content_Encoding="gzip"),
        PAGE * 3,
    ),
    "nothing in a gzip": (response(gzip.compress(b""), Content_Encoding="x-gzip"), b""),
    "an empty body": (response(b""), b""),
}


async def test_an_odd_answer_is_still_read(server: Server) -> None:
    async with Fetcher(quick()) as fetcher:
        for name, (server.answers["/o"], body) in HARMLESS.items():
            got = await fetcher.fetch(server.url("/o"), server.site)
            assert got.body == body, name


@pytest.mark.parametrize(
    "answer",
    [
        response(b"x", 403, length=900),
        endless(_HEAD.replace(b"200", b"403") + b"\r\n", b"x", 0.02),
    ],
)
async def test_a_403_stops_the_host_even_when_its_body_never_comes(
    server: Server, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/b"] = answer
    monkeypatch.setattr(fetch, "ATTEMPT_SECONDS", 0.5)
    async with Fetcher(quick()) as fetcher:
        for path in ("/b", "/other"):
            with refused("blocked"):
                await fetcher.fetch(server.url(path), server.site)
    assert server.asked == ["/robots.txt", "/b"]


@pytest.mark.thorough
async def test_all_attempts_of_a_page_have_one_limit_of_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/drip"] = endless(_HEAD + b"\r\n", b"x", 0.02)

    async def late(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.25)
        await response(b"", 302, Location="/late")(writer)

    server.answers["/late"] = late
    monkeypatch.setattr(fetch, "ATTEMPT_SECONDS", 0.4)
    monkeypatch.setattr(fetch, "PAGE_SECONDS", 0.6)
    async with Fetcher(quick(retries={"timeout": 50})) as fetcher:
        with pytest.raises(FetchError) as caught:
            await fetcher.fetch(server.url("/drip"), server.site)
        assert caught.value.reason == "timeout"
        assert server.count("/drip") <= 2, "0.4 s and what is left of 0.6 s"
        with pytest.raises(FetchError) as caught:
            await fetcher.fetch(server.url("/late"), server.site)
        assert caught.value.reason == "timeout", "redirects take of the same time"
        assert server.count("/late") <= 3


async def test_retries_have_a_budget_for_the_whole_run(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers |= {"/5xx": response(b"", 502), "/reset": raw(b"", reset=True)}
    budget = {"server_error": 3, "connection": 1}
    retries = {"server_error": 2, "connection": 2}
    monkeypatch.setattr(fetch, "OUTAGES", budget)
    async with Fetcher(quick(retries=retries)) as fetcher:
        for path, attempts in (
            ("/5xx", 3),
            ("/5xx", 5),
            ("/5xx", 6),
            ("/reset", 2),
            ("/reset", 3),
        ):
            with pytest.raises(FetchError):
                await fetcher.fetch(server.url(path), server.site)
            assert server.count(path) == attempts
        assert {
            reason: fetcher.counts[f"retried_{reason}"] for reason in budget
        } == budget


async def test_a_host_that_fails_page_after_page_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MOST_FAILURES", 3)
    server.answers |= {
        "/5xx": response(b"", 500),
        "/gone": response(b"", 404),
        "/reset": raw(b"", reset=True),
    }
    async with Fetcher(quick()) as fetcher:
        for path in (
            "/5xx",
            "/reset",
            "/fine",
            "/5xx",
            "/reset",
            "/gone",
            "/5xx",
            "/reset",
            "/5xx",
        ):
            with contextlib.suppress(FetchError):
                await fetcher.fetch(server.url(path), server.site)
        before = len(server.asked)
        with refused("down"):
            await fetcher.fetch(server.url("/fine"), server.site)
        assert len(server.asked) == before == 10


async def test_the_share_of_unchanged_pages_can_be_told(server: Server) -> None:
    server.answers |= {"/same": response(b"", 304), "/new": response(ETag='"2"')}
    async with Fetcher(quick()) as fetcher:
        for path, etag in (("/same", '"1"'), ("/new", '"1"'), ("/new", None)):
            await fetcher.fetch(server.url(path), server.site, etag=etag)
        assert fetcher.counts["conditional"] == 2


async def test_requests_start_apart_however_many_may_run(server: Server) -> None:
    started: list[float] = []

    async def slow(writer: asyncio.StreamWriter) -> None:
        started.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.2)
        await response()(writer)

    server.answers |= {f"/{n}": slow for n in range(5)}
    site = site_at(server.url(""), min_interval_s=0.05)
    async with Fetcher(quick(concurrency_per_host=16)) as fetcher:
        before = asyncio.get_running_loop().time()
        await asyncio.gather(
            *(fetcher.fetch(server.url(f"/{n}"), site) for n in range(5))
        )
    assert started[-1] - before >= 0.2, "four pauses lie between five starts"


TRICKS = (
    "http://127.0.0.1:{port}@example.com/",
    "http://example.com#@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@example.com/",
    "http://example.com\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}%00.example.com/",
    "http://127.0.0.1%3a{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.0.0.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://0:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::1]:{port}/",
    "http://localhost:{port}/",
    "http://１２７.0.0.1:{port}/",
    "http://127。0。0。1:{port}/",
    "http://127.0.0.1/",
    "http://127.0.0.1:0{other}/",
    "http://127.0.0.1:{port}0/",
    "http://127.0.0.1:/",
    "http://127.0.0.1:-1/",
    "http://user@127.0.0.1:{port}/",
    "http://:pw@127.0.0.1:{port}/",
    "https://127.0.0.1/",
    "//127.0.0.1:{port}/",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/",
    "http:///x",
    "http://",
    "",
    "http://xn--fiq/",
    "http://\u0131.example/",
    "http://[127.0.0.1]:{port}/",
    "http://[::1%25lo]:{port}/",
)


async def test_an_address_that_reads_like_an_allowed_one_is_refused(
    server: Server,
) -> None:
    async with Fetcher(quick(contact="ops@example.org")) as fetcher:
        for trick in TRICKS:
            url = trick.format(port=server.port, other=server.port + 1)
            server.answers["/to"] = response(b"", 302, Location=url or "http://")
            with refused("host_refused"):
                await fetcher.fetch(url, server.site)
            if trick not in ("", "http:///x") and not trick.startswith("//"):
                with pytest.raises(FetchError) as caught:
                    await fetcher.fetch(server.url("/to"), server.site)
                if caught.value.kind != "host_refused":
                    assert caught.value.reason == "redirect", trick
            assert set(server.asked) <= {"/robots.txt", "/to"}, trick


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::808:808", True),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("192.0.2.1", False),
        ("198.18.0.1", False),
        ("240.0.0.1", False),
        ("::", False),
        ("::1", False),
        ("::7f00:1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::1", False),
        ("2002:a00:1::", False),
        ("2002:7f00:1::1", False),
        ("2001:0:1::1", False),
        ("2001:db8::1", False),
        ("fec0::1", False),
        ("100::1", False),
    ],
)
def test_only_public_addresses_are_connected_to(address: str, public: bool) -> None:
    assert may_connect(address, allow_loopback=False) is public
    loopback = address in ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    assert may_connect(address, allow_loopback=True) is (public or loopback)
    assert ipaddress.ip_address(address)


ROBOTS: dict[str, tuple[Answer, RobotsState, bool]] = {
    "empty": (response(b"", Content_Type="text/plain"), "rules", True),
    "oversize": (
        response(b"User-agent: *\nDisallow:\n" + b"# filler\n" * 100_000),
        "rules",
        True,
    ),
    "far too big": (response(b"#\n" * 800_000), "unreadable", False),
    "moved": (response(b"", 301, Location="/hop1"), "rules", False),
    "moved without end": (
        response(b"", 301, Location="/robots.txt"),
        "unreadable",
        False,
    ),
    "moved to another host": (
        response(b"", 301, Location="http://example.com/robots.txt"),
        "unreadable",
        False,
    ),
    "moved to a private host": (
        response(b"", 301, Location="http://10.0.0.1/robots.txt"),
        "unreadable",
        False,
    ),
    "not utf-8": (
        response("User-agent: *\n# 医生\nDisallow: /p".encode("gb18030")),
        "rules",
        False,
    ),
    "utf-16": (
        response("\ufeffUser-agent: *\nDisallow: /p".encode("utf-16-le")),
        "unreadable",
        False,
    ),
    "utf-16, big-endian": (
        response("\ufeffUser-agent: *\nDisallow: /p".encode("utf-16-be")),
        "unreadable",
        False,
    ),
    "with a mark": (
        response(b"\xef\xbb\xbfUser-agent: *\nDisallow: /p"),
        "rules",
        False,
    ),
    "with NUL": (
        response(b"User-agent: *\x00\nDisallow: /p\x00"),
        "unreadable",
        False,
    ),
    "a page": (
        response(b" <!DOCTYPE html><title>Home</title>"),
        "unreadable",
        False,
    ),
    "absent": (response(b"", 404), "absent", True),
    "gone": (response(b"", 410), "absent", True),
    "refused": (response(b"", 401), "unreadable", False),
    "asked too often": (response(b"", 429), "unreadable", False),
    "broken": (response(b"", 500), "unreadable", False),
    "late": (endless(_HEAD, b"X: y\r\n", 0.02), "unreadable", False),
    "reset": (raw(b"", reset=True), "unreadable", False),
    "an endless pause": (
        response(b"User-agent: *\nCrawl-delay: 1e9"),
        "unreadable",
        False,
    ),
    "a pause of nan": (
        response(b"User-agent: *\nCrawl-delay: nan"),
        "rules",
        True,
    ),
    "a pause below nought": (
        response(b"User-agent: *\nCrawl-delay: -5"),
        "rules",
        True,
    ),
    "a pause in words": (
        response(b"User-agent: *\nCrawl-delay: long"),
        "rules",
        True,
    ),
}


async def test_each_kind_of_robots_is_decided_and_kept(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hop in range(1, 5):
        server.answers[f"/hop{hop}"] = response(b"", 302, Location=f"/hop{hop + 1}")
    server.answers["/hop5"] = response(b"User-agent: medlive\nDisallow: /p")
    monkeypatch.setattr(fetch, "PAGE_BYTES", 1_000_000)
    for name, (answer, state, allowed) in ROBOTS.items():
        server.answers["/robots.txt"] = answer
        server.asked.clear()
        monkeypatch.setattr(fetch, "ATTEMPT_SECONDS", 0.15 if name == "late" else 60)
        async with Fetcher(quick()) as fetcher:
            for _ in range(2):
                if allowed:
                    await fetcher.fetch(server.url("/p"), server.site)
                else:
                    with refused("robots"):
                        await fetcher.fetch(server.url("/p"), server.site)
            (kept,) = fetcher.robots
        assert kept.state == state, name
        assert bool(kept.detail) is (state == "unreadable"), name
        assert ("/p" in server.asked) is allowed, name


async def test_a_robots_that_blocks_stops_the_host_and_is_kept(server: Server) -> None:
    server.answers["/robots.txt"] = response(b"", 403)
    async with Fetcher(quick()) as fetcher:
        for _ in range(2):
            with refused("blocked"):
                await fetcher.fetch(server.url("/p"), server.site)
        assert [(robots.state, robots.status) for robots in fetcher.robots] == [
            ("unreadable", 403)
        ]
    assert server.asked == ["/robots.txt"]
