"""Tables that people keep, as rows: CSV as spreadsheets save it, JSON Lines, JSON."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from medlive.errors import BadInput

MOST_FIELD: Final = 64 * 1024 * 1024
FORMAT_HINT: Final = (
    "one row for each rating: case_id, criterion_id, rater, met, or case_id, rater, score; see docs/meta.md"
)
_ARCHIVE: Final = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_TOLD: Final = {"utf-16": "UTF-16", "utf-8-sig": "UTF-8", "gb18030": "GB18030"}
_DELIMITERS: Final = ",;\t"

Fault = Callable[[int, str], None]
"""Told the place and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table and where it begins: a line of text, or which entry of a JSON array."""

    line: int
    values: Mapping[str, Any]


def read_bytes(path: Path) -> bytes:
    """A file's bytes. Raises BadInput when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc


def encoding_of(data: bytes) -> str | None:
    """A file's encoding: "utf-16", "utf-8-sig" or "gb18030"; None where it can be read in none of these.

    GB18030 is what spreadsheets of Chinese systems save. It never takes a delimiter or a line's end for a part of
    a character, so that columns stay whole even where a Western file was taken for one.
    """
    candidates = ("utf-16",) if data.startswith(_UTF16) else ("utf-8-sig", "gb18030")
    for name in candidates:
        try:
            data.decode(name)
        except UnicodeDecodeError:
            continue
        return name
    return None


def decoded(data: bytes, name: str) -> str:
    """A file's text. Raises BadInput when it is empty or in no encoding that is read."""
    if data.startswith(_ARCHIVE):
        raise BadInput(f"{name} is a workbook or an archive, no text", hint='save the sheet as "CSV UTF-8"')
    encoding = encoding_of(data) or ("utf-16" if data.startswith(_UTF16) else "utf-8-sig")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise BadInput(f"{name}: line {line}: no {_TOLD[encoding]}", hint='save the file as "CSV UTF-8"') from exc
    if not text.strip():
        raise BadInput(f"{name} is empty")
    return text


def json_rows(text: str, fault: Fault) -> Iterator[Row]:
    """The objects of JSON Lines; a line that is none is a fault."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as exc:
            fault(number, f"no JSON: {str(exc)[:80]}")
            continue
        if isinstance(value, dict):
            yield Row(number, value)
        else:
            fault(number, f"a {type(value).__name__} and no object")


def json_document(text: str) -> list[Any] | None:
    """The entries of a file that is one JSON document: an array, an object with an array `ratings`, or one
    object; None where it is no JSON as a whole, as JSON Lines of several lines are none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        inner = value.get("ratings")
        return inner if isinstance(inner, list) else [value]
    return value if isinstance(value, list) else None


def entries(values: Sequence[Any], fault: Fault) -> Iterator[Row]:
    """The objects of an array, counted from 1; what is none is a fault."""
    for number, value in enumerate(values, start=1):
        if isinstance(value, dict):
            yield Row(number, value)
        else:
            fault(number, f"a {type(value).__name__} and no object")


def csv_rows(
    text: str, name: str, needed: Sequence[Sequence[str]] = (("case_id",), ("rater",)), *, fold: bool = True
) -> Iterator[Row]:
    """The rows of CSV under its header, an empty line being none.

    `needed`: of each group of columns one must be there. `fold` names columns in small letters. A first line
    `sep=;`, as spreadsheets write it, is passed over. Raises BadInput when the header lacks a column, when a row
    has more fields than the header, and for a quote that is not closed: it would swallow the rows behind it.
    """
    csv.field_size_limit(MOST_FIELD)
    stream = io.StringIO(text, newline="")
    before = 0
    if text[:4].lower() == "sep=":
        stream.readline()
        before = 1
    begin = stream.tell()
    header = stream.readline()
    stream.seek(begin)
    delimiter = max(_DELIMITERS, key=lambda d: (_columns_met(header, d, needed, fold), header.count(d)))
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    line = 1 + before
    try:
        columns = [_folded(column, fold) for column in next(reader)]
        absent = [group[0] for group in needed if not set(group) & set(columns)]
        if absent:
            raise BadInput(
                f"{name}: line {line}: no column {', '.join(absent)}",
                hint=f"the columns are {', '.join(columns)[:200]}; {FORMAT_HINT}",
            )
        named = [column for column in columns if column]
        if len(set(named)) < len(named):
            raise BadInput(f"{name}: line {line}: two columns have one name")
        line = reader.line_num + 1 + before
        for fields in reader:
            # A trailing delimiter holds nothing.
            if any(field.strip() for field in fields[len(columns) :]):
                raise BadInput(f"{name}: line {line}: {len(fields)} fields under {len(columns)} columns")
            if any(fields):
                yield Row(line, dict(zip(columns, fields, strict=False)))
            line = reader.line_num + 1 + before
    except csv.Error as exc:
        told = "a quote is opened and not closed" if "unexpected end" in str(exc) else str(exc)
        raise BadInput(f"{name}: line {line}: {told}") from exc


def _folded(column: str, fold: bool) -> str:
    return column.strip().lower() if fold else column.strip()


def _columns_met(header: str, delimiter: str, needed: Sequence[Sequence[str]], fold: bool) -> int:
    try:
        columns = {_folded(c, fold) for c in next(csv.reader(io.StringIO(header), delimiter=delimiter), [])}
    except csv.Error:
        return 0
    return sum(1 for group in needed if columns & set(group))
