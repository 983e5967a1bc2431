"""`Fetcher` fetches pages over HTTP, politely, within limits, and from public addresses only."""

import asyncio
import random
import re
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from urllib.parse import urljoin, urlsplit

import httpx2

from medlive.clock import now, parse_retry_after
from medlive.errors import ConfigError
from medlive.guard.bounds import PAGE_BYTES, PAGE_SECONDS, REDIRECTS, RETRY_AFTER_S
from medlive.guard.http import (
    AddressRefused,
    guarded_client,
    public_addresses,
)
from medlive.guard.trust import is_loopback
from medlive.sources.source import REFUSALS, Fetched, Site, host_of

from .block_pages import block_page
from .policy import (
    OUTAGES,
    FetchError,
    FetchReason,
    FetchSettings,
    Robots,
    read_robots,
)

_KEPT_HEADERS = ("content-type", "content-language", "etag", "last-modified", "date")
_GLANCE_BYTES = 64 * 1024
"""The part of an error's body that is read, to distinguish a block page from a failure."""
_GLANCE_S = 5.0  # Seconds for reading it
_VALIDATOR = re.compile(r"[\x20-\x7e]{1,1000}")
"""What is sent back of an ETag: servers refuse a request with long headers."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CONTENT_TYPES = (
    "text/html",
    "application/xhtml+xml",
    "application/json",
    "text/plain",
)
"""What a page may be; other kinds are not read."""
ATTEMPT_SECONDS = 60.0
"""Most seconds for one attempt, from the connection to the last byte."""
MOST_FAILURES = 5
"""Pages in a row that a host may fail (time-outs, connections, 429 and 5xx) before it is given up."""
_MAX_BACKOFF_S = 120.0
"""The longest wait before another attempt."""
_CONNECTIONS = 64
"""Most connections of one run, over all hosts; each host's are bounded by its concurrency."""


@dataclass
class _Host:
    """The state of one host in a run."""

    slots: asyncio.Semaphore  # For requests at once
    # Held while a request waits until `next_at`, and while robots.txt is read
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    robots_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    next_at: float = 0.0
    """The event loop's time before which no request starts."""
    robots: Robots | None = None
    stopped: FetchError | None = None
    """Why no more requests go to the host."""
    failures: int = 0
    """Failed pages in a row."""

    def raise_if_stopped(self, url: str) -> None:
        """Raise FetchError if no more requests may go to this host."""
        if (stopped := self.stopped) is not None:
            raise FetchError(
                url, stopped.cause, kind=stopped.kind, status=stopped.status
            )


@dataclass
class _Request:
    """A request for a page, and for where its redirects lead."""

    url: str
    site: Site
    headers: dict[str, str] = field(default_factory=dict)
    form: tuple[tuple[str, str], ...] | None = None
    for_robots: bool = False
    """Whether it is for a robots.txt, which no robots.txt forbids and which may have any content type."""
    left_s: float = field(default_factory=lambda: PAGE_SECONDS)
    """The seconds left for all its attempts."""


