"""Code-book terms (ICD, ICF, ICHI) found in a text by one automaton pass.

A thread with no such term is no clinical discussion (LiveMedBench, post filters). medlive ships a small list of
its own; WHO's official files and other lists are read beside it, in the shapes in which they are passed on.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from medlive.errors import BadInput, MissingExtra
from medlive.filters.model import read_lines
from medlive.integrity.digest import digest_json
from medlive.integrity.folder import TooLong
from medlive.integrity.given import read_given
from medlive.text.normalise import normalise

_CODE_COLUMNS = frozenset(read_lines("code_columns.txt"))
_TERM_COLUMNS = frozenset(read_lines("term_columns.txt"))
_ANY_CODE = re.compile(
    r"[A-Z]\d{2}(?:\.?[0-9A-Z-]{1,4})?|[A-Z0-9]{2}\d[0-9A-Z](?:\.[0-9A-Z]{1,2})?|[bsde]\d{1,5}|[A-Z]{3}\.[A-Z]{2}\.[A-Z]{2}"
    r"|[A-Z]\d{2}-[A-Z]\d{2}|\d{5,9}|DOID:\d+"
)
_ICD_CODE = re.compile(r"[A-TV-Z]\d[0-9A-Z](?:\.[0-9A-Z-]{1,4})?")
_LEADING_MARKS = re.compile(r"^(?:[-–•]\s*)+|^[A-Z]\d\d(?:-[A-Z]\d\d)?[：:]\s*")
_BLOCK = re.compile(r"([A-Z]\d\d-[A-Z]\d\d)[：:]")
_TRAILING_CODE = re.compile(r"[A-Z]\d{2}(?:\.[\d-])?[†*]?$")
_VAGUE = re.compile(
    r"[,，]?\s*(?:unspecified|not elsewhere classified|nos|nec|未特指的?|不可归类在他处者?)$",
    re.IGNORECASE,
)
_TERM_END = "炎症病癌瘤疹痛疮癣疣痈疽痢疟痫痔疝疱斑"
"""Last characters that make a two-character word of a frequency list a term by itself."""


class Term(NamedTuple):
    """A term of a code book."""

    system: str  # "ICD-10", "ICD-11", "ICF", "ICHI", or the file's name
    code: str  # Empty if the list has none
    term: str


def clean_term(text: str) -> str:
    """Remove list marks, trailing cross-references and "unspecified" from a title."""
    text = _LEADING_MARKS.sub("", normalise(text).strip(" \"'"))
    if len(text) > 6:
        text = _TRAILING_CODE.sub("", text)
    return _VAGUE.sub("", text).strip(" ,;，；.")


def _usable(term: str) -> bool:
    return (
        (4 if term.isascii() else 2) <= len(term) <= 80
        and "/w/" not in term
        and "%" not in term
    )


_SYSTEMS = {
    "icd11": "ICD-11",
    "icd10cm": "ICD-10-CM",
    "icd10": "ICD-10",
    "ichi": "ICHI",
    "icf": "ICF",
    "diseaseontology": "DOID",
    "doid": "DOID",
}
"""By what the name of a code book's file holds."""


def _system(path: Path) -> str:
    name = re.sub("[_ -]", "", path.name.lower())
    for mark, system in _SYSTEMS.items():
        if mark in name:
            return system
    return path.stem


def read_terms(path: Path) -> Iterator[Term]:
    """The usable terms of a code-book file, duplicates included.

    Knows: tables with a header (comma, tab or semicolon; a code column and one or more title and synonym columns,
    as WHO's ICD-11, ICF and ICHI tabulations have); WHO's headerless ICD-10 `codes.txt`; two columns of code and
    title; a word list with frequencies; nested JSON of `value`, `label`, `children`. BadInput for anything else.
    """
    try:
        raw = read_given(path)
    except (OSError, TooLong) as exc:
        raise BadInput(
            f"cannot read code book {path.name}: {getattr(exc, 'strerror', None) or exc}"
        ) from exc
    if raw.startswith(b"PK\x03\x04"):
        raise BadInput(
            f"{path.name} is a spreadsheet or archive",
            hint="save it as CSV or TSV, UTF-8",
        )
    text = _decoded(raw, path)
    pairs = _json_pairs(text, path) if text.lstrip()[:1] in "[{" else _table_pairs(text)
    system, has_term = _system(path), False
    for code, title in pairs:
        if _usable(term := clean_term(title)):
            has_term = True
            yield Term(system, code, term)
    if not has_term:
        raise BadInput(
            f"{path.name} has no column of titles that is known",
            hint="see docs/codebooks.md",
        )


def _decoded(raw: bytes, path: Path) -> str:
    for encoding in (
        "utf-8-sig",
        "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8",
        "gb18030",
    ):
        with suppress(UnicodeDecodeError):
            return raw.decode(encoding).replace("\x00", "")
    raise BadInput(f"{path.name} is neither UTF-8 nor GB18030")


def _json_pairs(text: str, path: Path) -> Iterator[tuple[str, str]]:
    try:
        nodes = [json.loads(text)]
    except (ValueError, RecursionError) as exc:
        raise BadInput(f"{path.name} is not valid JSON") from exc
    while nodes:
        node = nodes.pop()
        values = list(node.values()) if isinstance(node, dict) else node
        nodes.extend(v for v in values if isinstance(v, list | dict))
        if isinstance(node, dict) and (
            title := _first_text(node, ("label", "title", "name", "term"))
        ):
            yield _first_text(node, ("value", "code", "id")), title


