"""Reads published files from a folder or over HTTP (`open_source`), within limits.

No link and no redirect leads it to a private address.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

import httpx2

from medlive.errors import BadInput, ServiceUnavailable, UsageError
from medlive.guard.bounds import FETCH_GRACE_S, FETCH_LEAST_RATE, FETCH_REDIRECTS
from medlive.guard.http import (
    RETRIED_STATUSES,
    AddressRefused,
    any_address,
    guarded_client,
    may_connect,
)
from medlive.guard.printable import printable
from medlive.integrity.paths import open_below
from medlive.snapshot.describe.feed import safe_base

TRIES = 6
"""The most requests for one file."""

PAUSE_S = 1.0
"""Seconds before the second try; doubled each time."""
_CONNECT_S = 15
_SILENCE_S = 60
"""Seconds without a byte after which a connection counts as lost."""

Read = Callable[[str, int], Awaitable[bytes | None]]
"""`read(name, most)`: a published file's bytes, cut soon after `most`; None if it does not exist."""


@asynccontextmanager
async def open_source(source: str) -> AsyncIterator[Read]:
    """Open an http(s) address or a folder for reading. Raises UsageError."""
    if "://" not in source:
        if not await asyncio.to_thread(os.path.isdir, source):
            raise UsageError(
                f"{source} is not a folder",
                hint="--from names a folder or an https:// address",
            )

        async def read(name: str, most: int) -> bytes | None:
            return await asyncio.to_thread(read_below, Path(source), name, most)

        yield read
        return
    if not safe_base(source):
        raise UsageError(
            f"{source!r} is not an address to fetch from",
            hint="write https://host/path",
        )
    site = _Site(httpx2.URL(source.rstrip("/")))
    async with guarded_client(
        site.addresses,
        headers={"User-Agent": "medlive", "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S),
    ) as http:
        yield partial(site.read, http)


def read_below(root: Path, name: str, most: int) -> bytes | None:
    """Read a published file below a folder, as `Read` does. Raises UnsafePath over a link."""
    try:
        with open_below(root, name) as handle:
            return handle.read(most + 1)
    except FileNotFoundError:
        return None


@dataclass
class _Site:
    """A place on the web. Requests go to public addresses alone, whatever a name resolves to.

    If the user names a host of the private network, that host may be asked at that port, and no other host in there.
    """

    base: httpx2.URL  # As the user named it
    public_only: bool | None = None  # None until the base's host is resolved

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host that may be asked. Raises OSError, and AddressRefused."""
        addresses = await any_address(host, port)
        inner = [place for place in addresses if not may_connect(place)]
        if self.public_only is None:
            self.public_only = len(inner) < len(addresses)
        usual = 443 if self.base.scheme == "https" else 80
        own_host = self.base.raw_host.decode("ascii")
        is_own = (host, port) == (own_host, self.base.port or usual)
        if inner and (self.public_only or not is_own):
            raise AddressRefused(
                f"{printable(host)} leads to {inner[0]}, which is not a public address"
            )
        return addresses

    async def read(
        self, http: httpx2.AsyncClient, name: str, most: int
    ) -> bytes | None:
        """Read a file; lost connections and passing failures are retried. Raises ServiceUnavailable."""
        url = f"{self.base}/{quote(name)}"
        limit = FETCH_GRACE_S + most / FETCH_LEAST_RATE
        problem = ""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(PAUSE_S * 2 ** (number - 1))
            try:
                async with asyncio.timeout(limit):
                    return await self._answer(http, url, most)
            except TimeoutError:
                problem = f"the server is too slow: no whole answer in {limit:.0f} s"
                break
            except AddressRefused as exc:
                text = f"{url} cannot be fetched: {exc}"
                raise ServiceUnavailable(text, hint="check --from") from exc
            except _PASSING as exc:
                problem = str(exc) or type(exc).__name__
        raise ServiceUnavailable(
            f"{url} cannot be fetched: {problem}"[:500],
            hint="check --from and the network; the same command continues where this one stopped",
        )

    async def _answer(
        self, http: httpx2.AsyncClient, url: str, most: int
    ) -> bytes | None:
        """Follow redirects to an answer and read it."""
        place = httpx2.URL(url)
        for _ in range(FETCH_REDIRECTS + 1):
            async with http.stream("GET", place) as answer:
                status = answer.status_code
                if (following := answer.next_request) is not None:
                    check_redirect(place, following.url)
                    place = following.url
                    continue
                if status == 404:
                    return None
                if status == 410:
                    hint = "fetch a later version: errata.json there says what was taken down"
                    text = f"{url} was withdrawn and is no longer given out"
                    raise BadInput(text, hint=hint)
                if status in RETRIED_STATUSES:
                    raise httpx2.TransportError(f"HTTP {status}")
                if status != 200:
                    text = f"{url} cannot be fetched: HTTP {status}"
                    raise ServiceUnavailable(text, hint="check --from")
                data = bytearray()
                async for block in answer.aiter_raw():
                    data += block
                    if len(data) > most:
                        break
                return bytes(data)
        raise AddressRefused(f"more than {FETCH_REDIRECTS} redirects")


_PASSING = (httpx2.TransportError, httpx2.InvalidURL, OSError, UnicodeError)
"""Errors that another try may not meet."""


def check_redirect(place: httpx2.URL, target: httpx2.URL) -> None:
    """Raise AddressRefused for a redirect that must not be followed."""
    schemes = ("https",) if place.scheme == "https" else ("http", "https")
    if target.scheme not in schemes or not target.host or target.userinfo:
        shown = printable(str(target))[:200]
        plain = " or ".join(schemes)
        raise AddressRefused(f"a redirect to no plain {plain} address: {shown}")