class Fetcher(AbstractAsyncContextManager["Fetcher"]):
    """Fetches pages for one run; an asynchronous context manager.

    Robots rules, blocks, rates and cookies are remembered for as long as it is open. Safe for concurrent
    tasks.
    """

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings
        self._hosts: dict[str, _Host] = {}
        self.counts: Counter[str] = Counter()
        """In this run: `requests` (robots.txt and retries included), `conditional` (those with a validator),
        `retried_<reason>`."""
        self._client = guarded_client(
            partial(_checked, allow_loopback=settings.allow_loopback),
            connections=_CONNECTIONS,
            headers={
                "User-Agent": settings.user_agent,
                "Accept": "text/html,application/xhtml+xml,application/json;q=0.9",
                "Accept-Encoding": "gzip",
            },
        )

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    @property
    def robots(self) -> tuple[Robots, ...]:
        """The robots rules of every host of this run."""
        return tuple(
            host.robots for host in self._hosts.values() if host.robots is not None
        )

    async def fetch(
        self,
        url: str,
        site: Site,
        *,
        form: tuple[tuple[str, str], ...] | None = None,
        etag: str | None = None,
        last_modified: str | None = None,
    ) -> Fetched:
        """Fetch the page at an address, following redirects; a `form` is posted, and its redirects are not followed.

        `etag` and `last_modified` make the request conditional.

        Raises:
            FetchError: if the address is not one of the source's, robots.txt disallows it, the host refuses access or
                is down, or the page cannot be fetched.
        """
        conditions = {"If-None-Match": etag, "If-Modified-Since": last_modified}
        headers = {
            name: value
            for name, value in conditions.items()
            if value and _VALIDATOR.fullmatch(value)
        }
        self.counts["conditional"] += bool(headers)
        request = _Request(url, site, headers, form)
        page = await self._follow(request)
        unchanged = page.status == 304 and bool(request.headers)
        if not (200 <= page.status < 300 or unchanged):
            reason: FetchReason = "http_status"
            if page.status in (404, 410):
                reason = "not_found"
            raise _failed(page.url, reason, f"status {page.status}", status=page.status)
        kept = {
            name: page.headers[name] for name in _KEPT_HEADERS if name in page.headers
        }
        return replace(page, headers=kept, not_modified=unchanged)

    async def robots_of(self, url: str, site: Site) -> Robots:
        """Return the rules of an address's host, fetched once a run; unreadable rules disallow everything.

        Raises FetchError and ConfigError as `fetch` does.
        """
        host = self._host(url, site)
        async with host.robots_turn:
            if host.robots is None:
                address, name = urljoin(url, "/robots.txt"), host_of(url)
                request = _Request(address, site, for_robots=True)
                try:
                    response = await self._follow(request)
                    host.robots = read_robots(
                        name, response.status, response.body, now()
                    )
                except FetchError as error:
                    detail = f"robots.txt could not be read: {error.message}"
                    host.robots = Robots(
                        name, "unreadable", now(), error.status, detail=detail
                    )
                    if error.kind in REFUSALS:
                        raise
            return host.robots

    async def _follow(self, request: _Request) -> Fetched:
        """Return the answer at the end of a few redirects."""
        for _ in range(REDIRECTS + 1):
            host = self._host(request.url, request.site)
            if not request.for_robots:
                robots = host.robots or await self.robots_of(request.url, request.site)
                if not robots.allows(request.url):
                    cause = robots.detail or "robots.txt does not allow it"
                    raise FetchError(request.url, cause, kind="robots")
            response = await self._answer(request, host)
            if response.status not in _REDIRECTS:
                return response
            request.url = _redirect_target(request, response)
            # A moment says nothing of the page that an address leads to since then; a tag names its very content.
            request.headers.pop("If-Modified-Since", None)
        raise _failed(request.url, "redirect", f"more than {REDIRECTS} redirects")

    def _host(self, url: str, site: Site) -> _Host:
        """Return the host of an allowed address. Raises FetchError and ConfigError."""
        name = host_of(url)
        parts = urlsplit(url if name else "")
        if parts.scheme not in ("http", "https") or "@" in parts.netloc:
            raise _refused(url, "not a plain http or https address")
        if name not in site.hosts:
            raise _refused(
                url,
                f"host {name} is not one of this source's: {sorted(site.hosts)}",
            )
        if self._settings.contact is None and not is_loopback(parts.hostname or ""):
            raise ConfigError(
                "fetching from a community needs a contact address in the User-Agent",
                hint="set MEDLIVE_HARVEST__CONTACT to an e-mail or web address of yours",
            )
        key = f"{parts.scheme}://{name}"
        if key not in self._hosts:
            self._hosts[key] = _Host(
                asyncio.Semaphore(self._settings.concurrency_per_host)
            )
        self._hosts[key].raise_if_stopped(url)
        return self._hosts[key]

    async def _answer(self, request: _Request, host: _Host) -> Fetched:
        """Return an answer, after at most as many attempts as each reason for failing has. Raises FetchError."""
        failures: Counter[FetchReason] = Counter()
        while True:
            async with host.slots:
                await self._wait_for_turn(request, host, was_asked=bool(failures))
                try:
                    response = await self._attempt(request)
                    _stop_if_blocked(request, host, response)
                except FetchError as error:
                    if error.reason is None:
                        raise
                    failure, reason = error, error.reason
                else:
                    status = response.status
                    if status < 500 and status not in (408, 429):
                        host.failures = 0
                        return response
                    reason = "server_error"
                    if status == 429:
                        reason = "rate_limited"
                    failure = _failed(response.url, reason, f"status {status}", status)
                    after = response.headers.get("retry-after", "")
                    free_at = asyncio.get_running_loop().time()
                    free_at += parse_retry_after(after) or 0.0
                    host.next_at = max(host.next_at, free_at)
            failures[reason] += 1
            if not self._may_retry(reason, failures, request):
                # A host that failed too many pages in a row is given up; a failure of the page alone shows it alive.
                host.failures = host.failures + 1 if reason in OUTAGES else 0
                if host.failures >= MOST_FAILURES and host.stopped is None:
                    host.stopped = FetchError(
                        failure.url,
                        f"the host failed {host.failures} pages in a row, the last with: {failure.cause}; it is not"
                        " asked again in this run",
                        kind="down",
                        status=failure.status,
                    )
                raise failure
            self.counts[f"retried_{reason}"] += 1
            longest = min(
                _MAX_BACKOFF_S,
                self._settings.backoff_s * 2 ** (failures.total() - 1),
            )
            await asyncio.sleep(longest * random.uniform(0.5, 1.0))

    def _may_retry(
        self, reason: FetchReason, failures: Counter[FetchReason], request: _Request
    ) -> bool:
        """Whether another attempt is within the page's and the run's bounds."""
        return (
            request.left_s > 0
            and failures[reason] <= self._settings.retries.get(reason, 0)
            and self.counts[f"retried_{reason}"] < OUTAGES.get(reason, inf)
        )

    async def _wait_for_turn(
        self, request: _Request, host: _Host, *, was_asked: bool
    ) -> None:
        """Wait until this host may be asked again, and take the turn.

        Raises FetchError if that is too long: for a page that was asked before (`was_asked`) because the page has
        failed, for other pages because the host is down.
        """
        loop = asyncio.get_running_loop()
        async with host.turn:
            host.raise_if_stopped(request.url)
            interval = request.site.settings.min_interval_s
            if host.robots is not None:
                interval = max(interval, host.robots.interval_s)
            wait = host.next_at - loop.time()
            if wait > max(RETRY_AFTER_S, interval):
                cause = f"the host asked to be left alone for another {wait:.0f} s"
                if was_asked:
                    raise _failed(request.url, "rate_limited", cause)
                raise FetchError(request.url, cause, kind="down")
            if wait > 0:
                await asyncio.sleep(wait)
            host.next_at = loop.time() + interval

    async def _attempt(self, request: _Request) -> Fetched:
        """Send one request, within the limits of time and size. Raises FetchError."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        url = request.url
        limit = min(ATTEMPT_SECONDS, request.left_s)
        if limit <= 0:
            cause = f"attempts and redirects took over {PAGE_SECONDS:g} s in all"
            raise _failed(url, "timeout", cause)
        try:
            address = httpx2.URL(url)
            names = {address.host.lower(), address.raw_host.decode("ascii").lower()}
        except (httpx2.InvalidURL, ValueError) as error:
            raise _refused(url, f"not a usable address: {error}") from error
        # The client must not read another host in it than was checked.
        if (urlsplit(url).hostname or "") not in names or address.userinfo:
            raise _refused(url, f"its host can also be read as {address.host}")
        self.counts["requests"] += 1
        try:
            async with asyncio.timeout(limit):
                async with self._client.stream(
                    "GET" if request.form is None else "POST",
                    address,
                    headers=request.headers,
                    data=dict(request.form) if request.form else None,
                ) as response:
                    body = await self._body(request, response, limit)
        except TimeoutError as error:
            raise _failed(
                url, "timeout", f"no complete answer within {limit:g} s"
            ) from error
        except httpx2.TransportError as error:
            raise _failed(
                url, "connection", str(error) or type(error).__name__
            ) from error
        finally:
            request.left_s -= loop.time() - started
        return Fetched(
            url=url,
            body=body,
            status=response.status_code,
            form=request.form,
            headers=dict(response.headers),
            fetched_at=now(),
            elapsed_ms=round((loop.time() - started) * 1000),
        )

    async def _body(
        self, request: _Request, response: httpx2.Response, seconds: float
    ) -> bytes:
        """Read a page's body, or as much of an error's as shows a block page; b"" for any other answer."""
        if 200 <= response.status_code < 300:
            # A header sent twice is a list of types.
            for part in response.headers.get("content-type", "").split(","):
                kind = part.partition(";")[0].strip().lower()
                known = request.for_robots or kind in _CONTENT_TYPES
                if "/" in kind and not known:
                    cause = f"content type {kind[:80]} is not a page"
                    raise _failed(request.url, "content_type", cause)
            return await _read(request.url, response, PAGE_BYTES)
        if response.status_code >= 400:
            with suppress(FetchError, TimeoutError, httpx2.TransportError):
                async with asyncio.timeout(min(_GLANCE_S, seconds / 2)):
                    return await _read(request.url, response, _GLANCE_BYTES)
        return b""


def _failed(
    url: str, reason: FetchReason, message: str, status: int | None = None
) -> FetchError:
    return FetchError(url, message, reason=reason, status=status)


def _refused(url: str, message: str) -> FetchError:
    return FetchError(url, message, kind="host_refused")


async def _read(url: str, response: httpx2.Response, limit: int) -> bytes:
    """Read and decompress a body, with the limit applied inside every chunk of a compression bomb."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise _failed(url, "encoding", f"content encoding {encoding} was not asked for")
    body = bytearray()
    chunks = response.aiter_raw(65536)
    async for chunk in _gunzipped(url, chunks, limit) if "gzip" in encoding else chunks:
        body += chunk
        if len(body) > limit:
            raise _failed(url, "too_large", f"the body is over {limit} bytes")
    return bytes(body)


