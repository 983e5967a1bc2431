"""What the rules of redaction share: identifiers, the text in a plain form, and word lists.

The lists are in `data/english.txt` and `data/chinese.txt`: a line `[name]`, then its words, with `_` for the space
inside a word. They were written for this project from general knowledge.

Names of drugs, diseases and scores contain names of places, spelt right or with one wrong character.
`[drugs near a place]` of `chinese.txt` holds those drugs of `medlive/evidence` (`drugs_zh.txt`) in which one wrong
character would give a listed city, with at least two other characters right; a test derives them again. The names
that contain a city as it is spelt were written for this project.
"""

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import ne
from typing import Literal, NamedTuple

from medlive.text.lists import read_lists

IdentifierKind = Literal[
    "name",
    "phone",
    "email",
    "url",
    "handle",
    "id number",
    "date of birth",
    "place",
    "address",
    "record number",
    "wechat/qq",
    "others' data",
]
"""The kind of an identifier, which replaces it in redacted text.

"place": a town, a district or a named hospital, finer than a province and coarser than a door; "address": a street and
number, a housing estate, a village, a postcode; "others' data": a block of data on people who are not the patient,
pasted whole.
"""


class Identifier(NamedTuple):
    """A part of a text that identifies a person or a place: `text == source[start:end]`."""

    kind: IdentifierKind
    start: int
    end: int
    text: str


Candidate = tuple[IdentifierKind, int, int]
"""Kind, start and end in a `View`."""
Candidates = Iterator[Candidate]

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u20e3\u3164\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_WIDE_DIGITS = range(0xFF10, 0xFF1A)
_WIDE_CAPITALS = range(0xFF21, 0xFF3B)
_WIDE_LETTERS = range(0xFF41, 0xFF5B)
_WIDE = "".join(map(chr, [*_WIDE_DIGITS, *_WIDE_CAPITALS, *_WIDE_LETTERS]))
_DIGIT_ROWS = (0x660, 0x6F0, 0x966, 0x9E6, 0xE50)
"""The zeros of other scripts."""
_FOLDED = str.maketrans(
    {c: chr(ord(c) - 0xFEE0) for c in _WIDE + "＠．－＋＿＃／"}
    | {chr(row + n): str(n) for row in _DIGIT_ROWS for n in range(10)}
    | {chr(0x1D7CE + n): str(n % 10) for n in range(50)}  # the digits of mathematics
    | dict(
        zip(
            "‘’ʼ′‐‑‒–−﹣аеорсхуіјѕАЕОРСХВМТКН\u00a0\u2007\u202f\u3000",
            "''''------aeopcxyijsAEOPCXBMTKH    ",
            strict=True,
        )
    )
)
_CIRCLED = re.compile("[⓪①②③④⑤⑥⑦⑧⑨]{7,}")
_CIRCLED_DIGITS = str.maketrans("⓪①②③④⑤⑥⑦⑧⑨", "0123456789")


