"""Where published snapshots are fetched from: an address over HTTP, or a folder."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from urllib.parse import quote, urlsplit

from medlive.errors import BadInput, CheckFailed, ServiceUnavailable, UsageError

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

T = TypeVar("T")

_BLOCK: Final = 256 * 1024
_TRIES: Final = 6
_CONNECT_S: Final = 15
_SILENCE_S: Final = 60
"""Seconds without a byte after which a connection counts as lost."""
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

Got = Callable[[int], None]
"""Is told the number of bytes that came."""


class Origin(Protocol):
    """A place with published files under names."""

    async def read(self, name: str, most: int) -> bytes | None:
        """A small file's bytes; None when it is not there. Raises CheckFailed when it is longer than `most`."""

    async def save(self, name: str, path: Path, size: int, got: Got) -> None:
        """Put a file's bytes at `path`, behind those that are there already, until there are `size`.

        Raises BadInput when it is not there, and CheckFailed when it is longer or shorter.
        """


class FolderOrigin:
    """A folder, such as a mounted share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def read(self, name: str, most: int) -> bytes | None:
        """The file's bytes."""
        path = self._root / name
        if not path.is_file():
            return None
        with path.open("rb") as handle:
            data = handle.read(most + 1)
        if len(data) > most:
            raise too_long(name, most)
        return data

    async def save(self, name: str, path: Path, size: int, got: Got) -> None:
        """Copy the file's bytes."""
        source = self._root / name
        if not source.is_file():
            raise BadInput(f"{source} is not there")
        if source.stat().st_size != size:
            raise wrong_size(name, size)
        with source.open("rb") as data, path.open("ab") as out:
            data.seek(out.tell())
            while block := data.read(_BLOCK):
                out.write(block)
                got(len(block))


class WebOrigin:
    """An address over HTTP. What is lost on the way is asked for again, from where it stopped."""

    def __init__(self, session: "ClientSession", base: str, pause: float) -> None:
        """`pause`: seconds before a failed request is made again, doubled each time."""
        self._session, self._base, self._pause = session, base, pause

    async def read(self, name: str, most: int) -> bytes | None:
        """The file's bytes."""

        async def ask() -> bytes | None:
            async with self._get(name, {}) as answer:
                if answer.status == 404:
                    return None
                data = bytearray()
                async for block in answer.content.iter_chunked(_BLOCK):
                    data += block
                    if len(data) > most:
                        raise too_long(name, most)
                return bytes(data)

        return await self._patiently(name, ask)

    async def save(self, name: str, path: Path, size: int, got: Got) -> None:
        """Ask for the bytes that are lacking."""

        async def ask() -> None:
            there = length(path)
            if there == size:
                return
            async with self._get(name, {"Range": f"bytes={there}-"} if there else {}) as answer:
                if answer.status == 404:
                    raise BadInput(f"{self._base}{name} is not there")
                # 416: nothing is there behind what came, and yet it is not the whole.
                if answer.status == 416 or _total(answer) not in (None, size):
                    raise wrong_size(name, size)
                goes_on = answer.status == 206 and _start(answer) == (there or 0)
                if answer.status == 206 and not goes_on:
                    raise ServiceUnavailable(f"{self._base} sends another part of {name} than it was asked for")
                with path.open("ab" if goes_on else "wb") as out:
                    async for block in answer.content.iter_chunked(_BLOCK):
                        if out.tell() + len(block) > size:
                            raise wrong_size(name, size)
                        out.write(block)
                        got(len(block))
                    if out.tell() < size:
                        raise _Lost(f"only {out.tell()} of {size} bytes came")

        await self._patiently(name, ask)

    @asynccontextmanager
    async def _get(self, name: str, headers: dict[str, str]) -> "AsyncIterator[ClientResponse]":
        # Bytes as they lie there: a compressed answer has neither their number nor their ranges.
        asked = {"Accept-Encoding": "identity", **headers}
        async with self._session.get(self._base + quote(name), headers=asked) as answer:
            if answer.status in _PASSING:
                raise _Lost(f"HTTP {answer.status}")
            if answer.status not in (200, 206, 404, 416):
                raise ServiceUnavailable(
                    f"{self._base} answers with HTTP {answer.status} for {name}", hint="look at --from"
                )
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                raise ServiceUnavailable(f"{self._base} sends {name} compressed, though it was asked not to")
            yield answer

    async def _patiently(self, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        from aiohttp import ClientError

        said = ""
        for number in range(_TRIES):
            if number:
                await asyncio.sleep(self._pause * 2 ** (number - 1))
            try:
                return await ask()
            except (ClientError, TimeoutError, _Lost) as exc:
                said = str(exc) or type(exc).__name__
        raise ServiceUnavailable(
            f"{self._base} does not give {name}: {said}"[:500],
            hint="look at --from and the network; the same command goes on where this one stopped",
        )


class _Lost(Exception):
    """An answer came in part, or one that may be another next time."""


@asynccontextmanager
async def open_origin(source: str, pause: float = 1.0) -> AsyncIterator[Origin]:
    """The place that an http(s) address or a folder's path names. Raises UsageError."""
    if "://" not in source:
        yield _folder(source)
        return
    parts = urlsplit(source)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{source!r} is no address to fetch from", hint="write https://host/path")
    from aiohttp import ClientSession, ClientTimeout

    limits = ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENCE_S)
    async with ClientSession(timeout=limits, headers={"User-Agent": "medlive"}, auto_decompress=False) as session:
        yield WebOrigin(session, f"{source.rstrip('/')}/", pause)


def _folder(source: str) -> FolderOrigin:
    if not Path(source).is_dir():
        raise UsageError(f"{source} is no folder", hint="--from names a folder or an https:// address")
    return FolderOrigin(Path(source))


def length(path: Path) -> int | None:
    """A plain file's bytes; None where there is none."""
    return path.stat().st_size if path.is_file() and not path.is_symlink() else None


def too_long(name: str, most: int) -> CheckFailed:
    """The error that a small file is none."""
    return CheckFailed(f"{name} there is longer than {most} bytes", hint="this is no medlive snapshot")


def wrong_size(name: str, size: int) -> CheckFailed:
    """The error that a file has not the size that the manifest states."""
    return CheckFailed(f"{name} there has not the {size} bytes that the manifest states")


def _total(answer: "ClientResponse") -> int | None:
    """How many bytes the whole file has; None when the answer does not say."""
    if answer.status == 206:
        text = answer.headers.get("Content-Range", "").rpartition("/")[2]
        return int(text) if text.isascii() and text.isdigit() else None
    return answer.content_length


def _start(answer: "ClientResponse") -> int | None:
    """Where the bytes of a partial answer begin; None when it does not say."""
    kind, _, rest = answer.headers.get("Content-Range", "").partition(" ")
    first = rest.partition("-")[0]
    return int(first) if kind == "bytes" and first.isascii() and first.isdigit() else None
