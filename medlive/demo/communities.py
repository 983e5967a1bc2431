"""Four sample communities on loopback, over real HTTP.

Each has its own port, robots.txt, lists in pages of ten, validators (ETag, Last-Modified) and 304.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from medlive import clock
from medlive.demo import pages
from medlive.demo.samples import SITES, SampleThread, Site
from medlive.guard.serving import serve_app

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
    middleware: Sequence[Middleware] = (),
) -> AsyncIterator[Communities]:
    """Serve the threads on 127.0.0.1 until the block ends.

    `first_port` is the first of four ports; 0 lets the system choose free ones. `middleware` sees every request,
    for communities with faults.
    """
    by_site = {site: [t for t in threads if t.site == site] for site in SITES}
    async with AsyncExitStack() as stack:
        urls: dict[str, str] = {}
        for offset, site in enumerate(SITES):
            app = _application(site, by_site[site], middleware)
            port = first_port + offset if first_port else 0
            serving = serve_app(app, "127.0.0.1", port)
            urls[site] = await stack.enter_async_context(serving)
        yield Communities(
            base_urls=urls,
            boards={
                site: tuple(sorted({t.board for t in by_site[site]})) for site in SITES
            },
        )


def _application(
    site: Site, threads: list[SampleThread], middleware: Sequence[Middleware]
) -> Starlette:
    routes = [
        Route("/robots.txt", _robots),
        Route("/img/{name}", _image),
        *_COMMUNITIES[site](threads).routes(),
    ]
    application = Starlette(routes=routes, middleware=middleware)
    application.router.redirect_slashes = False
    return application


async def _robots(request: Request) -> Response:
    return PlainTextResponse(ROBOTS)


async def _image(request: Request) -> Response:
    return Response(PIXEL, media_type="image/gif")


def _respond(
    request: Request,
    page: str,
    *,
    charset: str = "utf-8",
    modified: datetime | None = None,
) -> Response:
    """Respond with the page, or with 304 if the client has it.

    A page in another encoding than UTF-8 declares it in its own head only, as on old servers.
    """
    body = page.encode(charset)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    kind = "text/html; charset=utf-8" if charset == "utf-8" else "text/html"
    headers = {"ETag": tag, "Content-Type": kind}
    # Last-Modified must not be in the future (RFC 9110, 8.8.2.1).
    if modified and modified <= clock.now():
        headers["Last-Modified"] = format_datetime(modified.astimezone(UTC), True)
    tags, since = (
        request.headers.get(name) for name in ("If-None-Match", "If-Modified-Since")
    )
    if tags is not None:
        is_cached = tags.strip() == "*" or tag in tags.replace(" ", "").split(",")
    elif since is not None and "Last-Modified" in headers:
        changed = parsedate_to_datetime(headers["Last-Modified"])
        is_cached = changed <= parsedate_to_datetime(since)
    else:
        is_cached = False
    if is_cached:
        del headers["Content-Type"]
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers)


def _number(text: object) -> int:
    """Parse a page number from 1; raises 404 for anything else."""
    if text is None:
        return 1
    text = str(text)
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:6]) <= 99_999:
        raise HTTPException(404)
    return int(text)


def _slice(
    threads: Sequence[SampleThread], page: int
) -> tuple[Sequence[SampleThread], int]:
    """The threads of a page, and the number of pages; raises 404 beyond the last."""
    size = pages.ROWS_PER_PAGE
    last = max(1, -(-len(threads) // size))
    if page > last:
        raise HTTPException(404)
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
    def routes(self) -> list[Route]:
        """The site's routes."""

    def on_board(self, board: str) -> list[SampleThread]:
        """The board's threads, newest first; raises 404 for an unknown board."""
        if board not in self.boards:
            raise HTTPException(404)
        return [t for t in self.threads if t.board == board]

    def thread_at(self, path: str) -> SampleThread:
        """The thread at a path; raises 404 if there is none."""
        if path not in self.by_path:
            raise HTTPException(404)
        return self.by_path[path]


class _Icliniq(_Community):
    def routes(self) -> list[Route]:
        return [
            Route("/qa", self.index),
            Route("/qa/{topic}", self.index),
            Route("/qa/{topic}/{slug}", self.thread),
        ]

    async def index(self, request: Request) -> Response:
        topic = request.path_params.get("topic")
        page = _number(request.query_params.get("page"))
        rows, last = _slice(
            self.threads if topic is None else self.on_board(topic), page
        )
        return _respond(request, pages.icliniq_list(rows, request.url.path, page, last))

    async def thread(self, request: Request) -> Response:
        thread = self.thread_at(request.url.path)
        return _respond(
            request, pages.icliniq_thread(thread), modified=thread.last_post
        )


class _Sdn(_Community):
    def routes(self) -> list[Route]:
        return [
            Route("/forums/{board}/", self.index),
            Route("/forums/{board}/page-{page}", self.index),
            Route("/threads/{slug}/", self.thread),
            Route("/threads/{slug}/page-{page}", self.thread),
        ]

    async def index(self, request: Request) -> Response:
        board = request.path_params["board"]
        threads = self.on_board(board)
        if request.query_params.get("order") != "post_date":
            threads = sorted(threads, key=lambda t: t.last_post or OLDEST, reverse=True)
        page = _number(request.path_params.get("page"))
        rows, last = _slice(threads, page)
        query = f"?{request.url.query}" if request.url.query else ""
        return _respond(request, pages.sdn_list(board, rows, page, last, query))

    async def thread(self, request: Request) -> Response:
        thread = self.thread_at(f"/threads/{request.path_params['slug']}/")
        page = _number(request.path_params.get("page"))
        last = max(1, -(-len(thread.messages) // pages.POSTS_PER_PAGE))
        if page > last:
            raise HTTPException(404)
        return _respond(
            request, pages.sdn_thread(thread, page, last), modified=thread.last_post
        )


class _Dxy(_Community):
    def routes(self) -> list[Route]:
        return [
            Route("/questions/{section}", self.index),
            Route("/question/{id}", self.thread),
        ]

    async def index(self, request: Request) -> Response:
        section = request.path_params["section"]
        page = _number(request.query_params.get("page_index"))
        rows, last = _slice(self.on_board(section), page)
        return _respond(request, pages.dxy_list(section, rows, page, last))

    async def thread(self, request: Request) -> Response:
        thread = self.thread_at(request.url.path)
        return _respond(request, pages.dxy_thread(thread), modified=thread.last_post)


class _Medlive(_Community):
    TOKEN = "demo-visitor"

    def routes(self) -> list[Route]:
        return [
            Route("/new/", self.front),
            Route("/new/articlelist", self.index, methods=["POST"]),
            Route("/case/{name}.html", self.thread),
        ]

    async def front(self, request: Request) -> Response:
        return _respond(request, pages.medlive_front(self.TOKEN))

    async def index(self, request: Request) -> Response:
        form = await request.form()
        if form.get("_token") != self.TOKEN:
            raise HTTPException(403, "token missing")
        branch, page, size = (
            str(form.get(key, "")) for key in ("branch", "page", "size")
        )
        rows = self.on_board(branch)
        start = (_number(page) - 1) * _number(size)
        width = _number(size)
        return JSONResponse(pages.medlive_rows(rows[start : start + width]))

    async def thread(self, request: Request) -> Response:
        thread = self.thread_at(request.url.path)
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
