"""A snapshot's rows as bytes: a line of the usual spelling is known by its grammar, any other is looked into.

The patterns let through only what every check of a single row would: canonical JSON, ids and weights in their
forms, no text that could hold an address or a character that is not what it seems. A line they refuse is parsed,
and whoever reads the rows is told to judge it by the plain rules; so they save time and decide nothing else.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from medlive.integrity.folder import MOST_LINE, Finding, TooLong
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS, line, row_fault
from medlive.snapshot.verify.disguise import suspects

if TYPE_CHECKING:
    import io

    import numpy as np
    import numpy.typing as npt

CASES: Final = "data/cases.jsonl"
CRITERIA: Final = "data/criteria.jsonl"

MOST_FAULTS: Final = 10_000
"""So many lines of a file that are no rows, and the rest of it is not read."""
_BLOCK: Final = 256 * 1024
"""What is looked at at once: little enough to stay in a processor's cache with its shadows."""

_TEXT: Final = (
    rb"(?=(?: |\\[nrt])*+"
    rb"(?:[!#-\[\]-~]|\\\"|[\xc3-\xe0\xe4-\xf4]|\xe3(?!\x80\x80)|\xe2(?!\x80[\x80-\x8a\xa8\xa9\xaf]|\x81\x9f)))"
    rb'([^"]*+(?:(?<=\\)"[^"]*+)*+)'
)
"""A text with something in it besides white space. Which characters and escapes it is made of, `_marked` looks at:
in a line that it does not mark, a quote after a backslash is never the end of a text."""
_ID: Final = rb"[!#-.0-?A-\[\]-~]{1,200}"
_NUMBER: Final = rb"([1-9][0-9]{0,8})"
_STRICT: Final[Mapping[str, bytes]] = {
    "advice": _TEXT,
    "axis": rb"([A-Z][A-Za-z ]{0,40})",
    "case_id": rb"(?P<case>" + _ID + rb")",
    "criterion": _TEXT,
    "criterion_id": rb"((?P=case)-c[1-9][0-9]{0,8})",
    "first_release": rb"([0-9]{4}\.W[0-9]{2})",
    "language": rb"(en|zh)",
    "narrative": _TEXT,
    "points": rb"(-?(?:10|[1-9]))",
    "position": _NUMBER,
    "posted_at": rb"([0-9]{4}-[0-9]{2}-[0-9]{2})",
    "query": _TEXT,
    "revision": _NUMBER,
    "source": _TEXT,
    "specialty": rb"([A-Za-z][A-Za-z &-]{0,60})",
    "theme": rb"([A-Z][A-Za-z -]{0,60})",
}
_LOOSE: Final[Mapping[type, bytes]] = {str: rb'((?:[^"\\]|\\.)*+)', int: rb"(-?[0-9]++)"}


Line = tuple[bytes, tuple[bytes, ...], bool, int]
"""One row: the case's id in UTF-8; the values but the canary as they are spelled, without quotes, by the order of
their keys; whether the rules for a single row have yet to be asked; the line's number, from 1."""


class CaseParts(NamedTuple):
    """The parts of a case's row."""

    advice: bytes
    case_id: bytes
    first_release: bytes
    language: bytes
    narrative: bytes
    posted_at: bytes
    query: bytes
    revision: bytes
    source: bytes
    specialty: bytes
    theme: bytes


class CriterionParts(NamedTuple):
    """The parts of a criterion's row."""

    axis: bytes
    case_id: bytes
    criterion: bytes
    criterion_id: bytes
    points: bytes
    position: bytes
    revision: bytes


def value(part: bytes) -> str:
    """The text that a part spells."""
    return str(json.loads(b'"' + part + b'"'))


def case_row(parts: tuple[bytes, ...]) -> dict[str, Any]:
    """A case's row from its parts, without the canary."""
    return _row(CaseParts(*parts)._asdict(), CASE_FIELDS)


def criterion_row(parts: tuple[bytes, ...]) -> dict[str, Any]:
    """A criterion's row from its parts, without the canary."""
    return _row(CriterionParts(*parts)._asdict(), CRITERION_FIELDS)


def _row(named: Mapping[str, bytes], fields: Mapping[str, type]) -> dict[str, Any]:
    return {n: int(named[n]) if kind is int else value(named[n]) for n, kind in fields.items() if n in named}


@cache
def _patterns(kind: str, canary: str | None) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """The usual spelling of a row, and every canonical one."""
    fields = CASE_FIELDS if kind == CASES else CRITERION_FIELDS
    strict, loose = [], []
    for name in sorted(fields):
        quote = b'"' if fields[name] is str else b""
        key = b'"' + name.encode() + b'":' + quote
        if name == "canary":
            strict.append(key + (rb"[^\"\\]*+" if canary is None else re.escape(canary.encode())) + quote)
            loose.append(key + rb'(?:[^"\\]|\\.)*+' + quote)
        else:
            strict.append(key + _STRICT[name] + quote)
            loose.append(key + _LOOSE[fields[name]] + quote)
    return tuple(re.compile(rb"\{" + b",".join(pieces) + rb"\}\n") for pieces in (strict, loose))  # type: ignore[return-value]


