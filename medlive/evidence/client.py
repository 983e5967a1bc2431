"""The HTTP client for publishers' pages and files (`page`, `download`) and for literature services (`post`).

Pages and files are asked of the publisher's hosts only, with pauses, retries and limits; an interrupted download goes
on where it was.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from io import BufferedWriter
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx2

from medlive import __version__
from medlive.clock import parse_retry_after
from medlive.errors import ConfigError, ServiceUnavailable
from medlive.guard.bounds import LITERATURE_BYTES
from medlive.guard.http import (
    RETRIED_STATUSES,
    any_address,
    guarded_client,
    public_addresses,
)
from medlive.guard.printable import printable
from medlive.guard.trust import is_loopback
from medlive.integrity.log import writing
from medlive.integrity.paths import create_below, path_below

T = TypeVar("T")

ATTEMPTS = 5
"""Failures in a row, without a new byte, that end the fetch."""
BACKOFF_S = 2.0
"""Seconds of the first wait after a failure; it doubles."""
LONGEST_WAIT_S = 600.0
"""Seconds; a longer Retry-After makes the fetch fail."""
STALL_S = 60.0
"""Most seconds without a byte."""
PAGE_S = 600.0
"""Most seconds for one page or list."""
ANSWER_S = 120.0
"""Most seconds for a literature service's whole answer, however slowly it comes."""
LARGEST_PAGE = 64 * 1024 * 1024  # Bytes
_LATER = "what was fetched is kept; run the same command again later"
_MOST_REDIRECTS = 5


class FetchFailed(ServiceUnavailable):
    """A publisher's file could not be fetched."""

    absent = False  # Whether the publisher does not have it (404, 410)


