"""ISO weeks as people name them, such as 2026.W47, and their bounds."""

from datetime import UTC, datetime, timedelta

from medlive.clock import iso_week, now
from medlive.errors import UsageError

_WEEK = timedelta(weeks=1)


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
    """An ISO week; "this" and "last" name two. Raises UsageError."""
    if week == "this":
        return iso_week(now())
    if week == "last":
        return iso_week(now() - _WEEK)
    return iso_week(week_bounds(week)[0])
