"""Numbers with their units, read out of English and Chinese text: a statement is held to its source by them.

This is the exact-number check of the Controller: a rewritten fact may lose a number, never gain or change
one.
A range, a size or a blood pressure is read as its members as well; a date as year, month and day. The
source is read generously (every reading of a damaged "30. 4"), the statement strictly (each of its numbers
must have an equal in the source, unit included).
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from medlive.threads.units import HAN_UNIT, PER, PER_WORDS, RATES, UNIT, UNIT_STARTS, UNITS, read_unit

_NUMBER: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+")
_POWER: Final = re.compile(r"\s?(?:[x×*]\s?10\s?[\^*]\s?|e\+?|\^|×10)(-?\d{1,2})(?!\d)")
_TEN_POWER: Final = re.compile(r"10\s?[\^*]\s?(-?\d{1,2})(?!\d)")
_BEFORE_POWER: Final = frozenset("x×*e^")
_BEFORE_MANY: Final = frozenset("万千亿百mtb")
_MULTIPLIER: Final = re.compile(r"\s?(万|千|亿|百万|million|thousand|billion)(?![a-z])")
_MULTIPLIERS: Final = {
    "千": 1000, "thousand": 1000, "万": 10_000, "百万": 10**6, "million": 10**6, "亿": 10**8,
    "billion": 10**9,
}  # fmt: skip
_TENTH: Final = re.compile(r"度([1-9])(?![\d.年月天个])")
_CLOCK: Final = re.compile(r"个?半(?=[年月天周小钟])|(?=[年天月周]半)")
_AFTER_NUMERAL: Final = UNIT_STARTS | frozenset("个半年天月周多余来-/")
"""What, or a space, stands behind a single Chinese numeral that counts something."""
_HAN_TENTH: Final = re.compile("[一二三四五六七八九](?![一二三四五六七八九十个天年月])")
_TWO_DIGITS: Final = re.compile("[一二三四五六七八九两]{2}")
_ONE_TO_NINE: Final = frozenset("123456789")
_NAME_RUN: Final = re.compile(r"\d+(?:[a-z][a-z0-9]*)?")
_DECIMAL: Final = re.compile(r"\.\d|/\d")
_TO_OR: Final = re.compile(r"\s(?:to|or)\s")
_JOIN: Final = re.compile(
    r"\s?(?P<sep>-|~|至|到|或|、|to|or|x|×|\*|and(?=\s))\s?(?=\d|\.\d|[一二两三四五六七八九十])"
)
_RATIO: Final = re.compile(r"\s?(?:/|:|比|over)\s?(?=\d)")
_MIXED: Final = re.compile(r"(\d{1,3})\s(\d)/(\d)(?![\d/])")
_DAMAGED: Final = re.compile(r"(\d{1,4})\.\s{1,2}(\d{1,3})(?![\d.])")
_FULL_DATE: Final = re.compile(
    r"(?P<y>(?:19|20)\d\d)(?:\s?年\s?(?P<m>\d{1,2})\s?月(?:份)?(?:\s?(?P<d>\d{1,2})\s?[日号])?"
    r"|(?P<sep>[-/.])(?P<m2>\d{1,2})(?P=sep)(?P<d2>\d{1,2})(?![\d.])|\s?年(?!龄))"
)
_MONTH_DAY: Final = re.compile(r"(?P<m>1[0-2]|0?[1-9])\s?月\s?(?P<d>3[01]|[12]\d|0?[1-9])\s?[日号]")
_MONTH: Final = (
    r"(?P<m>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_MONTH_FIRST: Final = re.compile(
    rf"\b{_MONTH}\s(?:(?P<d>3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?(?!\d)(?:,?\s(?P<y>(?:19|20)\d\d))?"
    r"|(?P<y2>(?:19|20)\d\d))(?![\d/])"
)
_DAY_FIRST: Final = re.compile(
    rf"(?P<d>3[01]|[12]\d|0?[1-9])(?P<sure>(?:st|nd|rd|th)?\s(?:of\s)?){_MONTH}(?![a-z])(?:,?\s(?P<y>(?:19|20)\d\d))?"
)
_MONTH_NUMBER: Final = {
    name: i
    for i, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)  # noqa: SIM905
}
_HAN_DATE: Final = re.compile(
    r"(?P<m>十[一二]|[一二三四五六七八九十])月(?P<d>三十一?|二十[一二三四五六七八九]?|十[一二三四五六七八九]?|[一二三四五六七八九])[日号]"
)
_DIGIT_DATES: Final = (_FULL_DATE, _MONTH_DAY, _DAY_FIRST)
_HAN_DATES: Final = (_HAN_DATE,)
_LETTER_DATES: Final = (_MONTH_FIRST,)

_HAN_DIGITS: Final = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "俩": 2}
_HAN_NUMBER: Final = re.compile(r"[零〇一二两三四五六七八九十百千万]+(?:点[零〇一二三四五六七八九]+)?")
_HAN_NOT: Final = re.compile(r"十(?:二指|分(?!钟)|全|字|足|指)|千万|万一|百(?:合|分)|一万一")
_HAN_BARE: Final = re.compile(r"[二三四五六七八九]?十[一二三四五六七八九]?|[一二三四五六七八九]百.*|.*点.*")
_WORDS_TEXT: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_WORDS: Final = _WORDS_TEXT.split()
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
_WORD_VALUE: Final = {w: i for i, w in enumerate(_WORDS)} | {w: 10 * i for i, w in enumerate(_TENS, 2)}
_WORD_NUMBER: Final = re.compile(
    rf"\b(?:(?P<tens>{'|'.join(_TENS)})(?:[\s-](?P<ones>{'|'.join(_WORDS[1:10])}))?|(?P<word>{'|'.join(_WORDS)}))\b"
)
_WORD_UNITS_TEXT: Final = (
    "day week month year hour minute second tablet capsule pill drop puff dose time mg g ml sachet "
    "injection course fold session % inch foot kg lb unit"
)
_WORD_UNITS: Final = frozenset(_WORD_UNITS_TEXT.split())
_TIMES: Final = re.compile(
    r"\b(?:(?P<once>once)(?=\s(?:a|daily|per|every|each|weekly|monthly|in\sa)\b)|(?P<twice>twice)|(?P<thrice>thrice))\b"
)
_ARTICLE_UNITS: Final = ("fold", "item", "time", "dose")
_THEN_NUMBER: Final = re.compile(r"[吃服用口打喝注射]{0,2}(?:\d|[一二两三四五六七八九十])")
_PER_BEFORE: Final = re.compile(r"[每一](天|日|周|星期|个?月|年|小时)[吃服用口打喝注射]{0,2}$")
_HALF: Final = re.compile(
    rf"(?:半(?P<han>{HAN_UNIT})|\bhalf\s(?:an?\s)?(?P<latin>tablet|tab|pill|hour|year|day|month|dose|teaspoon)\b)"
)
_START: Final = re.compile(r"[0-9.零〇一二两三四五六七八九十百千万半]")
_START_WORDS_TEXT: Final = (
    "once twice thrice half zero one two three four five six seven eight nine ten eleven twelve twenty thir fif "
    "forty jan feb mar apr may jun jul aug sep oct nov dec"
)
_START_WORDS: Final = tuple(_START_WORDS_TEXT.split())
"""How the words begin that may begin a number."""
_LATIN: Final = re.compile("[a-z]{3}")
_DIGIT: Final = re.compile("[0-9]")
_LIST_MARKER: Final = re.compile(r"(?:^|\n)[ \t]*[(（]?\d{1,2}(?:[.、)](?!\s?\d)|[,，](?=[一-鿿]))", re.MULTILINE)

_FORMAL: Final = str.maketrans(
    {"壹": "一", "贰": "二", "叁": "三", "肆": "四", "伍": "五", "陆": "六", "柒": "七", "捌": "八", "玖": "九",
     "拾": "十", "佰": "百", "仟": "千", "廿": "二十", "卅": "三十"}
)  # fmt: skip
_UNREAD: Final = re.compile(
    r"(?P<before>[^\s\d,，;；。()（）/+-]{1,12})\s?(?P<unit>(?<![a-z])(?:mg|mcg|μg|ug|ng|ml|iu|mmol|mmhg)(?![a-z])|毫克|微克|毫升|毫摩)"
)
"""A unit of a dose or of a laboratory value behind something that is no number to this module."""
_UNREAD_UNIT: Final = re.compile(
    r"[mμuni毫微](?:(?<=[^\s\d,，;；。()（）/+-].)|(?<=[^\s\d,，;；。()（）/+-]\s.))"
    r"(?:(?<=[毫微])[克升摩]|(?<![a-z].)(?:g|cg|l|u|mol|mhg)(?![a-z]))"
)
"""What every match of it ends with, found sooner."""
_UNREAD_REACH: Final = 24
_LOOKALIKE: Final = re.compile(r"[0-9](?<![a-z\d]\d)[\d.,]*[oοо][\doοо.,]*")
"""Digits with a letter o among them: a zero to whoever reads it."""

_SUPERSCRIPTS: Final = {"⁰": "0", "¹": "1", "²": "2", "³": "3", "⁴": "4", "⁵": "5", "⁶": "6", "⁷": "7",
                        "⁸": "8",                        "⁹": "9", "⁻": "-"}  # fmt: skip
_SUPERSCRIPT_RUN: Final = re.compile("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_NON_ASCII: Final = re.compile(r"[^\x00-\x7f\u4e00-\u9fff、。]")
_FORMAL_CHAR: Final = re.compile(f"[{''.join(map(chr, _FORMAL))}]")
_WIDE_MARKS: Final = tuple(zip("，：；？！（）", ",:;?!()", strict=True))
"""The full-width characters that most Chinese texts hold: replaced one by one, they cost least."""


class Quantity(NamedTuple):
    """A number as it counts for comparison."""

    value: str
    """Plain decimal without needless zeros ("2.5", "-1"), a ratio ("120/80"), a date ("2020-03-21"; "-" for
    an unknown part: "2020-03", "--03-21"), a power ("10^9"), or a name that carries digits ("b12")."""
    unit: str | None
    """Canonical unit ("mg", "day", "mg/kg"), "date", "name", or None where none is written."""


class _Token(NamedTuple):
    """One number of a text, in every reading it allows."""

    start: int
    end: int
    quantity: Quantity | None
    """What the token says as a whole; None for a range, which is only its members."""
    parts: tuple[Quantity, ...] = ()
    """What else the token states."""
    parts_suffice: bool = False
    """Whether a source that holds all parts supports the whole."""
    article: bool = False
    """Whether the number may be no count (一次, 一天三次): a source states it, a statement need not."""


def plain_digits(text: str) -> str:
    """The text in half width and lower case with ASCII digits, superscripts as `^n`, fractions as `n/d`."""
    if text.isascii():
        return text.lower()
    if _SUPERSCRIPT_RUN.search(text):
        text = _SUPERSCRIPT_RUN.sub(lambda m: "^" + "".join(_SUPERSCRIPTS[c] for c in m.group()), text)
    for wide, narrow in _WIDE_MARKS:
        text = text.replace(wide, narrow)
    if _FORMAL_CHAR.search(text):
        text = text.translate(_FORMAL)
    return _NON_ASCII.sub(lambda match: _plain(match.group()), text).lower()


@lru_cache(maxsize=1 << 12)
def _plain(char: str) -> str:
    if (decimal := unicodedata.decimal(char, None)) is not None:
        return str(decimal)
    if char in "–—−‐‑‒–～〜﹣":
        return "~" if char in "～〜" else "-"
    if char in "µ":
        return "μ"
    if char == "×" or char in "℃℉°":
        return char
    if unicodedata.category(char) == "No":
        fraction = unicodedata.normalize("NFKC", char).replace("⁄", "/")
        return f" {fraction}" if "/" in fraction else char
    wide = unicodedata.normalize("NFKC", char)
    if char.isspace():
        return "\n" if char in "\x85\u2028\u2029" else " "
    return wide


def _canonical(number: str) -> str:
    """`1,000.50` → `1000.5`, `.5` → `0.5`, `007` → `7`."""
    whole, _, fraction = number.replace(",", "").partition(".")
    whole = whole.lstrip("0") or "0"
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def _scale(value: str, factor: int) -> str:
    whole, _, fraction = value.partition(".")
    zeros = len(str(factor)) - 1
    digits = whole + fraction.ljust(zeros, "0")
    cut = len(whole) + zeros
    return _canonical(f"{digits[:cut]}.{digits[cut:]}")


def _han_value(numeral: str) -> str | None:
    """The value of a Chinese numeral of at most 16 characters; None where it is none (digits in a row)."""
    if len(numeral) > 16:
        return None
    whole, _, fraction = numeral.partition("点")
    total = section = 0
    digit: int | None = None
    for char in whole:
        if char in _HAN_DIGITS:
            if digit not in (None, 0):
                return None
            digit = _HAN_DIGITS[char]
        elif char == "万":
            total, section, digit = (total + section + (digit or 0)) * 10_000 or 10_000, 0, None
        else:
            scale = {"十": 10, "百": 100, "千": 1000}[char]
            section, digit = section + (1 if digit is None else digit) * scale, None
    value = str(total + section + (digit or 0))
    return f"{value}.{''.join(str(_HAN_DIGITS[c]) for c in fraction)}" if fraction else value


def _with_rates(value: str, unit: str | None) -> tuple[Quantity, ...]:
    """A quantity and the weaker ones it implies: "5 mg/day" is also "5 mg"."""
    found = [Quantity(value, unit)]
    while unit and "/" in unit.lstrip("/"):
        head, _, last = unit.rpartition("/")
        if last not in RATES:
            break
        unit = head
        found.append(Quantity(value, unit))
    return tuple(found)


def _negative(text: str, at: int) -> bool:
    """Whether the number at `at` carries a minus sign: attached to it and to nothing before."""
    if at == 0 or text[at - 1] != "-":
        return False
    before = text[max(0, at - 8) : at - 1].rstrip(" ")
    return (at == 1 or text[at - 2] in " \n\t(（,，:：;=") and not (before and before[-1].isdigit())


def _one_number(text: str, at: int) -> tuple[str, int] | None:
    """A number in digits or Chinese numerals at `at`, as a canonical value and its end."""
    if text.startswith("10", at) and (match := _TEN_POWER.match(text, at)):
        return f"10^{int(match.group(1))}", match.end()
    if match := _NUMBER.match(text, at):
        value, end = _canonical(match.group()), match.end()
        after = text[end : end + 2]
        follows = after[1:] if after[:1].isspace() else after[:1]
        if follows in _BEFORE_POWER and (power := _POWER.match(text, end)):
            return (
                f"{value}x10^{int(power.group(1))}" if "10" in power.group() else f"{value}^{int(power.group(1))}",
                (power.end()),
            )
        if (
            follows in _BEFORE_MANY
            and (many := _MULTIPLIER.match(text, end))
            and not (many.group(1) == "千" and text[many.end() :][:1] in "克卡帕")
        ):
            return _scale(value, _MULTIPLIERS[many.group(1)]), many.end()
        if text.startswith("度", end) and (degree := _TENTH.match(text, end)) and "." not in value:
            return f"{value}.{degree.group(1)}", end  # 38度5: the unit follows the whole part
        return value, end
    if (match := _HAN_NUMBER.match(text, at)) and (han := _han_value(match.group())):
        return _canonical(han), match.end()
    return None


def _han_token(text: str, at: int) -> _Token | None:
    """A Chinese numeral that is clearly a quantity: before a unit, or 十五 and the like."""
    match = _HAN_NUMBER.match(text, at)
    if match is None or _HAN_NOT.match(text, at):
        return None
    numeral, end = match.group(), match.end()
    if len(numeral) == 1 and (after := text[end : end + 1]) not in _AFTER_NUMERAL and not after.isspace():
        return None
    if (clock := _CLOCK.match(text, end)) and len(numeral) <= 3:
        value = _han_value(numeral)
        unit, unit_end = read_unit(text, clock.end())
        if value and unit:
            return _Token(at, unit_end + (clock.end() == end), Quantity(f"{value}.5", unit))
    unit, unit_end = read_unit(text, end + (text[end : end + 1] in ("多", "余", "来")))
    if len(numeral) == 2 and unit and _TWO_DIGITS.fullmatch(numeral):  # 两三天: two or three days
        values = [str(_HAN_DIGITS[c]) for c in numeral]
        if int(values[1]) == int(values[0]) + 1:
            return _Token(at, unit_end, None, tuple(q for v in values for q in _with_rates(v, unit)), True)
        return None
    value = _han_value(numeral)
    if value is None:
        return None
    if unit == "deg" and (tenth := _HAN_TENTH.match(text, unit_end)):
        return _Token(at, tenth.end(), Quantity(f"{value}.{_HAN_DIGITS[tenth.group()]}", unit))
    if unit is None or numeral == "万":
        if not _HAN_BARE.fullmatch(numeral) or len(numeral) < 2:
            return None
        return _Token(at, end, Quantity(_canonical(value), None))
    if numeral == "一" and (unit in _ARTICLE_UNITS or _THEN_NUMBER.match(text, unit_end)):
        return _Token(at, unit_end, Quantity("1", unit), article=True)
    quantities = _with_rates(_canonical(value), _per_before(text, at, unit))
    return _Token(at, unit_end, quantities[0], quantities[1:])


def _per_before(text: str, at: int, unit: str | None) -> str | None:
    """The unit with the rate that Chinese puts in front: 每天3次 is 3 time/day."""
    if unit != "time":
        return unit
    before = _PER_BEFORE.search(text[max(0, at - 8) : at])
    return f"time/{UNITS[before.group(1)]}" if before else unit


def _date_token(text: str, at: int, patterns: Sequence[re.Pattern[str]]) -> _Token | None:
    """A date at `at`, as far as it is written out; `patterns` are those that begin as the text does there."""
    if at and text[at - 1].isdigit():
        return None
    for pattern in patterns:
        match = pattern.match(text, at)
        if match is None:
            continue
        groups = match.groupdict()
        year = groups.get("y") or groups.get("y2")
        month, day = (
            _ordinal(groups.get("m") or groups.get("m2")),
            _ordinal(groups.get("d") or groups.get("d2")),
        )
        if month is not None and not 1 <= month <= 12:
            continue
        if pattern is _MONTH_FIRST and year is None and UNIT.match(text, match.end()):
            continue  # "may 5 mg help"
        if pattern is _DAY_FIRST and groups["m"] == "may" and not year and groups["sure"] == " ":
            continue  # "these 3 may help"
        value = f"{year or '-'}-{month:02d}" if month else str(year)
        value += f"-{day:02d}" if day else ""
        parts = [Quantity(year, None)] if year else []
        parts += [Quantity(str(day), None)] if day else []
        parts += [Quantity(str(month), "month")] if month else []
        return _Token(at, match.end(), Quantity(value, "date"), tuple(parts))
    return None


def _ordinal(text: str | None) -> int | None:
    """A month or day as a number, from digits, an English month name or a Chinese numeral."""
    if text is None:
        return None
    if text.isdigit():
        return int(text)
    if text[0] in _HAN_DIGITS or text[0] == "十":
        return int(_han_value(text) or 0)
    return _MONTH_NUMBER[text[:3]]


def _name_token(text: str, at: int) -> _Token | None:
    """A word that carries digits and is no quantity (B12, H1N1, HbA1c); None where it reads as a quantity."""
    start = at
    while start and (before := text[start - 1]).isalpha() and before.isascii() and at - start < 12:
        start -= 1
    if start == at:
        return None
    run = _NAME_RUN.match(text, at)
    if run is None:
        return None
    prefix, rest = text[start:at], run.group()
    tail = rest.lstrip("0123456789")
    decimal = not tail and _DECIMAL.match(text, run.end()) is not None
    unit_follows = bool(tail) and tail in UNITS and len(tail) > 1
    if decimal or unit_follows or (len(prefix) >= 2 and not tail):
        return None
    if not tail and (unit := UNIT.match(text, run.end())) and not unit.group().strip()[:1].isascii():
        return None  # p80次/分, t38℃
    return _Token(start, run.end(), Quantity(prefix + rest, "name"))


def _digit_token(text: str, at: int) -> _Token | None:
    """A number in digits at `at`, with what joins it: a range, a size, a ratio, a unit."""
    if mixed := _MIXED.match(text, at):
        whole, over, under = (int(g) for g in mixed.groups())
        if 0 < over < under:
            unit, end = read_unit(text, mixed.end())
            value = _canonical(f"{whole + over / under:.3f}")
            members = (Quantity(str(whole), None), Quantity(f"{over}/{under}", unit))
            return _Token(at, end, Quantity(value, unit), members, True)
    if damaged := _DAMAGED.match(text, at):
        unit, end = read_unit(text, damaged.end())
        first, second = damaged.groups()
        parts = (Quantity(_canonical(first), None), *_with_rates(_canonical(second), unit))
        return _Token(at, end, Quantity(_canonical(f"{first}.{second}"), unit), parts, True)
    read = _one_number(text, at)
    if read is None:
        return None
    value, end = read
    if _negative(text, at):
        value = "-" + value
    if ratio := _RATIO.match(text, end):
        return _ratio_token(text, at, value, end, ratio.end())
    unit, end = read_unit(text, end)
    if unit == "deg" and "." in value and text[end - 1] == "度" and text[end : end + 1] in _ONE_TO_NINE:
        end += 1
    chain: list[tuple[str, str | None]] = [(value, unit)]
    last_separator = ""
    while len(chain) < 12 and (join := _JOIN.match(text, end)):
        following = _one_number(text, join.end())
        if following is None or (
            following[1] < len(text)
            and text[join.end()] in "一二两三四五六七八九十"
            and unit is None
            and read_unit(text, following[1])[0] is None
        ):
            break
        last_separator = join.group("sep")
        next_unit, next_end = read_unit(text, following[1])
        if last_separator in ("and", "or", "或", "、") and chain[-1][1] is not None:
            break  # "5 mg and 3 days" are two statements
        chain.append((following[0], next_unit))
        end = next_end
    if len(chain) == 1:
        quantities = _with_rates(value, _per_before(text, at, unit))
        return _Token(at, end, quantities[0], quantities[1:])
    shared = next((u for _, u in reversed(chain) if u), None)
    return _Token(at, end, None, tuple(q for v, u in chain for q in _with_rates(v, u or shared)), True)


def _ratio_token(text: str, at: int, value: str, end: int, next_at: int) -> _Token:
    """120/80, 1/2, 3/4/2020, 10:30."""
    separator = ":" if ":" in text[end:next_at] else "/"
    members = [value]
    while len(members) < 6:
        following = _NUMBER.match(text, next_at)
        if following is None:
            break
        members.append(_canonical(following.group()))
        end = following.end()
        again = _RATIO.match(text, end)
        if again is None:
            break
        next_at = again.end()
    unit, end = read_unit(text, end)
    plain = tuple(Quantity(m, None) for m in members) + tuple(Quantity(m, unit) for m in members if unit)
    # A blood pressure is the same with and without its unit; no other ratio is written in mmHg.
    whole = Quantity(separator.join(members), None if unit == "mmhg" else unit)
    return _Token(at, end, whole, (*_with_rates(whole.value, whole.unit)[1:], *plain))


def _half_token(text: str, at: int) -> _Token | None:
    """ "half a tablet", 半片."""
    half = _HALF.match(text, at)
    return (
        _Token(at, half.end(), Quantity("1/2", UNITS[half.group("han") or half.group("latin")])) if half else None
    )


def _word_token(text: str, at: int) -> _Token | None:
    """An English number word before a unit, "twice", "half a tablet"."""
    if times := _TIMES.match(text, at):
        count = {"once": "1", "twice": "2", "thrice": "3"}[times.group()]
        per = PER.match(text, times.end())
        unit: str | None = "time"
        end = times.end()
        if per and (spelled := per.group("daily") or per.group("latin")):
            unit, end = f"time/{PER_WORDS.get(spelled) or UNITS.get(spelled, spelled)}", per.end()
        quantities = _with_rates(count, unit)
        return _Token(at, end, quantities[0], quantities[1:])
    if half := _half_token(text, at):
        return half
    word = _WORD_NUMBER.match(text, at)
    if word is None:
        return None
    tens, ones = word.group("tens"), word.group("ones")
    value = _WORD_VALUE[word.group("word")] if not tens else _WORD_VALUE[tens] + (_WORD_VALUE[ones] if ones else 0)
    joined = _TO_OR.match(text, word.end())
    if joined and (second := _WORD_NUMBER.match(text, joined.end())) and second.group("word"):
        unit, end = read_unit(text, second.end())
        if unit and unit.split("/")[0] in _WORD_UNITS:
            both = (str(value), str(_WORD_VALUE[second.group("word")]))
            return _Token(at, end, None, tuple(q for v in both for q in _with_rates(v, unit)), True)
    unit, end = read_unit(text, word.end())
    if unit is None or unit.split("/")[0] not in _WORD_UNITS or (unit == "time" and value == 1):
        return None
    quantities = _with_rates(str(value), unit)
    return _Token(at, end, quantities[0], quantities[1:])


def _percent_of(text: str, at: int) -> _Token | None:
    """百分之三十, 百分之30."""
    if not text.startswith("百分之", at):
        return None
    read = _one_number(text, at + 3)
    return _Token(at, read[1], Quantity(read[0], "%")) if read else None


def _tokens(text: str) -> Iterator[_Token]:
    """The number tokens of a text already in plain digits, left to right."""
    at = 0
    for begin in _starts(text):
        if begin < at:
            continue
        char = text[begin]
        token: _Token | None
        if char.isdigit() or char == ".":
            token = _name_token(text, begin) or _date_token(text, begin, _DIGIT_DATES) or _digit_token(text, begin)
        elif "一" <= char <= "鿿":
            token = (
                _percent_of(text, begin)
                or _date_token(text, begin, _HAN_DATES)
                or (_half_token(text, begin) if char == "半" else _han_token(text, begin))
            )
        else:
            token = _date_token(text, begin, _LETTER_DATES) or _word_token(text, begin)
        if token is None:
            skipped = _HAN_NUMBER.match(text, begin)
            at = skipped.end() if skipped else begin + 1
            continue
        yield token
        at = max(token.end, begin + 1)


def _starts(text: str) -> Iterable[int]:
    """Where a number may begin, in order."""
    signs = [
        at
        for match in _START.finditer(text)
        if text[at := match.start()] != "."
        or (text[at + 1 : at + 2].isdecimal() and not text[at - 1 : at].isdecimal())
    ]
    words = []
    for word in filter(text.__contains__, _START_WORDS if text.isascii() or _LATIN.search(text) else ()):
        at = text.find(word)
        while at >= 0:
            before = text[at - 1] if at else " "
            if not (before.isalnum() or before == "_"):
                words.append(at)
            at = text.find(word, at + len(word))
    return sorted({*signs, *words}) if words else signs


def numbers(text: str) -> tuple[Quantity, ...]:
    """The numbers of a text in order, with their units; list markers ("1.") are none.

    A range gives its two ends with the shared unit, "5-7 days" → 5 day, 7 day; a blood pressure stays whole.
    """
    plain = _without_markers(plain_digits(text))
    found: list[Quantity] = []
    for token in _tokens(plain):
        if token.article:
            continue
        found.extend([token.quantity] if token.quantity else token.parts)
    return tuple(found)


def _without_markers(plain: str) -> str:
    if not _DIGIT.search(plain):
        return plain
    return _LIST_MARKER.sub(lambda m: re.sub(r"\d", " ", m.group()), plain)


def _around(signs: re.Pattern[str], plain: str, reach: int) -> Iterator[tuple[int, int]]:
    """The stretches of a text that lie that near to where a sign begins, none overlapping another."""
    begin = end = -1
    for match in signs.finditer(plain):
        at = match.start()
        if at - reach > end:
            if end >= 0:
                yield begin, end
            begin = max(0, at - reach)
        end = at + reach
    if end >= 0:
        yield begin, end


def _unread(plain: str, tokens: list[_Token]) -> list[str]:
    """What looks like a number or stands in a number's place, and no token reads."""
    found: list[str] = []
    for start, end in _around(_UNREAD_UNIT, plain, _UNREAD_REACH):
        read = {at for token in tokens for at in range(max(start, token.start), min(end, token.end))}
        found += [m.group() for m in _UNREAD.finditer(plain, start, end) if m.start("unit") not in read]
    return found + [m.group() for m in _LOOKALIKE.finditer(plain)]