async def _gunzipped(
    url: str, chunks: AsyncIterator[bytes], limit: int
) -> AsyncIterator[bytes]:
    """Decompress the members of a gzip stream in chunks of at most `limit` + 1 bytes.

    The client's own decoder takes a stream that was cut off for a whole one, and drops all but its first member.
    """
    unpack = zlib.decompressobj(31)
    started = False
    try:
        async for packed in chunks:
            while packed:
                if unpack.eof:
                    unpack = zlib.decompressobj(31)
                started = True
                yield unpack.decompress(packed, limit + 1)
                packed = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
    except zlib.error as error:
        raise _failed(url, "encoding", f"broken gzip: {error}") from error
    if started and not unpack.eof:
        raise _failed(url, "connection", "the compressed body ends early")


def _redirect_target(request: _Request, response: Fetched) -> str:
    """Return the target of a redirect. Raises FetchError if it must not be followed."""
    location = response.headers.get("location", "")
    try:
        parts = urlsplit(urljoin(request.url, location))
    except ValueError:
        parts = urlsplit("")
    is_downgrade = urlsplit(request.url).scheme == "https" and parts.scheme == "http"
    if not (location and parts.scheme) or is_downgrade or request.form is not None:
        cause = f"a redirect that is not followed, to {location!r:.200}"
        raise _failed(request.url, "redirect", cause, status=response.status)
    return parts._replace(fragment="").geturl()


def _stop_if_blocked(request: _Request, host: _Host, response: Fetched) -> None:
    """Stop requests to a host that refuses access, by status or by a block page. Raises FetchError."""
    cause = block_page(response.status, response.headers, response.body)
    if cause is None and response.status in request.site.settings.stop_statuses:
        cause = f"status {response.status}"
    if cause is not None:
        message = (
            f"the host refused access ({cause}); it is not asked again in this run"
        )
        host.stopped = FetchError(
            request.url, message, kind="blocked", status=response.status
        )
        raise host.stopped


async def _checked(
    host: str,
    port: int,
    *,
    allow_loopback: bool,
) -> list[str]:
    """The addresses of a community's host, all public. Raises FetchError and OSError."""
    try:
        return await asyncio.to_thread(
            public_addresses, host, port, allow_loopback=allow_loopback
        )
    except AddressRefused as error:
        raise _refused(host, error.message) from error
