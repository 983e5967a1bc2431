"""Read threads from import files (JSON Lines): each line becomes a thread or a problem (`read_threads`)."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from medlive.clock import parse_moment
from medlive.deidentify.detect import keyed_handle
from medlive.errors import BadInput, first_fault
from medlive.guard.bounds import IMPORT_LINE_BYTES, THREAD_ID_CHARS
from medlive.integrity.digest import digest_text
from medlive.integrity.folder import open_given
from medlive.text.normalise import strip_unstorable
from medlive.threads.model import Message, Role, Thread, is_thread_id

_BLOCK = 2**20
_EXCERPT = 120
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_MEDIA = frozenset(("image", "video", "audio", "file"))


ProblemReason = Literal["not_json", "too_long", "invalid"]
"""Why a line became no thread. `invalid`: a field is missing or has a value that is not allowed."""


@dataclass(frozen=True)
class ImportedThread:
    """A thread of a file: `line` counts from 1."""

    line: int
    thread: Thread
    date_assumed: bool
    """Whether it has no date of its own, and got `assume_posted_at`."""


@dataclass(frozen=True)
class ImportProblem:
    """A line that is not a thread; `line` counts from 1."""

    line: int
    reason: ProblemReason
    detail: str
    excerpt: str
    """The beginning of the line, at most 120 characters, without control characters."""


@dataclass(eq=False)
class _Malformed(Exception):
    """A line that is not a thread."""

    reason: ProblemReason
    detail: str


def _lowered(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _moment(value: object) -> object:
    """An ISO 8601 text as a time in UTC; one without a zone is taken as UTC, an empty one as None."""
    if not isinstance(value, str):
        return value
    try:
        return parse_moment(value.strip()).astimezone(UTC) if value else None
    except OverflowError as exc:
        raise ValueError(f"out of range: {value}") from exc


_Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
_Line = Annotated[_Text, StringConstraints(strip_whitespace=True)]
_listed = BeforeValidator(lambda value: [] if value is None else value)
_Lines = Annotated[list[_Line], _listed]
_Moment = Annotated[datetime | None, BeforeValidator(_moment)]


class _MessageLine(BaseModel):
    """A message of a line; unknown keys are passed over."""

    model_config = ConfigDict(strict=True)

    role: Annotated[Role, BeforeValidator(_lowered)]
    """patient, physician or other"""
    author: _Line = ""  # Stored as a keyed hash only
    verified: bool | None = None  # Whether the site shows a verified physician
    text: _Text = ""
    posted_at: _Moment = None
    media: _Lines = []  # image, video, audio, file


class _ThreadLine(BaseModel):
    """A line; unknown keys are passed over."""

    model_config = ConfigDict(strict=True)

    source: Annotated[
        str, BeforeValidator(_lowered), Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")
    ]
    """The community, in lower case."""
    thread_id: _Line | int = ""  # Unique within the source
    url: _Line = ""
    title: _Line = ""
    language: Annotated[_Line, BeforeValidator(_lowered)] = ""  # "en", "zh" or empty
    tags: _Lines = []
    posted_at: _Moment = None
    """ISO 8601; where it is missing, `--assume-posted-at` gives it."""
    messages: Annotated[list[_MessageLine], _listed] = []  # In order, the opening first


def read_threads(
    path: Path,
    *,
    assume_posted_at: datetime | None = None,
    handle_key: bytes,
) -> Iterator[ImportedThread | ImportProblem]:
    """The threads of an import file in its order, line by line; a bad line is a problem and stops nothing.

    `assume_posted_at` dates the threads that have no date. Authors become keyed hashes under `handle_key`, except
    role words. Empty lines and unknown keys are passed over; a future date and a thread without messages are kept for
    the filters to judge. Raises BadInput if the file cannot be read.
    """
    if assume_posted_at is not None:
        assume_posted_at = assume_posted_at.astimezone(UTC)
    number = 0
    try:
        with io.BufferedReader(open_given(path), _BLOCK) as handle:
            while line := handle.readline(IMPORT_LINE_BYTES + 2):
                number += 1
                if line.endswith(b"\n") or len(line) <= IMPORT_LINE_BYTES:
                    line = line.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n\x00")
                else:
                    # Of a line over the limit the rest is passed over.
                    while (rest := handle.readline(_BLOCK)) and rest[-1:] != b"\n":
                        pass
                if not line:
                    continue
                try:
                    parsed = _parse(line)
                    thread = _thread(parsed, assume_posted_at, handle_key)
                except _Malformed as problem:
                    text = line[: _EXCERPT * 4].decode("utf-8", "replace")
                    excerpt = _CONTROL.sub(" ", text)[:_EXCERPT].strip()
                    yield ImportProblem(number, problem.reason, problem.detail, excerpt)
                    continue
                has_date = parsed.posted_at is not None
                is_assumed = not has_date and assume_posted_at is not None
                yield ImportedThread(number, thread, is_assumed)
    except OSError as exc:
        raise BadInput(f"cannot read {path.name}: {exc.strerror}") from exc


def _parse(line: bytes) -> _ThreadLine:
    """Parse and check a line. Control characters are allowed inside strings: real dumps hold raw tabs and NUL."""
    if len(line) > IMPORT_LINE_BYTES:
        raise _Malformed("too_long", f"longer than {IMPORT_LINE_BYTES} bytes")
    try:
        # CESU-8 encodes each half of a surrogate pair by itself.
        text = line.decode("utf-8", "surrogatepass")
        value = _storable(json.loads(text, strict=False))
        return _ThreadLine.model_validate(value)
    except ValidationError as exc:
        raise _Malformed("invalid", first_fault(exc, "the line")) from exc
    except (ValueError, RecursionError) as exc:
        raise _Malformed("not_json", str(exc)) from exc


def _storable(value: Any) -> Any:
    """A JSON value with texts that PostgreSQL can store."""
    if isinstance(value, str):
        return strip_unstorable(value)
    if isinstance(value, list):
        return list(map(_storable, value))
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    return value


def _thread(line: _ThreadLine, assumed: datetime | None, key: bytes) -> Thread:
    """The thread of a line; without an id it gets one of its content. Raises _Malformed for an unusable id."""
    thread_id = str(line.thread_id)
    # In an address another id would lead to another thread's page.
    if thread_id and not is_thread_id(thread_id):
        detail = f"thread_id {thread_id[:100]!r}: expected at most {THREAD_ID_CHARS} printable characters"
        raise _Malformed("invalid", f"{detail}, no part of them . or ..")
    messages = []
    for position, shown in enumerate(line.messages):
        media: dict[str, None] = {}
        for kind in filter(None, map(str.lower, shown.media)):
            media[kind if kind in _MEDIA else "file"] = None
        message = Message(
            id=f"m{position}",
            author=keyed_handle(shown.author or shown.role, key),
            role=shown.role,
            verified=bool(shown.verified),
            text=shown.text,
            posted_at=shown.posted_at,
            media=tuple(media),
        )
        messages.append(message)
    language = re.split("[-_]", line.language)[0]
    thread = Thread(
        source=line.source,
        thread_id=thread_id,
        url=line.url,
        title=line.title,
        language=(language if language in ("en", "zh") else line.language) or None,
        tags=tuple(filter(None, line.tags)),
        posted_at=line.posted_at or assumed,
        messages=tuple(messages),
    )
    if thread_id:
        return thread
    content = digest_text(thread.digest + line.source).removeprefix("sha256:")[:16]
    return replace(thread, thread_id=f"made-{content}")
