"""Archive fetched pages in WARC 1.1 files, and read them from there (`read_page`, `pages`).

`ArchiveWriter` writes a file once; `seal` truncates it after a kill; `erase` copies it without some pages. One record
is one gzip member, so that a page can be read without the pages before it. Bodies are stored decompressed, as the
parser read them: Content-Encoding and Transfer-Encoding are dropped, and Content-Length is the stored body's, as WARC
1.1 requires.
"""

import base64
import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import responses
from math import inf
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from warcio.recordbuilder import RecordBuilder
from warcio.statusandheaders import (
    StatusAndHeaders,
    StatusAndHeadersParser,
    StatusAndHeadersParserException,
)

from medlive.clock import now
from medlive.errors import MedliveError
from medlive.guard.bounds import RECORD_BYTES
from medlive.integrity.folder import sync
from medlive.integrity.paths import open_plain

from .ledger import Place
from .source import Fetched

_COMPRESSION = 1
"""The gzip level. On real forum pages of 36 KB, one core: level 1 gives 9.5 KB at about 1,700 pages/s, level 6
8.1 KB at 940. The harvest's speed is worth a seventh of the disk."""
_VERSION = "WARC/1.1"
_BLOCK = 64 * 1024
_URL_HEADER = "WARC-X-Medlive-URL"
"""The requested address as a JSON string, if WARC-Target-URI cannot express it."""
_FORM_HEADER = "WARC-X-Medlive-Form"
"""The form that was posted to get the page, as a JSON list of its fields."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_NOT_STORED = frozenset({"content-encoding", "transfer-encoding", "content-length"})
_PRINTABLE = "".join(
    chr(code) for code in range(0x21, 0x7F) if chr(code) not in '<>"\\^`{|}'
)


class ArchiveDamaged(MedliveError):
    """An archive file is damaged."""

    def __init__(self, path: Path, message: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: {message}",
            hint="restore the file from a backup; pages that are lost must be fetched again",
        )


class ArchiveWriter:
    """Writes one archive file until it is closed. One file has one writer, used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        *,
        software: str,
        operator: str | None,
        created_at: datetime | None = None,
    ) -> None:
        """Create the file and its folder; its first record names the program, its operator and the time.

        Raises FileExistsError.
        """
        fields = {
            "software": software,
            "operator": operator,
            "format": "WARC File Format 1.1",
            "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
            "description": "Response bodies are stored decompressed, as they were read.",
        }
        lines = []
        for name, value in fields.items():
            if value:
                lines.append(f"{name}: {_CONTROLS.sub(' ', value)}\r\n")
        content = "".join(lines).encode("utf-8", "replace")
        moment = _moment(created_at or now())
        about = {"WARC-Date": moment}
        first = _member("warcinfo", moment + _digest(content), about, content)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a buffer, which would be written again, and fail again, when the file is closed.
        self._file: io.FileIO = path.open("xb", buffering=0)
        try:
            self._write(first)
            _sync(self._file)
            sync(path.parent)
        except BaseException:
            self._file.close()
            path.unlink()
            raise
        self.size = self._file.tell()
        """Bytes that are safely on the disk; `seal` cuts off what is behind them after a kill."""

    def append(self, pages: Sequence[Fetched]) -> list[Place]:
        """Store pages and flush them to the disk; return their places.

        If writing fails (a full disk), the file is truncated to `size` and the error raised.
        """
        places = []
        offset = self.size
        try:
            for page in pages:
                member = _page_member(page)
                places.append(Place(offset, len(member)))
                self._write(member)
                offset += len(member)
            _sync(self._file)
        except BaseException:
            self._file.seek(self.size)
            self._file.truncate()
            raise
        self.size = offset
        return places

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]

    def close(self) -> None:
        """Close the file; every appended page is already on the disk."""
        self._file.close()


def read_page(path: Path, place: Place) -> Fetched:
    """Read the page at a place and check its digests. Raises ArchiveDamaged."""
    with _opened(path) as file:
        record = next(_records(path, file, place.offset), None)
    if record is None or record.place != place or record.kind != "response":
        raise ArchiveDamaged(
            path, f"no page of {place.length} bytes at offset {place.offset}"
        )
    return _page(path, record)


