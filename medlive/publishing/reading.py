"""Reads published files from a folder or over HTTP, within limits, and without being led to inner addresses."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import httpx2

from medlive.errors import BadInput, ServiceUnavailable, UsageError
from medlive.guard.bounds import FETCH_GRACE_S, FETCH_LEAST_RATE, FETCH_REDIRECTS
from medlive.guard.http import RETRIED_STATUSES, guarded_client, resolve_name
from medlive.guard.printable import printable
from medlive.integrity.addresses import may_connect
from medlive.integrity.paths import UnsafePath, open_below

TRIES: Final = 6
"""How often one file is asked for before its server is given up."""

_BLOCK: Final = 256 * 1024
_CONNECT_S: Final = 15
_SILENCE_S: Final = 60
"""Seconds without a byte after which a connection counts as lost."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

Read = Callable[[str, int], Awaitable[bytes | None]]
"""`read(name, most)`: a published file's bytes, cut soon after `most`; None if it does not exist."""


async def resolve_host(host: str) -> list[str]:
    """Return the addresses of a host's name. Raises OSError."""
    return await asyncio.to_thread(resolve_name, host, 0)


@dataclass(frozen=True, slots=True)
class Network:
    """How names become addresses, and which addresses are public."""

    resolve: Callable[[str], Awaitable[list[str]]] = resolve_host
    is_public: Callable[[str], bool] = may_connect


@dataclass(frozen=True, slots=True)
class Pace:
    """How slow a server may be, and how long is waited before it is asked again."""

    least_rate: float = FETCH_LEAST_RATE  # Bytes a second
    grace_s: float = FETCH_GRACE_S  # For an answer, beyond what its bytes take
    pause_s: float = 1.0  # Before the second try; doubled each time


class _Refused(Exception):
    """An address that must not be asked."""


class _Unanswered(Exception):
    """The server gave no answer, and may give one later."""


Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)."""


@dataclass(slots=True)
class Meter:
    """How many of the bytes in all have come, also while a file is being read."""

    tell: Progress
    done: int = 0  # Of files that are whole
    total: int = 0  # 0 until it is known

    def received(self, size: int) -> None:
        """Tell that so much of the next file has come."""
        if self.total:
            self.tell(min(self.done + size, self.total), self.total)

    def whole(self, size: int) -> None:
        """Tell that a file of this size is there."""
        self.done += size
        self.received(0)


@asynccontextmanager
async def open_source(
    source: str, network: Network, pace: Pace, meter: Meter
) -> AsyncIterator[Read]:
    """Open an http(s) address or a folder for reading. Raises UsageError."""
    if "://" not in source:
        yield _folder_reader(Path(source), meter)
        return
    parts = urlsplit(source)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
    ):
        raise UsageError(
            f"{source!r} is not an address to fetch from",
            hint="write https://host/path",
        )
    base = httpx2.URL(source.rstrip("/"))
    gate = _Gate(network, _host_and_port(base))
    headers = {"User-Agent": "medlive", "Accept-Encoding": "identity"}
    timeout = httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S)
    async with guarded_client(gate.addresses, headers=headers, timeout=timeout) as http:
        site = _Site(http, gate, pace, meter)
        yield lambda name, most: site.read(f"{base}/{quote(name)}", most)


def _folder_reader(root: Path, meter: Meter) -> Read:
    if not root.is_dir():
        raise UsageError(
            f"{root} is not a folder",
            hint="--from names a folder or an https:// address",
        )

    async def read(name: str, most: int) -> bytes | None:
        try:
            with open_below(root, name) as handle:
                data = bytearray()
                while len(data) <= most and (block := handle.read(_BLOCK)):
                    data += block
                    meter.received(len(data))
                return bytes(data)
        except UnsafePath as exc:
            raise BadInput(
                f"{root}: {exc.message}", hint="published files are plain ones"
            ) from exc
        except FileNotFoundError:
            return None

    return read


@dataclass(slots=True)
class _Gate:
    """Lets requests out to public addresses, whatever a name resolves to.

    A user may name a host of the own network; then it may be asked at that port, and nothing else in there.
    """

    network: Network
    own: tuple[str, int]  # The host and port that the user named
    public_only: bool | None = None  # None until that host is resolved

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host that may be asked. Raises OSError, and _Refused."""
        if ":" in host or host.replace(".", "").isdigit():
            try:
                addresses = [str(ipaddress.ip_address(host.partition("%")[0]))]
            except ValueError as exc:
                raise _Refused(
                    f"{printable(host)} is not an address as it is usually written"
                ) from exc
        else:
            addresses = await self.network.resolve(host)
        inner = [
            address for address in addresses if not self.network.is_public(address)
        ]
        if self.public_only is None:
            self.public_only = len(inner) < len(addresses)
        if inner and (self.public_only or (host, port) != self.own):
            raise _Refused(
                f"{printable(host)} leads to {inner[0]}, which is not a public address"
            )
        return addresses


