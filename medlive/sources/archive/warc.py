"""Archive fetched pages in WARC 1.1 files: written once, truncated after a kill, erased by copying.

One record is one gzip member, so that a page can be read without the pages before it. Bodies are stored
decompressed, as the parser read them: Content-Encoding and Transfer-Encoding are dropped, and Content-Length is
the stored body's, as WARC 1.1 requires.
"""

import base64
import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from uuid import NAMESPACE_URL, uuid5

from warcio.exceptions import ArchiveLoadFailed
from warcio.recordloader import ArcWarcRecordLoader
from warcio.statusandheaders import StatusAndHeaders, StatusAndHeadersParser
from warcio.warcwriter import WARCWriter

from medlive.clock import now
from medlive.errors import MedliveError

COMPRESSION = 1
"""The gzip level. On real forum pages of 36 KB, one core: level 1 gives 9.5 KB at about 1,700 pages/s, level 6
8.1 KB at 940, level 9 8.1 KB at 600. The harvest's speed is worth a seventh of the disk."""

_VERSION = "WARC/1.1"
_BLOCK = 64 * 1024
_URL_HEADER = "WARC-X-Medlive-URL"
"""The requested address as a JSON string, if WARC-Target-URI cannot express it."""
_RESPONSE_TYPE = "application/http; msgtype=response"
_REQUEST_TYPE = "application/http; msgtype=request"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_NOT_STORED = frozenset({"content-encoding", "transfer-encoding", "content-length"})
_PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '<>"\\^`{|}')


class ArchiveDamaged(MedliveError):
    """An archive file is damaged."""

    def __init__(self, path: Path, message: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: {message}", hint="restore the file from a backup; pages that are lost must be fetched again"
        )


@dataclass(frozen=True, slots=True)
class ArchivedPage:
    """A stored page."""

    url: str
    status: int
    """100 to 999."""
    headers: Mapping[str, str]
    """Stored with names in lower case and control characters in values as spaces, without invalid names,
    content-encoding, transfer-encoding and content-length."""
    body: bytes
    """Decompressed."""
    fetched_at: datetime
    """Aware; stored in UTC to the microsecond."""
    form: tuple[tuple[str, str], ...] | None = None
    """The form that was posted."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a page's response record in its file."""

    offset: int
    """Bytes before the record's gzip member."""
    length: int
    """Bytes of the member."""


class ArchiveWriter:
    """Writes one archive file; a context manager. One file has one writer, used by one thread at a time."""

    def __init__(
        self, path: Path, *, software: str, operator: str | None, created_at: datetime | None = None
    ) -> None:
        """Create the file and its folder, with a first record that names its writer.

        Args:
            path: A file that does not exist yet.
            software: The writing program, with its version.
            operator: Who runs it.
            created_at: The time of the first record; the present by default.

        Raises:
            FileExistsError: if the file exists.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file: BinaryIO = path.open("xb")
        try:
            self._file.write(_warcinfo(software, operator, created_at or now()))
            _sync(self._file)
            _sync_folder(path.parent)
        except BaseException:
            self._file.close()
            path.unlink()
            raise
        self.size = self._file.tell()
        """Bytes that are safely on the disk; `seal` cuts off what is behind them after a kill."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, pages: Sequence[ArchivedPage]) -> list[Place]:
        """Store pages and flush them to the disk; return their places.

        A posted page is followed by a request record with its form. If writing fails (a full disk), the file is
        truncated to `size` and the error raised.
        """
        places = []
        offset = self.size
        try:
            for page in pages:
                response, request = _page_members(page)
                places.append(Place(offset, len(response)))
                self._file.write(response)
                self._file.write(request)
                offset += len(response) + len(request)
            _sync(self._file)
        except BaseException:
            self._file.seek(self.size)
            self._file.truncate()
            raise
        self.size = offset
        return places

    def close(self) -> None:
        """Close the file; every appended page is already on the disk."""
        self._file.close()