def pages(
    path: Path,
    size: int | None = None,
) -> Iterator[tuple[Place, Fetched]]:
    """Iterate over the pages in the first `size` bytes of a file (None: all), with their places.

    Raises ArchiveDamaged if a record does not match its digest, or the file is shorter than `size`.
    """
    with _opened(path) as file:
        for record in _records(path, file, 0, size):
            if record.kind == "response":
                yield record.place, _page(path, record)


def seal(path: Path, size: int) -> None:
    """Cut off what a kill left after the first `size` bytes. Raises ArchiveDamaged for a file that is shorter."""
    try:
        with path.open("r+b") as file:
            end = file.seek(0, os.SEEK_END)
            if end < size:
                raise ArchiveDamaged(path, f"has {end} bytes, expected {size}")
            file.truncate(size)
            _sync(file)
    except OSError as error:
        raise ArchiveDamaged(path, f"cannot be read: {error}") from error


def erase(
    path: Path,
    target: Path,
    places: Collection[Place],
) -> dict[Place, Place]:
    """Copy a file without some pages; return old places → new places of the others.

    Records are copied unchanged and checked. The caller replaces `path` by `target`. Raises FileExistsError, and
    ArchiveDamaged for a damaged record or a place without a page; `target` is removed then.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    moved: dict[Place, Place] = {}
    erased = set(places)
    with target.open("xb") as copy:
        try:
            with _opened(path) as file:
                for record in _records(path, file, 0):
                    is_page = record.kind == "response"
                    if is_page and record.place in erased:
                        erased.remove(record.place)
                        continue
                    if is_page:
                        moved[record.place] = Place(copy.tell(), len(record.member))
                    copy.write(record.member)
            if erased:
                first = min(place.offset for place in erased)
                raise ArchiveDamaged(path, f"no page to erase at offset {first}")
            _sync(copy)
            sync(target.parent)
        except BaseException:
            target.unlink()
            raise
    return moved


class _Record(NamedTuple):
    """A record whose digest was checked."""

    place: Place
    kind: str  # WARC-Type
    member: bytes  # The whole record, packed
    headers: StatusAndHeaders
    block: bytes  # Its content behind the headers


def _page(path: Path, record: _Record) -> Fetched:
    """Parse the page of a response record."""
    header = record.headers.get_header
    spelt, posted = header(_URL_HEADER), header(_FORM_HEADER)
    try:
        head = StatusAndHeadersParser(["HTTP/1.1"]).parse(io.BytesIO(record.block))
        url = json.loads(spelt) if spelt else header("WARC-Target-URI")
        if not isinstance(url, str):
            raise ValueError("its address is not a text")
        headers = dict(head.headers)
        headers.pop("content-length", None)
        return Fetched(
            url=url,
            status=int(head.get_statuscode()),
            headers=headers,
            body=record.block.partition(b"\r\n\r\n")[2],
            fetched_at=datetime.fromisoformat(header("WARC-Date")),
            form=tuple(map(tuple, json.loads(posted))) if posted else None,
        )
    except (ValueError, TypeError, EOFError, RecursionError) as error:
        raise ArchiveDamaged(
            path, f"no page at offset {record.place.offset}: {error}"
        ) from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open an archive file; errors of the system are raised as ArchiveDamaged."""
    try:
        with io.BufferedReader(open_plain(path)) as file:
            yield file
    except OSError as error:
        raise ArchiveDamaged(path, f"cannot be read: {error}") from error