class Reader:
    """Reads the rows of one file; `faults` fills with what is no row in its place."""

    def __init__(self, handle: "io.FileIO", kind: str, canary: str | None, name: str | None = None) -> None:
        """`kind`: CASES or CRITERIA. `canary`: what each row states, None where any may stand. `name`: the file's
        name in findings."""
        self._handle, self._kind, self._canary = handle, kind, canary
        self._name = name or kind
        self._fields = CASE_FIELDS if kind == CASES else CRITERION_FIELDS
        self._strict, self._loose = _patterns(kind, canary)
        self.faults: list[tuple[bool, Finding]] = []
        """Whether it is the canary that is wrong, and the finding."""
        self.cut = False
        """Whether too many lines were no rows, so that the rest was not read."""

    def __iter__(self) -> Iterator[Line]:
        match, number, before, twice = self._strict.match, 0, b"", self._kind == CRITERIA
        for block in blocks(self._handle, self._name):
            place, end = 0, len(block)
            marked, start = _marked(block), number
            while place < end:
                number += 1
                stop = block.find(b"\n", place) + 1 or end
                found = match(block, place, stop)
                row: Line | None
                if found is not None and not (marked and number - start - 1 in marked):
                    place = stop
                    parts = found.groups()
                    row = (parts[1], parts, False, number)
                else:
                    row = self._closely(block[place:stop], number)
                    place = stop
                    if row is None:
                        if len(self.faults) > MOST_FAULTS:
                            self.cut = True
                            return
                        continue
                key = row[0]
                if key <= before and (key < before or not (twice or number == 1)):
                    self._fault(number, "rows in the order of case_id", f"{key!r} after {before!r}"[:300])
                before = key
                yield row

    def _fault(self, number: int, expected: str, got: str, *, canary: bool = False) -> None:
        self.faults.append((canary, Finding(f"{self._name}:{number}", expected, got)))

    def _closely(self, data: bytes, number: int) -> Line | None:
        """The row in a line that is not of the usual spelling, None where there is none."""
        try:
            row = json.loads(data.decode("utf-8"))
            fault = row_fault(row, self._fields)
            spelled = line(row) if fault is None else b""
        except (ValueError, RecursionError) as exc:
            self._fault(number, "one JSON object", f"{type(exc).__name__}: {str(exc)[:120]}")
            return None
        found = self._loose.fullmatch(spelled)
        if fault is not None or found is None:
            self._fault(number, "a row of the format", fault or "a row of another shape")
            return None
        if spelled != data:
            self._fault(number, "canonical JSON and a line end", "the same value spelt otherwise")
        if self._canary is not None and row["canary"] != self._canary:
            self._fault(number, f"the canary {self._canary}", repr(row["canary"])[:100], canary=True)
        return row["case_id"].encode("utf-8"), found.groups(), True, number


def blocks(handle: "io.FileIO", name: str, size: int = _BLOCK) -> Iterator[bytes]:
    """A file in pieces of whole lines, of about `size` bytes. Raises TooLong, or OSError."""
    rest: list[bytes] = []
    held = 0
    while piece := handle.read(size):
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield b"".join((*rest, piece[:cut]))
            rest, held = [piece[cut:]], len(piece) - cut
        else:
            rest.append(piece)
            held += len(piece)
        if held >= MOST_LINE:
            raise TooLong(f"{name} has a line of {MOST_LINE} bytes or more")
    if held:
        yield b"".join(rest)


class _All:
    """Every line."""

    def __len__(self) -> int:
        return 1

    def __contains__(self, number: object) -> bool:
        return True


def _marked(block: bytes) -> "set[int] | _All":
    """The lines of a block, from 0, with a character, an escape or an address that few texts have."""
    import numpy as np

    octets, classes = np.frombuffer(block, np.uint8), block.translate(_CLASSES)
    kinds = np.frombuffer(classes, np.uint8)
    pairs = kinds[1:] & kinds[:-1] & (_SLASH | _W)
    escapes = np.flatnonzero(octets[:-1] == 0x5C)
    strange = escapes[(kinds[escapes + 1] & _ESCAPED) == 0]
    found: set[int] = set()
    if len(strange) or pairs.any() or _ODD in classes:
        odd = kinds == _ODD
        odd[1:] |= pairs != 0
        found = _lines_at(np.union1d(strange, np.flatnonzero(odd)), octets)
    if not block.isascii():
        try:
            units = np.frombuffer(block.decode("utf-8").encode("utf-16-le"), np.dtype("<u2"))
        except UnicodeDecodeError:
            return _All()
        found |= _lines_at(np.flatnonzero(_suspect_units().take(units)), units)
    return found


def _lines_at(places: "npt.NDArray[Any]", units: "npt.NDArray[Any]") -> set[int]:
    """The lines, from 0, that the places in a block's units lie in."""
    import numpy as np

    return set(np.searchsorted(np.flatnonzero(units == 0x0A), places).tolist()) if len(places) else set()


_SLASH, _W, _ODD, _ESCAPED = 1, 2, 4, 8


def _class(octet: int) -> int:
    if octet in b"/wW":
        return _SLASH if octet == 0x2F else _W
    if octet in b'"nrt':
        return _ESCAPED
    return _ODD if (octet < 0x20 and octet != 0x0A) or octet in b"\x7f@" else 0


_CLASSES: Final = bytes(map(_class, range(0x100)))
"""By octet: what makes an address in a pair, what is odd by itself, and what may follow a backslash."""


@cache
def _suspect_units() -> "npt.NDArray[np.bool_]":
    """By UTF-16 code unit: surrogates too, since beyond U+FFFF it is for the plain rules to say."""
    import numpy as np

    table = np.zeros(0x10000, np.bool_)
    table[list(suspects())] = True
    table[0xD800:0xE000] = True
    return table
