"""`build_app`: the application of the rooms that are served, with security headers and errors as pages.

Monitors have an application of their own, of `metrics_room`.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.datastructures import URL, Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from medlive import __version__
from medlive.db.session import UnusableValue, ping
from medlive.errors import DatabaseForbidden, DatabaseUnavailable, UsageError
from medlive.guard.bounds import FORM_BYTES
from medlive.guard.serving import serve_app
from medlive.guard.trust import read_address

from .accounts.access import session_cookie
from .accounts.room import ACCOUNTS
from .acts.room import ACTS
from .audit.room import AUDIT
from .downloads.room import DOWNLOADS
from .pages import notice
from .requests import check_requests
from .review.room import REVIEW
from .site import READ, Room, Site, SiteOf

ROOMS = (DOWNLOADS, AUDIT, REVIEW, ACTS, ACCOUNTS)
"""Every room; one is added by a line here."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with it a browser sends no Origin with forms, by which forged ones are known.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
    # Asked for again each time, since another version may be served by then.
    "Cache-Control": "no-cache",
}
# Status → what the page says, where the error says nothing
_TEXTS = {
    401: "Sign in to see this page.",
    403: "Your account may not do this.",
    404: "There is nothing at this address. It may have been mistyped, or not be published yet.",
    405: "This address cannot be used this way.",
    413: "What was sent is too large.",
    410: "This was withdrawn and is no longer given out.",
    422: "The address or the form holds a value that cannot be used.",
    429: "Too many attempts. Wait a while and try again.",
    500: "Something went wrong here. The fault was logged.",
    503: "The database cannot be reached. Try again in a moment.",
}
_ERRORS = (
    HTTPException,
    RequestValidationError,
    UsageError,
    UnusableValue,
    DatabaseUnavailable,
    DatabaseForbidden,
    Exception,
)
_log = logging.getLogger(__name__)
router = APIRouter()
route = partial(router.api_route, methods=READ)


def build_app(site: Site, rooms: Iterable[Room] = ROOMS) -> FastAPI:
    """Build the application of these rooms; public and private ones may be served by separate processes."""
    rooms = tuple(rooms)
    app = FastAPI(title="medlive", version=__version__, openapi_url=None)
    app.state.site = site
    app.state.sections = tuple(section for room in rooms for section in room.sections)
    app.include_router(router)
    app.mount("/static", StaticFiles(packages=[("medlive.web", "static")]))
    for room in rooms:
        # Included as a router, its routes would be analysed again in every application.
        app.router.routes.extend(room.router.routes)
    if not any(room.public for room in rooms) and app.state.sections:
        app.add_api_route("/", go_to_first_section)
    if not all(room.public for room in rooms):
        app.user_middleware.append(session_cookie(site))
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=FORM_BYTES)
    app.add_middleware(check_requests, settings=site.settings.web)
    app.add_middleware(with_headers)
    trusted = []
    for network in site.settings.web.trusted_proxies:
        # Every form in which a header or a connection may write it: an IPv4 network also as mapped into IPv6.
        plain = read_address(str(network.network_address))
        trusted.append(str(network))
        if plain.version == 4:
            length = max(network.prefixlen - network.max_prefixlen + 32, 0)
            trusted += [f"{plain}/{length}", f"::ffff:{plain}/{length + 96}"]
    if trusted:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=trusted)
    for kind in _ERRORS:
        app.add_exception_handler(kind, _on_error)
    return app


def metrics_room(read: Callable[[], Awaitable[bytes]]) -> Room:
    """The room of a monitor, without an account, on a port of its own that no proxy passes on.

    Its one page, `/metrics`, is what `read` returns, in Prometheus' text format.
    """
    router = APIRouter()

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(
            await read(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    return Room(True, router)


@asynccontextmanager
async def serve_web(app: FastAPI, host: str, port: int) -> AsyncIterator[str]:
    """Serve as `serve_app`; requests may also name the site by `host`."""
    app.state.listens_on = host
    async with serve_app(app, host, port) as address:
        yield address


def with_headers(app: ASGIApp) -> ASGIApp:
    """The application with `_HEADERS` in responses that do not set them, and no host in redirects to its own host."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                place = URL(headers.get("location", ""))
                # The router repeats the Host header where it adds or drops a slash.
                if place.netloc and place.netloc == Headers(scope=scope).get("host"):
                    headers["location"] = str(place.replace(scheme="", netloc=""))
            await send(message)

        await app(scope, receive, send_with_headers)

    return answer


async def _on_error(request: Request, error: Exception) -> Response:
    """An error as a page for people, and as JSON where probes ask."""
    path = request.url.path
    status, text, headers = 500, "", None
    match error:
        case HTTPException():
            status, headers = error.status_code, error.headers
            if status < 400:
                return Response(status_code=status, headers=headers)
            if error.detail != HTTPStatus(status).phrase:
                text = error.detail
        case RequestValidationError():
            status = 422
        case UsageError() | DatabaseForbidden():
            status, text = 422, error.whole
        case UnusableValue():
            status = 422
            reason = getattr(error, "orig", error)
            _log.warning("%s %s: %s", request.method, path, reason)
        case DatabaseUnavailable():
            status, headers = 503, {"Retry-After": "10"}
        case _:
            _log.error("%s %s failed", request.method, path, exc_info=error)
    title = HTTPStatus(status).phrase
    text = text or _TEXTS.get(status, title)
    if path == "/readyz":
        return JSONResponse({"detail": text}, status, headers)
    response = notice(request, title, f"{text} (Status {status}.)", status)
    response.headers.update(headers or {})
    return response


@route("/healthz")
async def live() -> dict[str, str]:
    """The process answers; a database that is away is no reason to restart it."""
    return {"status": "ok", "version": __version__}


@route("/readyz")
async def ready(site: SiteOf) -> dict[str, str]:
    """The database answers too."""
    await site.database.ask(ping)
    return {"status": "ok", "database": "ok", "version": __version__}


async def go_to_first_section(request: Request) -> Response:
    """Redirect to the first section, where a site without public rooms begins."""
    return RedirectResponse(request.app.state.sections[0].href, 303)
