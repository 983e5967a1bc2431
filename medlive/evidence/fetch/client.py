"""Ask a publisher's hosts, politely and within limits; a download goes on where it was interrupted.

One request at a time, so that no host has two connections from one command.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import FileIO
from math import inf
from typing import TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies

import httpx2

from medlive import __version__
from medlive.clock import parse_retry_after
from medlive.errors import ConfigError
from medlive.evidence.fetch.model import (
    FetchFailed,
    FetchSettings,
    NotPublished,
    RemoteFile,
)
from medlive.evidence.fetch.parts import Part, PartState
from medlive.guard.http import (
    RETRIED_STATUSES,
    AddressRefused,
    Deadline,
    blocking_transport,
    public_addresses,
    resolve_name,
)
from medlive.guard.printable import printable
from medlive.guard.trust import is_loopback, tls_context

T = TypeVar("T")

LARGEST_PAGE = 64 * 1024 * 1024
_BLOCK = 1 << 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_ABSENT = frozenset({404, 410})
_MAGIC = {".gz": b"\x1f\x8b", ".zip": b"PK\x03\x04", ".xml": b"<"}
_HTML = (b"<!doctype html", b"<html")


class _Temporary(Exception):
    """A failure after which the same request may succeed."""

    def __init__(self, cause: str, wait_s: float | None = None) -> None:
        super().__init__(cause)
        self.wait_s = wait_s  # As the host asks


class Client(AbstractContextManager["Client"]):
    """Asks the hosts of one source; nothing of any other host is ever asked."""

    def __init__(
        self,
        settings: FetchSettings,
        hosts: frozenset[str],
        pause_s: float,
        *,
        named: bool = False,
    ) -> None:
        """Prepare to ask.

        Args:
            settings: Limits and manners.
            hosts: The only hosts that are asked.
            pause_s: Seconds between two requests to a host.
            named: Whether the user named the host, which then may be of the own network.

        Raises:
            ConfigError: Without a contact address.
        """
        if settings.contact is None and not all(map(_is_loopback, hosts)):
            raise ConfigError(
                "fetching from a publisher needs a contact address in the User-Agent",
                hint="set MEDLIVE_HARVEST__CONTACT to an e-mail or web address of yours, or give --contact",
            )
        contact = f" (+{settings.contact})" if settings.contact else ""
        self._settings = settings
        self._hosts = hosts
        self._pause_s = pause_s if settings.pause_s is None else settings.pause_s
        self._free_at: dict[str, float] = {}
        self.requests = 0
        self._deadline = deadline = Deadline()
        addresses = resolve_name if named else _addresses
        self._client = httpx2.Client(
            # A compressed file must come as it is published.
            headers={
                "User-Agent": f"medlive/{__version__}{contact}",
                "Accept-Encoding": "identity",
            },
            timeout=httpx2.Timeout(settings.stall_s),
            limits=httpx2.Limits(max_connections=1, max_keepalive_connections=1),
            follow_redirects=False,
            verify=tls_context(),
            # A proxy of the environment makes the connections itself.
            transport=None if getproxies() else blocking_transport(addresses, deadline),
        )

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def page(self, url: str) -> str:
        """Return the text of a page or list. Raises FetchFailed."""

        def read() -> bytes:
            body = bytearray()
            with self._answer("GET", url, {}) as response:
                for block in response.iter_bytes(_BLOCK):
                    body += block
                    self._deadline.left(None)
                    if len(body) > LARGEST_PAGE:
                        raise FetchFailed(
                            f"{url} sent more than {LARGEST_PAGE} bytes; expected a list of files"
                        )
            return bytes(body)

        return self._retry(url, read).decode("utf-8", "replace")

    def size_of(self, url: str) -> int | None:
        """Return the size that the host gives for a file; None where it gives none. Raises FetchFailed."""

        def read() -> int | None:
            with self._answer("HEAD", url, {}) as response:
                return _length(response)

        return self._retry(url, read)

    def download(
        self, file: RemoteFile, part: Part, largest: int, tick: Callable[[int], None]
    ) -> bool:
        """Complete a half file, and return whether its bytes came in more than one answer.

        Args:
            file: What is fetched.
            part: Where its bytes go; bytes of the same version that are there already are not asked for again.
            largest: The most bytes that are taken.
            tick: Gets the bytes that are there so far.

        Raises:
            FetchFailed: if the file cannot be fetched, is no such file, or has another size than was announced.
            DiskFull: if it does not fit.
        """
        part.keep_if(file)
        resumed = False
        until = time.monotonic() + self._settings.file_s

        def append() -> None:
            nonlocal resumed
            resumed = resumed or part.size > 0
            self._append(file, part, largest, tick, until)

        self._retry(file.url, append, lambda: part.size)
        return resumed

    def _append(
        self,
        file: RemoteFile,
        part: Part,
        largest: int,
        tick: Callable[[int], None],
        until: float,
    ) -> None:
        with self._answer("GET", file.url, part.range_headers()) as response:
            self._deadline.begin(inf)  # the blocks below have a limit of their own
            if response.status_code == 416:
                part.clear()
                raise _Temporary("the host has no more bytes than the half file")
            total = _prepare(file, part, response, largest)
            with part.appending(max(0, (total or 0) - part.size)) as handle:
                # As it comes: bytes that wait for a block to be full would be lost by a cut.
                for block in response.iter_raw():
                    if part.size == 0:
                        _check_beginning(file, block)
                    part.size += _write(handle, block)
                    tick(part.size)
                    if part.size > largest:
                        raise FetchFailed(
                            f"{file.url} sent more than {largest} bytes; it was left there"
                        )
                    if time.monotonic() > until:
                        raise FetchFailed(
                            f"{file.url} took more than {self._settings.file_s:.0f} s",
                            hint="the bytes are kept; run the same command again",
                        )
        if total is not None and part.size != total:
            raise _Temporary(f"{part.size} of {total} bytes came")

    @contextmanager
    def _answer(
        self, method: str, url: str, headers: dict[str, str]
    ) -> Iterator[httpx2.Response]:
        """Yield the successful answer at the end of the redirects, its body unread; a page's time begins."""
        for _ in range(_MOST_REDIRECTS + 1):
            host = self._check_host(url)
            time.sleep(max(0.0, self._free_at.get(host, 0.0) - time.monotonic()))
            self.requests += 1
            self._deadline.begin(self._settings.page_s)
            try:
                with self._client.stream(method, url, headers=headers) as response:
                    if response.status_code not in _REDIRECTS:
                        _check_status(url, response)
                        yield response
                        return
                    target = urljoin(url, response.headers.get("location", ""))
            finally:
                self._free_at[host] = time.monotonic() + self._pause_s
            if url.startswith("https:") and not target.startswith("https:"):
                raise FetchFailed(
                    f"{url} redirects to {printable(target)[:200]}, which is not https"
                )
            self._check_host(target, redirected_from=url)
            url = target
        raise FetchFailed(f"{url}: more than {_MOST_REDIRECTS} redirects")

    def _check_host(self, url: str, redirected_from: str = "") -> str:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.netloc in self._hosts:
            return parts.netloc
        came = f"{redirected_from} redirects to " if redirected_from else ""
        raise FetchFailed(
            f"{came}{printable(url)[:200]}; expected an address at {', '.join(sorted(self._hosts))}",
            hint="if the publisher has moved, give its new address under [evidence.mirrors]",
        )

    def _retry(
        self, url: str, work: Callable[[], T], size: Callable[[], int] = lambda: 0
    ) -> T:
        """Do the work until it succeeds, waiting after temporary failures.

        A failure counts unless `size`, the bytes that are there, has grown since the one before.
        """
        failures, furthest = 0, size()
        while True:
            try:
                return work()
            except (_Temporary, httpx2.TransportError) as exc:
                cause = f"{type(exc).__name__}: {exc}".removesuffix(": ")
                asked = None
                if isinstance(exc, _Temporary):
                    cause, asked = str(exc), exc.wait_s
            failures = 0 if size() > furthest else failures + 1
            furthest = max(furthest, size())
            wait_s = asked
            if wait_s is None:
                wait_s = self._settings.backoff_s * 2 ** (failures - 1)
            if wait_s > self._settings.longest_wait_s:
                raise FetchFailed(
                    f"{url}: {cause}; the host asks to wait {wait_s:.0f} s",
                    hint="what was fetched is kept; run the same command again then",
                )
            if failures == self._settings.attempts:
                raise FetchFailed(
                    f"{url}: {cause} ({failures} attempts)",
                    hint="what was fetched is kept; run the same command again later",
                )
            time.sleep(wait_s)