def _first_text(node: dict[str, Any], keys: Sequence[str]) -> str:
    for key in keys:
        if isinstance(text := node.get(key), str):
            return text
    return ""


def _table_pairs(text: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines()
    sample = "\n".join(lines[:5])
    csv.field_size_limit(10_000_000)
    rows = csv.reader(lines, delimiter=max("\t;,|", key=sample.count))
    first = _stripped(next(rows, []))
    codes, titles = [], []
    for column, cell in enumerate(first):
        name = re.sub(r"\.\d+$", "", cell.lower().lstrip("\ufeff")).replace(" ", "")
        if name in _TERM_COLUMNS:
            titles.append(column)
        if name in _CODE_COLUMNS:
            codes.append(column)
    if not titles and (pair := _plain_row(first)):
        yield pair
    for row in map(_stripped, rows):
        if titles:
            yield from _titled_row(row, codes, titles)
        elif pair := _plain_row(row):
            yield pair


def _stripped(row: Iterable[str]) -> list[str]:
    return [cell.strip() for cell in row]


def _titled_row(
    row: Sequence[str], codes: Sequence[int], titles: Sequence[int]
) -> Iterator[tuple[str, str]]:
    code = next((row[i] for i in codes if i < len(row) and row[i]), "").removeprefix(
        "ICD10:"
    )
    for column in titles:
        if column >= len(row):
            continue
        for title in _cell_terms(row[column]):
            block = _BLOCK.match(title)
            yield block.group(1) if block else code, title


def _cell_terms(cell: str) -> list[str]:
    """A cell's terms: a plain title, or a printed list of quoted ones."""
    if cell.startswith("[") and cell.endswith("]"):
        quoted = re.findall(r"'''(.*?)'''|\"(.*?)\"|'(.*?)'", cell)
        return list(filter(None, chain.from_iterable(quoted)))
    return [cell] if cell else []


def _plain_row(cells: Sequence[str]) -> tuple[str, str] | None:
    """The code and the title in a row of a table without a header; None for a row of another shape."""
    filled = [c for c in cells if c]
    if len(filled) == 1:
        return None if re.search(r"[/%\d]", filled[0]) else ("", filled[0])
    if len(filled) == 2:
        return _plain_pair(*filled)
    if (
        len(filled) == 3
        and re.fullmatch(r"[A-Z][A-Z0-9-]{2,11}", filled[0])
        and "\t" not in filled[2]
    ):
        return filled[1], filled[2]
    return _wide_row(filled) if len(filled) > 6 else None


def _wide_row(filled: Sequence[str]) -> tuple[str, str] | None:
    codes = list(filter(_ICD_CODE.fullmatch, filled))
    words = [c for c in filled if " " in c or (len(c) > 6 and c.isalpha())]
    return (codes[-1], words[0]) if codes and words else None


def _plain_pair(first: str, second: str) -> tuple[str, str] | None:
    if re.fullmatch(r"\d+", second) and not first.isascii():
        # A word and how often it occurs.
        return ("", first) if len(first) >= 3 or first[-1] in _TERM_END else None
    if _ANY_CODE.fullmatch(first):
        return first, second
    return ("", second) if first.startswith("ICHI") else None


_WIDE = re.compile(r"[０-９Ａ-Ｚａ-ｚ－]")
_WIDE_TABLE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_SIMPLIFIED, _TRADITIONAL = read_lines("traditional.txt")
_TO_SIMPLIFIED = str.maketrans(_TRADITIONAL, _SIMPLIFIED)
_TO_TRADITIONAL = str.maketrans(_SIMPLIFIED, _TRADITIONAL)


class TermHit(NamedTuple):
    """A term in a text: `start` and `end` are places in that text."""

    term: str  # As the code book has it, in lower case
    code: str  # `ICD-10:R05`; `ICHI:` if the list gives no code
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

    def __init__(
        self, terms: Iterable[Term], *, stop: frozenset[str] = frozenset()
    ) -> None:
        """The first code of a term stands where two lists have it; a term of the stop list is left out."""
        try:
            import ahocorasick
        except ImportError as exc:
            raise MissingExtra(
                "medlive[service] is needed for code books (pyahocorasick)"
            ) from exc
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
        return (
            flat[end] == "s"
            and flat[end - 1] != "s"
            and (end + 1 == len(flat) or not _is_latin(flat[end + 1]))
        )

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
    lines = [*read_lines("stop_en.txt"), *read_lines("stop_zh.txt")]
    return frozenset(_flat(line.strip()) for line in lines)


@cache
def shipped_terms() -> tuple[Term, ...]:
    """The terms that medlive ships, English and Chinese."""
    terms = []
    for line in [*read_lines("terms_en.txt"), *read_lines("terms_zh.txt")]:
        system, code, term = line.split("\t")
        terms.append(Term(system, code, clean_term(term)))
    return tuple(terms)


def load_codebook(paths: Sequence[Path] = ()) -> Codebook:
    """The shipped terms and those of the given files, less the stop words; shipped codes stand first.

    Errors: BadInput for a file in no known shape, MissingExtra without the extra `service`.
    """
    extra = (term for path in paths for term in read_terms(path))
    return Codebook((*shipped_terms(), *extra), stop=stop_words())