def read_page(path: Path, place: Place) -> ArchivedPage:
    """Read the page at a place and check its digests. Raises ArchiveDamaged."""
    try:
        with path.open("rb") as file:
            records = _records(path, file, place.offset)
            record = next(records, None)
            if record is None or record.length != place.length or record.kind != "response":
                raise ArchiveDamaged(path, f"no page of {place.length} bytes at offset {place.offset}")
            page = record.page()
            if record.request_id is None:
                return page
            following = next(records, None)
    except OSError as error:
        raise ArchiveDamaged(path, f"cannot be read: {error}") from error
    if following is None or following.id != record.request_id:
        raise ArchiveDamaged(path, f"the form of the page at offset {place.offset} is missing")
    return ArchivedPage(page.url, page.status, page.headers, page.body, page.fetched_at, following.form())


def pages(path: Path, size: int | None = None) -> Iterator[tuple[Place, ArchivedPage]]:
    """Iterate over the pages in the first `size` bytes of a file (None: all), with their places.

    Raises:
        ArchiveDamaged: if a record does not match its digest, or the file is shorter than `size`.
    """
    end = 0
    pending: tuple[Place, ArchivedPage, str | None] | None = None
    try:
        with path.open("rb") as file:
            for record in () if size == 0 else _records(path, file, 0):
                end = record.offset + record.length
                if pending is not None:
                    place, page, request_id = pending
                    if request_id is not None and record.id == request_id:
                        page = replace(page, form=record.form())
                    yield place, page
                    pending = None
                if record.kind == "response":
                    pending = Place(record.offset, record.length), record.page(), record.request_id
                if size is not None and end >= size:
                    break
    except OSError as error:
        raise ArchiveDamaged(path, f"cannot be read: {error}") from error
    if pending is not None:
        yield pending[0], pending[1]
    if size is not None and end != size:
        raise ArchiveDamaged(path, f"its records end at {end} bytes, expected {size}")


def seal(path: Path, size: int) -> None:
    """Truncate a file to `size` bytes, to remove a write that a kill left unfinished.

    Raises:
        ArchiveDamaged: if the file is missing or shorter.
    """
    try:
        with path.open("r+b") as file:
            found = file.seek(0, os.SEEK_END)
            if found < size:
                raise ArchiveDamaged(path, f"has {found} bytes, expected {size}")
            if found > size:
                file.truncate(size)
                _sync(file)
    except OSError as error:
        raise ArchiveDamaged(path, f"cannot be opened: {error}") from error


def erase(path: Path, target: Path, places: Collection[Place]) -> dict[Place, Place]:
    """Copy a file without some pages and their request records; return old places → new places of the others.

    Records are copied unchanged and checked. The caller replaces `path` by `target`.

    Raises:
        ArchiveDamaged: for a damaged record, or a place without a page; `target` is removed.
        FileExistsError: if `target` exists.
    """
    remaining = set(places)
    moved: dict[Place, Place] = {}
    dropped_request: str | None = None
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as copy:
        try:
            with path.open("rb") as file:
                for record in _records(path, file, 0):
                    place = Place(record.offset, record.length)
                    if record.kind == "response" and place in remaining:
                        remaining.remove(place)
                        dropped_request = record.request_id
                        continue
                    if record.kind == "request" and record.id == dropped_request:
                        continue
                    if record.kind == "response":
                        moved[place] = Place(copy.tell(), record.length)
                    copy.write(record.member)
            if remaining:
                missing = min(place.offset for place in remaining)
                raise ArchiveDamaged(path, f"no page to erase at offset {missing}")
            _sync(copy)
            _sync_folder(target.parent)
        except BaseException as error:
            target.unlink()
            if isinstance(error, OSError):
                raise ArchiveDamaged(path, f"cannot be copied to {target}: {error}") from error
            raise
    return moved


