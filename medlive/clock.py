"""The only now(): aware, in UTC, whole seconds where a person reads it."""

from datetime import UTC, date, datetime


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
