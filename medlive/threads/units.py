"""Units of measure, time and count as people write them, in English and Chinese, under one name each."""

import re
from collections.abc import Iterable
from typing import Final

_SPELLINGS: Final[dict[str, str]] = {
    "mg": "mg|mgs|mgm|mgms|milligram|milligrams|milligramme|milligrammes|毫克",
    "µg": "μg|ug|mcg|mcgs|microgram|micrograms|微克",
    "g": "g|gm|gms|gram|grams|克",
    "ng": "ng|nanogram|nanograms|纳克",
    "pg": "pg|皮克",
    "kg": "kg|kgs|kilo|kilos|kilogram|kilograms|公斤|千克",
    "jin": "斤|市斤",
    "lb": "lb|lbs|pound|pounds|磅",
    "oz": "oz|ounce|ounces|盎司",
    "ml": "ml|mls|cc|millilitre|millilitres|milliliter|milliliters|毫升",
    "l": "l|ltr|ltrs|litre|litres|liter|liters|升",
    "dl": "dl|deciliter|deciliters|分升",
    "fl": "fl",
    "µl": "μl|ul|微升",
    "mm": "mm|millimetre|millimetres|millimeter|millimeters|毫米",
    "cm": "cm|cms|centimetre|centimetres|centimeter|centimeters|厘米|公分",
    "m": "m|metre|metres|meter|meters|米",
    "µm": "μm|um|微米",
    "inch": "inch|inches|英寸",
    "foot": "ft|feet|foot|英尺",
    "iu": "iu|ius|国际单位",
    "unit": "unit|units|单位",
    "mol": "mol",
    "mmol": "mmol|毫摩尔",
    "µmol": "μmol|umol|微摩尔",
    "nmol": "nmol",
    "pmol": "pmol",
    "meq": "meq",
    "mmhg": "mmhg|mm hg|mm of hg|毫米汞柱",
    "kpa": "kpa|千帕",
    "%": "%|percent|per cent|pct",
    "°c": "°c|℃|° c|celsius|degrees celsius|degree celsius|degrees c|deg c|摄氏度|c",
    "°f": "°f|℉|° f|fahrenheit|degrees fahrenheit|degree fahrenheit|degrees f|deg f|华氏度|f",
    "deg": "°|degree|degrees|deg|度",
    "kcal": "kcal|kcals|calorie|calories|千卡|大卡",
    "gy": "gy|戈瑞",
    "mgy": "mgy",
    "bpm": "bpm|beats per minute|beats per min|beats/min|beats/minute|次/分|次/分钟|次每分|次每分钟",
    "second": "sec|secs|second|seconds|秒|秒钟",
    "minute": "min|mins|minute|minutes|分钟|分种",
    "hour": "h|hr|hrs|hour|hours|小时|个小时|钟头|个钟头|个钟",
    "day": "d|day|days|天|日",
    "week": "wk|wks|week|weeks|周|星期|个星期|礼拜|个礼拜",
    "month": "mo|mos|mth|mths|month|months|个月|个多月|月",
    "year": "y|yr|yrs|year|years|yo|y/o|y.o|岁|周岁|年|个年头",
    "tablet": "tab|tabs|tablet|tablets|片",
    "capsule": "cap|caps|capsule|capsules|胶囊",
    "pill": "pill|pills|粒|颗|丸",
    "drop": "drop|drops|gtt|滴",
    "puff": "puff|puffs|喷|揿",
    "dose": "dose|doses|剂",
    "sachet": "sachet|sachets|袋|包",
    "ampoule": "ampoule|ampoules|vial|vials|支",
    "bottle": "bottle|bottles|瓶",
    "box": "盒",
    "injection": "injection|injections|针",
    "course": "course|courses|cycle|cycles|疗程|个疗程",
    "time": "x|time|times|次|回",
    "fold": "fold|倍",
    "session": "session|sessions",
    "am": "am|a.m",
    "pm": "pm|p.m",
    "trimester": "trimester|trimesters",
    "diopter": "diopter|diopters|dioptre|dioptres",
    "item": "个|根|处|只|名|位|枚|条|块",
}
UNITS: Final[dict[str, str]] = {s: unit for unit, all_ in _SPELLINGS.items() for s in all_.split("|")}


