"""Four sample communities on loopback, over real HTTP.

Each has its own port, robots.txt, lists in pages of ten, ETags and 304. Its pages are rendered
from `templates/` in the site's own markup (docs/builders/sites.md), escaped.
"""

import hashlib
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from medlive.guard.serving import serve_app
from medlive.text.html import environment

from .samples import SITES, SampleMessage, SampleThread, Site

# What Medlive's front page gives a visitor, who sends it back for the list
TOKEN = "demo-visitor"
ROBOTS = "User-agent: *\nDisallow: /user/\nDisallow: /members/\nDisallow: /p/\nDisallow: /search/\n"
OLDEST = datetime(1970, 1, 1, tzinfo=UTC)
"""The sort key of an undated thread."""

ROWS_PER_PAGE = 10
"""Threads on one page of a list."""
POSTS_PER_PAGE = 4
"""Posts on one page of an SDN thread: few, so that a sample thread has a second page."""


class Community:
    """One site's threads, and where they are served."""

    base_url: str
    """`http://127.0.0.1:<port>`, without a slash at the end."""

    def __init__(self, threads: list[SampleThread]) -> None:
        """Sort them, the newest first."""
        self.threads = sorted(
            threads, key=lambda thread: thread.posted_at or OLDEST, reverse=True
        )
        self.boards = tuple(sorted({thread.board for thread in threads}))
        """iCliniq topics, SDN `<slug>.<node>`, DXY sections, Medlive branches."""

    def on_board(self, board: str) -> list[SampleThread]:
        """The board's threads, newest first; raises 404 for an unknown board."""
        if board not in self.boards:
            raise HTTPException(404)
        return [thread for thread in self.threads if thread.board == board]

    def thread_at(self, path: str) -> SampleThread:
        """The thread at a path; raises 404 if there is none."""
        for thread in self.threads:
            if thread.path == path:
                return thread
        raise HTTPException(404)


Communities = Mapping[str, Community]
"""By site."""


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
    communities: dict[str, Community] = {}
    async with AsyncExitStack() as stack:
        for offset, site in enumerate(SITES):
            community = Community([t for t in threads if t.site == site])
            robots = Route("/robots.txt", lambda request: PlainTextResponse(ROBOTS))
            routes = [robots]
            for path, show in ROUTES[site].items():
                # Only Medlive's list is asked for by POST
                methods = ["POST"] if path.endswith("list") else ["GET"]
                routes.append(Route(path, partial(show, community), methods=methods))
            app = Starlette(routes=routes, middleware=middleware)
            app.router.redirect_slashes = False
            port = first_port + offset if first_port else 0
            serving = serve_app(app, "127.0.0.1", port)
            community.base_url = await stack.enter_async_context(serving)
            communities[site] = community
        yield communities


def respond(request: Request, page: str, *, charset: str = "utf-8") -> Response:
    """Respond with the page, or with 304 if the client has it.

    A page in another encoding than UTF-8 declares it in its own head only, as on old servers.
    """
    body = page.encode(charset)
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    declared = "; charset=utf-8" if charset == "utf-8" else ""
    headers["Content-Type"] = f"text/html{declared}"
    return Response(body, headers=headers)


class Page(NamedTuple):
    """A page of a list or of a thread."""

    rows: Sequence[Any]
    number: int
    last: int


