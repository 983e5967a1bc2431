"""Find code-book terms (ICD, ICF, ICHI) in a text: `load_codebook`, then `Codebook.matches`.

A thread with no such term is no clinical discussion (LiveMedBench, post filters). medlive ships a small list of
its own; WHO's official files and other lists are read beside it, as tables with a header.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from medlive.errors import BadInput, require
from medlive.guard.bounds import GIVEN_BYTES
from medlive.integrity.digest import digest_json
from medlive.integrity.log import read_bytes
from medlive.text.normalise import normalise

from .model import read_lines

_CODE_COLUMNS = frozenset(read_lines("code_columns.txt"))
_TERM_COLUMNS = frozenset(read_lines("term_columns.txt"))
_LEADING_MARKS = re.compile(r"^(?:[-–•]\s*)+|^[A-Z]\d\d(?:-[A-Z]\d\d)?[：:]\s*")
_TRAILING_CODE = re.compile(r"[A-Z]\d{2}(?:\.[\d-])?[†*]?$")
_COUNTED = re.compile(r"\.\d+$")
"""The number by which a header tells columns of the same name apart."""
_VAGUE = re.compile(
    r"[,，]?\s*(?:unspecified|not elsewhere classified|nos|nec|未特指的?|不可归类在他处者?)$",
    re.IGNORECASE,
)


Term = tuple[str, str]
"""(code, term). A code is `ICD-10:R05`, or `ICHI:` if the list gives none; other systems have their file's name."""


def clean_term(text: str) -> str:
    """Remove list marks, trailing cross-references and "unspecified" from a title."""
    text = _LEADING_MARKS.sub("", normalise(text).strip(" \"'"))
    if len(text) > 6:
        text = _TRAILING_CODE.sub("", text)
    return _VAGUE.sub("", text).strip(" ,;，；.")


_SYSTEMS = {
    "icd11": "ICD-11",
    "icd10cm": "ICD-10-CM",
    "icd10": "ICD-10",
    "ichi": "ICHI",
    "icf": "ICF",
    "diseaseontology": "DOID",
    "doid": "DOID",
}
"""Part of a code book's file name → the system."""


