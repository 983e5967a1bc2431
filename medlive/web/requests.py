"""What every request is held to before a page is looked for: its host, and how long address and headers are."""

import re
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from medlive.config import WebSection
from medlive.guard.bounds import HEADER_BYTES, QUERY_BYTES
from medlive.guard.trust import read_address
from medlive.web.site import site_of

_HOST: Final = re.compile(
    r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?"
)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_FOR_MONITORS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked by the address of a container, whatever it is today; nothing in the answers comes from the request."""


class RequestChecks:
    """Refuses requests for a host that is not this site's, and addresses or headers that are too long.

    This site's hosts are those of `[web] base_url` and `[web] hosts`, loopback, the address that the server was
    told to listen on, and the one that the connection arrived at.
    """

    def __init__(self, app: ASGIApp, settings: WebSection) -> None:
        """Keep the application and the names of `[web]`."""
        self.app = app
        self.hosts = _LOOPBACK | {_name(host) for host in _configured(settings)} - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 414, 421 or 431, or hand the request on."""
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            await refusal(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        if len(scope["query_string"]) > QUERY_BYTES:
            return PlainTextResponse(
                f"What follows ? in an address has at most {QUERY_BYTES:,} bytes.\n",
                414,
            )
        if (
            sum(len(name) + len(value) for name, value in scope["headers"])
            > HEADER_BYTES
        ):
            return PlainTextResponse(
                f"The headers of a request have at most {HEADER_BYTES:,} bytes.\n", 431
            )
        if scope["path"] in _FOR_MONITORS:
            return None
        hosts = Headers(scope=scope).getlist("host")
        name = _name(hosts[0]) if len(hosts) == 1 else ""
        if name not in self.hosts | _bound_to(scope):
            text = "This server has no site of that name. Whoever runs it can add the name to [web] hosts.\n"
            return PlainTextResponse(text, 421)
        return None


def site_address(request: Request) -> str:
    """Return the address by which the reader reached this site, for commands that a page shows.

    The port of a Host header is taken where it is this server's or configured; else `[web] base_url` is shown.
    """
    settings = site_of(request).settings.web
    host = request.headers["host"].lower()
    match = _HOST.fullmatch(host)
    port = match[2] if match is not None else ""
    own = (request.scope.get("server") or ("", None))[1]
    if port in (None, str(own)) or host in _configured(settings):
        return f"{request.url.scheme}://{host}"
    return settings.base_url


def _configured(settings: WebSection) -> frozenset[str]:
    """The hosts of `[web]` as Host headers write them, with their ports where they have one."""
    return frozenset(
        host.lower() for host in (urlsplit(settings.base_url).netloc, *settings.hosts)
    )


def _bound_to(scope: Scope) -> frozenset[str]:
    server, address = scope.get("server"), getattr(scope["app"].state, "listens_on", "")
    return frozenset(
        _bracketed(name.lower())
        for name in (server[0] if server else "", address)
        if name
    )


def _name(host: str) -> str:
    """A Host header's name, "" of what is not one; an address as it is usually written."""
    match = _HOST.fullmatch(host)
    return _bracketed(match[1].lower().strip("[]")) if match is not None else ""


def _bracketed(name: str) -> str:
    with suppress(ValueError):
        name = str(read_address(name))
    return f"[{name}]" if ":" in name else name
