"""Read numbers from English and Chinese text (`numbers`), and check a statement's numbers against its source
(`numbers_missing`, `doses_exchanged`).

A rewritten statement may lose a number, or spell or convert it; it may not gain or change one. A source is read in
every way that a number allows ("30. 4" is 30, 4 and 30.4; 09 may be the year 2009; 半个月 is half a month and 15
days), a statement in one. What a number refers to is not checked here.
"""

import re
import tomllib
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from importlib.resources import files
from string import ascii_lowercase
from typing import NamedTuple

_TABLE = tomllib.loads(
    files("medlive.text").joinpath("quantities.toml").read_text(encoding="utf-8")
)


_UNITS: dict[str, tuple[str, float, str]] = _TABLE["units"]
"""Unit → what it measures, its size in the base unit of that kind, and how it is spelt."""
_UNIT_NAMES = tuple(_UNITS)
_SPELT_UNITS = "|".join(f"({spelt})" for _, _, spelt in _UNITS.values())
_UNIT = re.compile(rf"\s?-?\s?(?:{_SPELT_UNITS})(?:(?<![a-z])|(?![a-z]))")
_RANGE = re.compile(r"\s?(?:-|~|–|至|到|\bto\b|\bor\b|或|、)\s?(?=[\d.])")
_LOOSE = 0.04
"""Two times are equal when they differ by no more than this share: 3 months are 90 days, and 13 weeks 91."""

_DIGITS = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|(?<!\d)\.\d+")
_WIDE_GROUPS = re.compile(r"(?<!\d)\d{1,3}(?:[,，]\d{3})+(?!\d)")
"""Digits in groups that a full-width comma may divide: in a source 12，345 may be 12345 too."""
_DAMAGED = re.compile(r"(\d+)(?:\s\.|\.\s|\s\.\s)(\d+)(?!\.?\d)")
_MANY = re.compile(
    r"\s?(万|千(?!克)|亿|百万|k(?![a-z])|hundred|thousand|million|billion)"
)
_MANY_VALUES: dict[str, int] = _TABLE["many"]
_DEGREE_TENTH = re.compile(r"[度°](\d|[一二三四五六七八九])(?![\d十年月天小分秒次])")
_OVER = re.compile(r"(\d+)\s?/\s?(52|12|7)(?!\d)")
"""A doctor's short form: 2/52 is two weeks, 3/12 three months, 5/7 five days."""
_OVER_UNITS = {"52": "week", "12": "month", "7": "day"}
_FRACTION = re.compile(r"(\d+)/(\d+)")

_HAN_DIGITS: dict[str, int] = _TABLE["han"]["digits"]
_HAN_SCALES: dict[str, int] = _TABLE["han"]["scales"]
_HAN = re.compile(
    r"[零〇一二两俩仨廿三四五六七八九十百千万亿]+(?:点[零一二三四五六七八九]+)?"
)
_HAN_FORMAL = str.maketrans("壹贰叁肆伍陆柒捌玖拾佰仟", "一二三四五六七八九十百千")
_NO_NUMBER = re.compile(_TABLE["han"]["no_number"])
_HALF_AFTER = re.compile(r"(?:个|片|粒|年|天|岁|小时|周|月|颗|斤|支|包|袋)?半(?!夜)")
_HALF = re.compile(r"半(?=个?[年月天日周片粒颗小星礼包支袋斤])|\bhalf\b")
_WORD_VALUES: dict[str, int] = _TABLE["words"]
_WORD = re.compile(
    rf"\b(?:(?P<tens>twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)[\s-](?P<ones>one|two|three|four|five|six"
    rf"|seven|eight|nine)|(?P<word>{'|'.join(_WORD_VALUES)}))\b"
)
_STATED_WORDS = re.compile(
    r"^(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty(?:[\s-]\w+)?|twice|thrice)$"
)
"""The words that count as a number in a statement, with a unit behind them."""
_AND_A_HALF = re.compile(
    r"\b(an?|one|two|three|four|\d+)\s(hour|day|week|month|year)s?\sand\sa\shalf\b"
)
_JIN_LIANG = re.compile(r"([一二两三四五六七八九十\d]+)斤([一二两三四五六七八九\d])两")
_PER_MYRIAD = re.compile(r"(万|千|百)分之([一二三四五六七八九十\d.]+)")
_SHORT_FORMS = [
    (re.compile(form["pattern"]), form["value"]) for form in _TABLE["short_forms"]
]
_NAME = re.compile(r"(?:[a-z]+-?\d+(?:[a-z]\w*)?|\d+[a-z]+\d+)(?!\.?\d)")
"""A name with digits (B12, HbA1c, COVID-19), which is not a quantity."""
_JOINED: frozenset[str] = frozenset(_TABLE["joined"])
"""What may be written together with a number: bp120."""
_LIST_MARKER = re.compile(
    r"(?:^|\n)[ \t]*[(（]?\d{1,2}(?:[.、)）](?!\d)|[,，](?=[一-鿿]))"
)
_WIDE = re.compile(r"[^\x00-\x7f\u4e00-\u9fff]")
_SUPERSCRIPT = re.compile("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")


