"""Sentences as spans of the text, so that a quote taken from one is verbatim."""

import re
from typing import Final, NamedTuple

_ABBREVIATIONS_TEXT: Final = (
    "dr mr mrs ms prof st vs e.g eg i.e ie approx no nos fig dept inj wt ht temp pt pts hr hrs min "
    "mins sec tab tabs cap caps mg mcg ml kg cm mm a.m p.m q.i.d t.i.d b.i.d u.s u.k ph.d m.d resp "
    "viz cf al inc ltd"
)
_ABBREVIATIONS: Final = frozenset(_ABBREVIATIONS_TEXT.split())
_NEVER_LAST_TEXT: Final = "dr mr mrs ms prof st vs e.g eg i.e ie approx no nos fig viz cf inj tab cap"
_NEVER_LAST: Final = frozenset(_NEVER_LAST_TEXT.split())
_ENGLISH_STOP: Final = re.compile(r"[.!?]+[\"'”’)\]]*|\n+")
_CHINESE_STOP: Final = re.compile(r"[。！？；!?;…]+[”’」』）)\"]*|\n+")
_MARKER: Final = re.compile(r"(?<![\d.])(\d{1,2})[.)](?=\s?[^\W\d])")
_LAST_WORD: Final = re.compile(r"[\w.]+$")


class Sentence(NamedTuple):
    """A sentence: `text == source[start:end]`, without surrounding space."""

    start: int
    end: int
    text: str


def _trimmed(text: str, start: int, end: int) -> Sentence | None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Sentence(start, end, text[start:end]) if start < end else None


def _markers(text: str) -> dict[int, int]:
    """List markers of a running count ("1. … 2. …"), each as start → end; a lone "24." is none."""
    found: dict[int, int] = {}
    expected = 1
    pending: tuple[int, int] | None = None
    for match in _MARKER.finditer(text):
        number, start = int(match.group(1)), match.start()
        at_line = start == 0 or text[start - 1] in "\n\r"
        if number == 1:
            pending, expected = (start, match.end()), 2
            if at_line:
                found[start] = match.end()
        elif number == expected:
            if pending:
                found[pending[0]] = pending[1]
            pending = None
            found[start] = match.end()
            expected += 1
        elif at_line:
            found[start] = match.end()
    return found


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether a run of stops in English text ends a sentence."""
    stop, start, end = match.group(), match.start(), match.end()
    if stop[0] == "\n" or end == len(text):
        return True
    following = text[end]
    if stop[0] in "!?":
        return following.isspace() or following.isalpha()
    if len(stop.rstrip("\"'”’)]")) > 1:  # an ellipsis
        return following.isspace()
    before = text[max(0, start - 24) : start]
    word = _LAST_WORD.search(before)
    last = word.group() if word else ""
    if following.isspace():
        rest = text[end : end + 8].lstrip()
        if last.lower() in _ABBREVIATIONS:
            # "8 a.m. I woke" and "10 mg. Then": an abbreviation that may also end a sentence.
            return last.lower() not in _NEVER_LAST and rest[:1].isupper()
        if len(last) == 1 and last.isupper() and re.search(r"(?:Dr|Mr|Mrs|Ms|Prof|[A-Z])\.?\s?[A-Z]$", before):
            return False  # an initial of a name
        return not (last[-1:].isdigit() and rest[:1].isdigit())  # "30. 4" may be a damaged decimal
    # Glued sentences, "treatment.Bronchoscopy": a longer lower-cased word, then a capital.
    return bool(re.search(r"[a-z]{2}$|\d$|\)$", before)) and following.isupper() and "www" not in last.lower()


def sentences(text: str, language: str | None) -> list[Sentence]:
    """The sentences of a text, in order; together they hold every character that is no space.

    `language` "zh" splits at 。！？； and line ends; anything else by the English rules (all lower case,
    abbreviations, decimals and "1." lists allowed for).
    """
    found: list[Sentence] = []
    start = 0
    cuts: list[int] = []
    if language == "zh":
        cuts = [m.end() for m in _CHINESE_STOP.finditer(text)]
    else:
        markers = _markers(text)
        inside = set(markers.values())
        ends = [m.end() for m in _ENGLISH_STOP.finditer(text) if m.end() not in inside and _ends_sentence(text, m)]
        cuts = sorted({*ends, *markers})
    for cut in (*cuts, len(text)):
        if sentence := _trimmed(text, start, cut):
            found.append(sentence)
        start = cut
    return found
