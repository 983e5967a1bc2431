"""Normalise text for storage, fold it for comparison, and detect its language.

Nothing clinical is repaired: damaged decimals, misspelt drugs and lost commas stay.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Literal

from .lists import read_words
from .neutral import LINE_END, join_surrogates, neutralise

Language = Literal["en", "zh", "other", "unknown"]

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_BLANKS = re.compile(
    r"[ \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]{2,}|[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"
)
_AROUND_LINE = re.compile(r"[ \t]*\n[ \t]*")
_MANY_LINES = re.compile(r"\n{3,}")

_NON_ASCII = re.compile(r"[^\x00-\x7f\u3001-\u302f\u3400-\u9fff]+")
_STRAIGHT = str.maketrans("‘’‚′“”„″‐‑‒–—―−", "''''\"\"\"\"-------")
_SELECTORS = {0xFE0E: None, 0xFE0F: None}
_NARROW = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
    **_STRAIGHT,
    0x3000: 0x20,
    **_SELECTORS,
}
"""Full-width ASCII characters to half width, quotes and dashes to straight ones, emoji selectors to nothing."""
_HAN_CLASS = r"\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff。，！？；：、“”‘’（）"
# Control characters that `str.split` treats as white space
_SEPARATORS = "\x1c\x1d\x1e\x1f"
_HAN_SPACE = re.compile(rf" (?:(?<=[{_HAN_CLASS}] )|(?=[{_HAN_CLASS}]))")
_TO_NARROW = re.compile("[\uff01-\uff5e‘’‚′“”„″‐‑‒–—―−\u3000\ufe0e\ufe0f]")

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
_KANA = re.compile(r"[\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff]+")
_HANGUL = re.compile(r"[\u1100-\u11ff\u3131-\u318e\uac00-\ud7af]+")
_OTHER_SCRIPT = re.compile(r"[\u0370-\u1cff\ua4d0-\uabff\ufb1d-\ufdff\ufe70-\ufefe]+")
_UNUSUAL = re.compile(
    r"[\u0370-\u1cff\u3041-\u30ff\u3131-\u318e\u31f0-\u31ff\ua4d0-\ud7af\ufb1d-\ufefe]"
)
_LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]+(?:['’][A-Za-z]+)?")
_MARKED = re.compile(r"[\u00c0-\u024f\u1e00-\u1eff]")
_THOUSANDS = re.compile(r",[0-9]{3}(?![0-9])")
_SAMPLE = 20_000
_MAX_TRIES = 1_000
# Longest source whose folded text is cached for the next quote
_MAX_CACHED = 50_000
_FUNCTION_WORDS = read_words("medlive.text", "function_words.txt")
_ADDRESS = re.compile(r"https?://\S+")


def strip_unstorable(text: str) -> str:
    """Remove what PostgreSQL cannot store (NUL, lone surrogates), and join surrogate pairs."""
    return join_surrogates(text).replace("\x00", "")


def normalise(text: str) -> str:
    """Normalise to NFC, without control, zero-width and bidi characters, with `\\n` line ends and single spaces.

    Idempotent. Tabs that stand alone stay; at most one empty line in a row; no space at line ends.
    """
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    text = strip_unstorable(text)
    text = LINE_END.sub("\n", text)
    text = _INVISIBLE.sub("", text)
    text = unicodedata.normalize("NFC", text)
    text = _BLANKS.sub(" ", text)
    text = _AROUND_LINE.sub("\n", text)
    return _MANY_LINES.sub("\n\n", text).strip()


def _narrow(match: re.Match[str]) -> str:
    """Characters in their NFKC form and digits in ASCII, unless that would change a number."""
    out = []
    for char in match.group():
        if (decimal := unicodedata.decimal(char, None)) is not None:
            out.append(str(decimal))
            continue
        plain = unicodedata.normalize("NFKC", char)
        # ², ½, ① and ㎡ would turn into other numbers: they stay.
        changed = unicodedata.category(char) == "No" or any(c.isdigit() for c in plain)
        out.append(char if changed else plain)
    return "".join(out)


def fold(text: str) -> str:
    """Fold a text for matching quotes: half width, lower case, straight quotes and dashes, single spaces (none
    beside Chinese characters).

    Numbers keep their value: 10² does not become 102. A text and its form in prompts fold to the same.
    """
    if text.isascii() and not any(map(text.__contains__, _SEPARATORS)):
        plain = " ".join(text.lower().split())
        if plain.isprintable():
            return plain
    text = unicodedata.normalize("NFC", neutralise(text))
    if _TO_NARROW.search(text):
        text = text.translate(_NARROW)
    text = " ".join(_NON_ASCII.sub(_narrow, text).casefold().split())
    return _HAN_SPACE.sub("", text) if " " in text and not text.isascii() else text


# The criteria of a case quote one answer, the elements of a thread one message.
_fold_cached = lru_cache(maxsize=16)(fold)


def contains_quote(quote: str, source: str) -> bool:
    """Whether the folded source contains the folded quote without cutting a number or a Latin word.

    "5 mg" is not in "15 mg", nor "effective" in "ineffective". An empty quote is in nothing. Only the first 1,000
    occurrences are tried, against texts of one repeated letter.
    """
    needle = fold(quote)
    if not needle:
        return False
    hay = _fold_cached(source) if len(source) <= _MAX_CACHED else fold(source)
    at = -1
    for _ in range(_MAX_TRIES):
        if (at := hay.find(needle, at + 1)) < 0:
            return False
        if _at_boundaries(hay, at, at + len(needle)):
            return True
    return False


def _at_boundaries(hay: str, start: int, end: int) -> bool:
    """Whether the span starts and ends between words and numbers."""

    def joins(left: str, right: str) -> bool:
        both = left + right
        # "infection2. Fever" is two items run together
        is_word = left.isdigit() or right.isalpha()
        return both.isascii() and both.isalnum() and is_word

    if start and joins(hay[start - 1], hay[start]):
        return False
    if start > 1 and hay[start].isdigit() and _is_within_number(hay, start - 1):
        return False
    if end < len(hay):
        if joins(hay[end - 1], hay[end]):
            return False
        if hay[end - 1].isdigit() and _is_within_number(hay, end):
            return False
        if hay[end - 1].isdigit() and hay[end] in "⁰¹²³⁴⁵⁶⁷⁸⁹½¼¾":
            return False
    return True


def _is_within_number(hay: str, at: int) -> bool:
    """Whether a sign joins the digits around it into one number: a comma does before three digits alone."""
    if hay[at] == ",":
        return _THOUSANDS.match(hay, at) is not None and hay[at - 1].isdigit()
    before, after = hay[at - 1], hay[at + 1 : at + 2]
    return hay[at] in ".^²³" and before.isdigit() and after.isdigit()


def dominant_language(text: str) -> Language:
    """Detect the main language of a text's first 20,000 characters, by script and function words.

    "zh" covers both Chinese scripts. "unknown" means no letters, or Latin words without a function word.
    """
    sample = text[:_SAMPLE]
    if "://" in sample:
        sample = _ADDRESS.sub(" ", sample)
    latin = _LATIN_WORD.findall(sample)
    han = _characters(_HAN, sample)
    kana = other = 0
    if _UNUSUAL.search(sample):
        kana = _characters(_KANA, sample)
        other = _characters(_OTHER_SCRIPT, sample) + 2 * _characters(_HANGUL, sample)
    if han + kana + other + len(latin) == 0:
        return "unknown"
    words = [w.lower().replace("’", "'") for w in latin]
    # Abbreviations such as ALT and CT belong to a Chinese text as much as to an English one.
    western = float(sum(not word.isupper() for word in latin))
    if not western and not han:
        western = float(len(latin))
    # A Chinese word is about 1.6 characters, a word of other scripts about 5 letters.
    chinese, foreign = han / 1.6, (other + kana * 2) / 5
    if kana > 0.15 * (han + kana):
        return "other" if han + kana > western else _latin_language(words)
    if foreign > max(chinese, western):
        return "other"
    if chinese >= western:
        return "zh"
    return _latin_language(words)


def _characters(pattern: re.Pattern[str], text: str) -> int:
    return sum(map(len, pattern.findall(text)))


def _latin_language(words: list[str]) -> Language:
    english = sum(map(_FUNCTION_WORDS["english"].__contains__, words))
    foreign = sum(map(_FUNCTION_WORDS["other"].__contains__, words))
    marked = len(list(filter(_MARKED.search, words)))
    if foreign + marked > max(1, english):
        return "other"
    return "en" if english * 12 >= min(len(words), 12) else "unknown"