Match = re.Match[str]


class Quantity(NamedTuple):
    """A number in one reading."""

    value: float
    unit: str | None  # A key of `_UNITS`, or None if no known unit follows
    text: str  # As written, in half width and lower case


def numbers_missing(statement: str, *sources: str) -> list[str]:
    """Return the numbers of the statement that the sources do not contain in any reading, or only with another
    unit of the same kind (days for weeks), as written."""
    stated = numbers(statement)
    if not stated:
        return []
    known = frozenset[Quantity]().union(*map(_read_source, sources))
    units: dict[float, set[str | None]] = {}
    for quantity in known:
        units.setdefault(round(quantity.value, 6), set()).add(quantity.unit)
    missing: dict[str, None] = {}
    for number in stated:
        # A source may write a year with two digits (09).
        is_year = 1930 <= number.value <= 2049 and number.value % 100 in units
        is_stated = _is_among(units.get(number.value, set()), number.unit)
        if not (is_stated or is_year or _is_measured(known, number)):
            missing[number.text] = None
    return list(missing)


def doses_exchanged(statement: str, quote: str, source: str) -> list[str]:
    """Return the statement's masses and volumes, as written, that neither quote nor source contains.

    Only if the quote has one.
    Stricter than `numbers_missing`: a number without a unit in the source is not a dose ("1 mg" and "day 1").
    """
    quoted = numbers(quote)
    kinds = {measured(q)[0] for q in quoted} & {"mass", "volume"}
    if not kinds:
        return []
    known = _read_source(source)
    bare = {q.value for q in quoted if q.unit is None}
    exchanged = []
    for dose in numbers(statement):
        is_known = dose.value in bare or _is_measured(known, dose)
        if measured(dose)[0] in kinds and not is_known:
            exchanged.append(dose.text)
    return exchanged


def _is_among(units: Collection[str | None], unit: str | None) -> bool:
    """Whether a source's number with one of `units` may be the same number with `unit`: days are not weeks."""
    if unit is None or None in units or unit in units:
        return bool(units)
    kinds = {_UNITS[other][0] for other in units if other}
    return bool(units) and _UNITS[unit][0] not in kinds


def _is_measured(known: Iterable[Quantity], number: Quantity) -> bool:
    """Whether an equal measure is known in any unit."""
    kind, own = measured(number)
    loose = _LOOSE if kind in ("time", "length") else 1e-6
    for quantity in known:
        other, size = measured(quantity)
        if kind and other == kind and abs(own - size) <= loose * max(own, size):
            return True
    return False


@lru_cache(maxsize=512)
def _read_source(source: str) -> frozenset[Quantity]:
    # A thread is checked once for each of its elements.
    return frozenset(_source_numbers(plain_digits(source)))


@lru_cache(maxsize=2048)
def numbers(text: str) -> tuple[Quantity, ...]:
    """Return a statement's numbers in order, without list markers, names with digits and articles ("a", 一个)."""
    plain = _LIST_MARKER.sub(_blank, plain_digits(text))
    plain = _NAME.sub(_without_name, plain)
    in_order = sorted(_statement_numbers(plain), key=lambda number: number[0])
    return tuple(dict.fromkeys(quantity for _, quantity in in_order))


def measured(quantity: Quantity) -> tuple[str | None, float]:
    """What a quantity measures ("mass") and its size in that kind's base unit; (None, value) without a unit."""
    if quantity.unit is None:
        return None, quantity.value
    kind, size, _ = _UNITS[quantity.unit]
    return kind, quantity.value * size


