"""Moments, always in UTC, from the dates that communities show."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

INDIA = timezone(timedelta(hours=5, minutes=30), "Asia/Kolkata")
CHINA = timezone(timedelta(hours=8), "Asia/Shanghai")

# Communities of this kind began in the late 1990s; a number outside these years is no date of a message.
_FIRST_YEAR, _LAST_YEAR = 1995, 2100

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
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
    found = [m for m in (_NUMERIC.search(text), _MONTH_FIRST.search(text), _DAY_FIRST.search(text)) if m]
    for match in sorted(found, key=re.Match.start):
        try:
            moment = _moment(match, zone)
        except (ValueError, OverflowError):
            continue
        if _FIRST_YEAR <= moment.year <= _LAST_YEAR:
            return moment.astimezone(UTC)
    return None


def _moment(match: re.Match[str], zone: tzinfo) -> datetime:
    """Raises ValueError and OverflowError for what is not a date."""
    if match.re is _NUMERIC:
        year, month, day, hour, minute, second, offset = match.groups()
        if hour is None:
            return datetime(int(year), int(month), int(day), tzinfo=UTC)
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=zone)
        if offset is None:
            return local
        return datetime.fromisoformat(local.replace(tzinfo=None).isoformat() + offset)
    name, day, year = match.groups() if match.re is _MONTH_FIRST else (match[2], match[1], match[3])
    return datetime(int(year), _MONTHS.index(name[:3].lower()) + 1, int(day), tzinfo=UTC)


def stated_moment(value: Any, zone: tzinfo) -> datetime | None:
    """A moment from structured data: a date text or an epoch in (milli)seconds; None for anything else."""
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit()):
            return shown_date(value[:100], zone)
        value = int(value[:14])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        moment = datetime.fromtimestamp(value / 1000 if value > 10**11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment if _FIRST_YEAR < moment.year <= _LAST_YEAR else None