def _alternatives(words: Iterable[str]) -> str:
    """The pattern of these words, the longest that fits first, with what they begin alike by written once."""
    by_first: dict[str, list[str]] = {}
    for word in words:
        by_first.setdefault(word[0], []).append(word[1:])
    branches = []
    for first, rests in by_first.items():
        more = _alternatives(rest for rest in rests if rest)
        optional = "?" if "" in rests else ""
        branches.append(re.escape(first) + (f"(?:{more}){optional}" if more else ""))
    return "|".join(branches)


LATIN_UNIT: Final = _alternatives(s for s in UNITS if s[0].isascii() or s[0] in "μ°℃℉")
HAN_UNIT: Final = _alternatives(s for s in UNITS if "一" <= s[0] <= "鿿")
UNIT_STARTS: Final = frozenset(s[0] for s in UNITS)
"""The characters that units begin with."""
UNIT: Final = re.compile(rf"(?:\s?-?\s?)(?:(?P<latin>{LATIN_UNIT})(?![a-z])|\s?(?P<han>{HAN_UNIT}))")
"""A unit after a number; "-" for "24-year-old" and "10-mg"."""
PER: Final = re.compile(
    rf"\s?(?:/|per\s|every\s|each\s|an?\s(?=day|hour|week|month|year|minute)|每)\s?"
    rf"(?:(?P<latin>\d{{0,3}}(?:{LATIN_UNIT}))(?:\^2)?(?![a-z])|(?P<han>{HAN_UNIT}))"
    r"|\s?(?P<daily>daily|weekly|monthly|hourly|yearly|nightly)(?![a-z])"
    r"|(?P<yi>一[天日次周晚])(?![一二两三四五六七八九十\d])"
)
PER_WORDS: Final = {
    "daily": "day", "weekly": "week", "monthly": "month", "hourly": "hour", "yearly": "year",
    "nightly": "day",    "一天": "day", "一日": "day", "一晚": "day", "一周": "week", "一次": "time",
}  # fmt: skip
RATES: Final = ("day", "week", "month", "hour", "year", "time", "dose", "minute")
"""Denominators that say how often: "5 mg/day" also states "5 mg"; "5 mg/kg" does not."""

_PER_ONE: Final = re.compile(r"/(l|ml|μl|ul|hp|lp)(?![a-z])")
_RAISED: Final = re.compile(r"\^(\d)")
_COUNT: Final = re.compile(r"\d*")
_THEN_DIGIT: Final = re.compile(r"\s?\d")


def read_unit(text: str, at: int) -> tuple[str | None, int]:
    """The canonical unit that follows position `at`, and where it ends."""
    match = UNIT.match(text, at)
    if match is None:
        power = text.startswith("/", at) and _PER_ONE.match(text, at)
        if power:
            return "/" + UNITS.get(power.group(1), power.group(1)), power.end()
        return None, at
    spelled = match.group("latin") or match.group("han")
    unit, end = UNITS[spelled], match.end()
    if unit == "month" and text.startswith("经", end):
        return None, at
    if spelled == "x" and _THEN_DIGIT.match(text, end):
        return None, at  # "5 x 3 cm" is a size
    if text.startswith("^", end) and (power_match := _RAISED.match(text, end)):
        unit, end = f"{unit}^{power_match.group(1)}", power_match.end()
    while per := PER.match(text, end):
        word = per.group("daily") or per.group("yi")
        if word:
            denominator = PER_WORDS[word]
        else:
            spelled = per.group("latin") or per.group("han")
            count = _COUNT.match(spelled)
            digits = count.group() if count else ""
            denominator = digits + UNITS[spelled[len(digits) :]] + ("^2" if per.group().endswith("^2") else "")
        unit, end = f"{unit}/{denominator}", per.end()
        if unit.count("/") > 3:
            break
    return unit, end
