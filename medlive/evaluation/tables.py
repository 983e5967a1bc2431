"""Tables that people and other programs wrote: CSV, JSON Lines and JSON, each row with its place."""

import codecs
import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from medlive.errors import BadInput
from medlive.integrity.log import read_bytes

FORMAT_HINT: Final = (
    "one row for each rating: case_id, criterion_id, rater, met, "
    "or case_id, rater, score; see docs/meta.md"
)
MOST_FAULTS: Final = 5
"""How many faults an error message lists; the others are counted."""
_PACKED: Final = (
    b"PK\x03\x04",
    b"\xd0\xcf\x11\xe0",
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ",
    b"\x28\xb5\x2f\xfd",
)
"""How workbooks, archives and compressed files begin."""


def decode_text(data: bytes, name: str) -> tuple[str, bool]:
    """A file's text, and whether it is GB18030, as spreadsheets on Chinese systems save it.

    GB18030 never treats a delimiter or line end as part of a character, so columns stay intact even if another
    encoding is taken for it; JSON is never in GB18030. Raises BadInput if the file is empty, packed, or in an
    unsupported encoding.
    """
    if data.startswith(_PACKED):
        raise BadInput(
            f"{name} is a workbook or packed, expected text",
            hint='unpack it; save a sheet as "CSV UTF-8"',
        )
    utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    first: UnicodeDecodeError | None = None
    json_ = data[:64].removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"["))
    for encoding in (
        ("utf-16",) if utf16 else ("utf-8-sig",) if json_ else ("utf-8-sig", "gb18030")
    ):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as exc:
            first = first or exc
            continue
        if not text.strip():
            raise BadInput(f"{name} is empty")
        return text, encoding == "gb18030"
    line, label = (
        data[: first.start if first else 0].count(b"\n") + 1,
        "UTF-16" if utf16 else "UTF-8",
    )
    raise BadInput(
        f"{name}: line {line}: not valid {label}",
        hint='save the file as UTF-8; a sheet as "CSV UTF-8"',
    ) from first


def list_faults(faults: Sequence[str]) -> str:
    """The first faults and the number of others, for an error message."""
    more = len(faults) - MOST_FAULTS
    return "; ".join(faults[:MOST_FAULTS]) + (f"; and {more} more" if more > 0 else "")


def add_rows(
    path: Path,
    needed: Sequence[str],
    add: Callable[[str, Mapping[str, Any]], None],
    hint: str = FORMAT_HINT,
) -> None:
    """Give each row of a file with its place to `add`, which raises ValueError for an invalid one.

    Raises:
        BadInput: If the file cannot be read, or rows are invalid, which it names.
    """
    faults: list[str] = []
    for place, row in read_table(
        decode_text(read_bytes(path), path.name)[0], path.name, needed, hint
    ):
        try:
            if isinstance(row, str):
                raise ValueError(row)
            add(place, row)
        except ValueError as exc:
            faults.append(f"{place}: {exc}")
    if faults:
        raise BadInput(f"{path.name}: {list_faults(faults)}", hint=hint)


def read_table(
    text: str, name: str, needed: Sequence[str], hint: str = FORMAT_HINT
) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    """Read CSV, JSON Lines, or JSON: an array, an object with an array `ratings`, or one object.

    Yields each row with its place ("line 7", or "entry 7" of an array), or instead of a row why it is invalid.
    `needed` are the columns that CSV must have, or their alternatives: "case_id|item". `name` and `hint` are for
    messages.

    Raises:
        BadInput: If the CSV has no such column, a row with more fields than the header, or an open quote.
    """
    if not text.lstrip().startswith(("{", "[")):
        yield from (
            (f"line {line}", row)
            for line, row in csv_rows(text, name, needed, hint=hint)
        )
        return
    value = _json(text)
    if isinstance(value, ValueError):
        lines = enumerate(text.split("\n"), start=1)
        values = [
            (f"line {number}", _json(line)) for number, line in lines if line.strip()
        ]
    else:
        inner = value.get("ratings") if isinstance(value, dict) else value
        listed = inner if isinstance(inner, list) else [value]
        unit = "entry" if len(listed) != 1 or "\n" in text.strip() else "line"
        values = [
            (f"{unit} {number}", entry) for number, entry in enumerate(listed, start=1)
        ]
    for place, entry in values:
        fault = (
            str(entry)
            if isinstance(entry, ValueError)
            else f"expected an object, found a {type(entry).__name__}"
        )
        yield place, entry if isinstance(entry, dict) else fault


def _json(text: str) -> Any:
    """The parsed JSON, or a ValueError that says why there is none."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as exc:
        return ValueError(f"not valid JSON: {str(exc)[:80]}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the key {next(name for name in names if names.count(name) > 1)!r} is given twice"
        )
    return fields


def csv_rows(
    text: str,
    name: str,
    needed: Sequence[str],
    *,
    fold: bool = True,
    hint: str = FORMAT_HINT,
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of CSV, without empty lines and a spreadsheet's first line `sep=;`.

    Arguments and errors as for `read_table`; `fold` folds column names to lower case.
    """
    csv.field_size_limit(64 * 1024 * 1024)
    before = 1 if text[:4].lower() == "sep=" else 0
    header, known = (
        "".join(text.split("\n")[before : before + 1]).lower(),
        "|".join(needed).lower().split("|"),
    )
    delimiter = max(
        ",;\t",
        key=lambda d: sum(column.strip(' "\r') in known for column in header.split(d)),
    )
    stream = io.StringIO(text, newline="")
    for _ in range(before):
        stream.readline()
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    line = 1 + before
    try:
        columns = [
            column.strip().lower() if fold else column.strip()
            for column in next(reader, [])
        ]
        _check_columns(columns, needed, f"{name}: line {line}", hint)
        line = reader.line_num + 1 + before
        for fields in reader:
            # Ignore trailing delimiters.
            if any(value.strip() for value in fields[len(columns) :]):
                raise BadInput(
                    f"{name}: line {line}: {len(fields)} fields under {len(columns)} columns"
                )
            if any(fields):
                yield line, dict(zip(columns, fields, strict=False))
            line = reader.line_num + 1 + before
    except csv.Error as exc:
        why = "a quote is not closed" if "unexpected end" in str(exc) else str(exc)
        raise BadInput(f"{name}: line {line}: {why}") from exc


def _check_columns(
    columns: Sequence[str], needed: Sequence[str], where: str, hint: str
) -> None:
    if absent := [
        column.split("|")[0]
        for column in needed
        if not set(column.split("|")) & set(columns)
    ]:
        hint_text = f"the columns are {', '.join(columns)[:200]}; {hint}"
        raise BadInput(f"{where}: no column {', '.join(absent)}", hint=hint_text)
    if len(set(columns) - {""}) < sum(map(bool, columns)):
        raise BadInput(f"{where}: two columns have the same name")