class View:
    """A text in the form that the rules read: `text` with plain digits, letters and dashes, `lower` in lower case.

    Both have the same length; `span` maps their offsets to the original.
    """

    __slots__ = ("_removed", "lower", "text")

    def __init__(self, original: str) -> None:
        self._removed = [
            m.start() - before for before, m in enumerate(_INVISIBLE.finditer(original))
        ]
        text = _INVISIBLE.sub("", original) if self._removed else original
        if not text.isascii():
            text = text.translate(_FOLDED)
            text = _CIRCLED.sub(lambda m: m.group().translate(_CIRCLED_DIGITS), text)
        self.text = text
        lower = text.lower()
        if len(lower) != len(text):
            # "İ" has two characters in lower case: only the first is kept, so that offsets stay the same.
            lower = "".join(char.lower()[:1] for char in text)
        self.lower = lower

    def char(self, at: int) -> str:
        """Return the character at an offset; empty behind the end."""
        return self.text[at : at + 1]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original that begins and ends with these characters."""
        removed_before = bisect_right(self._removed, start)
        removed_until = bisect_right(self._removed, end - 1)
        return start + removed_before, end + removed_until


def matches(
    kind: IdentifierKind,
    pattern: re.Pattern[str],
    text: str,
) -> Candidates:
    """Yield every match of a pattern as an identifier: its last group, or the whole of it."""
    for match in pattern.finditer(text):
        yield kind, *match.span(match.lastgroup or 0)


@cache
def word_list(language: Literal["english", "chinese"], name: str) -> frozenset[str]:
    """The words of one list. Raises KeyError for a list that does not exist."""
    lines = read_lists("medlive.deidentify", f"{language}.txt")[name]
    return frozenset(word.replace("_", " ") for word in " ".join(lines).split())


def characters(name: str) -> frozenset[str]:
    """The single characters of a Chinese list."""
    return frozenset("".join(word_list("chinese", name)))


def alternatives(listed: frozenset[str]) -> str:
    """A regular expression for any of the words, the longest first.

    It looks at the first character before it tries the words one by one, which is ten times as fast.
    """
    ordered = sorted(listed, key=lambda word: (-len(word), word))
    first = "".join(sorted({word[0] for word in listed}))
    return f"(?:(?=[{first}])(?:{'|'.join(map(re.escape, ordered))}))"


def one_of(language: Literal["english", "chinese"], name: str) -> str:
    """A regular expression for any word of a list."""
    return alternatives(word_list(language, name))


_MINIMUM_RIGHT = 2
"""Characters outside the place that must be spelt right: fewer could be any words beside a place."""


class Surroundings(NamedTuple):
    """The parts of a name before and after a place in it; `exact` if no character of them may be wrong."""

    before: str
    after: str
    exact: bool


Places = dict[str, list[Surroundings]]
"""Place → what surrounds it in each name that contains it."""


def misspelt_as(name: str, place: str) -> list[int]:
    """Return the offsets in the name at which one changed character would give the place, which has two or more."""
    if len(name) - len(place) < _MINIMUM_RIGHT or set(place).isdisjoint(name):
        return []
    starts = []
    for start in range(len(name) - len(place) + 1):
        if sum(map(ne, name[start:], place)) == 1:
            starts.append(start)
    return starts


def standing_in(name: str, place: str) -> list[int]:
    """Return the offset of the place in the name, the first only; empty if it is not there."""
    return [name.index(place)] if place in name else []


def surroundings(
    names: Iterable[str],
    places: Iterable[str],
    *,
    starts: Callable[[str, str], list[int]] = standing_in,
    longest_exact: int = sys.maxsize,
) -> Places:
    """Find for each place the names that contain it, by what surrounds it there.

    Args:
        names: Names of drugs, diseases and the like.
        places: The places to look for.
        starts: Returns the offsets of a place in a name.
        longest_exact: How many characters a name may have besides the place and still allow none to be wrong: a
            short word with a wrong letter is any word.
    """
    names_of: Places = defaultdict(list)
    listed = tuple(names)
    for place in places:
        for name in listed:
            for start in starts(name, place):
                before, after = name[:start], name[start + len(place) :]
                exact = len(before) + len(after) <= longest_exact
                names_of[place].append(Surroundings(before, after, exact))
    return dict(names_of)


def is_part_of_name(
    text: str,
    start: int,
    end: int,
    names: Iterable[Surroundings],
) -> bool:
    """Whether the place at these offsets is a part of one of the names, with at most one character wrong."""
    for before, after, exact in names:
        begins = text.endswith(before, 0, start)
        ends = text.startswith(after, end)
        if begins and ends:
            return True
        if exact or not (begins or ends):
            continue
        # One character may be wrong, missing or too many on the other side.
        expected = before if ends else after
        for length in range(max(0, len(expected) - 1), len(expected) + 2):
            written = text[end : end + length]
            if ends:
                written = text[max(0, start - length) : start]
            if is_one_edit(expected, written):
                return True
    return False


def is_one_edit(first: str, second: str) -> bool:
    """Whether the words are equal, or one character replaced, added or left out makes one of the other."""
    same = 0
    while same < min(len(first), len(second)) and first[same] == second[same]:
        same += 1
    rest, other = first[same:], second[same:]
    return other[1:] in (rest, rest[1:]) or rest[1:] == other
