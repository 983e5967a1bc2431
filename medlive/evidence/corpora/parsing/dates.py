"""The dates of publishers: years, months by name, seasons and spans, read as the days they may mean."""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from xml.etree.ElementTree import Element

from medlive.evidence.corpora.parsing.xml import local

_MONTHS = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_SEASONS = {
    "spring": (1, 6),
    "summer": (4, 9),
    "autumn": (7, 12),
    "fall": (7, 12),
    "winter": (1, 15),
}
"""The first and the last month. A winter's issue may appear in the March after the year that it names."""
_WHOLE_YEAR = (1, 12)
_YEAR = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d|2100)(?!\d)")
_SHORT_SPAN = re.compile(r"(\d\d)(\d\d)\s*[-–/]\s*(\d\d)(?!\d)")
"""Two years of which the second is cut: "1976-77"."""
_WORD = re.compile(r"[A-Za-z]+")
_NUMBER = re.compile(r"\d+")
_ISO = re.compile(r"(\d{4})(?:-(\d\d?)(?:-(\d\d?))?)?")


@dataclass(frozen=True, slots=True)
class Period:
    """The days on which a thing so dated may have appeared."""

    first: date
    last: date


def period(
    year: str | None, month: str | None = None, day: str | None = None
) -> Period | None:
    """Return the days that a date in parts may mean; None without a year.

    `month` may be a number, an English name or a season; an invalid month or day counts as absent.
    """
    number = _number(year)
    if number is None or not 1500 <= number <= 2100:
        return None
    start, end = _months(month)
    first, last = date(number, start, 1), _month_end(number, end)
    chosen = _number(day)
    if start == end and chosen is not None and 1 <= chosen <= last.day:
        first = last = date(number, start, chosen)
    return Period(first, last)


def written(text: str) -> Period | None:
    """Return the days that a free date may mean: "1998 Dec-1999 Jan", "2000 Spring", "1976-1977".

    Its last day is never before the one meant; its first is 1 January of the first year. None without a year.
    """
    text = text[:200].lower()
    years = [int(year) for year in _YEAR.findall(text)]
    if not years:
        return None
    last = max(years)
    short = _SHORT_SPAN.search(text)
    if short and int(short[3]) == (int(short[2]) + 1) % 100:
        last = max(last, int(short[1] + short[2]) + 1)
    return Period(date(min(years), 1, 1), _last_day(text, last))


def _last_day(text: str, year: int) -> date:
    """The last day that a free date may mean, by what stands behind its last year."""
    _, found, behind = text.rpartition(str(year))
    names = [name for name in _WORD.finditer(behind) if _named(name[0])]
    if not (found and names):
        return _month_end(year, 15 if "winter" in text else 12)
    earliest, _ = _months(names[0][0])
    start, end = _months(names[-1][0])
    if earliest > start and end <= 12:  # "2000 Nov-Jan"
        return _month_end(year, end + 12)
    last = _month_end(year, end)
    days = [int(number) for number in _NUMBER.findall(behind, names[-1].end())]
    if start == end and days and days == sorted(days) and 1 <= days[-1] <= last.day:
        return last.replace(day=days[-1])
    return last


def element_period(element: Element | None) -> Period | None:
    """Return the days that a date element means: its year, month, season and day, its ISO value, or its text."""
    if element is None:
        return None
    parts = {local(child.tag).lower(): (child.text or "").strip() for child in element}
    month = parts.get("month") or parts.get("season")
    found = period(parts.get("year"), month, parts.get("day"))
    if found is not None:
        return found
    iso = _ISO.match(element.get("iso-8601-date", ""))
    if iso:
        return period(*iso.groups())
    return written(parts.get("medlinedate") or parts.get("string-date") or "")


def _months(month: str | None) -> tuple[int, int]:
    """The first and the last month that a month or a season may mean."""
    number = _number(month)
    if number is not None and 1 <= number <= 12:
        return number, number
    return _named(month or "") or _WHOLE_YEAR


def _named(word: str) -> tuple[int, int] | None:
    word = word.strip().lower()
    if word[:3] in _MONTHS:
        number = _MONTHS.index(word[:3]) + 1
        return number, number
    return _SEASONS.get(word)


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if re.fullmatch("[0-9]{1,4}", text) else None


def _month_end(year: int, month: int) -> date:
    """The last day of a month, of which the thirteenth is the next year's first."""
    if month > 12:
        year, month = year + 1, month - 12
    return date(year, month, monthrange(year, month)[1])