class Client(AbstractAsyncContextManager["Client"]):
    """Asks the hosts of one source, one request at a time; or posts forms to literature services."""

    def __init__(
        self,
        contact: str | None,
        hosts: frozenset[str] = frozenset(),
        pause_s: float = 0.0,
        *,
        named: bool = False,
    ) -> None:
        """Prepare to ask.

        Args:
            contact: The operator's e-mail or web address, for the User-Agent.
            hosts: The only hosts that `page` and `download` ask.
            pause_s: Seconds between two requests to a host.
            named: Whether the user named the hosts, which then may be in a private network.

        Raises:
            ConfigError: without a contact address, unless all hosts are this machine.
        """
        self._hosts = hosts
        if contact is None and not all(map(_is_loopback, hosts)):
            raise ConfigError(
                "fetching from a publisher needs a contact address in the User-Agent",
                hint="set MEDLIVE_HARVEST__CONTACT to an e-mail or web address of yours",
            )
        self._pause_s = pause_s
        self._free_at: dict[str, float] = {}
        agent = f"medlive/{__version__}" + (f" (+{contact})" if contact else "")
        self._client = guarded_client(
            any_address if named else _public,
            # A compressed file must come as it is published.
            headers={"User-Agent": agent, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(STALL_S),
        )

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def post(
        self, address: str, form: Mapping[str, str]
    ) -> tuple[httpx2.Response, bytes]:
        """Post a form; return the answer and its body, cut soon after `LITERATURE_BYTES`.

        Raises OSError if no answer came.
        """
        try:
            async with (
                asyncio.timeout(ANSWER_S),
                self._client.stream("POST", address, data=dict(form)) as response,
            ):
                return response, await _read(response, LITERATURE_BYTES)
        except httpx2.HTTPError as exc:
            raise OSError(str(exc) or type(exc).__name__) from exc

    async def page(self, url: str) -> str:
        """Return the text of a page or list. Raises FetchFailed."""

        async def read() -> str:
            await self._wait_for(urlsplit(url).netloc)
            async with asyncio.timeout(PAGE_S), self._answer(url) as response:
                body = await _read(response, LARGEST_PAGE)
            if len(body) > LARGEST_PAGE:
                raise FetchFailed(
                    f"{url} sent more than {LARGEST_PAGE} bytes; expected a list of files"
                )
            return body.decode("utf-8", "replace")

        return await self._retry(url, read)

    async def download(
        self,
        url: str,
        root: Path,
        name: str,
        largest: int,
        tick: Callable[[int], None],
    ) -> bool:
        """Complete the half file `name` below `root`; return whether its bytes came in more than one answer.

        Bytes that are there are not asked for again, whatever version of the file they are of. `largest` is the
        most bytes that are taken; `tick` gets the number of bytes so far.

        Raises:
            FetchFailed: if the file cannot be fetched.
            DiskFull: if it does not fit.
        """
        part = path_below(root, name)

        def size_here() -> int:
            return part.stat().st_size if part.exists() else 0

        async def append() -> bool:
            size = came = size_here()
            headers = {"Range": f"bytes={size}-"} if size else {}
            async with self._answer(url, headers) as response:
                status = response.status_code
                stated = response.headers.get("content-range", "")
                if status == 416:
                    return came > 0  # Nothing is left to come
                if status == 206 and not stated.startswith(f"bytes {size}-"):
                    part.unlink(missing_ok=True)
                    raise ConnectionError("the answer is another part of the file")
                if status == 200:
                    part.unlink(missing_ok=True)
                    size = 0
                with (
                    writing(part),
                    create_below(root, name, append=True) as file,
                    BufferedWriter(file) as handle,
                ):
                    # As it comes: bytes that wait for a block to be full would be lost by a cut.
                    async for block in response.aiter_raw():
                        handle.write(block)
                        handle.flush()
                        size += len(block)
                        tick(size)
                        if size > largest:
                            part.unlink()
                            raise FetchFailed(
                                f"{url} sent more than {largest} bytes; it was left there"
                            )
            return came > 0

        return await self._retry(url, append, size_here)

    async def _wait_for(self, host: str) -> None:
        """Wait until the host may be asked again: for the pause, or as long as it has asked to wait."""
        await asyncio.sleep(self._free_at.get(host, 0.0) - time.monotonic())

    @asynccontextmanager
    async def _answer(
        self,
        url: str,
        headers: Mapping[str, str] = {},
    ) -> AsyncIterator[httpx2.Response]:
        """Yield the successful answer at the end of the redirects, its body unread.

        Raises FetchFailed, and ConnectionError where the same request may succeed later.
        """
        came = ""
        for _ in range(_MOST_REDIRECTS + 1):
            parts = urlsplit(url)
            host = parts.netloc
            if parts.scheme not in ("http", "https") or host not in self._hosts:
                raise FetchFailed(
                    f"{came}{printable(url)[:200]}; expected an address at {', '.join(sorted(self._hosts))}",
                    hint="if the publisher has moved, give its new address under [evidence.mirrors]",
                )
            await self._wait_for(host)
            wait_s = self._pause_s
            try:
                async with self._client.stream("GET", url, headers=headers) as response:
                    status = response.status_code
                    if status in (200, 206, 416):
                        yield response
                        return
                    if status in RETRIED_STATUSES:
                        after = response.headers.get("retry-after", "")
                        asked_s = parse_retry_after(after) or 0.0
                        if asked_s > LONGEST_WAIT_S:
                            raise FetchFailed(
                                f"{url}: status {status}; the host asks to wait {asked_s:.0f} s",
                                hint=_LATER,
                            )
                        wait_s = max(wait_s, asked_s)
                        raise ConnectionError(f"status {status}")
                    if response.next_request is None:
                        failure = FetchFailed(f"{url}: status {status}; expected 200")
                        failure.absent = status in (404, 410)
                        raise failure
                    target = str(response.next_request.url)
            finally:
                self._free_at[host] = time.monotonic() + wait_s
            came = f"{url} redirects to "
            if parts.scheme == "https" and not target.startswith("https:"):
                raise FetchFailed(
                    f"{came}{printable(target)[:200]}, which is not https"
                )
            url = target
        raise FetchFailed(f"{url}: more than {_MOST_REDIRECTS} redirects")

    async def _retry(
        self,
        url: str,
        work: Callable[[], Awaitable[T]],
        size: Callable[[], int] = lambda: 0,
    ) -> T:
        """Do the work until it succeeds, waiting after temporary failures.

        `ATTEMPTS` failures in a row end it; the count restarts when `size`, the number of bytes here, has grown.
        """
        failures, furthest = 0, size()
        while True:
            try:
                return await work()
            except (httpx2.TransportError, TimeoutError, ConnectionError) as exc:
                cause = str(exc) or type(exc).__name__
            failures = 0 if size() > furthest else failures + 1
            furthest = max(furthest, size())
            if failures == ATTEMPTS:
                raise FetchFailed(f"{url}: {cause} ({failures} attempts)", hint=_LATER)
            await asyncio.sleep(BACKOFF_S * 2 ** (failures - 1))


async def _read(response: httpx2.Response, most: int) -> bytes:
    """Read a body, at most up to the block that makes it longer than `most` bytes."""
    body = bytearray()
    async for block in response.aiter_bytes():
        body += block
        if len(body) > most:
            break
    return bytes(body)


async def _public(host: str, port: int) -> list[str]:
    """The addresses of a publisher's host, all public; this machine's only if `host` is its own name."""
    return await asyncio.to_thread(
        public_addresses,
        host,
        port,
        allow_loopback=_is_loopback(host),
    )


def _is_loopback(host: str) -> bool:
    return is_loopback(urlsplit(f"//{host}").hostname or "")
