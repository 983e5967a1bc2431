"""The application: the rooms that are served, security headers, errors as pages or JSON."""

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exception_handlers import request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.datastructures import URL, Headers, MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from medlive import __version__
from medlive.db.session import UnusableValue, ping
from medlive.errors import DatabaseForbidden, DatabaseUnavailable, UsageError
from medlive.guard.bounds import FORM_BYTES
from medlive.guard.trust import read_address
from medlive.web import documents, static_files
from medlive.web.accounts.access import session_cookie
from medlive.web.accounts.room import ACCOUNTS
from medlive.web.acts.room import ACTS
from medlive.web.audit.room import AUDIT
from medlive.web.downloads.room import DOWNLOADS
from medlive.web.pages import ErrorPage, render
from medlive.web.requests import RequestChecks
from medlive.web.review.room import REVIEW
from medlive.web.site import Room, Site, site_of

ROOMS: Final = (DOWNLOADS, AUDIT, REVIEW, ACTS, ACCOUNTS)
"""Every room; one is added by a line here."""

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with it a browser sends no Origin with forms, by which forged ones are known.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
}
_TEXTS: Final = {
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
_log: Final = logging.getLogger(__name__)


def build_app(site: Site, rooms: Iterable[Room] = ROOMS) -> FastAPI:
    """Build the application of these rooms; public and private ones may be served by separate processes."""
    rooms = tuple(rooms)
    app = FastAPI(
        title="medlive",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        description="Snapshots of medlive: versions, files with digests, differences, errata and counts.",
    )
    app.state.site = site
    app.state.sections = tuple(section for room in rooms for section in room.sections)
    app.include_router(static_files.router)
    app.include_router(documents.router)
    app.add_api_route(
        "/healthz", _live, methods=["GET", "HEAD"], include_in_schema=False
    )
    app.add_api_route(
        "/readyz", _ready, methods=["GET", "HEAD"], include_in_schema=False
    )
    for room in rooms:
        app.include_router(room.router)
    if not any(room.public for room in rooms) and app.state.sections:
        app.add_api_route("/", _go_to_first_section, include_in_schema=False)
    if not all(room.public for room in rooms):
        app.user_middleware.append(session_cookie(site))
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=FORM_BYTES)
    app.add_middleware(RequestChecks, settings=site.settings.web)
    app.add_middleware(_SecurityHeaders)
    if proxies := site.settings.web.trusted_proxies:
        app.add_middleware(
            ProxyHeadersMiddleware,
            trusted_hosts=[form for network in proxies for form in _forms(network)],
        )
    app.add_exception_handler(StarletteHTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(UsageError, _on_usage_error)
    app.add_exception_handler(UnusableValue, _on_unusable)
    app.add_exception_handler(DatabaseUnavailable, _on_database_unavailable)
    app.add_exception_handler(DatabaseForbidden, _on_usage_error)
    app.add_exception_handler(Exception, _on_fault)
    return app


def _forms(network: IPv4Network | IPv6Network) -> set[str]:
    """A network as a header or a connection may write it: one of IPv4 also as it is mapped into IPv6."""
    plain = read_address(str(network.network_address))
    if plain.version == 6:
        return {str(network)}
    length = network.prefixlen - network.max_prefixlen + 32
    return {f"{plain}/{max(length, 0)}", f"::ffff:{plain}/{max(length, 0) + 96}"}


class _SecurityHeaders:
    """Adds the headers of every response that sets none of that name itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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

        await self.app(scope, receive, send_with_headers)


def _error(
    request: Request, status: int, detail: str | None, headers: Mapping[str, str] | None
) -> Response:
    """An error as JSON for the API and as a page for people; `detail` replaces the usual sentence."""
    title = HTTPStatus(status).phrase
    text = detail if detail not in (None, title) else _TEXTS.get(status, title)
    response: Response
    if request.url.path.startswith("/api/") or request.url.path == "/readyz":
        response = JSONResponse({"detail": text}, status)
    else:
        response = render(request, ErrorPage(status, title, str(text)), status)
    response.headers.update(headers or {})
    return response


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    if error.status_code < 400:
        return Response(status_code=error.status_code, headers=error.headers)
    return _error(request, error.status_code, error.detail, error.headers)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if request.url.path.startswith("/api/"):
        return await request_validation_exception_handler(request, error)
    return _error(request, 422, None, None)


async def _on_usage_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, UsageError | DatabaseForbidden)
    return _error(
        request, 422, ": ".join(filter(None, (error.message, error.hint))), None
    )


async def _on_unusable(request: Request, error: Exception) -> Response:
    _log.warning(
        "%s %s: %s", request.method, request.url.path, getattr(error, "orig", error)
    )
    return _error(request, 422, None, None)


async def _on_database_unavailable(request: Request, error: Exception) -> Response:
    return _error(request, 503, None, {"Retry-After": "10"})


async def _on_fault(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _error(request, 500, None, None)


async def _live(request: Request) -> Response:
    """The process answers; a database that is away is no reason to restart it."""
    return JSONResponse({"status": "ok", "version": __version__})


async def _ready(request: Request) -> Response:
    async with site_of(request).database.begin() as session:
        await ping(session)
    return JSONResponse({"status": "ok", "database": "ok", "version": __version__})


async def _go_to_first_section(request: Request) -> Response:
    return RedirectResponse(request.app.state.sections[0].href, 303)
