"""The dates of publishers: years, months by name, seasons and spans, read as the days they may mean."""

import re
from calendar import month_abbr, monthrange
from datetime import date
from xml.etree.ElementTree import Element

Period = tuple[date, date]
"""The first and the last day on which a thing so dated may have appeared."""
_Months = tuple[int, int]
"""The first and the last month that a name may mean; 13 is the next year's January."""
_WHOLE_YEAR = (1, 12)
_SEASONS: dict[str, _Months] = {
    "spring": (1, 6),
    "summer": (4, 9),
    "autumn": (7, 12),
    "fall": (7, 12),
    "winter": (1, 15),
}
"""A winter's issue may appear in the March after the year that it names."""
_MONTHS = {month.lower(): number for number, month in enumerate(month_abbr) if number}
_YEAR = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d|2100)(?!\d)")
_SHORT_SPAN = re.compile(
    r"(?P<century>\d\d)(?P<year>\d\d)\s*[-–/]\s*(?P<next>\d\d)(?!\d)"
)
"""Two years of which the second is cut: "1976-77"."""
_WORD = re.compile(r"[A-Za-z]+")
_NUMBER = re.compile(r"\d+")
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

    `month` may be a number, an English name or a season; an invalid month or day counts as absent.
    """
    year_number, day_number = _number(year), _number(day)
    if not 1500 <= year_number <= 2100:
        return None
    months = _month_by_name((month or "").strip().lower()) or _WHOLE_YEAR
    if 1 <= (number := _number(month)) <= 12:
        months = (number, number)
    last = _month_end(year_number, months[1])
    if months[0] == months[1] and 1 <= day_number <= last.day:
        last = last.replace(day=day_number)
        return last, last
    return date(year_number, months[0], 1), last


def written(text: str) -> Period | None:
    """Return the days that a free date may mean: "1998 Dec-1999 Jan", "2000 Spring", "1976-1977".

    Its last day is never before the one meant; its first is 1 January of the first year. None without a year.
    """
    text = text[:200].lower()
    years = list(map(int, _YEAR.findall(text)))
    if not years:
        return None
    last_year = max(years)
    span = _SHORT_SPAN.search(text)
    if span and int(span["next"]) == (int(span["year"]) + 1) % 100:
        last_year = max(last_year, int(span["century"] + span["year"]) + 1)
    return date(min(years), 1, 1), _last_day(text, last_year)


def _last_day(text: str, year: int) -> date:
    """The last day that a free date may mean, by the months and days that follow its last year."""
    _, year_found, rest = text.rpartition(str(year))
    named = []
    days_at = 0
    for word in _WORD.finditer(rest):
        if months := _month_by_name(word[0]):
            named.append(months)
            days_at = word.end()
    if not (year_found and named):
        return _month_end(year, _SEASONS["winter"][1] if "winter" in text else 12)
    first, last = named[0], named[-1]
    if first[0] > last[0] and last[1] <= 12:  # "2000 Nov-Jan"
        return _month_end(year, last[1] + 12)
    month_end = _month_end(year, last[1])
    days = list(map(int, _NUMBER.findall(rest, days_at)))
    is_day = days and days == sorted(days) and 1 <= days[-1] <= month_end.day
    if is_day and last[0] == last[1]:
        return month_end.replace(day=days[-1])
    return month_end


def _month_by_name(name: str) -> _Months | None:
    if number := _MONTHS.get(name[:3]):
        return (number, number)
    return _SEASONS.get(name)


def _number(text: str | None) -> int:
    """Return a number of one to four digits; 0 for anything else."""
    text = (text or "").strip()
    return int(text) if re.fullmatch("[0-9]{1,4}", text) else 0


def _month_end(year: int, month: int) -> date:
    """The last day of a month, of which the thirteenth is the next year's first."""
    if month > 12:
        year, month = year + 1, month - 12
    return date(year, month, monthrange(year, month)[1])
