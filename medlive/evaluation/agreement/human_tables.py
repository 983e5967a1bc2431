"""Read tables of ratings as rows: CSV as saved by spreadsheets, JSON Lines, or JSON."""

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
_NAMES: Final = {"utf-16": "UTF-16", "utf-8-sig": "UTF-8", "gb18030": "GB18030"}
_DELIMITERS: Final = ",;\t"

MOST_FAULTS: Final = 5
"""How many faults an error message lists; the others are counted."""

Fault = Callable[[int, str], None]
"""Called with a line number and what is wrong there."""


def list_faults(faults: Sequence[str]) -> str:
    """The first faults and the number of others, for an error message."""
    more = len(faults) - MOST_FAULTS
    return "; ".join(faults[:MOST_FAULTS]) + (f"; and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table, with its first line, or its position in a JSON array."""

    line: int
    values: Mapping[str, Any]


def read_bytes(path: Path) -> bytes:
    """A file's bytes. Raises BadInput when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc


def encoding_of(data: bytes) -> str | None:
    """Detect a file's encoding: "utf-16", "utf-8-sig" or "gb18030"; None if it is none of these.

    Spreadsheets on Chinese systems save GB18030. It never treats a delimiter or line end as part of a character,
    so columns stay intact even if another encoding is taken for it.
    """
    candidates = ("utf-16",) if data.startswith(_UTF16) else ("utf-8-sig", "gb18030")
    for name in candidates:
        try:
            data.decode(name)
        except UnicodeDecodeError:
            continue
        return name
    return None


def decode_text(data: bytes, name: str) -> str:
    """Decode a file's text. Raises BadInput if it is empty or in an unsupported encoding."""
    if data.startswith(_ARCHIVE):
        raise BadInput(f"{name} is a workbook or an archive, expected text", hint='save the sheet as "CSV UTF-8"')
    encoding = encoding_of(data) or ("utf-16" if data.startswith(_UTF16) else "utf-8-sig")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise BadInput(
            f"{name}: line {line}: not valid {_NAMES[encoding]}", hint='save the file as "CSV UTF-8"'
        ) from exc
    if not text.strip():
        raise BadInput(f"{name} is empty")
    return text


def json_rows(text: str, fault: Fault) -> Iterator[Row]:
    """Yield the objects of JSON Lines; other lines are faults."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as exc:
            fault(number, f"not valid JSON: {str(exc)[:80]}")
            continue
        if isinstance(value, dict):
            yield Row(number, value)
        else:
            fault(number, f"expected an object, found a {type(value).__name__}")


def json_document(text: str) -> list[Any] | None:
    """The entries of a JSON document: an array, an object with an array `ratings`, or one object.

    None if the text is not one JSON document, such as JSON Lines.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        inner = value.get("ratings")
        return inner if isinstance(inner, list) else [value]
    return value if isinstance(value, list) else None


def entries(values: Sequence[Any], fault: Fault) -> Iterator[Row]:
    """Yield the objects of an array, counted from 1; other entries are faults."""
    for number, value in enumerate(values, start=1):
        if isinstance(value, dict):
            yield Row(number, value)
        else:
            fault(number, f"expected an object, found a {type(value).__name__}")


def csv_rows(
    text: str, name: str, needed: Sequence[Sequence[str]] = (("case_id",), ("rater",)), *, fold: bool = True
) -> Iterator[Row]:
    """Yield the rows of CSV, without empty lines and a spreadsheet's first line `sep=;`.

    Args:
        text: The file's text.
        name: The file's name, for messages.
        needed: Groups of columns; one column of each group must exist.
        fold: Whether column names are folded to lower case.

    Raises:
        BadInput: If a column is missing, a row has more fields than the header, or a quote is not closed.
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
    delimiter = max(_DELIMITERS, key=lambda d: (_count_columns(header, d, needed, fold), header.count(d)))
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    line = 1 + before
    try:
        columns = [_column_name(column, fold) for column in next(reader)]
        absent = [group[0] for group in needed if not set(group) & set(columns)]
        if absent:
            raise BadInput(
                f"{name}: line {line}: no column {', '.join(absent)}",
                hint=f"the columns are {', '.join(columns)[:200]}; {FORMAT_HINT}",
            )
        named = [column for column in columns if column]
        if len(set(named)) < len(named):
            raise BadInput(f"{name}: line {line}: two columns have the same name")
        line = reader.line_num + 1 + before
        for fields in reader:
            # Ignore trailing delimiters.
            if any(field.strip() for field in fields[len(columns) :]):
                raise BadInput(f"{name}: line {line}: {len(fields)} fields under {len(columns)} columns")
            if any(fields):
                yield Row(line, dict(zip(columns, fields, strict=False)))
            line = reader.line_num + 1 + before
    except csv.Error as exc:
        why = "a quote is not closed" if "unexpected end" in str(exc) else str(exc)
        raise BadInput(f"{name}: line {line}: {why}") from exc


def _column_name(column: str, fold: bool) -> str:
    return column.strip().lower() if fold else column.strip()


def _count_columns(header: str, delimiter: str, needed: Sequence[Sequence[str]], fold: bool) -> int:
    try:
        columns = {_column_name(c, fold) for c in next(csv.reader(io.StringIO(header), delimiter=delimiter), [])}
    except csv.Error:
        return 0
    return sum(1 for group in needed if columns & set(group))