@dataclass(slots=True)
class _Site:
    http: httpx2.AsyncClient
    gate: _Gate
    pace: Pace
    meter: Meter

    async def read(self, url: str, most: int) -> bytes | None:
        """Read an address; lost connections and passing failures are retried. Raises ServiceUnavailable."""
        problem = ""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(self.pace.pause_s * 2 ** (number - 1))
            limit = self.pace.grace_s + most / self.pace.least_rate
            try:
                async with asyncio.timeout(limit):
                    return await self._answer(url, most)
            except TimeoutError:
                problem = f"the server is too slow: no whole answer in {limit:.0f} s"
                break
            except _Refused as exc:
                raise ServiceUnavailable(
                    f"{url} cannot be fetched: {exc}", hint="check --from"
                ) from exc
            except (
                _Unanswered,
                httpx2.TransportError,
                httpx2.InvalidURL,
                OSError,
                UnicodeError,
            ) as exc:
                problem = str(exc) or type(exc).__name__
        raise ServiceUnavailable(
            f"{url} cannot be fetched: {problem}"[:500],
            hint="check --from and the network; the same command continues where this one stopped",
        )

    async def _answer(self, url: str, most: int) -> bytes | None:
        """Follow redirects to an answer and read it."""
        place = httpx2.URL(url)
        for _ in range(FETCH_REDIRECTS + 1):
            await self.gate.addresses(*_host_and_port(place))
            async with self.http.stream("GET", place) as answer:
                status = answer.status_code
                if status in _REDIRECTS:
                    place = _target(place, answer.headers.get("Location"))
                    continue
                if status == 404:
                    return None
                if status == 410:
                    hint = "fetch a later version: errata.json there says what was taken down"
                    text = f"{url} was withdrawn and is no longer given out"
                    raise BadInput(text, hint=hint)
                if status in RETRIED_STATUSES:
                    raise _Unanswered(f"HTTP {status}")
                if status != 200:
                    text = f"{url} cannot be fetched: HTTP {status}"
                    raise ServiceUnavailable(text, hint="check --from")
                data = bytearray()
                async for block in answer.aiter_raw():
                    data += block
                    self.meter.received(len(data))
                    if len(data) > most:
                        break
                return bytes(data)
        raise _Refused(f"more than {FETCH_REDIRECTS} redirects")


def _host_and_port(url: httpx2.URL) -> tuple[str, int]:
    """The host as it is looked up, and the port."""
    return url.raw_host.decode("ascii"), url.port or (
        443 if url.scheme == "https" else 80
    )


def _target(place: httpx2.URL, location: str | None) -> httpx2.URL:
    """Return where a redirect leads. Raises _Refused if it must not be followed."""
    try:
        target = place.join(location or "ftp:")
    except (httpx2.InvalidURL, ValueError) as exc:
        raise _Refused("a redirect to an invalid address") from exc
    if target.scheme not in ("http", "https") or not target.host or target.userinfo:
        raise _Refused(
            f"a redirect to no plain http or https address: {printable(location or 'none')[:200]}"
        )
    if place.scheme == "https" and target.scheme == "http":
        raise _Refused("a redirect from https to http")
    return target
