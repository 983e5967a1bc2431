"""Read tables of ratings as rows: CSV as saved by spreadsheets, JSON Lines, or JSON."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from medlive.errors import BadInput

MOST_FAULTS: Final = 5
"""How many faults an error message lists; the others are counted."""
FORMAT_HINT: Final = (
    "one row for each rating: case_id, criterion_id, rater, met, or case_id, rater, score; see docs/meta.md"
)
_MOST_FIELD: Final = 64 * 1024 * 1024
_ARCHIVE: Final = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


@dataclass(slots=True)
class Table:
    """The rows of a file."""

    rows: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    """Each with its first line, or its position in a JSON array."""
    faults: list[tuple[int, str]] = field(default_factory=list)
    """What is not a row, likewise."""
    unit: str = "line"
    """What these numbers count: "line" or "entry"."""


def list_faults(faults: Sequence[str]) -> str:
    """The first faults and the number of others, for an error message."""
    more = len(faults) - MOST_FAULTS
    return "; ".join(faults[:MOST_FAULTS]) + (f"; and {more} more" if more > 0 else "")


def read_bytes(path: Path) -> bytes:
    """A file's bytes. Raises BadInput when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc


def decode_text(data: bytes, name: str) -> tuple[str, bool]:
    """A file's text, and whether it is GB18030, as spreadsheets on Chinese systems save it.

    GB18030 never treats a delimiter or line end as part of a character, so columns stay intact even if another
    encoding is taken for it. Raises BadInput if the file is empty or in an unsupported encoding.
    """
    if data.startswith(_ARCHIVE):
        raise BadInput(f"{name} is a workbook or an archive, expected text", hint='save the sheet as "CSV UTF-8"')
    encoding = "utf-16" if data.startswith(_UTF16) else "utf-8-sig"
    chinese = False
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as exc:
        try:
            text, chinese = data.decode("gb18030" if encoding == "utf-8-sig" else encoding), True
        except UnicodeDecodeError:
            line = data[: exc.start].count(b"\n") + 1
            label = encoding.removesuffix("-sig").upper()
            raise BadInput(f"{name}: line {line}: not valid {label}", hint='save the file as "CSV UTF-8"') from exc
    if not text.strip():
        raise BadInput(f"{name} is empty")
    return text, chinese


def read_table(text: str, name: str, needed: Sequence[str]) -> Table:
    """Read CSV, JSON Lines, or JSON: an array, an object with an array `ratings`, or one object.

    Args:
        text: The file's text.
        name: The file's name, for messages.
        needed: The columns that CSV must have, or their alternatives: "case_id|item".

    Raises:
        BadInput: If the CSV has no such column, a row with more fields than the header, or an open quote.
    """
    if not text.lstrip().startswith(("{", "[")):
        return Table(list(csv_rows(text, name, needed)))
    found = Table()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        values = list(_json_lines(text, found))
    else:
        if isinstance(value, dict):
            inner = value.get("ratings")
            value = inner if isinstance(inner, list) else [value]
        if len(value) != 1 or "\n" in text.strip():
            found.unit = "entry"
        values = list(enumerate(value, start=1))
    for number, row in values:
        if isinstance(row, dict):
            found.rows.append((number, row))
        else:
            found.faults.append((number, f"expected an object, found a {type(row).__name__}"))
    found.faults.sort()
    return found


def _json_lines(text: str, found: Table) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            if line.strip():
                yield number, json.loads(line)
        except (ValueError, RecursionError) as exc:
            found.faults.append((number, f"not valid JSON: {str(exc)[:80]}"))


def csv_rows(
    text: str, name: str, needed: Sequence[str], *, fold: bool = True
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of CSV, without empty lines and a spreadsheet's first line `sep=;`.

    Arguments and errors as for `read_table`; `fold` folds column names to lower case.
    """
    csv.field_size_limit(_MOST_FIELD)
    before = 1 if text[:4].lower() == "sep=" else 0
    header, known = "".join(text.split("\n")[before : before + 1]).lower(), "|".join(needed).lower().split("|")
    delimiter = max(",;\t", key=lambda d: sum(column.strip(' "\r') in known for column in header.split(d)))
    stream = io.StringIO(text, newline="")
    for _ in range(before):
        stream.readline()
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    line = 1 + before
    try:
        columns = [column.strip().lower() if fold else column.strip() for column in next(reader, [])]
        _check_columns(columns, needed, f"{name}: line {line}")
        line = reader.line_num + 1 + before
        for fields in reader:
            # Ignore trailing delimiters.
            if any(value.strip() for value in fields[len(columns) :]):
                raise BadInput(f"{name}: line {line}: {len(fields)} fields under {len(columns)} columns")
            if any(fields):
                yield line, dict(zip(columns, fields, strict=False))
            line = reader.line_num + 1 + before
    except csv.Error as exc:
        why = "a quote is not closed" if "unexpected end" in str(exc) else str(exc)
        raise BadInput(f"{name}: line {line}: {why}") from exc


def _check_columns(columns: Sequence[str], needed: Sequence[str], where: str) -> None:
    if absent := [one.split("|")[0] for one in needed if not set(one.split("|")) & set(columns)]:
        hint = f"the columns are {', '.join(columns)[:200]}; {FORMAT_HINT}"
        raise BadInput(f"{where}: no column {', '.join(absent)}", hint=hint)
    if len(set(columns) - {""}) < sum(map(bool, columns)):
        raise BadInput(f"{where}: two columns have the same name")
