"""Code-book terms (ICD, ICF, ICHI) found in a text by one automaton pass.

A thread with no such term is no clinical discussion (LiveMedBench, post filters). medlive ships a small list of
its own; WHO's official files and other lists are read beside it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from medlive.digest import digest_json
from medlive.errors import MissingExtra
from medlive.filters.codebook_files import Term, clean_term, read_terms
from medlive.filters.model import read_lines

_WIDE: Final = re.compile(r"[０-９Ａ-Ｚａ-ｚ－]")
_WIDE_TABLE: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_SIMPLIFIED, _TRADITIONAL = read_lines("traditional.txt")
_TO_SIMPLIFIED: Final = str.maketrans(_TRADITIONAL, _SIMPLIFIED)
_TO_TRADITIONAL: Final = str.maketrans(_SIMPLIFIED, _TRADITIONAL)


class TermHit(NamedTuple):
    """A term in a text: `start` and `end` are places in that text."""

    term: str
    """As the code book has it, in lower case."""
    code: str
    """`ICD-10:R05`; `ICHI:` if the list gives no code."""
    start: int
    end: int


def _flat(text: str) -> str:
    """Lower case and half width, every character staying in its place."""
    lower = text.lower()
    if len(lower) != len(text):
        lower = "".join(low if len(low := c.lower()) == 1 else c for c in text)
    return lower.translate(_WIDE_TABLE) if _WIDE.search(lower) else lower


def _is_latin(char: str) -> bool:
    return char.isalnum() and ord(char) < 0x250


class Codebook:
    """Terms with their codes; immutable once built, and picklable by its sources alone."""

    def __init__(self, terms: Iterable[Term], *, stop: frozenset[str] = frozenset()) -> None:
        """The first code of a term stands where two lists have it; a term of the stop list is left out."""
        try:
            import ahocorasick
        except ImportError as exc:
            raise MissingExtra("medlive[service] is needed for code books (pyahocorasick)") from exc
        matches: dict[str, str] = {}
        for term in terms:
            flat = _flat(term.term).translate(_TO_SIMPLIFIED)
            if flat and flat not in stop:
                matches.setdefault(flat, f"{term.system}:{term.code}")
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

    def __len__(self) -> int:
        return len(self._terms)

    def _whole(self, flat: str, start: int, end: int) -> bool:
        """Whether a match cuts no Latin word; a plural s may follow."""
        if _is_latin(flat[start]) and start and _is_latin(flat[start - 1]):
            return False
        if not _is_latin(flat[end - 1]) or end == len(flat) or not _is_latin(flat[end]):
            return True
        return flat[end] == "s" and flat[end - 1] != "s" and (end + 1 == len(flat) or not _is_latin(flat[end + 1]))

    def matches(self, text: str) -> Iterator[TermHit]:
        """Find every term of a text in the order of their ends; they may overlap."""
        flat = _flat(text)
        for end, term in self._automaton.iter(flat) if self._terms else ():
            start, end = end + 1 - len(term), end + 1
            if self._whole(flat, start, end):
                yield TermHit(term, self._terms[term], start, end)


@cache
def stop_words() -> frozenset[str]:
    """Everyday words that are never a term."""
    return frozenset(_flat(line.strip()) for name in ("stop_en.txt", "stop_zh.txt") for line in read_lines(name))


@cache
def shipped_terms() -> tuple[Term, ...]:
    """The terms that medlive ships, English and Chinese."""
    found = []
    for name in ("terms_en.txt", "terms_zh.txt"):
        for line in read_lines(name):
            system, code, term = line.split("\t")
            found.append(Term(system, code, clean_term(term)))
    return tuple(found)


def load_codebook(paths: Sequence[Path] = ()) -> Codebook:
    """The shipped terms and those of the given files, less the stop words; shipped codes stand first.

    Errors: BadInput for a file in no known shape, MissingExtra without the extra `service`.
    """
    extra = (term for path in paths for term in read_terms(path))
    return Codebook((*shipped_terms(), *extra), stop=stop_words())