def page_of(rows: Sequence[Any], number: str | int | None, size: int) -> Page:
    """A page by its number, the first without one; raises 404 for one that is not there."""
    place = int(number or 1)
    last = max(1, -(-len(rows) // size))
    if not 1 <= place <= last:
        raise HTTPException(404)
    return Page(rows[(place - 1) * size : place * size], place, last)


def _dialog(message: SampleMessage, thread: SampleThread) -> Markup:
    """A message of a DXY dialogue as markup, with its images."""
    parts: Any = _TEMPLATES.get_template("parts.html").module
    return Markup(parts.paragraphs(message.text) + parts.images(message, thread))


_TEMPLATES = environment("medlive.demo", keep_trailing_newline=True)
_TEMPLATES.filters |= {
    "breaks": lambda text, mark="<br>": Markup(mark).join(text.split("\n")),
    "dialog": _dialog,
    # A stable user number for a handle.
    "person": lambda handle: zlib.crc32(handle.encode()),
}


def render(name: str, **values: Any) -> str:
    """The page of a template."""
    return _TEMPLATES.get_template(name).render(values)


def icliniq_thread(thread: SampleThread) -> str:
    """A question and its answers."""
    doctor = next((m.author for m in thread.messages if m.verified), "")
    posted = thread.posted_at
    day = f"{posted:%b %d, %Y}" if posted else None
    return render(
        "icliniq_thread.html", title=thread.title, thread=thread, doctor=doctor, day=day
    )


def sdn_list_page(
    board: str, threads: Sequence[SampleThread], number: str | int | None, query: str
) -> str:
    """A page of a board's list of threads; `query` is kept in the paging links."""
    page = page_of(threads, number, ROWS_PER_PAGE)
    return render("sdn_list.html", title=board, page=page, query=query)


def sdn_thread_page(thread: SampleThread, number: str | int | None = None) -> str:
    """A page of a thread, the first without a number."""
    posts = list(enumerate(thread.messages))
    page = page_of(posts, number, POSTS_PER_PAGE)
    return render("sdn_thread.html", title=thread.title, thread=thread, page=page)


def dxy_thread(thread: SampleThread) -> str:
    """A question and its dialogue, as script state and as markup."""
    doctor = next((m for m in thread.messages if m.verified), None)
    dialog = []
    for message in thread.messages:
        row = {
            "type": int(message.role != "patient"),
            "content": _dialog(message, thread),
            "createTime": _second(message.posted_at),
        }
        dialog.append(row)
    state = {
        "question": {
            "id": int(thread.thread_id),
            "title": thread.title,
            "createTime": _second(thread.posted_at),
        },
        "disease": {"title": thread.disease},
        "doctor": doctor
        and {
            "nickname": doctor.author,
            "jobTitle": doctor.title,
            "department": doctor.department,
            "hospital": doctor.hospital,
        },
        "questionDialog": dialog,
    }
    # "</" would end the script.
    script = json.dumps(state, ensure_ascii=False).replace("</", "<\\/")
    return render(
        "dxy_thread.html",
        title=thread.title,
        thread=thread,
        doctor=doctor,
        state=Markup(script),
    )


def _second(moment: datetime | None) -> str | None:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment else None


def medlive_thread(thread: SampleThread) -> str:
    """A case article with its comments, and the comments' replies."""
    opening, *rest = thread.messages
    comments: list[tuple[SampleMessage, list[SampleMessage]]] = []
    for message in rest:
        if message.placement == "reply":
            comments[-1][1].append(message)
        else:
            comments.append((message, []))
    page = render(
        "medlive_thread.html",
        title=thread.title,
        thread=thread,
        opening=opening,
        comments=comments,
    )
    if thread.charset == "utf-8":
        return page
    declared = f'<meta http-equiv="Content-Type" content="text/html; charset={thread.charset}">'
    return page.replace('<meta charset="utf-8">', declared, 1)


async def icliniq_list(community: Community, request: Request) -> Response:
    """All questions, or those of a topic."""
    topic = request.path_params.get("topic")
    threads = community.threads if topic is None else community.on_board(topic)
    page = page_of(threads, request.query_params.get("page"), ROWS_PER_PAGE)
    title = "Questions and answers"
    text = render("icliniq_list.html", title=title, path=request.url.path, page=page)
    return respond(request, text)


async def sdn_list(community: Community, request: Request) -> Response:
    """A board's threads, those with the latest posts first unless they are asked for by date."""
    board = request.path_params["board"]
    threads = community.on_board(board)
    if request.query_params.get("order") != "post_date":
        threads.sort(key=lambda thread: thread.last_post or OLDEST, reverse=True)
    query = f"?{request.url.query}" if request.url.query else ""
    number = request.path_params.get("page")
    return respond(request, sdn_list_page(board, threads, number, query))


async def sdn_thread(community: Community, request: Request) -> Response:
    """A page of a thread."""
    thread = community.thread_at(f"/threads/{request.path_params['slug']}/")
    text = sdn_thread_page(thread, request.path_params.get("page"))
    return respond(request, text)


async def dxy_list(community: Community, request: Request) -> Response:
    """A section's questions."""
    section = request.path_params["section"]
    number = request.query_params.get("page_index")
    page = page_of(community.on_board(section), number, ROWS_PER_PAGE)
    text = render("dxy_list.html", title=section, page=page)
    return respond(request, text)


async def medlive_front(community: Community, request: Request) -> Response:
    """The page with the token for the list."""
    return respond(request, render("medlive_front.html", title="病例", token=TOKEN))


async def medlive_list(community: Community, request: Request) -> Response:
    """A branch's cases as JSON."""
    form = await request.form()
    if form.get("_token") != TOKEN:
        raise HTTPException(403, "token missing")
    threads = community.on_board(str(form.get("branch", "")))
    width = int(str(form["size"]))
    start = (int(str(form["page"])) - 1) * width
    rows = []
    for thread in threads[start : start + width]:
        posted = thread.posted_at
        placements = [message.placement for message in thread.messages]
        row = {
            "title": thread.title,
            "url": thread.path,
            "inputtime": int(posted.timestamp()) if posted else None,
            "comment_count": placements.count("comment"),
            "content": thread.messages[0].text[:60] if thread.messages else "",
        }
        rows.append(row)
    return JSONResponse({"code": 200, "data": {"data": rows}})


async def whole_thread(
    page_of_thread: Callable[[SampleThread], str],
    community: Community,
    request: Request,
) -> Response:
    """A thread on one page, which `page_of_thread` renders."""
    thread = community.thread_at(request.url.path)
    return respond(request, page_of_thread(thread), charset=thread.charset)


# Site → path → what answers a request
ROUTES: Mapping[
    Site, Mapping[str, Callable[[Community, Request], Awaitable[Response]]]
] = {
    "icliniq": {
        "/qa": icliniq_list,
        "/qa/{topic}": icliniq_list,
        "/qa/{topic}/{slug}": partial(whole_thread, icliniq_thread),
    },
    "sdn": {
        "/forums/{board}/": sdn_list,
        "/forums/{board}/page-{page}": sdn_list,
        "/threads/{slug}/": sdn_thread,
        "/threads/{slug}/page-{page}": sdn_thread,
    },
    "dxy": {
        "/questions/{section}": dxy_list,
        "/question/{id}": partial(whole_thread, dxy_thread),
    },
    "medlive": {
        "/new/": medlive_front,
        "/new/articlelist": medlive_list,
        "/case/{name}.html": partial(whole_thread, medlive_thread),
    },
}
