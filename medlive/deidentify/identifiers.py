"""Identifiers, and the text in the form that the rules read: plain digits and letters, nothing invisible."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple


class IdentifierKind(StrEnum):
    """The kind of an identifier; its value replaces the identifier in redacted text."""

    NAME = "name"
    PHONE = "phone"
    EMAIL = "email"
    URL = "url"
    HANDLE = "handle"
    ID_NUMBER = "id number"
    DATE_OF_BIRTH = "date of birth"
    PLACE = "place"
    """A town, a district or a named hospital: finer than a province, coarser than a door."""
    ADDRESS = "address"
    """A street and number, a housing estate, a village, a postcode."""
    RECORD_NUMBER = "record number"
    MESSENGER = "wechat/qq"
    OTHERS = "others' data"
    """A block of data on people who are not the patient, pasted whole."""


class Identifier(NamedTuple):
    """A part of a text that identifies a person or a place: `text == source[start:end]`."""

    kind: IdentifierKind
    start: int
    end: int
    text: str


Candidate = tuple[IdentifierKind, int, int]
"""Kind, start and end in a `View`."""
Candidates = Iterator[Candidate]

_INVISIBLE: Final = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u20e3\u3164\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_PRINTABLE: Final = "\ufe0f\u20e3\u034f\u3164\u115f\u1160\u180b\ufe00"
"""Invisible characters for which `str.isprintable` is true."""
_WIDE: Final = "".join(map(chr, [*range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B)]))
_DIGIT_ROWS: Final = (0x660, 0x6F0, 0x966, 0x9E6, 0xE50)
"""The zeros of other scripts."""
_FOLDED: Final = {
    **{c: chr(ord(c) - 0xFEE0) for c in _WIDE + "＠．－＋＿＃／"},
    **{chr(row + n): str(n) for row in _DIGIT_ROWS for n in range(10)},
    **dict(
        zip(
            "‘’ʼ′‐‑‒–−﹣аеорсхуіјѕАЕОРСХВМТКН\u00a0\u2007\u202f\u3000",
            "''''------aeopcxyijsAEOPCXBMTKH    ",
            strict=True,
        )
    ),
}
_FOLD: Final = re.compile(f"[{''.join(map(re.escape, _FOLDED))}]")
_ASTRAL: Final = re.compile("[\U0001d7ce-\U0001d7ff]")
"""The digits of mathematics, apart because they would make the other class slow."""
_CIRCLED: Final = re.compile("[⓪①②③④⑤⑥⑦⑧⑨]{7,}")
_CIRCLED_DIGITS: Final = str.maketrans("⓪①②③④⑤⑥⑦⑧⑨", "0123456789")


def _may_hide(text: str, ascii_only: bool) -> bool:
    """Whether the text may contain an invisible character; a quick check with false positives."""
    if ascii_only:
        return _CONTROL.search(text) is not None
    return not text.replace("\n", "").replace("\u3000", "").isprintable() or any(
        map(text.__contains__, _PRINTABLE)
    )


class View:
    """A text in the form that the rules read: `text` with plain digits, letters and dashes, `lower` in lower case.

    Both have the same length; `span` maps their offsets to the original.
    """

    __slots__ = ("_removed", "ascii", "lower", "text")

    def __init__(self, original: str) -> None:
        text = original
        self._removed: list[int] = []
        self.ascii = text.isascii()
        if _may_hide(text, self.ascii) and _INVISIBLE.search(text):
            self._removed = [m.start() - before for before, m in enumerate(_INVISIBLE.finditer(text))]
            text = _INVISIBLE.sub("", text)
            self.ascii = text.isascii()
        if not self.ascii:
            if _FOLD.search(text):
                text = _FOLD.sub(lambda m: _FOLDED[m.group()], text)
                self.ascii = text.isascii()
            if _ASTRAL.search(text):
                text = _ASTRAL.sub(lambda m: str((ord(m.group()) - 0x1D7CE) % 10), text)
                self.ascii = text.isascii()
            if "①" in text:
                text = _CIRCLED.sub(lambda m: m.group().translate(_CIRCLED_DIGITS), text)
        self.text = text
        lower = text.lower()
        # "İ" has two characters in lower case: only the first is kept, so that offsets stay the same.
        self.lower = lower if len(lower) == len(text) else "".join(c.lower()[:1] for c in text)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original that begins and ends with these characters."""
        return start + bisect_right(self._removed, start), end + bisect_right(self._removed, end - 1)
