"""Rows of a listing as people get them: without the names of people and places, on a page or as CSV."""

import csv
import io
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from medlive.db.audit.threads import ThreadItem
from medlive.deidentify.detect import redact

R = TypeVar("R")


def without_identifiers(rows: Iterable[R]) -> list[R]:
    """Rows as they are shown: a thread's title without the names of people and places."""
    shown: list[R] = []
    for row in rows:
        if isinstance(row, ThreadItem):
            title = redact(row.title, row.language or None)
            row = replace(row, title=title)
        shown.append(row)
    return shown


async def stream_csv(rows: AsyncIterator[Any], row: type[Any]) -> AsyncIterator[str]:
    """Rows of a type as lines of CSV under a heading, without identifiers and formulas."""
    yield _csv_line([field.name for field in fields(row)])
    async for stored in rows:
        [shown] = without_identifiers([stored])
        yield _csv_line(cells(shown))


def _csv_line(values: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(values)
    return line.getvalue()


_RISKY: Final = re.compile(r"'*[\t\r\n]|['\s]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""How a cell begins that a spreadsheet may take for a formula, whatever apostrophes stand before it."""


def guarded(text: str) -> str:
    """A text as a CSV cell that no spreadsheet runs: one apostrophe before what may begin a formula."""
    return "'" + text if _RISKY.match(text) else text


def cells(row: Any) -> list[str]:
    """A row as cells of a CSV file, none of which a spreadsheet takes for a formula."""
    return [guarded(_cell(getattr(row, field.name))) for field in fields(row)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return "\n".join(map(str, value))
    return str(value)
