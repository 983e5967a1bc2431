"""Four sample communities on loopback, over real HTTP.

Each has its own port, robots.txt, lists in pages of ten, validators (ETag, Last-Modified) and 304.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from aiohttp import web
from aiohttp.typedefs import Middleware

from medlive import clock
from medlive.demo import pages
from medlive.demo.samples import SITES, SampleThread, Site

ROBOTS = "User-agent: *\nDisallow: /user/\nDisallow: /members/\nDisallow: /p/\nDisallow: /search/\n"
PIXEL = bytes.fromhex(
    "47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b"
)
"""A transparent GIF of one pixel, the body of every sample image."""
OLDEST = datetime(1970, 1, 1, tzinfo=UTC)
"""The sort key of an undated thread."""


@dataclass(frozen=True, slots=True)
class Communities:
    """The running communities."""

    # Site → `http://127.0.0.1:<port>`, without a slash at the end
    base_urls: Mapping[str, str]
    boards: Mapping[str, tuple[str, ...]]
    """Site → its boards: iCliniq topics, SDN `<slug>.<node>`, DXY sections, Medlive branches."""


@asynccontextmanager
async def serve_communities(
    threads: Sequence[SampleThread],
    *,
    first_port: int = 0,
    middlewares: Sequence[Middleware] = (),
) -> AsyncIterator[Communities]:
    """Serve the threads on 127.0.0.1 until the block ends.

    `first_port` is the first of four ports; 0 lets the system choose free ones. `middlewares` see every request,
    for communities with faults.
    """
    by_site = {site: [t for t in threads if t.site == site] for site in SITES}
    async with AsyncExitStack() as stack:
        urls: dict[str, str] = {}
        for offset, site in enumerate(SITES):
            runner = web.AppRunner(
                _application(site, by_site[site], middlewares), access_log=None
            )
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(
                runner, "127.0.0.1", first_port + offset if first_port else 0
            ).start()
            urls[site] = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield Communities(
            base_urls=urls,
            boards={
                site: tuple(sorted({t.board for t in by_site[site]})) for site in SITES
            },
        )


def _application(
    site: Site, threads: list[SampleThread], middlewares: Sequence[Middleware]
) -> web.Application:
    application = web.Application(middlewares=middlewares)
    application.router.add_get("/robots.txt", _robots)
    application.router.add_get("/img/{name}", _image)
    _COMMUNITIES[site](threads).add_routes(application.router)
    return application


async def _robots(request: web.Request) -> web.StreamResponse:
    return web.Response(text=ROBOTS, content_type="text/plain", charset="utf-8")


async def _image(request: web.Request) -> web.StreamResponse:
    return web.Response(body=PIXEL, content_type="image/gif")


def _respond(
    request: web.Request,
    page: str,
    *,
    charset: str = "utf-8",
    modified: datetime | None = None,
) -> web.StreamResponse:
    """Respond with the page, or with 304 if the client has it.

    A page in another encoding than UTF-8 declares it in its own head only, as on old servers.
    """
    body = page.encode(charset)
    tag = hashlib.sha256(body).hexdigest()[:32]
    # Last-Modified must not be in the future (RFC 9110, 8.8.2.1).
    changed = (
        modified.replace(microsecond=0)
        if modified and modified <= clock.now()
        else None
    )
    if request.if_none_match is not None:
        is_cached = any(etag.value in (tag, "*") for etag in request.if_none_match)
    else:
        since = request.if_modified_since
        is_cached = since is not None and changed is not None and changed <= since
    response = web.Response(status=304) if is_cached else web.Response(body=body)
    response.etag = tag
    response.last_modified = changed
    if not is_cached:
        response.headers["Content-Type"] = (
            "text/html; charset=utf-8" if charset == "utf-8" else "text/html"
        )
    return response


def _number(text: str | None) -> int:
    """Parse a page number from 1; raises 404 for anything else."""
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:6]) <= 99_999:
        raise web.HTTPNotFound
    return int(text)


def _slice(
    threads: Sequence[SampleThread], page: int
) -> tuple[Sequence[SampleThread], int]:
    """The threads of a page, and the number of pages; raises 404 beyond the last."""
    size = pages.ROWS_PER_PAGE
    last = max(1, -(-len(threads) // size))
    if page > last:
        raise web.HTTPNotFound
    return threads[(page - 1) * size : page * size], last


def _newest_first(threads: Sequence[SampleThread]) -> list[SampleThread]:
    return sorted(threads, key=lambda t: t.posted_at or OLDEST, reverse=True)


class _Community(ABC):
    """One site's threads and routes."""

    def __init__(self, threads: list[SampleThread]) -> None:
        self.threads = _newest_first(threads)
        self.by_path = {t.path: t for t in threads}
        self.boards = {t.board for t in threads}

    @abstractmethod
    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the site's routes."""

    def on_board(self, board: str) -> list[SampleThread]:
        """The board's threads, newest first; raises 404 for an unknown board."""
        if board not in self.boards:
            raise web.HTTPNotFound
        return [t for t in self.threads if t.board == board]

    def thread_at(self, path: str) -> SampleThread:
        """The thread at a path; raises 404 if there is none."""
        if path not in self.by_path:
            raise web.HTTPNotFound
        return self.by_path[path]


