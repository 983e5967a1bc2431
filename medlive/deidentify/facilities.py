"""English hospitals with a name of their own, however their letters are written."""

import re
from functools import partial

from medlive.deidentify.identifiers import (
    Candidates,
    View,
    one_of,
    word_list,
)

_any = partial(one_of, "english")
_GENERIC = word_list("english", "generic facility words")
_COMMON = word_list("english", "common words before a hospital")
_NOT_NAMES = word_list("english", "not names")
_KNOWN_WORDS = _GENERIC | _COMMON | _NOT_NAMES
_PEOPLE = word_list("english", "given names") | word_list("english", "surnames")
_MAY_BE_WORDS = word_list("english", "surname words") | word_list(
    "english", "given words"
)
_SURE_NAMES = (_PEOPLE - _MAY_BE_WORDS) | word_list("english", "hospital names")

_FACILITY = re.compile(rf"(?<![a-z]){_any('facilities')}(?![a-z])")
_SMALL_FACILITY = re.compile(
    r"(?<![a-z])(?:hospitals?|medical (?:center|centre|college)|infirmary|nursing home)(?![a-z])"
)
_CAPITALS_BEFORE = re.compile(
    r"(?:(?:St\.? |Saint )?(?:[A-Z][A-Za-z'.]*|of|and|the|&|for)[ ]){1,6}$"
)
_SMALL_WORD = r"(?:st\.? )?[a-z][a-z'\u2019-]*"
_WORDS_BEFORE = re.compile(rf"(?:{_SMALL_WORD} ){{1,4}}$")
_WORD = re.compile(_SMALL_WORD)
_AT = re.compile(
    r"(?<![a-z])(?:at|in|from|near|visit(?:ed)?|(?:doctors?|surgeons?|staff) of"
    r"|(?:go|goes|going|went|gone|came|taken|took|brought|rushed|sent|shifted"
    r"|admitted|referred|moved|transferred|drove|returned|back|(?:took|take|sent|brought) [a-z]+) (?:in)?to) $"
)
_NEVER_IN_NAME = word_list("english", "never in a hospital's name")
_SOURCE_BEFORE = re.compile(
    r"(?:according to|says?|website|article|study|guidelines?|reviewed?|published|protocol|diet)[ "
    r",]*(?:the |from |by |at |of )*$"
)
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n)\"][ \t]*)$")
_ENDING_OF_A_COMMON_WORD = re.compile(
    r"(?:ing|ed|ly|est|ive|ous|ary|able|ible|tion|sion|ness|ment|less|ful|ology|ship|-care|-volume)$"
)


def facilities(view: View) -> Candidates:
    """Find hospitals with a name of their own: Apollo Hospital, St. Mary's Medical Center, malviya hospital."""
    text, lower = view.text, view.lower
    for match in _FACILITY.finditer(lower):
        at = match.start()
        before = _CAPITALS_BEFORE.search(text, max(0, at - 60), at)
        if before is None or not text[at].isupper():
            continue
        words = before[0].split()
        start = before.start()
        # The name begins after "the", "General" and the like.
        while words and words[0].lower() in _GENERIC:
            start = text.index(words[0], start) + len(words[0]) + 1
            words = words[1:]
        names = {word.lower() for word in words} - _NOT_NAMES
        is_named = any(name.strip(".") not in _GENERIC for name in names)
        if is_named and not _is_source(lower, start):
            yield "place", start, match.end()
    for match in _SMALL_FACILITY.finditer(lower):
        at = match.start()
        before = _WORDS_BEFORE.search(lower, max(0, at - 50), at)
        if before is None:
            continue
        start = _start_of_name(view, before)
        if start < at and not _is_source(lower, start):
            yield "place", start, match.end()


def _is_source(lower: str, start: int) -> bool:
    """Whether the hospital speaks rather than treats: "the website of …"."""
    return _SOURCE_BEFORE.search(lower, max(0, start - 24), start) is not None


def _start_of_name(view: View, before: re.Match[str]) -> int:
    """Return where the name before a facility's word starts, or the end of the words if they hold none."""
    lower = view.lower
    end = before.end()
    listed = unlisted = first = end
    for word in reversed(list(_WORD.finditer(lower, before.start(), end))):
        plain = word[0].removesuffix("'s")
        if plain in _NEVER_IN_NAME or plain in _COMMON:
            break
        if _is_name(view.text, word.start(), plain):
            listed = unlisted = word.start()
        elif _may_be_name(plain):
            unlisted = word.start()
        elif plain not in _GENERIC:
            break
        first = word.start()
    said_to_be_there = _AT.search(lower, max(0, first - 24), first) is not None
    return unlisted if said_to_be_there else listed


def _is_name(text: str, at: int, plain: str) -> bool:
    """Whether a word is a listed name, or one by its capital letters: Malviya in a sentence, MAlviya anywhere."""
    if plain in _SURE_NAMES or plain.startswith(("st ", "st. ")):
        return True
    written = text[at : at + len(plain)]
    if not _may_be_name(plain) or not written[0].isupper() or written.isupper():
        return False
    if not written[1:].islower():
        return True
    return _SENTENCE_START.search(text, max(0, at - 4), at) is None


def _may_be_name(plain: str) -> bool:
    if len(plain) <= 2 or _ENDING_OF_A_COMMON_WORD.search(plain):
        return False
    return plain not in _KNOWN_WORDS