def _records(
    path: Path,
    file: BinaryIO,
    offset: int,
    size: int | None = None,
) -> Iterator[_Record]:
    """Iterate over the records from an offset on, to offset `size` or to the end. Raises ArchiveDamaged."""
    file.seek(offset)
    rest = b""
    end = inf if size is None else size
    while offset < end and (rest := rest or file.read(_BLOCK)):
        packed = bytearray()
        content = bytearray()
        member = zlib.decompressobj(31)
        while not member.eof:
            chunk = rest or file.read(_BLOCK)
            cause: object = None if chunk else "is cut off"
            try:
                content += member.decompress(chunk, RECORD_BYTES + 1 - len(content))
            except zlib.error as error:
                cause = f"is broken: {error}"
            if len(content) > RECORD_BYTES:
                cause = f"unpacks to more than {RECORD_BYTES} bytes"
            if cause:
                raise ArchiveDamaged(path, f"the record at offset {offset} {cause}")
            rest = member.unused_data
            packed += chunk[: len(chunk) - len(rest)]
        place = Place(offset, len(packed))
        yield _parse_record(path, place, bytes(packed), bytes(content))
        offset += len(packed)
    if size is not None and offset != end:
        raise ArchiveDamaged(
            path, f"its records end at {offset} bytes, expected {size}"
        )


def _parse_record(
    path: Path,
    place: Place,
    member: bytes,
    content: bytes,
) -> _Record:
    """Parse an unpacked member and check its digest. Raises ArchiveDamaged."""
    stream = io.BytesIO(content)
    try:
        headers = StatusAndHeadersParser([_VERSION]).parse(stream)
        block = stream.read(int(headers.get_header("Content-Length")))
    except (
        StatusAndHeadersParserException,
        EOFError,
        ValueError,
        TypeError,
    ) as error:
        raise ArchiveDamaged(
            path, f"no record at offset {place.offset}: {error}"
        ) from error
    if headers.get_header("WARC-Block-Digest") != _digest(block):
        raise ArchiveDamaged(
            path, f"the record at offset {place.offset} does not match its digest"
        )
    kind = str(headers.get_header("WARC-Type"))
    return _Record(place, kind, member, headers, block)


def _digest(data: bytes) -> str:
    """Return the digest that WARC readers expect, SHA-1 in base 32 (the database has SHA-256)."""
    raw = hashlib.sha1(data, usedforsecurity=False).digest()
    return f"sha1:{base64.b32encode(raw).decode('ascii')}"


def _page_member(page: Fetched) -> bytes:
    """Build a page's response record, a gzip member."""
    moment = _moment(page.fetched_at)
    address = quote(page.url, safe=_PRINTABLE, errors="surrogatepass")
    digest = _digest(page.body)
    identity = [page.url, moment, page.status, digest, page.form]
    about = {"WARC-Date": moment, "WARC-Target-URI": address}
    if address != page.url:
        about[_URL_HEADER] = json.dumps(page.url)
    if page.form is not None:
        about[_FORM_HEADER] = json.dumps(page.form)
    about["WARC-Payload-Digest"] = digest
    phrase = responses.get(page.status, "Unknown")
    lines = [f"HTTP/1.1 {page.status} {phrase}"]
    for name, value in page.headers.items():
        if name not in _NOT_STORED:
            lines.append(f"{name}: {_CONTROLS.sub(' ', value).strip()}")
    lines.append(f"content-length: {len(page.body)}\r\n\r\n")
    head = "\r\n".join(lines).encode("utf-8", "replace")
    return _member("response", json.dumps(identity), about, head + page.body)


def _member(
    kind: str,
    identity: str,
    about: Mapping[str, str],
    block: bytes,
) -> bytes:
    """Build a gzip member without time or name, so that equal records are equal bytes."""
    fields = [
        ("WARC-Type", kind),
        ("WARC-Record-ID", f"<{uuid5(NAMESPACE_URL, identity).urn}>"),
        *about.items(),
        ("WARC-Block-Digest", _digest(block)),
        ("Content-Type", RecordBuilder.WARC_RECORDS[kind]),
        ("Content-Length", str(len(block))),
    ]
    headers = StatusAndHeaders("", fields, protocol=_VERSION).to_bytes()
    pack = zlib.compressobj(_COMPRESSION, zlib.DEFLATED, 31)
    return pack.compress(headers + block + b"\r\n\r\n") + pack.flush()


def _moment(moment: datetime) -> str:
    return (
        moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )


def _sync(file: BinaryIO | io.FileIO) -> None:
    """Flush a file to the disk."""
    file.flush()
    os.fsync(file.fileno())
