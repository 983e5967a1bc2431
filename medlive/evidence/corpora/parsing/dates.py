"""Read publishers' dates (years, months by name, seasons, spans) as the days that they may mean."""

import re
from calendar import month_abbr, monthrange
from datetime import date
from xml.etree.ElementTree import Element

Period = tuple[date, date]
"""The first and the last day that a date may mean."""
_MONTHS = {month.lower(): number for number, month in enumerate(month_abbr) if number}
_YEAR = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d|2100)(?!\d)")
_ISO = re.compile(r"(\d{4})(?:-(\d\d?)(?:-(\d\d?))?)?")


def last_day(element: Element | None) -> date | None:
    """Return the last of the days that a date element means."""
    known = element_period(element)
    return known[1] if known else None


def element_period(element: Element | None) -> Period | None:
    """Return the days that a date element means: its year, month, season and day, its ISO value, or its text."""
    if element is None:
        return None
    parts = {}
    for child in element:
        parts[child.tag.lower()] = (child.text or "").strip()
    month = parts.get("month") or parts.get("season")
    if by_parts := period(parts.get("year"), month, parts.get("day")):
        return by_parts
    if iso := _ISO.match(element.get("iso-8601-date", "")):
        return period(*iso.groups())
    return written(parts.get("medlinedate") or parts.get("string-date") or "")


def period(
    year: str | None,
    month: str | None,
    day: str | None,
) -> Period | None:
    """Return the days that a date in parts may mean; None without a year.

    `month` may be a number, an English name or a season; an invalid day counts as absent.
    """
    year_number, day_number = _number(year), _number(day)
    if not 1500 <= year_number <= 2100:
        return None
    name = (month or "").strip().lower()
    number = _MONTHS.get(name[:3]) or _number(name)
    first = date(year_number, 1, 1)
    if not name:
        return first, date(year_number, 12, 31)
    if not 1 <= number <= 12:
        # A winter's issue may appear in the March after the year that it names.
        return first, date(year_number + 1, 3, 31)
    last = date(year_number, number, monthrange(year_number, number)[1])
    if 1 <= day_number <= last.day:
        last = last.replace(day=day_number)
        return last, last
    return last.replace(day=1), last


def written(text: str) -> Period | None:
    """Return the days that a free date may mean: "1998 Dec-1999 Jan", "2000 Spring", "1976-77". None without a year.

    Its last day is never before the one meant: a winter, or a second year that is cut, ends in the next year.
    """
    years = list(map(int, _YEAR.findall(text[:200])))
    if not years:
        return None
    return date(min(years), 1, 1), date(max(years) + 1, 12, 31)


def _number(text: str | None) -> int:
    """Return a number of one to four digits; 0 for anything else."""
    text = (text or "").strip()
    return int(text) if re.fullmatch("[0-9]{1,4}", text) else 0