def _write(handle: FileIO, block: bytes) -> int:
    """Write all of a block. An unbuffered file may take a part of it where the disk is nearly full."""
    written = 0
    while written < len(block):
        written += handle.write(block[written:]) or 0
    return written


def _prepare(
    file: RemoteFile, part: Part, response: httpx2.Response, largest: int
) -> int | None:
    """Make the half file ready for the bytes to come, and return the size of the whole."""
    length = _length(response)
    if response.status_code == 206:
        start, total = _content_range(file.url, response)
        if start != part.size or (part.state is not None and total != part.state.total):
            expected = part.size
            part.clear()
            raise _Temporary(
                f"the host answered from byte {start} of {total}, not from {expected} of the same file"
            )
    else:
        total = length
    _check_size(file, total, largest)
    if response.status_code != 206:
        part.clear()
        part.begin(
            PartState(
                url=file.url,
                mark=file.mark,
                validator=_validator(response),
                total=total,
            )
        )
    return total


def _check_size(file: RemoteFile, total: int | None, largest: int) -> None:
    if total is None:
        return
    if total > largest:
        raise FetchFailed(
            f"{file.url} announces {total} bytes; expected at most {largest}"
        )
    if file.size is not None and abs(total - file.size.bytes) > file.size.slack:
        raise FetchFailed(
            f"{file.url} announces {total} bytes, the publisher's list about {file.size.bytes}",
            hint="nothing was downloaded; run the same command again later, or ask the publisher",
        )