def verify(path: Path) -> int:
    """Check every record of a file against its digest; return their number. Raises ArchiveDamaged."""
    try:
        with path.open("rb") as file:
            return sum(1 for _ in _records(path, file, 0))
    except OSError as error:
        raise ArchiveDamaged(path, f"cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class _Record:
    path: Path
    offset: int
    member: bytes
    headers: StatusAndHeaders
    block: bytes
    head_length: int

    @property
    def length(self) -> int:
        return len(self.member)

    @property
    def kind(self) -> str:
        return str(self.headers.get_header("WARC-Type", ""))

    @property
    def id(self) -> str | None:
        return self._field("WARC-Record-ID")

    @property
    def request_id(self) -> str | None:
        """The id of the following record, with the posted form."""
        return self._field("WARC-Concurrent-To")

    def _field(self, name: str) -> str | None:
        value = self.headers.get_header(name)
        return None if value is None else str(value)

    def page(self) -> ArchivedPage:
        """Parse the page of a response record, without its form."""
        try:
            head = StatusAndHeadersParser(["HTTP/1.1"]).parse(io.BytesIO(self.block))
            original_url = self.headers.get_header(_URL_HEADER)
            return ArchivedPage(
                url=self.headers.get_header("WARC-Target-URI")
                if original_url is None
                else json.loads(original_url),
                status=int(head.get_statuscode()),
                headers={name: value for name, value in head.headers if name != "content-length"},
                body=self.block[self.head_length :],
                fetched_at=datetime.fromisoformat(self.headers.get_header("WARC-Date")),
            )
        except (ValueError, TypeError, EOFError) as error:
            raise ArchiveDamaged(self.path, f"no page at offset {self.offset}: {error}") from error

    def form(self) -> tuple[tuple[str, str], ...]:
        """Parse the form of a request record."""
        try:
            posted = self.block[self.head_length :].decode("ascii")
            return tuple(parse_qsl(posted, keep_blank_values=True, errors="surrogatepass"))
        except ValueError as error:
            raise ArchiveDamaged(self.path, f"no form at offset {self.offset}: {error}") from error


def _records(path: Path, file: BinaryIO, offset: int) -> Iterator[_Record]:
    """Iterate over the records from an offset on. Raises ArchiveDamaged."""
    file.seek(offset)
    rest = b""
    while True:
        packed = bytearray()
        unpacked: list[bytes] = []
        member = zlib.decompressobj(31)
        while not member.eof:
            chunk = rest or file.read(_BLOCK)
            rest = b""
            if not chunk:
                if packed:
                    raise ArchiveDamaged(path, f"the record at offset {offset} is cut off")
                return
            try:
                unpacked.append(member.decompress(chunk))
            except zlib.error as error:
                raise ArchiveDamaged(path, f"the record at offset {offset} is broken: {error}") from error
            rest = member.unused_data
            packed += chunk[: len(chunk) - len(rest)]
        record = _parse_record(path, offset, bytes(packed), b"".join(unpacked))
        yield record
        offset += record.length


def _parse_record(path: Path, offset: int, member: bytes, content: bytes) -> _Record:
    """Parse an unpacked member and check its digest. Raises ArchiveDamaged."""
    try:
        raw = ArcWarcRecordLoader().parse_record_stream(
            io.BytesIO(content), known_format="warc", no_record_parse=True
        )
        declared = int(raw.rec_headers.get_header("Content-Length"))
        block = raw.raw_stream.read()
    except (ArchiveLoadFailed, EOFError, ValueError, TypeError, AttributeError) as error:
        raise ArchiveDamaged(path, f"no record at offset {offset}: {error}") from error
    head_end = block.find(b"\r\n\r\n") + 4
    record = _Record(path, offset, member, raw.rec_headers, block, head_end if head_end > 3 else len(block))
    if len(block) != declared:
        raise ArchiveDamaged(path, f"the record at offset {offset} is cut off")
    if record.kind == "warcinfo":
        intact = raw.rec_headers.get_header("WARC-Block-Digest") == _digest(block)
    else:
        intact = raw.rec_headers.get_header("WARC-Payload-Digest") == _digest(block[record.head_length :])
    if not intact:
        raise ArchiveDamaged(path, f"the record at offset {offset} does not match its digest")
    return record


def _digest(data: bytes) -> str:
    """Return the digest that WARC readers expect, SHA-1 in base 32 (the database has SHA-256)."""
    return "sha1:" + base64.b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode("ascii")


def _page_members(page: ArchivedPage) -> tuple[bytes, bytes]:
    """Build a page's response record and its request record (b"" without a form), each a gzip member."""
    if page.fetched_at.tzinfo is None or not 100 <= page.status <= 999:
        raise ValueError("expected an aware time and a status of three digits")
    moment = page.fetched_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    address, original_url = _target(page.url)
    payload_digest = _digest(page.body)
    posted = None if page.form is None else urlencode(page.form, errors="surrogatepass").encode("ascii")
    identity = json.dumps([page.url, moment, page.status, payload_digest, None if posted is None else str(posted)])
    common = {"WARC-Date": moment, "WARC-Target-URI": address} | (
        {_URL_HEADER: original_url} if original_url else {}
    )

    request = b""
    concurrent: dict[str, str] = {}
    response_id = f"<{uuid5(NAMESPACE_URL, identity).urn}>"
    if posted is not None:
        request_id = f"<{uuid5(NAMESPACE_URL, identity + ' request').urn}>"
        concurrent = {"WARC-Concurrent-To": request_id}
        head = _head(_request_line(address), {"content-type": "application/x-www-form-urlencoded"}, len(posted))
        about = {"WARC-Record-ID": request_id, "WARC-Concurrent-To": response_id, **common}
        request = _member("request", _REQUEST_TYPE, about, head, posted, _digest(posted))
    headers = {_header_name(name): _CONTROLS.sub(" ", value).strip() for name, value in page.headers.items()}
    headers = {name: value for name, value in headers.items() if name and name not in _NOT_STORED}
    head = _head(_status_line(page.status), headers, len(page.body))
    about = {"WARC-Record-ID": response_id, **concurrent, **common}
    return _member("response", _RESPONSE_TYPE, about, head, page.body, payload_digest), request


def _warcinfo(software: str, operator: str | None, created_at: datetime) -> bytes:
    """Build the first record of a file."""
    moment = created_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    fields = {
        "software": software,
        "operator": operator,
        "format": "WARC File Format 1.1",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "description": "Response bodies are stored decompressed, as they were read.",
    }
    lines = [f"{name}: {_CONTROLS.sub(' ', value)}\r\n" for name, value in fields.items() if value]
    content = "".join(lines).encode("utf-8", "replace")
    identity = uuid5(NAMESPACE_URL, moment + _digest(content))
    about = {"WARC-Record-ID": f"<{identity.urn}>", "WARC-Date": moment}
    return _member("warcinfo", "application/warc-fields", about, b"", content, None)


def _member(
    kind: str, content_type: str, about: Mapping[str, str], head: bytes, body: bytes, payload_digest: str | None
) -> bytes:
    """Build a gzip member without time or name, so that equal records are equal bytes."""
    block = head + body
    # One digest a record: the page's own, and for the first record, which has none, the block's. The heads are
    # under the CRC-32 of their gzip member.
    digest = ("WARC-Payload-Digest", payload_digest) if payload_digest else ("WARC-Block-Digest", _digest(block))
    plain = io.BytesIO()
    writer = WARCWriter(plain, gzip=False, warc_version=_VERSION)
    # No address: with one, the HTTP head would be read again and its non-ASCII values rewritten.
    headers = StatusAndHeaders("", [("WARC-Type", kind), *about.items(), digest], protocol=_VERSION)
    record = writer.create_warc_record(
        "",
        kind,
        payload=io.BytesIO(block),
        length=len(block),
        warc_content_type=content_type,
        warc_headers=headers,
    )
    writer.write_record(record)
    pack = zlib.compressobj(COMPRESSION, zlib.DEFLATED, 31)
    return pack.compress(plain.getbuffer()) + pack.flush()


def _target(url: str) -> tuple[str, str | None]:
    """Return an address as a valid WARC-Target-URI, and as JSON if the two differ."""
    plain = quote(url, safe=_PRINTABLE, errors="surrogatepass")
    scheme, colon, rest = plain.partition(":")
    if colon and scheme.lower() in ("http", "https"):
        plain = scheme.lower() + colon + rest
    plain = plain or "about:blank"
    return plain, (json.dumps(url) if plain != url else None)


def _request_line(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return "POST / HTTP/1.1"
    return f"POST {parts.path or '/'}{'?' + parts.query if parts.query else ''} HTTP/1.1"


def _status_line(status: int) -> str:
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown"
    return f"HTTP/1.1 {status} {phrase}"


def _head(first_line: str, headers: Mapping[str, str], length: int) -> bytes:
    """Build an HTTP head; lone surrogates in values are replaced."""
    lines = [first_line, *(f"{name}: {value}" for name, value in headers.items()), f"content-length: {length}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "replace")


def _header_name(name: str) -> str:
    """Return a header's name in lower case; "" if it is not valid."""
    name = name.lower()
    return name if _TOKEN.fullmatch(name) else ""


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Flush a new file's name to the disk, where the system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
