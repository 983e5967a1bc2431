"""Threads from import files (JSON Lines): each line becomes a thread, or a problem with its line and reason."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

from medlive.clock import parse_moment
from medlive.deidentify.detect import keyed_handle
from medlive.digest import digest_text
from medlive.errors import BadInput
from medlive.text.normalise import strip_unstorable
from medlive.threads.model import Message, Role, Thread

LINE_LIMIT: Final = 20_000_000
"""Bytes of the longest line that is read; a longer one is skipped and reported."""
_BLOCK: Final = 1 << 20
_EXCERPT: Final = 120
_SOURCE: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_MEDIA: Final = frozenset(("image", "video", "audio", "file"))
_LANGUAGES: Final = {
    "en": "en", "eng": "en", "english": "en", "zh": "zh", "zho": "zh", "chi": "zh", "cn": "zh", "chinese": "zh",
}  # fmt: skip


class ProblemReason(StrEnum):
    """Why a line became no thread."""

    NOT_JSON = "not_json"
    NOT_TEXT = "not_text"
    """The bytes are neither UTF-8 nor GB18030."""
    TOO_LONG = "too_long"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    BAD_ROLE = "bad_role"
    BAD_SOURCE = "bad_source"
    BAD_DATE = "bad_date"


class Note(StrEnum):
    """What was changed or assumed while a thread was read."""

    GB18030 = "decoded_as_gb18030"
    STRIPPED = "stripped_nul_or_surrogates"
    DATE_ASSUMED = "date_assumed"
    ZONE_ASSUMED = "zone_assumed_utc"
    ROLE_UNVERIFIED = "verified_without_physician_role"
    """`verified` on a message of another role: kept, and no advice is taken from it."""
    ID_MADE = "thread_id_made_from_content"
    OPENING_DOUBLED = "opening_repeats_title"


@dataclass(frozen=True, slots=True)
class ImportedThread:
    """A thread of a file: `line` counts from 1."""

    line: int
    thread: Thread
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """A line that is not a thread; `line` counts from 1."""

    line: int
    reason: ProblemReason
    detail: str
    excerpt: str
    """The beginning of the line, at most 120 characters, without control characters."""


class _Malformed(Exception):
    """A line is not a thread (internal to this module)."""

    def __init__(self, reason: ProblemReason, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(detail)


def _lines(handle: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a file with their numbers; None for one over the limit, which is read past in blocks."""
    number = 0
    while True:
        line = handle.readline(LINE_LIMIT + 2)
        if not line:
            return
        number += 1
        if len(line) > LINE_LIMIT and not line.endswith(b"\n"):
            while (rest := handle.readline(_BLOCK)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        else:
            yield number, line


def _decode(line: bytes) -> tuple[str, tuple[Note, ...]]:
    """Decode the line as UTF-8, or as GB18030 if it is not UTF-8.

    UTF-8 with a few broken bytes would decode as GB18030 into nonsense, so it is refused.
    """
    try:
        return line.decode("utf-8"), ()
    except UnicodeDecodeError as exc:
        broken_at = exc.start
    try:
        return line.decode("utf-8", "surrogatepass"), ()
    except UnicodeDecodeError:
        pass
    rough = line.decode("utf-8", "replace")
    broken = rough.count("\ufffd")
    intact = sum(not c.isascii() for c in rough) - broken
    if intact > 3 * broken:
        raise _Malformed(
            ProblemReason.NOT_TEXT, f"UTF-8 with {broken} broken places, the first at byte {broken_at}"
        )
    try:
        return line.decode("gb18030"), (Note.GB18030,)
    except UnicodeDecodeError as exc:
        raise _Malformed(ProblemReason.NOT_TEXT, f"neither UTF-8 nor GB18030 at byte {exc.start}") from exc


def _excerpt(line: bytes) -> str:
    text = line[: _EXCERPT * 4].decode("utf-8", "replace")
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+", " ", text)[:_EXCERPT].strip()


class _Reader:
    """Reads one line's fields, gathering notes."""

    def __init__(self, assume_posted_at: datetime | None, handle_key: bytes) -> None:
        self.assumed = assume_posted_at
        self.key = handle_key
        self.notes: list[Note] = []

    def note(self, note: Note) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def text(self, value: object, name: str, *, required: bool = True, default: str = "") -> str:
        if value is None:
            if required:
                raise _Malformed(ProblemReason.MISSING_FIELD, f"{name} is missing")
            return default
        if not isinstance(value, str):
            raise _Malformed(ProblemReason.WRONG_TYPE, f"{name} is {_type_name(value)}, not text")
        clean = strip_unstorable(value)
        if clean != value:
            self.note(Note.STRIPPED)
        return clean

    def moment(self, value: object, name: str) -> datetime | None:
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise _Malformed(ProblemReason.WRONG_TYPE, f"{name} is {_type_name(value)}, not an ISO 8601 text")
        try:
            bare = datetime.fromisoformat(value.strip())
            moment = parse_moment(value.strip()).astimezone(UTC)
        except (ValueError, OverflowError) as exc:
            raise _Malformed(ProblemReason.BAD_DATE, f"{name} is no ISO 8601 date: {value[:40]!r}") from exc
        if bare.tzinfo is None:
            self.note(Note.ZONE_ASSUMED)
        return moment

    def texts(self, value: object, name: str) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            raise _Malformed(ProblemReason.WRONG_TYPE, f"{name} is {_type_name(value)}, not a list")
        return tuple(t for i, item in enumerate(value) if (t := self.text(item, f"{name}[{i}]").strip()))

    def message(self, value: object, index: int) -> Message:
        name = f"messages[{index}]"
        if not isinstance(value, dict):
            raise _Malformed(ProblemReason.WRONG_TYPE, f"{name} is {_type_name(value)}, not an object")
        spelled = self.text(value.get("role"), f"{name}.role")
        try:
            role = Role(spelled.strip().lower())
        except ValueError as exc:
            raise _Malformed(ProblemReason.BAD_ROLE, f"{name}.role is {spelled[:40]!r}") from exc
        verified = value.get("verified", False)
        if verified is None:
            verified = False
        if not isinstance(verified, bool):
            raise _Malformed(
                ProblemReason.WRONG_TYPE, f"{name}.verified is {_type_name(verified)}, not true or false"
            )
        if verified and role is not Role.PHYSICIAN:
            self.note(Note.ROLE_UNVERIFIED)
        author = self.text(value.get("author"), f"{name}.author", required=False, default=role.value).strip()
        media = tuple(m.lower() for m in self.texts(value.get("media"), f"{name}.media"))
        return Message(
            id=f"m{index}",
            author=keyed_handle(author or role.value, self.key),
            role=role,
            verified=verified,
            text=self.text(value.get("text"), f"{name}.text", required=False),
            posted_at=self.moment(value.get("posted_at"), f"{name}.posted_at"),
            media=tuple(dict.fromkeys(m if m in _MEDIA else "file" for m in media)),
        )

    def thread(self, value: object) -> Thread:
        if not isinstance(value, dict):
            raise _Malformed(ProblemReason.NOT_AN_OBJECT, f"expected an object, found {_type_name(value)}")
        source = self.text(value.get("source"), "source").strip().lower()
        if not _SOURCE.fullmatch(source):
            raise _Malformed(ProblemReason.BAD_SOURCE, f"source is {source[:40]!r}, not a short lower-case name")
        messages = value.get("messages")
        if messages is None:
            messages = []
        if not isinstance(messages, list):
            raise _Malformed(ProblemReason.WRONG_TYPE, f"messages is {_type_name(messages)}, not a list")
        read = tuple(self.message(m, i) for i, m in enumerate(messages))
        language = self.text(value.get("language"), "language", required=False).strip().lower()
        posted_at = self.moment(value.get("posted_at"), "posted_at")
        if posted_at is None and self.assumed is not None:
            posted_at = self.assumed
            self.note(Note.DATE_ASSUMED)
        thread = Thread(
            source=source,
            thread_id=self._identity(value.get("thread_id")),
            url=self.text(value.get("url"), "url", required=False).strip(),
            title=self.text(value.get("title"), "title", required=False).strip(),
            language=_LANGUAGES.get(re.split("[-_]", language)[0]) or language or None,
            tags=self.texts(value.get("tags"), "tags"),
            posted_at=posted_at,
            messages=read,
        )
        if len(read) > 1 and read[0].text.strip() == thread.title and read[1].author == read[0].author:
            self.note(Note.OPENING_DOUBLED)
        if not thread.thread_id:
            self.note(Note.ID_MADE)
            content = digest_text(thread.digest + source).removeprefix("sha256:")[:16]
            thread = replace(thread, thread_id=f"made-{content}")
        return thread

    def _identity(self, value: object) -> str:
        """A thread's own id; a whole number is taken as its digits."""
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.text(value, "thread_id", required=False).strip()


def _type_name(value: object) -> str:
    return {
        "dict": "an object", "list": "a list", "str": "text", "int": "a number", "float": "a number",
        "bool": "true or false", "NoneType": "null",
    }.get(type(value).__name__, type(value).__name__)  # fmt: skip


def read_threads(
    path: Path, *, assume_posted_at: datetime | date | None = None, handle_key: bytes
) -> Iterator[ImportedThread | ImportProblem]:
    """The threads of an import file in its order, line by line; a bad line is a problem and stops nothing.

    `assume_posted_at` dates the threads that have no date (a plain date is midnight UTC). Authors become keyed
    hashes under `handle_key`, except role words. Empty lines and unknown keys are passed over; a future date and
    a thread without messages are kept for the filters to judge. BadInput where the file cannot be read.
    """
    assumed: datetime | None = None
    if isinstance(assume_posted_at, datetime):
        assumed = assume_posted_at if assume_posted_at.tzinfo else assume_posted_at.replace(tzinfo=UTC)
    elif assume_posted_at is not None:
        assumed = datetime(assume_posted_at.year, assume_posted_at.month, assume_posted_at.day, tzinfo=UTC)
    try:
        with path.open("rb") as handle:
            for number, line in _lines(handle):
                if line is None:
                    yield ImportProblem(number, ProblemReason.TOO_LONG, f"longer than {LINE_LIMIT} bytes", "")
                elif (item := _read_line(number, line, assumed, handle_key)) is not None:
                    yield item
    except OSError as exc:
        raise BadInput(f"cannot read {path.name}: {exc.strerror}") from exc


def _read_line(
    number: int, line: bytes, assumed: datetime | None, handle_key: bytes
) -> ImportedThread | ImportProblem | None:
    if number == 1:
        line = line.removeprefix(b"\xef\xbb\xbf")
    if not line.strip(b" \t\r\n\x00"):
        return None
    reader = _Reader(assumed, handle_key)
    try:
        text, notes = _decode(line)
        value: Any = _parse(text)
        thread = reader.thread(value)
    except _Malformed as problem:
        return ImportProblem(number, problem.reason, problem.detail, _excerpt(line))
    return ImportedThread(number, thread, (*notes, *reader.notes))


def _parse(text: str) -> Any:
    """JSON, with control characters allowed inside strings: real dumps hold raw tabs and NUL."""
    try:
        return json.loads(text.strip("\x00 \t\r\n"), strict=False)
    except (ValueError, RecursionError) as exc:
        detail = f"column {exc.colno}: {exc.msg}" if isinstance(exc, json.JSONDecodeError) else str(exc)
        raise _Malformed(ProblemReason.NOT_JSON, detail) from exc
