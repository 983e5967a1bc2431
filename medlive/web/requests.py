"""`check_requests` refuses a request for another host, or with too long a query or headers, before any route."""

import re
from collections.abc import Set
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from medlive.config import WebSection
from medlive.guard.bounds import HEADER_BYTES, QUERY_BYTES
from medlive.guard.trust import read_address

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_FOR_MONITORS = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that any host may name: monitors ask by a container's address, and no answer repeats the request."""


def check_requests(app: ASGIApp, settings: WebSection) -> ASGIApp:
    """The application without requests for a host that is not this site's, and with queries or headers too long.

    This site's hosts are those of `[web] base_url` and `[web] hosts`, loopback, the address that the server was
    told to listen on, and the one that the connection arrived at.
    """
    configured = (urlsplit(settings.base_url).netloc, *settings.hosts)
    named = _LOOPBACK | set(map(_name, configured)) - {""}

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 414, 421 or 431, or hand the request on."""
        status, text = 0, ""
        if scope["type"] == "http":
            headers = sum(len(name) + len(value) for name, value in scope["headers"])
            if len(scope["query_string"]) > QUERY_BYTES:
                status = 414
                text = (
                    f"What follows ? in an address has at most {QUERY_BYTES:,} bytes.\n"
                )
            elif headers > HEADER_BYTES:
                status = 431
                text = (
                    f"The headers of a request have at most {HEADER_BYTES:,} bytes.\n"
                )
            elif not _is_ours(scope, named):
                status = 421
                text = "This server has no site of that name. Whoever runs it can add the name to [web] hosts.\n"
        answering = PlainTextResponse(text, status) if status else app
        await answering(scope, receive, send)

    return answer


def _is_ours(scope: Scope, named: Set[str]) -> bool:
    """Whether a request names this site's host, or is a monitor's; `named` are the configured names."""
    if scope["path"] in _FOR_MONITORS:
        return True
    (server, _) = scope.get("server") or ("", None)
    bound = {server, getattr(scope["app"].state, "listens_on", "")} - {""}
    hosts = Headers(scope=scope).getlist("host")
    known = named | {_bracketed(name.lower()) for name in bound}
    return len(hosts) == 1 and _name(hosts[0]) in known


def _name(host: str) -> str:
    """The name in a Host header, without its port; an address in its usual form; "" where it is not a name."""
    match = _HOST.fullmatch(host)
    return _bracketed(match[1].lower().strip("[]")) if match else ""


def _bracketed(name: str) -> str:
    """A name unchanged; an IP address in its usual form, of IPv6 in brackets."""
    with suppress(ValueError):
        name = str(read_address(name))
    return f"[{name}]" if ":" in name else name