_AFTER_LETTER: Final = frozenset(" -\n")
_LETTER_ALONE: Final = re.compile(r"(?<![a-z0-9])([a-z])[ -]$")
_AGE_STATED: Final = re.compile(
    r"(?:\b(?:i'?m|i am|(?:he|she)(?:'s| is)|aged?|male|female|man|woman|[mf])[\s,:/-]{0,3}|[男女][\s,，、]{0,2}"
    r"|年龄[\s:：]{0,2})(?P<after>\d{1,3})(?![\d%:/-]|\.\d|\s?(?:feet|foot|ft|lbs?|pounds?|kilos?|'|\"))"
    r"|(?<![\d./-])(?P<before>\d{1,3})(?:\s?/\s?|\s?(?=male|female)|(?=[mf]))(?:male|female|[mf])\b"
    r"|(?<![\d./-])(?P<han>\d{1,3})(?=[男女])"
)
"""An age without its unit: "I'm 55", "Male, 28", 28F, 女，34."""
_AGE_WRITTEN: Final = re.compile(r"[\s-]?(?:olds?\b|of age\b)")


_AGE_REACH: Final = 40
"""Characters on each side of its digits within which all lies that an age without its unit is known by."""


def _letter_before(plain: str, at: int) -> str | None:
    """The letter that stands alone before a number, as in "vitamin b 12"."""
    if plain[at - 1 : at] not in _AFTER_LETTER:
        return None
    letter = _LETTER_ALONE.search(plain[max(0, at - 3) : at])
    return letter.group(1) if letter else None


