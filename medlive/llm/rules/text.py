"""Sentences and words of a hostile text: every sentence is a verbatim piece of it, and every scan is linear."""

import re
import unicodedata
from typing import Literal

from medlive.text.lists import read_lists

Language = Literal["en", "zh"]

READ = 60_000  # Characters of one text that are read; what a person tells a physician is far shorter
LONGEST = 700
"""Characters of the longest sentence; a longer run without a stop is cut at a comma or a space."""

_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|prof|st|vs|e\.g|i\.e|approx|no|fig|inj|tab|cap|wt|ht|temp|b\.i\.d|t\.i\.d|"
    r"mg|ml|mcg|yrs?|hrs?|mins?)$",
    re.IGNORECASE,
)
_STOP = re.compile(
    r"[.!?]+[\"'”’)\]]*(?=\s|$|[一-鿿])|[。！？；…]+[”’」』）)\"]*|[\r\n\v\f\x85\u2028\u2029]+"
)
_BULLET = re.compile(
    r"^(?:[\s\-*•·●>#:：,，、.。;；)）]+|\(?\d{1,2}[.)、．](?!\d)\s*)+"
)
_HAN = re.compile(r"[一-鿿]")
_LATIN = re.compile(r"[A-Za-z]")
_WORD = re.compile(r"[a-z][a-z'-]*[a-z]|[a-z]|\d+(?:\.\d+)?")
_RUN = re.compile(r"[一-鿿]+")
_LONE = re.compile("[\ud800-\udfff]")
_DRUG = re.compile(
    r"[a-z]{2,}(?:cillin|mycin|floxacin|conazole|prazole|nidazole|pril|sartan|olol|statin|dipine|tidine|profen|coxib"
    r"|azepam|triptan|gliptin|gliflozin|formin|parin|xaban|mab|tinib|vir|solone|sone|terol|setron|oxetine|thiazide"
    r"|semide|lukast|cycline|caine|apine|idone|piprazole|dronate|gestrel|glutide|pentin|racetam|quine)"
)


def language_of(declared: object, text: str) -> Language:
    """The language rules are chosen by: as declared, else by which script prevails."""
    if declared == "en" or declared == "zh":
        return declared
    sample = text[:4000]
    return "zh" if len(_HAN.findall(sample)) * 2 > len(_LATIN.findall(sample)) else "en"


def sentences(text: str) -> list[str]:
    """The sentences of a text in order, without the space around them, none longer than LONGEST."""
    text = text[:READ]
    ends = []
    for stop in _STOP.finditer(text):
        begin = stop.start()
        if stop[0][0] != "." or not _ABBREVIATION.search(
            text, max(0, begin - 12), begin
        ):
            ends.append(stop.end())
    pieces = []
    start = 0
    for end in [*ends, len(text)]:
        while end - start > LONGEST:
            middle, last = start + LONGEST // 2, start + LONGEST
            cut = max(text.rfind(mark, middle, last) for mark in ",，、; ") + 1
            cut = cut or last
            pieces.append(text[start:cut])
            start = cut
        pieces.append(text[start:end])
        start = end
    return list(filter(None, map(str.strip, pieces)))


def can_be_quoted(text: str) -> bool:
    """Whether a reply can hold the text: there is no half of a surrogate pair in it."""
    return _LONE.search(text) is None


def unmarked(sentence: str) -> str:
    """The sentence without a leading bullet or list number."""
    return _BULLET.sub("", sentence)


def plain(text: str) -> str:
    """The text in half width, lower case, without control characters, its space collapsed."""
    folded = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    return _printable(folded)


def _printable(text: str) -> str:
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())


def statement(quote: str) -> str:
    """The quote as a statement: space collapsed, loose ends trimmed; no word is added or lost."""
    cleaned = _printable(quote).strip(" \t,，、;；:：-–*•>")
    return cleaned[:1].upper() + cleaned[1:] if cleaned[:1].isascii() else cleaned


def stem(word: str) -> str:
    """An English word without its commonest endings, enough to match forms of one word."""
    word = word.removesuffix("'s")
    for ending, put, least in (
        ("ies", "y", 5),
        ("sses", "ss", 5),
        ("ches", "ch", 6),
        ("shes", "sh", 6),
        ("xes", "x", 5),
        ("ing", "", 6),
        ("ed", "", 5),
        ("s", "", 4),
    ):
        if (
            word.endswith(ending)
            and len(word) >= least
            and not word.endswith(("ss", "us", "is"))
        ):
            word = word[: -len(ending)] + put
            break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] in "bdgmnprt":
        word = word[:-1]
    return word.removesuffix("e") if len(word) > 4 else word


def words(text: str) -> list[str]:
    """The English words and numbers of a text, in lower case."""
    return _WORD.findall(plain(text))


def stems(text: str) -> set[str]:
    """The stems of the English words of a text."""
    return {stem(word) for word in words(text) if not word[0].isdigit()}


def bigrams(text: str, stop: re.Pattern[str]) -> set[str]:
    """The pairs of neighbouring Chinese characters, after the stop words are cut out."""
    pairs: set[str] = set()
    for run in _RUN.findall(stop.sub(" ", plain(text))):
        pairs.update(run[i : i + 2] for i in range(len(run) - 1))
    return pairs


def _stems_of(section: str) -> frozenset[str]:
    lines = read_lists("medlive.llm.rules", "words_en.txt")[section]
    return frozenset(stem(word) for line in lines for word in line.split())


def _pattern_of(section: str) -> re.Pattern[str]:
    lines = read_lists("medlive.llm.rules", "words_zh.txt")[section]
    return re.compile("|".join(" ".join(lines).split()))


CLINICAL = _stems_of("clinical") | _stems_of("drugs")
"""Stems of words that make an English sentence clinical."""
CONTENT_STOP = _stems_of("stop")
"""Stems that say nothing about what an English sentence is about."""
CLINICAL_ZH = _pattern_of("clinical")
STOP_ZH = _pattern_of("stop")


def is_clinical(text: str) -> bool:
    """Whether a text names something clinical."""
    for word in words(text):
        if stem(word) in CLINICAL or _DRUG.fullmatch(word):
            return True
    return CLINICAL_ZH.search(text) is not None
