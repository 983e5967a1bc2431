"""Whether words that a grader quotes are in the answer (`quoted`) and show anything (`shows`); `fault_of_quote`."""

import json
import re
from contextlib import suppress
from functools import lru_cache

from .normalise import contains_quote, fold

MOST_QUOTE = 4_000
"""Characters of a quote, as the schemas of replies have it; a log from elsewhere may hold longer ones."""
_ELLIPSIS = re.compile(r"\.{3,}|…+|\[\.{3}\]|\[…\]")
_EMPHASIS = re.compile(
    r"\*{2,3}|_{2,3}|`{1,3}|(?<![A-Za-z0-9*)])\*(?=[^\s*])|(?<=[^\s*])\*(?![A-Za-z0-9*(])"
)
_LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6}|[-*+•]|>)[ \t]+", re.MULTILINE)
_MARKS = "\"'“”‘’「」『』«» \n\t.,;:!?。，、；：！？"
_SIGN = re.compile(r"[^\W_]|[^\x00-\x7f\s，。、；：？！…（）·—]")
"""A letter, a digit or a sign that says something: neither ASCII punctuation nor a wide mark."""
_WORD = re.compile(r"[\u3400-\u9fff]|\d+(?:[.,]\d+)*|[^\W\d_\u3400-\u9fff]+")
_STOP_WORDS = """
a an the and or but nor of to in on at by for from with as is are was were be been being am it its this that these
those there here he she they we you i your their his her our my who which what if so then than also too may can
could should would will might must do does did has have had very more most some any such patient patients
however please note important
"""
_EMPTY_WORDS = frozenset(_STOP_WORDS.split()) | frozenset(
    "的了和与及或是在有也就都而等请您你我他她它这那其并但可以患者应该需要"
)
"""Words, and Han characters, that show nothing of what an answer says."""
_SENTENCE_END = re.compile(r"[.!?;。！？；\n]+")
_JUNCTION = re.compile(r"(?<=[a-z])(?=[A-Z][a-z ])")
"""Where a lost line break ran two words together: "coughnIf you"."""
_LONG = 12
"""Characters of a piece that may end within a word: fewer are found anywhere."""


def fault_of_quote(quote: str, answer: str) -> str | None:
    """Why a quote proves nothing of what an answer says; None if it does."""
    if (piece := missing_piece(quote, answer)) is not None:
        return f"the quote is not in the answer letter for letter: {piece[:200]!r}"
    if not shows(quote, answer):
        return f"the quote is too little to show anything: {quote[:60]!r}"
    return None


def quoted(quote: str, answer: str) -> bool:
    """Whether a quote is in the answer once both are folded; parts around an ellipsis may be far apart.

    Marks of Markdown may be left out, and JSON escapes that were copied as they are spelt count as what they
    stand for. A quote without a letter, digit or sign shows nothing, nor does one that is too long to be one.
    """
    if len(quote) > MOST_QUOTE:
        return False
    if _stands(quote, answer):
        return True
    if "\\" in quote:
        with suppress(ValueError):
            quote = json.loads(f'"{quote}"', strict=False)
        if _stands(quote, answer):
            return True
    bare = _unmarked(quote), _unmarked(answer)
    return bare != (quote, answer) and _stands(*bare)


def _stands(quote: str, answer: str) -> bool:
    """Whether the answer contains every part of a quote between its ellipses."""
    pieces = _ELLIPSIS.split(quote.strip(_MARKS))
    stripped = [piece.strip().strip(_MARKS) for piece in pieces]
    parts = [part for part in stripped if _SIGN.search(fold(part))]
    return bool(parts) and all(_contains(part, answer) for part in parts)


def missing_piece(quote: str, answer: str) -> str | None:
    """The first piece of a quote that does not stand in the answer, or all of it; None where it is `quoted`."""
    if quoted(quote, answer):
        return None
    for piece in map(str.strip, _ELLIPSIS.split(quote[:MOST_QUOTE])):
        if piece and not quoted(piece, answer):
            return piece
    return quote


def shows(quote: str, answer: str) -> bool:
    """Whether a quote is in the answer and has more than one word, not counting stop words and boilerplate.

    A Han character counts as half a word. A quote of the whole answer, or of a whole sentence of it with more than
    one word of any kind, shows what there is: "You should not have it now." is made of stop words.
    """
    if not quoted(quote, answer):
        return False
    telling = 0.0
    for word in _WORD.findall(fold(quote[:MOST_QUOTE])):
        if word not in _EMPTY_WORDS:
            telling += 0.5 if "\u3400" <= word <= "\u9fff" else 1
    if telling > 1 or fold(quote).strip() == fold(answer).strip():
        return True
    if len(_WORD.findall(fold(quote))) < 2:
        return False
    sentences = set(map(_bare, _SENTENCE_END.split(_unmarked(answer))))
    parts = list(map(_bare, _SENTENCE_END.split(_unmarked(quote))))
    return all(part in sentences for part in parts if part)


def _bare(text: str) -> str:
    return fold(text).strip(_MARKS)


def _contains(piece: str, answer: str) -> bool:
    """Whether the answer contains a piece between word boundaries, or, where it is long, in damaged text."""
    if contains_quote(piece, answer):
        return True
    if len(piece) < _LONG and len(piece.split()) < 3:
        return False
    hay, needle = _parted(answer), fold(_JUNCTION.sub(" ", piece))
    # A number is never cut, and no letters before a word are passed over: "ineffective" is not "effective".
    end = r"(?![0-9]|[.,^²³][0-9])" if needle[-1:].isdigit() else ""
    return (
        re.search(rf"(?<![0-9a-z])(?<![0-9][.,]){re.escape(needle)}{end}", hay)
        is not None
    )


@lru_cache(maxsize=16)
def _parted(answer: str) -> str:
    """The answer folded, with a space between words that a lost line break ran together."""
    return fold(_JUNCTION.sub(" ", answer))


def _unmarked(text: str) -> str:
    """The text without Markdown's marks of emphasis, headings, lists and citations."""
    return _EMPHASIS.sub("", _LINE_MARK.sub("", text))
