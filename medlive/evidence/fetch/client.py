"""Ask a publisher's hosts, politely and within limits; a download goes on where it was interrupted.

One request at a time, so that no host has two connections from one command.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import BufferedWriter, FileIO
from math import inf
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies

import httpx2

from medlive import __version__
from medlive.clock import parse_retry_after
from medlive.errors import ConfigError, DiskFull
from medlive.evidence.fetch.model import (
    FetchFailed,
    FetchSettings,
    NotPublished,
    RemoteFile,
)
from medlive.evidence.files import room_for
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
from medlive.integrity.paths import create_below, path_below

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


@dataclass(frozen=True, slots=True)
class Part:
    """A half file below a corpus's folder: the bytes that came, with which the next attempt goes on."""

    root: Path
    name: str

    @property
    def path(self) -> Path:
        """Where the bytes are."""
        return path_below(self.root, self.name)

    @property
    def size(self) -> int:
        """How many came."""
        return self.path.stat().st_size if self.path.exists() else 0

    @contextmanager
    def appending(self, expected: int) -> "Iterator[BufferedWriter[FileIO]]":
        """Open it for the bytes to come. Raises DiskFull where `expected` bytes do not fit."""
        stats = os.statvfs(self.root)
        free = stats.f_bavail * stats.f_frsize
        if free < expected:
            raise DiskFull(
                f"{self.root} has {free} bytes free; {expected} are needed for {self.name}",
                hint="free space there, or name another folder with --to",
            )
        with (
            room_for(self.path),
            create_below(self.root, self.name, append=True) as file,
            BufferedWriter(file) as handle,
        ):
            yield handle


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
            with self._answer(url) as response:
                for block in response.iter_bytes(_BLOCK):
                    body += block
                    self._deadline.left(None)
                    if len(body) > LARGEST_PAGE:
                        raise FetchFailed(
                            f"{url} sent more than {LARGEST_PAGE} bytes; expected a list of files"
                        )
            return bytes(body)

        return self._retry(url, read).decode("utf-8", "replace")

    def download(
        self, file: RemoteFile, part: Part, largest: int, tick: Callable[[int], None]
    ) -> bool:
        """Complete a half file, and return whether its bytes came in more than one answer.

        Bytes that are there are not asked for again, whatever version of the file they are of.

        Args:
            file: What is fetched.
            part: Where its bytes go.
            largest: The most bytes that are taken.
            tick: Gets the bytes that are there so far.

        Raises:
            FetchFailed: if the file cannot be fetched, or is no such file.
            DiskFull: if it does not fit.
        """
        until = time.monotonic() + self._settings.file_s

        def append() -> bool:
            resumed = part.size > 0
            self._append(file, part, largest, tick, until)
            return resumed

        return self._retry(file.url, append, lambda: part.size)

    def _append(
        self,
        file: RemoteFile,
        part: Part,
        largest: int,
        tick: Callable[[int], None],
        until: float,
    ) -> None:
        size = part.size
        headers = {"Range": f"bytes={size}-"} if size else {}
        with self._answer(file.url, headers) as response:
            self._deadline.begin(inf)  # the blocks below have a limit of their own
            if response.status_code == 416:
                return  # Nothing is left to come
            if response.status_code == 206 and not _continues(response, size):
                part.path.unlink(missing_ok=True)
                raise _Temporary("the host answered with another part of the file")
            if response.status_code == 200:
                part.path.unlink(missing_ok=True)
                size = 0
            left = _length(response)
            if size + left > largest:
                part.path.unlink(missing_ok=True)
                raise FetchFailed(
                    f"{file.url} announces {size + left} bytes; expected at most {largest}"
                )
            with part.appending(left) as handle:
                # As it comes: bytes that wait for a block to be full would be lost by a cut.
                for block in response.iter_raw():
                    if size == 0:
                        _check_beginning(file, block)
                    handle.write(block)
                    handle.flush()
                    size += len(block)
                    tick(size)
                    if size > largest:
                        part.path.unlink()
                        raise FetchFailed(
                            f"{file.url} sent more than {largest} bytes; it was left there"
                        )
                    if time.monotonic() > until:
                        raise FetchFailed(
                            f"{file.url} took more than {self._settings.file_s:.0f} s",
                            hint="the bytes are kept; run the same command again",
                        )

    @contextmanager
    def _answer(
        self, url: str, headers: Mapping[str, str] = {}
    ) -> Iterator[httpx2.Response]:
        """Yield the successful answer at the end of the redirects, its body unread; a page's time begins."""
        for _ in range(_MOST_REDIRECTS + 1):
            host = self._check_host(url)
            time.sleep(max(0.0, self._free_at.get(host, 0.0) - time.monotonic()))
            self._deadline.begin(self._settings.page_s)
            try:
                with self._client.stream("GET", url, headers=headers) as response:
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


def _continues(response: httpx2.Response, size: int) -> bool:
    """Whether a partial answer begins behind so many bytes."""
    stated = str(response.headers.get("content-range", ""))
    return stated.startswith(f"bytes {size}-")


def _length(response: httpx2.Response) -> int:
    """The bytes that are announced; 0 without a word on them."""
    text = response.headers.get("content-length", "")
    return int(text) if text.isdecimal() else 0


def _addresses(host: str, port: int) -> list[str]:
    """The addresses of a publisher's host, all public; those of this machine only by its own names."""
    try:
        return public_addresses(host, port, allow_loopback=_is_loopback(host))
    except AddressRefused as exc:
        hint = "a copy in the own network is named under [evidence.mirrors]"
        raise FetchFailed(exc.message, hint=hint) from exc


def _is_loopback(host: str) -> bool:
    return is_loopback(urlsplit(f"//{host}").hostname or "")
