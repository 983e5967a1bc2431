"""The only now(), aware and in UTC; and ISO weeks as people name them, such as 2026.W47."""

import math
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime

from .errors import UsageError

_WEEK = timedelta(weeks=1)
CLOCK_BOUND = timedelta(minutes=5)
"""Clocks that differ by more cannot both be right."""


def now() -> datetime:
    """The present moment, aware, in UTC."""
    return datetime.now(UTC)


def iso_week(moment: datetime | date) -> str:
    """A moment's ISO week as `YYYY.WNN`, the name of a weekly snapshot."""
    year, week, _ = moment.isocalendar()
    return f"{year:04d}.W{week:02d}"


def parse_moment(text: str) -> datetime:
    """An aware datetime from an ISO 8601 date or date-time; one without a zone is taken as UTC.

    Raises ValueError when the text is neither.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def parse_retry_after(value: str) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or a date; None where it says nothing usable."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        seconds = (
            (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now()
        ).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def week_bounds(week: str) -> tuple[datetime, datetime]:
    """The first moment of an ISO week and of the next, in UTC. Raises UsageError."""
    year, _, number = week.partition(".W")
    try:
        start = datetime.fromisocalendar(int(year), int(number), 1).replace(tzinfo=UTC)
        return start, start + _WEEK
    except (ValueError, OverflowError):
        raise UsageError(
            f"expected an ISO week such as 2026.W47, not {week[:40]!r}"
        ) from None


def parse_week(week: str) -> str:
    """An ISO week as `YYYY.WNN`; "this" is the present week, "last" the one before. Raises UsageError."""
    if week == "this":
        return iso_week(now())
    if week == "last":
        return iso_week(now() - _WEEK)
    return iso_week(week_bounds(week)[0])