class _Stated:
    """What a source states, for look-ups."""

    def __init__(self, source: str) -> None:
        self.exact: set[Quantity] = set()
        self.values: set[str] = set()
        self.plain = plain = plain_digits(source)
        for token in _tokens(plain):
            for quantity in (token.quantity, *token.parts):
                if quantity is not None:
                    self.exact.add(quantity)
                    self.values.add(quantity.value)
            if token.quantity and (letter := _letter_before(plain, token.start)):
                self.exact.add(Quantity(letter + token.quantity.value, "name"))
        self.names = [q.value for q in self.exact if q.unit == "name"]
        self.dates = [q.value for q in self.exact if q.unit == "date"]

    @cached_property
    def ages(self) -> frozenset[str]:
        """The numbers that stand for an age, as written."""
        return frozenset(
            match.group(match.lastgroup or 0)
            for start, end in _around(_DIGIT, self.plain, _AGE_REACH)
            for match in _AGE_STATED.finditer(self.plain, start, end)
            if match.lastgroup != "after" or read_unit(self.plain, match.end())[0] is None
        )

    @cached_property
    def dense(self) -> str:
        """The source without white space."""
        return "".join(self.plain.split())

    def holds(self, quantity: Quantity) -> bool:
        """Whether the source states this quantity, in this unit where one is given."""
        value, unit = quantity
        if quantity in self.exact:
            return True
        if unit is None or unit == "item":
            return value in self.values
        if unit == "name":
            digits = re.sub(r"^[a-z]+", "", value)
            if any(n.endswith(value) or value.endswith(n) for n in self.names):
                return True
            return len(value) - len(digits) > 1 and Quantity(digits, None) in self.exact
        if unit == "date":
            return any(_date_within(value, other) for other in self.dates) or Quantity(value, None) in self.exact
        if unit in ("deg", "°c", "°f"):
            others = ("°c", "°f") if unit == "deg" else ("deg",)
            return any(Quantity(value, other) in self.exact for other in others)
        return False