def plain_digits(text: str) -> str:
    """Write a text in half width and lower case, with ASCII digits and fractions as `n/d`.

    The full-width comma stays: it divides a sentence, and no number of a statement.
    """
    if text.isascii():
        return text.lower()
    text = _SUPERSCRIPT.sub(
        lambda m: "^" + unicodedata.normalize("NFKC", m.group()), text
    )
    return _WIDE.sub(_plain, text.translate(_HAN_FORMAL)).lower()


def _plain(match: Match) -> str:
    char = match[0]
    if (decimal := unicodedata.decimal(char, None)) is not None:
        return str(decimal)
    if unicodedata.category(char) == "No":
        return " " + unicodedata.normalize("NFKC", char).replace("⁄", "/")
    return char if char in "℃℉°μµ，" else unicodedata.normalize("NFKC", char)


def _blank(match: Match) -> str:
    return " " * len(match[0])


def _without_name(match: Match) -> str:
    """A word with digits, blank unless it is a number written together with its neighbour ("bp120", 10mg)."""
    word = match[0]
    head = word.removesuffix(word.lstrip(ascii_lowercase))
    tail = word.removeprefix(word.rstrip(ascii_lowercase))
    if head in _JOINED and (not tail or _UNIT.match(tail)):
        return word
    return _blank(match)


def _statement_numbers(plain: str) -> Iterator[tuple[int, Quantity]]:
    """Find (offset, number) in a statement, one reading each."""
    taken: list[tuple[int, int]] = []
    for match in (*_DAMAGED.finditer(plain), *_DIGITS.finditer(plain)):
        begin, end = match.span()
        if any(start < end and begin < other for start, other in taken):
            continue
        if match.re is _DAMAGED:
            value = float(f"{match[1]}.{match[2]}")
        else:
            value, end = _digit_value(match)
        taken.append((begin, max(end, match.end())))
        yield begin, _with_unit(match, value, end)
    yield from _statement_numerals(plain)
    for match in _WORD.finditer(plain):
        quantity = _word_quantity(match)
        if quantity.unit and _STATED_WORDS.match(match[0]):
            yield match.start(), quantity


def _statement_numerals(plain: str) -> Iterator[tuple[int, Quantity]]:
    """Find Chinese numerals in a statement, but for words that only hold one, and 一 without a unit."""
    for match in _HAN.finditer(plain):
        numeral, (begin, end) = match[0], match.span()
        han = _han_value(numeral)
        if han is None or _NO_NUMBER.search(plain, max(0, begin - 1), end + 2):
            continue
        quantity = _han_quantity(match, han)
        is_bare_digit = quantity.unit is None and len(numeral) == 1
        is_counted = han > 1 and not is_bare_digit
        if is_counted or quantity.value != han:
            yield begin, quantity


def _han_quantity(match: Match, value: float) -> Quantity:
    """Read a Chinese numeral with what may follow it: 一片半, 一个半月, 三十七度一, 三十多岁."""
    plain, (start, end) = match.string, match.span()
    if half := _HALF_AFTER.match(plain, end):
        between = half[0] in ("半", "个半")
        unit = _with_unit(match, value, half.end() if between else end).unit
        return Quantity(value + 0.5, unit, plain[start : half.end()])
    if tenth := _DEGREE_TENTH.match(plain, end):
        value = round(value + _any_value(tenth[1]) / 10, 6)
        return Quantity(value, None, plain[start : tenth.end()])
    more = plain[end : end + 1] in ("多", "余", "来", "几")
    return _with_unit(match, value, end + more)


def _source_numbers(plain: str) -> Iterator[Quantity]:
    """Find every number in a source, in every reading."""
    yield from _source_digits(plain)
    yield from _source_numerals(plain)
    for match in _WORD.finditer(plain):
        yield _word_quantity(match)
    for match in _HALF.finditer(plain):
        yield _with_unit(match, 0.5)
    for match in _AND_A_HALF.finditer(plain):
        word = match[1]
        whole = _number(word) if word.isdigit() else _WORD_VALUES.get(word, 1)
        yield Quantity(whole + 0.5, match[2], "")
    for match in _JIN_LIANG.finditer(plain):
        yield Quantity(_any_value(match[1]) + _any_value(match[2]) / 10, "jin", "")
    for match in _PER_MYRIAD.finditer(plain):
        share = round(_any_value(match[2]) * 100 / _HAN_SCALES[match[1]], 6)
        yield Quantity(share, "%", "")
    for pattern, value in _SHORT_FORMS:
        for match in pattern.finditer(plain):
            yield _with_unit(match, value)
            yield Quantity(value, None, "")