def read_terms(path: Path) -> Iterator[Term]:
    """The usable terms of a code-book file, duplicates included.

    The file is a table in UTF-8 (comma, tab, semicolon or bar) whose header names a column of codes, and columns of
    titles and synonyms, as those of WHO's tabulations do. Raises BadInput for anything else.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise BadInput(
            f"{path.name} is not UTF-8", hint="save it as CSV or TSV, UTF-8"
        ) from exc
    name = re.sub("[_ -]", "", path.name.lower())
    systems = [system for mark, system in _SYSTEMS.items() if mark in name]
    system = systems[0] if systems else path.stem
    has_term = False
    for code, title in _rows(text):
        term = clean_term(title)
        least = 4 if term.isascii() else 2
        if least <= len(term) <= 80 and "%" not in term:
            has_term = True
            yield f"{system}:{code}", term
    if not has_term:
        raise BadInput(
            f"{path.name} has no column of titles that is known",
            hint="give it a header with Code and Title; see docs/codebooks.md",
        )


def _rows(text: str) -> Iterator[tuple[str, str]]:
    """Code and title of each row, the title once for each column of titles."""
    lines = text.splitlines()
    sample = "\n".join(lines[:5])
    csv.field_size_limit(GIVEN_BYTES)
    rows = csv.reader(lines, delimiter=max("\t;,|", key=sample.count))
    header = list(map(str.strip, next(rows, [])))
    names = [_COUNTED.sub("", cell.lower()).replace(" ", "") for cell in header]
    titles = [column for column, name in enumerate(names) if name in _TERM_COLUMNS]
    codes = [column for column, name in enumerate(names) if name in _CODE_COLUMNS]
    for row in rows:
        cells = [*map(str.strip, row), *[""] * len(header)]
        code = next(filter(None, (cells[column] for column in codes)), "")
        for column in titles:
            if cells[column]:
                yield code.removeprefix("ICD10:"), cells[column]


_WIDE = re.compile(r"[０-９Ａ-Ｚａ-ｚ－]")
_WIDE_TABLE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_SIMPLIFIED, _TRADITIONAL = read_lines("traditional.txt")
_TO_SIMPLIFIED = str.maketrans(_TRADITIONAL, _SIMPLIFIED)
_TO_TRADITIONAL = str.maketrans(_SIMPLIFIED, _TRADITIONAL)


class TermHit(NamedTuple):
    """A term in a text: `start` and `end` are places in that text."""

    term: str  # As the code book has it, in lower case
    code: str  # As in `Term`
    start: int
    end: int


def _flat(text: str) -> str:
    """Lower case and half width, every character staying in its place."""
    lower = text.lower()
    if len(lower) != len(text):
        lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    return lower.translate(_WIDE_TABLE) if _WIDE.search(lower) else lower


def _is_latin(char: str) -> bool:
    return char.isalnum() and char < "\u0250"


def _is_whole(flat: str, start: int, end: int) -> bool:
    """Whether a match cuts no Latin word; a plural s may follow."""
    before = flat[start - 1] if start else " "
    after, second = flat[end : end + 1], flat[end + 1 : end + 2]
    if _is_latin(flat[start]) and _is_latin(before):
        return False
    last = flat[end - 1]
    if not (_is_latin(last) and _is_latin(after)):
        return True
    return after == "s" and last != "s" and not _is_latin(second)


class Codebook:
    """Terms with their codes; immutable once built, and picklable by its sources alone."""

    def __init__(
        self,
        terms: Iterable[Term],
        *,
        stop: frozenset[str] = frozenset(),
    ) -> None:
        """Where two lists have a term, its first code counts; terms in `stop` are left out."""
        require("ahocorasick", "a code book", "'medlive[service]'")
        import ahocorasick

        matches: dict[str, str] = {}
        for code, term in terms:
            flat = _flat(term).translate(_TO_SIMPLIFIED)
            if flat and flat not in stop:
                matches.setdefault(flat, code)
        self._terms = matches
        automaton: Any = ahocorasick.Automaton()
        for flat in matches:
            automaton.add_word(flat, flat)
            if not flat.isascii():
                # The same term as a writer of traditional characters has it.
                automaton.add_word(flat.translate(_TO_TRADITIONAL), flat)
        if matches:
            automaton.make_automaton()
        self._automaton = automaton
        self.digest = digest_json(sorted(matches.items()))
        """The digest of all terms and codes."""

    def matches(self, text: str) -> Iterator[TermHit]:
        """Find every term of a text in the order of their ends; they may overlap."""
        flat = _flat(text)
        for end, term in self._automaton.iter(flat) if self._terms else ():
            start, end = end + 1 - len(term), end + 1
            if _is_whole(flat, start, end):
                yield TermHit(term, self._terms[term], start, end)


@cache
def stop_words() -> frozenset[str]:
    """Everyday words that are never a term."""
    lines = [*read_lines("stop_en.txt"), *read_lines("stop_zh.txt")]
    return frozenset(_flat(line.strip()) for line in lines)


@cache
def shipped_terms() -> tuple[Term, ...]:
    """The terms that medlive ships, English and Chinese."""
    terms = []
    for line in [*read_lines("terms_en.txt"), *read_lines("terms_zh.txt")]:
        system, code, term = line.split("\t")
        terms.append((f"{system}:{code}", clean_term(term)))
    return tuple(terms)


def load_codebook(paths: Sequence[Path] = ()) -> Codebook:
    """The shipped terms and those of the given files, without the stop words; shipped codes come first.

    Errors: BadInput for a file in no known shape, MissingExtra without the extra `service`.
    """
    extra = (term for path in paths for term in read_terms(path))
    return Codebook((*shipped_terms(), *extra), stop=stop_words())
