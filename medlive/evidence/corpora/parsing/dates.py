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
# A journal's winter issue may appear when the winter that begins in its year ends.
_SEASONS = {
    "spring": (1, 6),
    "summer": (4, 9),
    "autumn": (7, 12),
    "fall": (7, 12),
    "winter": (1, 15),
}
_YEAR = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d|2100)(?!\d)")
_SHORT_SPAN = re.compile(r"(\d\d)(\d\d)\s*[-–/]\s*(\d\d)(?!\d)")
_WORD = re.compile(r"[A-Za-z]+")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Period:
    """The days on which a thing so dated may have appeared."""

    first: date
    last: date


def period(
    year: str | None, month: str | None = None, day: str | None = None
) -> Period | None:
    """The days that a date in parts may mean; None without a year.

    `month` may be a number, an English name or a season; a month or a day that is none counts as absent.
    """
    number = _number(year)
    if number is None or not 1500 <= number <= 2100:
        return None
    start, end = _months(month)
    chosen = _number(day)
    if (
        chosen is not None
        and start == end
        and 1 <= chosen <= monthrange(number, start)[1]
    ):
        only = date(number, start, chosen)
        return Period(only, only)
    return Period(date(number, start, 1), _month_end(number, end))


def written(text: str) -> Period | None:
    """The days that a free date may mean: "1998 Dec-1999 Jan", "2000 Spring", "2000 Nov-Dec", "1976-1977".

    Its last day is never before the one meant; the first of January of the first year is its first. None when
    no year is in it.
    """
    text = text[:200]
    years = [int(found[0]) for found in _YEAR.finditer(text)]
    if not years:
        return None
    last = max(years)
    first = date(min(years), 1, 1)
    short = _SHORT_SPAN.search(text)
    if short and int(short[3]) == (int(short[2]) + 1) % 100:
        last = max(last, int(short[1] + short[2]) + 1)
    tail = text[text.rfind(str(last)) + 4 :] if str(last) in text else ""
    named = [
        (found, word.end())
        for word in _WORD.finditer(tail)
        if (found := _named(word[0])) is not None
    ]
    if not named:
        ends_in_winter = "winter" in text.lower()
        return Period(first, _month_end(last, 15 if ends_in_winter else 12))
    (start, end), after = named[-1]
    if named[0][0][0] > start and end <= 12:
        end += 12
    if start == end and (day := _last_day(tail, after, monthrange(last, start)[1])):
        return Period(first, date(last, start, day))
    return Period(first, _month_end(last, end))


def _last_day(text: str, after: int, most: int) -> int | None:
    """The last of the days that are named in order; None where they are not days of a month of `most`."""
    days = [int(number[0]) for number in _NUMBER.finditer(text, after)]
    return days[-1] if days and 1 <= days[-1] <= most and days == sorted(days) else None


def element_period(element: Element | None) -> Period | None:
    """The days that a date element means: its year, month, season and day, its free text, or its ISO value."""
    if element is None:
        return None
    parts = {local(child.tag).lower(): (child.text or "").strip() for child in element}
    month = parts.get("month") or parts.get("season")
    found = period(parts.get("year"), month, parts.get("day"))
    if found is not None:
        return found
    iso = re.match(
        r"(\d{4})(?:-(\d\d?)(?:-(\d\d?))?)?", element.get("iso-8601-date") or ""
    )
    if iso:
        return period(iso[1], iso[2], iso[3])
    return written(parts.get("medlinedate") or parts.get("string-date") or "")


def _months(month: str | None) -> tuple[int, int]:
    number = _number(month)
    if number is not None:
        return (number, number) if 1 <= number <= 12 else (1, 12)
    return _named((month or "").strip()) or (1, 12)


def _named(word: str) -> tuple[int, int] | None:
    lower = word.lower()
    if lower in _SEASONS:
        return _SEASONS[lower]
    if lower[:3] in _MONTHS and len(lower) >= 3:
        number = _MONTHS.index(lower[:3]) + 1
        return number, number
    return None


def _number(text: str | None) -> int | None:
    stripped = (text or "").strip()
    return (
        int(stripped)
        if stripped.isascii() and stripped.isdigit() and len(stripped) <= 4
        else None
    )


def _month_end(year: int, month: int) -> date:
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    return date(year, month, monthrange(year, month)[1])
