"""The only now(): aware, in UTC, whole seconds where a person reads it."""

import math
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

CLOCK_BOUND: Final = timedelta(minutes=5)
"""Clocks that differ by more are not believed both."""


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