def _source_numerals(plain: str) -> Iterator[Quantity]:
    """Find Chinese numerals in a source, as a whole and each digit of them."""
    for match in _HAN.finditer(plain):
        value = _han_value(match[0])
        readings = {float(_HAN_DIGITS[c]) for c in match[0] if c in _HAN_DIGITS}
        if value is not None:
            readings.add(value)
            yield _han_quantity(match, value)
        for reading in readings:
            yield _with_unit(match, reading)


def _source_digits(plain: str) -> Iterator[Quantity]:
    """Find numbers in digits in a source: whole, as parts, damaged, in wide groups, as n/12 and as fractions."""
    for match in _DIGITS.finditer(plain):
        value, end = _digit_value(match)
        yield _with_unit(match, value, end)
        if _UNIT.match(plain, end) is None:  # 5.12 may be the twelfth of May
            for part in re.findall(r"[^.,]+", match[0]):
                yield Quantity(float(part), None, "")
    for match in _DAMAGED.finditer(plain):
        yield _with_unit(match, float(f"{match[1]}.{match[2]}"))
    for match in _WIDE_GROUPS.finditer(plain):
        yield _with_unit(match, _number(match[0].replace("，", ",")))
    for match in _OVER.finditer(plain):
        yield Quantity(float(match[1]), _OVER_UNITS[match[2]], "")
    for match in _FRACTION.finditer(plain):
        if float(match[2]):
            yield _with_unit(match, float(match[1]) / float(match[2]))


def _digit_value(match: Match) -> tuple[float, int]:
    """The value of a number in digits, and where it ends: 60k, 1.8万, 38度5."""
    value, end = _times_many(match, _number(match[0]))
    if tenth := _DEGREE_TENTH.match(match.string, end):
        return value + _any_value(tenth[1]) / 10, tenth.end()
    return value, end


def _times_many(number: Match, value: float) -> tuple[float, int]:
    """`value` times the thousand or 万 that may follow the number, and where it then ends."""
    if many := _MANY.match(number.string, number.end()):
        return value * _MANY_VALUES[many[1]], many.end()
    return value, number.end()


def _number(digits: str) -> float:
    return float(digits.replace(",", ""))


def _any_value(numeral: str) -> float:
    """Read digits or a Chinese numeral; 0 for anything else."""
    if re.fullmatch(r"\d+(?:\.\d+)?", numeral):
        return float(numeral)
    return _han_value(numeral) or 0.0


def _word_quantity(match: Match) -> Quantity:
    words = filter(None, match.group("tens", "ones", "word"))
    value = float(sum(_WORD_VALUES[word] for word in words))
    return _with_unit(match, *_times_many(match, value))


def _han_value(numeral: str) -> float | None:
    """Return the value of a Chinese numeral (一万八 is 18,000); None if it is not one (two digits in a row)."""
    whole, _, fraction = numeral[:20].partition("点")
    total = section = 0.0
    digit: float | None = None
    last = 1.0
    for char in whole:
        if char in _HAN_SCALES:
            scale = _HAN_SCALES[char]
            if scale >= 10_000:
                total, section = (total + section + (digit or 0)) * scale or scale, 0.0
            else:
                section += (1 if digit is None else digit) * scale
            digit, last = None, scale
        elif digit not in (None, 0) or char not in _HAN_DIGITS:
            return None
        else:
            digit = float(_HAN_DIGITS[char])
            last = 1.0 if char in "零〇" else last
    if digit is not None:
        section += digit * (last / 10 if last >= 100 and not fraction else 1)
    decimals = "".join(str(_HAN_DIGITS[c]) for c in fraction)
    return total + section + (float(f"0.{decimals}") if decimals else 0.0)


def _with_unit(
    number: Match,
    value: float,
    end: int | None = None,
) -> Quantity:
    """A number with the unit that follows it, or that follows the range it begins."""
    plain, end = number.string, end or number.end()
    match = _UNIT.match(plain, end)
    if match:
        end = match.end()
    elif (joined := _RANGE.match(plain, end)) and (
        other := _DIGITS.match(plain, joined.end())
    ):
        match = _UNIT.match(plain, other.end())  # "6 to 12 months" are six months too
    unit = _UNIT_NAMES[(match.lastindex or 1) - 1] if match else None
    text = plain[number.start() : end].strip()
    return Quantity(round(value, 6), unit, text)