@lru_cache(maxsize=32)
def _stated(sources: tuple[str, ...]) -> _Stated:
    # A thread is asked about once for each of its elements.
    return _Stated("\n".join(sources))


def _date_parts(value: str) -> tuple[str, str, str]:
    year, _, rest = ("-", "", value[2:]) if value.startswith("--") else value.partition("-")
    month, _, day = rest.partition("-")
    return year if year != "-" else "", month, day


def _date_within(less: str, more: str) -> bool:
    """Whether every part that `less` gives is equal in `more`."""
    return all(not a or a == b for a, b in zip(_date_parts(less), _date_parts(more), strict=True))


def _is_age(plain: str, token: _Token) -> bool:
    """Whether a number of years is written as an age ("28-year-old", 28岁), and not as a length of time."""
    if token.quantity is None or token.quantity.unit != "year":
        return False
    return plain[token.end - 1] == "岁" or _AGE_WRITTEN.match(plain, token.end) is not None


def numbers_missing(statement: str, *sources: str) -> list[str]:
    """The numbers of the statement, as written (half width, lower case), that the sources do not state.

    A number with a unit needs the same number with the same unit (spellings of a unit are equal: mg, 毫克);
    one without a unit needs the number alone. What stands in a number's place without being one to this module
    ("5O mg", "five hundred mg") needs the same words. Empty when every number is accounted for.
    """
    plain = _without_markers(plain_digits(statement))
    tokens = list(_tokens(plain))
    unread = _unread(plain, tokens)
    if not tokens and not unread:
        return []
    stated = _stated(sources)
    missing = [text for text in unread if re.sub(r"\s", "", text) not in stated.dense]
    for token in tokens:
        if token.article or (token.quantity is not None and stated.holds(token.quantity)):
            continue
        if token.parts_suffice and token.parts and all(stated.holds(part) for part in token.parts):
            continue
        if token.quantity and token.quantity.value in stated.ages and _is_age(plain, token):
            continue
        letter = _letter_before(plain, token.start)
        if letter and token.quantity and stated.holds(Quantity(letter + token.quantity.value, "name")):
            continue
        missing.append(plain[token.start : token.end].strip())
    return missing