def _check_beginning(file: RemoteFile, block: bytes) -> None:
    if block[:200].lstrip().lower().startswith(_HTML):
        raise FetchFailed(
            f"{file.url} answers with an HTML page; expected a file",
            hint="open the address in a browser to see why",
        )
    for suffix, magic in _MAGIC.items():
        if file.name.endswith(suffix) and not block.lstrip(
            b"\xef\xbb\xbf \r\n"
        ).startswith(magic[: len(block)]):
            raise FetchFailed(
                f"{file.url} does not begin as a {suffix} file does: {block[:16]!r}"
            )


def _check_status(url: str, response: httpx2.Response) -> None:
    status = response.status_code
    if status in (200, 206, 416):
        return
    if status in RETRIED_STATUSES:
        raise _Temporary(
            f"status {status}",
            parse_retry_after(response.headers.get("retry-after", "")),
        )
    if status in _ABSENT:
        raise NotPublished(f"{url} does not exist (status {status})")
    raise FetchFailed(f"{url}: status {status}; expected 200")


def _validator(response: httpx2.Response) -> str | None:
    """What If-Range may name: a strong ETag, else the date of the last change."""
    etag = str(response.headers.get("etag", ""))
    if etag.startswith('"'):
        return etag[:1000]
    return response.headers.get("last-modified")


def _content_range(url: str, response: httpx2.Response) -> tuple[int, int | None]:
    unit, _, rest = str(response.headers.get("content-range", "")).partition(" ")
    span, _, total = rest.partition("/")
    start = span.partition("-")[0]
    if unit != "bytes" or not start.isdecimal():
        raise FetchFailed(
            f"{url} answers with a part of the file; expected Content-Range to say which"
        )
    return int(start), int(total) if total.isdecimal() else None


def _length(response: httpx2.Response) -> int | None:
    text = response.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def _addresses(host: str, port: int) -> list[str]:
    """The addresses of a publisher's host, all public; those of this machine only by its own names."""
    try:
        return public_addresses(host, port, allow_loopback=_is_loopback(host))
    except AddressRefused as exc:
        hint = "a copy in the own network is named under [evidence.mirrors]"
        raise FetchFailed(exc.message, hint=hint) from exc


def _is_loopback(host: str) -> bool:
    return is_loopback(urlsplit(f"//{host}").hostname or "")
