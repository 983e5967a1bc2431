"""Tables that people and other programs wrote: CSV, JSON Lines and JSON, each row with its place."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from medlive.errors import BadInput
from medlive.integrity.log import some

Rows = Iterator[tuple[str, Mapping[str, Any] | str]]
"""(place, row) of each row of a file; for an invalid row (place, why it is invalid)."""


def decode_text(data: bytes, name: str) -> str:
    """A file's text. Raises BadInput if the file is empty, or not in UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise BadInput(
            f"{name} is not text in UTF-8",
            hint='unpack it, or save it as UTF-8; a sheet as "CSV UTF-8"',
        ) from exc
    if not text.strip():
        raise BadInput(f"{name} is empty")
    return text


def read_table(text: str, name: str, needed: Sequence[str]) -> Rows:
    """Read CSV, JSON Lines, or JSON: an array, or one object.

    Yields each row with its place ("line 7", or "entry 7" of an array), or instead of a row why it is invalid.
    `needed` are the columns that CSV must have; `name` is for messages.

    Raises:
        BadInput: If the CSV lacks a needed column, or has two of one name, a row with more fields than the header, or
            an open quote; or if the JSON array is cut off.
    """
    if not text.lstrip().startswith(("{", "[")):
        for line, row in csv_rows(text, name, needed):
            yield f"line {line}", row
        return
    for place, entry in _json_entries(text, name):
        if isinstance(entry, ValueError):
            yield place, str(entry)
        elif isinstance(entry, dict):
            yield place, entry
        else:
            yield place, f"expected an object, found a {type(entry).__name__}"


def _json_entries(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """The entries of JSON or JSON Lines with their places; in place of one that cannot be parsed the ValueError.

    Raises BadInput for an array that cannot be parsed.
    """
    value = _json(text)
    if not isinstance(value, ValueError):
        values = value if isinstance(value, list) else [value]
        for number, entry in enumerate(values, start=1):
            yield f"entry {number}", entry
        return
    if text.lstrip().startswith("["):
        raise BadInput(f"{name}: {value}")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"line {number}", _json(line)


def add_rows(
    rows: Rows,
    name: str,
    add: Callable[[str, Mapping[str, Any]], None],
) -> None:
    """Give each row with its place to `add`, which raises ValueError for an invalid one.

    Raises:
        BadInput: If rows are invalid; it names the first ones, in the file `name`.
    """
    faults = []
    for place, row in rows:
        try:
            if isinstance(row, str):
                raise ValueError(row)
            add(place, row)
        except ValueError as exc:
            faults.append(f"{place}: {exc}")
    if faults:
        raise BadInput(f"{name}: {some(faults)}")


def cell_text(value: object) -> str:
    """A cell as text; "" if it is missing."""
    return "" if value is None else str(value).strip()


def read_verdict(value: object, column: str) -> bool | None:
    """A cell of yes or no; None: it is empty. Raises ValueError for anything else."""
    text = cell_text(value)
    if not text:
        return None
    if text.lower() in _VERDICTS:
        return _VERDICTS[text.lower()]
    raise ValueError(f"{column} must be true or false, found {text[:40]!r}")


_VERDICTS = {
    **dict.fromkeys(["true", "yes", "1", "是"], True),
    **dict.fromkeys(["false", "no", "0", "否"], False),
}


def _json(text: str) -> Any:
    """The parsed JSON, or a ValueError that says why there is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        return ValueError(f"not valid JSON: {str(exc)[:80]}")


def csv_rows(
    text: str,
    name: str,
    needed: Sequence[str],
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of CSV, without empty lines. Arguments and errors as for `read_table`."""
    csv.field_size_limit(64 * 1024 * 1024)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        columns = [column.strip() for column in next(reader, [])]
        _check_columns(columns, needed, f"{name}: line 1")
        line = reader.line_num + 1
        for fields in reader:
            # Ignore trailing delimiters.
            if any(value.strip() for value in fields[len(columns) :]):
                raise BadInput(
                    f"{name}: line {line}: {len(fields)} fields under {len(columns)} columns"
                )
            if any(fields):
                yield line, dict(zip(columns, fields, strict=False))
            line = reader.line_num + 1
    except csv.Error as exc:
        why = "a quote is not closed" if "unexpected end" in str(exc) else str(exc)
        raise BadInput(f"{name}: line {line}: {why}") from exc


def _check_columns(
    columns: Sequence[str],
    needed: Sequence[str],
    where: str,
) -> None:
    """Raises BadInput if a needed column is missing, or two have the same name."""
    absent = [column for column in needed if column not in columns]
    if absent:
        listed = f"the columns are {', '.join(columns)[:200]}"
        raise BadInput(f"{where}: no column {', '.join(absent)}", hint=listed)
    named = [column for column in columns if column]
    if len(set(named)) < len(named):
        raise BadInput(f"{where}: two columns have the same name")
