"""Rows of a listing as people get them: without the names of people and places, on a page or as CSV."""

import csv
import io
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from types import SimpleNamespace

from medlive.db.audit.listing import Listing
from medlive.deidentify.detect import redact


def without_identifiers(rows: Sequence[SimpleNamespace]) -> Sequence[SimpleNamespace]:
    """Remove the names of people and places from the titles in `rows`; the same rows."""
    for row in rows:
        if hasattr(row, "title"):
            row.title = redact(row.title, row.language or None)
    return rows


async def stream_csv(
    rows: AsyncIterator[SimpleNamespace], listing: Listing
) -> AsyncIterator[str]:
    """Rows of a listing as lines of CSV under a heading, without identifiers and formulas."""
    yield _csv_line(listing.columns)
    async for row in rows:
        without_identifiers([row])
        yield _csv_line(cells(row))


def _csv_line(values: Iterable[str]) -> str:
    """Values as one line of CSV, each quoted."""
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(values)
    return line.getvalue()


_RISKY = re.compile(r"'*[\t\r\n]|['\s]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""How a cell begins that a spreadsheet may take for a formula, with any apostrophes before it."""


def guarded(text: str) -> str:
    """A text as a CSV cell that no spreadsheet runs: one apostrophe before what may begin a formula."""
    return "'" + text if _RISKY.match(text) else text


def cells(row: SimpleNamespace) -> list[str]:
    """A row as cells of a CSV file, none of which a spreadsheet takes for a formula."""
    shown = []
    for value in vars(row).values():
        if isinstance(value, datetime):
            value = value.isoformat()
        elif isinstance(value, list):
            value = "\n".join(map(str, value))
        shown.append(guarded("" if value is None else str(value)))
    return shown