class _Icliniq(_Community):
    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/qa", self.index)
        router.add_get("/qa/{topic}", self.index)
        router.add_get("/qa/{topic}/{slug}", self.thread)

    async def index(self, request: web.Request) -> web.StreamResponse:
        topic = request.match_info.get("topic")
        page = _number(request.query.get("page"))
        rows, last = _slice(
            self.threads if topic is None else self.on_board(topic), page
        )
        return _respond(request, pages.icliniq_list(rows, request.path, page, last))

    async def thread(self, request: web.Request) -> web.StreamResponse:
        thread = self.thread_at(request.path)
        return _respond(
            request, pages.icliniq_thread(thread), modified=thread.last_post
        )


class _Sdn(_Community):
    def add_routes(self, router: web.UrlDispatcher) -> None:
        for tail in ("", r"page-{page:\d+}"):
            router.add_get("/forums/{board}/" + tail, self.index)
            router.add_get("/threads/{slug}/" + tail, self.thread)

    async def index(self, request: web.Request) -> web.StreamResponse:
        board = request.match_info["board"]
        threads = self.on_board(board)
        if request.query.get("order") != "post_date":
            threads = sorted(threads, key=lambda t: t.last_post or OLDEST, reverse=True)
        page = _number(request.match_info.get("page"))
        rows, last = _slice(threads, page)
        query = f"?{request.query_string}" if request.query_string else ""
        return _respond(request, pages.sdn_list(board, rows, page, last, query))

    async def thread(self, request: web.Request) -> web.StreamResponse:
        thread = self.thread_at(f"/threads/{request.match_info['slug']}/")
        page = _number(request.match_info.get("page"))
        last = max(1, -(-len(thread.messages) // pages.POSTS_PER_PAGE))
        if page > last:
            raise web.HTTPNotFound
        return _respond(
            request, pages.sdn_thread(thread, page, last), modified=thread.last_post
        )


class _Dxy(_Community):
    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/questions/{section}", self.index)
        router.add_get("/question/{id}", self.thread)

    async def index(self, request: web.Request) -> web.StreamResponse:
        section = request.match_info["section"]
        page = _number(request.query.get("page_index"))
        rows, last = _slice(self.on_board(section), page)
        return _respond(request, pages.dxy_list(section, rows, page, last))

    async def thread(self, request: web.Request) -> web.StreamResponse:
        thread = self.thread_at(request.path)
        return _respond(request, pages.dxy_thread(thread), modified=thread.last_post)


class _Medlive(_Community):
    TOKEN = "demo-visitor"

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/new/", self.front)
        router.add_post("/new/articlelist", self.index)
        router.add_get("/case/{name}.html", self.thread)

    async def front(self, request: web.Request) -> web.StreamResponse:
        return _respond(request, pages.medlive_front(self.TOKEN))

    async def index(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        if form.get("_token") != self.TOKEN:
            raise web.HTTPForbidden(text="token missing")
        branch, page, size = (
            str(form.get(key, "")) for key in ("branch", "page", "size")
        )
        rows = self.on_board(branch)
        start = (_number(page) - 1) * _number(size)
        width = _number(size)
        return web.json_response(pages.medlive_rows(rows[start : start + width]))

    async def thread(self, request: web.Request) -> web.StreamResponse:
        thread = self.thread_at(request.path)
        return _respond(
            request,
            pages.medlive_thread(thread),
            charset=thread.charset,
            modified=thread.last_post,
        )


_COMMUNITIES: dict[Site, Callable[[list[SampleThread]], _Community]] = {
    "icliniq": _Icliniq,
    "sdn": _Sdn,
    "dxy": _Dxy,
    "medlive": _Medlive,
}
