"""Sentences of a hostile text: every piece is a verbatim substring, and every scan is linear."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]

READ = 60_000  # Characters of one message that are read; what a person tells a physician is far shorter
LONGEST = 700  # Characters of the longest piece; a longer run without a stop is cut at a comma or a space

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
_SPACE = re.compile(r"\s+")


class Piece(NamedTuple):
    """A stretch of a text: `source[start:end] == text`, without surrounding space."""

    start: int
    end: int
    text: str


def piece(source: str, start: int, end: int) -> Piece | None:
    """The stretch without surrounding space; None if nothing is left."""
    text = source[start:end]
    start += len(text) - len(text.lstrip())
    text = text.strip()
    return Piece(start, start + len(text), text) if text else None


def language_of(declared: object, text: str) -> Language:
    """The language rules are chosen by: as declared, else by which script prevails."""
    if declared in ("en", "zh"):
        return "zh" if declared == "zh" else "en"
    sample = text[:4000]
    return "zh" if len(_HAN.findall(sample)) * 2 > len(_LATIN.findall(sample)) else "en"


def sentences(text: str) -> list[Piece]:
    """The sentences of a text in order, none longer than LONGEST."""
    text = text[:READ]
    ends = []
    for stop in _STOP.finditer(text):
        before = max(0, stop.start() - 12)
        if text[stop.start()] != "." or not _ABBREVIATION.search(
            text, before, stop.start()
        ):
            ends.append(stop.end())
    pieces: list[Piece] = []
    start = 0
    for end in [*ends, len(text)]:
        for low, high in _bounded(text, start, end):
            if (stretch := piece(text, low, high)) is not None:
                pieces.append(stretch)
        start = end
    return pieces


def _bounded(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > LONGEST:
        window = text[start + LONGEST // 2 : start + LONGEST]
        at = max(window.rfind(c) for c in ",，、; ")
        cut = start + LONGEST // 2 + at + 1 if at >= 0 else start + LONGEST
        yield start, cut
        start = cut
    yield start, end


def unmarked(source: str, sentence: Piece) -> Piece | None:
    """The piece without a leading bullet or list number."""
    match = _BULLET.match(sentence.text)
    return (
        piece(source, sentence.start + match.end(), sentence.end) if match else sentence
    )


def plain(text: str) -> str:
    """The text in half width, lower case, without control characters, its space collapsed."""
    folded = " ".join(
        unicodedata.normalize("NFKC", text).lower().replace("’", "'").split()
    )
    if folded.isprintable():
        return folded
    return " ".join("".join(c if c.isprintable() else " " for c in folded).split())


def statement(quote: str) -> str:
    """The quote as a statement: space collapsed, loose ends trimmed; no word is added or lost."""
    cleaned = "".join(c if c.isprintable() else " " for c in quote)
    cleaned = _SPACE.sub(" ", cleaned).strip(" \t,，、;；:：-–*•>")
    return cleaned[:1].upper() + cleaned[1:] if cleaned[:1].isascii() else cleaned


_WORD = re.compile(r"[a-z][a-z'-]*[a-z]|[a-z]|\d+(?:\.\d+)?")


def stem(word: str) -> str:
    """An English word without its commonest endings, enough to match forms of one word."""
    if word.endswith("'s"):
        word = word[:-2]
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
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def words(text: str) -> list[str]:
    """The English words and numbers of a text, in lower case."""
    return _WORD.findall(plain(text))


_RUN = re.compile(r"[一-鿿]+")


def bigrams(text: str, stop: re.Pattern[str]) -> set[str]:
    """The pairs of neighbouring Chinese characters, after the stop words are cut out."""
    pairs: set[str] = set()
    for run in _RUN.findall(stop.sub(" ", text)):
        pairs.update(run[i : i + 2] for i in range(len(run) - 1))
    return pairs
