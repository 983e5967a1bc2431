"""Moments, always in UTC, from the dates that communities show."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

INDIA = timezone(timedelta(hours=5, minutes=30), "Asia/Kolkata")
CHINA = timezone(timedelta(hours=8), "Asia/Shanghai")

# Communities of this kind began in the late 1990s; a number outside these years is no date of a message.
_FIRST_YEAR, _LAST_YEAR = 1995, 2100

_MONTHS = {
    name: n
    for n, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], start=1
    )
}
_NUMERIC = re.compile(
    r"(?<!\d)(\d{4})\s?[-/.年]\s?(\d{1,2})\s?[-/.月]\s?(\d{1,2})(?!\d)日?"
    r"(?:[T\s]{1,3}(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d{1,9})?)?\s?(Z|[+-]\d{2}:?\d{2})?)?"
)
_MONTH_FIRST = re.compile(r"\b([A-Za-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})(?!\d)")
_DAY_FIRST = re.compile(r"(?<!\d)(\d{1,2})(?:st|nd|rd|th)?\s+([A-Za-z]{3,9})\.?,?\s+(\d{4})(?!\d)")


def shown_date(text: str, zone: tzinfo) -> datetime | None:
    """The first date in a text, in UTC, or None.

    Reads ISO 8601, `2025-03-01 08:00` (also with `/`, `.` or `年月日`), `Jul 06, 2018` and `06 July 2018`.
    A time without offset is taken in `zone`. A date without a time names a day: midnight UTC of that day,
    so that no conversion moves it to another.
    """
    if 20 <= len(text) <= 25 and text[10] == "T":
        # The form of every `datetime` attribute, which the library reads in a fraction of the time.
        try:
            exact = datetime.fromisoformat(text)
        except ValueError:
            exact = None
        if exact is not None and exact.tzinfo is not None and _FIRST_YEAR < exact.year < _LAST_YEAR:
            exact = exact.astimezone(UTC)
            return exact.replace(microsecond=0) if exact.microsecond else exact
    found = [m for m in (_NUMERIC.search(text), _MONTH_FIRST.search(text), _DAY_FIRST.search(text)) if m]
    for match in sorted(found, key=re.Match.start):
        try:
            moment = _moment(match, zone)
        except (ValueError, OverflowError):
            continue
        if moment is not None and _FIRST_YEAR <= moment.year <= _LAST_YEAR:
            return moment.astimezone(UTC)
    return None


def _moment(match: re.Match[str], zone: tzinfo) -> datetime | None:
    if match.re is _NUMERIC:
        year, month, day, hour, minute, second, offset = match.groups()
        if hour is None:
            return datetime(int(year), int(month), int(day), tzinfo=UTC)
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=zone)
        if offset is None:
            return local
        return datetime.fromisoformat(local.replace(tzinfo=None).isoformat() + offset)
    name, day, year = match.groups() if match.re is _MONTH_FIRST else (match[2], match[1], match[3])
    month_number = _MONTHS.get(name[:3].lower())
    return datetime(int(year), month_number, int(day), tzinfo=UTC) if month_number else None


def stated_moment(value: Any, zone: tzinfo) -> datetime | None:
    """A moment from structured data: a date text or an epoch in (milli)seconds; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit()):
            return shown_date(value[:100], zone)
        if len(value) > 13:
            return None
        value = int(value)
    if not isinstance(value, int | float):
        return None
    try:
        seconds = value / 1000 if value > 10**11 else value
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment if _FIRST_YEAR < moment.year <= _LAST_YEAR else None
