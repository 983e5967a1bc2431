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
_SPECIES = re.compile(
    r"(?:pylori|coli|aureus|epidermidis|pyogenes|pneumoniae|agalactiae|diff(?:icile)?|perfringens|tetani|albicans|"
    r"influenzae|tuberculosis|leprae|avium|faecalis|faecium|aeruginosa|jejuni|typhi|vaginalis|trachomatis|gondii|"
    r"gonorrhoeae|meningitidis|burgdorferi|acnes|vulgaris|lamblia|histolytica|falciparum|vivax|scabiei)\b",
    re.IGNORECASE,
)
_EN_STOP = re.compile(r"[.!?]+[\"'”’)\]]*|…+|[\r\n\v\f\x85\u2028\u2029]+")
_ZH_STOP = re.compile(
    r"[。！？；!?;…]+[”’」』）)\"]*|(?<=[一-鿿）)])\.(?=\s|$|[一-鿿])|[\r\n\v\f\x85\u2028\u2029]+"
)
_EN_MARKER = re.compile(
    r"(?:(?<=[\s:;.,])|^)\(?(\d{1,2})(?:[.)]|\s?-(?=\s?[a-zA-Z]))(?=\s?[a-zA-Z])"
)
_ZH_MARKER = re.compile(
    r"(?<![\d.年月\-/~：:第])[(（]?(\d{1,2})[、.．)），,](?=\s?[一-鿿])"
)
_EN_BULLET = re.compile(r"(?<=[\s.:;,])[-*•](?=\s[A-Z])")
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


def _ends_english(text: str, start: int, end: int) -> bool:
    stop = text[start]
    if stop not in ".!?…" or end >= len(text):
        return True
    following = text[end]
    if stop == "…" or end - start > 1 or stop in "!?":
        return True
    before = text[max(0, start - 12) : start]
    if following.isspace():
        rest = text[end : end + 24].lstrip()
        if re.search(r"(?:^|\W)[A-Za-z]$", before) and _SPECIES.match(rest):
            return False  # "h. pylori" is one name; cut, its second half would lose an "if" before it
        if before[-1:].isdigit() and rest[:1].isdigit():
            return False  # "30. 4" may be a damaged decimal
        return not _ABBREVIATION.search(before) or (
            before[-1:] in "gls" and rest[:1].isupper()
        )
    # Glued sentences: "treatment.Bronchoscopy".
    return following.isupper() and bool(re.search(r"[a-z]{2}$|\)$", before))


def _markers(text: str, pattern: re.Pattern[str], stops: str) -> dict[int, int]:
    """List markers, start → end: at a line's start, after a stop, or continuing a count ("… 1. x 2. y")."""
    ends: dict[int, int] = {}
    pending: re.Match[str] | None = None
    expected = 0
    for match in pattern.finditer(text):
        number = int(match.group(1))
        if number == expected > 1:
            if pending is not None:
                ends[pending.start()] = pending.end()
                pending = None
            ends[match.start()] = match.end()
            expected += 1
        elif number <= 20 and _opens_item(text, match.start(), stops):
            ends[match.start()] = match.end()
            pending, expected = None, number + 1
        elif number == 1:
            pending, expected = match, 2
    return ends


def _opens_item(text: str, start: int, stops: str) -> bool:
    """Whether a number stands at a line's start or after a stop; in "4.18." the 18 is no item."""
    at = len(text[:start].rstrip(" \t　"))
    decimal = at == start and at > 1 and text[at - 1] == "." and text[at - 2].isdigit()
    return at == 0 or text[at - 1] in "\r\n" or (text[at - 1] in stops and not decimal)


def sentences(text: str, language: Language) -> list[Piece]:
    """The sentences of a text in order, numbered list items apart, none longer than LONGEST."""
    text = text[:READ]
    cuts: set[int] = {len(text)}
    if language == "zh":
        cuts.update(m.end() for m in _ZH_STOP.finditer(text))
        cuts.update(_markers(text, _ZH_MARKER, "。；;！!"))
    else:
        markers = _markers(text, _EN_MARKER, ":;.")
        inside = set(markers.values())
        cuts.update(markers)
        cuts.update(m.start() for m in _EN_BULLET.finditer(text))
        cuts.update(
            m.end()
            for m in _EN_STOP.finditer(text)
            if m.end() not in inside and _ends_english(text, m.start(), m.end())
        )
    pieces: list[Piece] = []
    start = 0
    for cut in sorted(cuts):
        for low, high in _bounded(text, start, cut):
            if (found_piece := piece(text, low, high)) is not None:
                pieces.append(found_piece)
        start = cut
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
