"""Readers of code-book files: WHO's tabulations and the shapes in which ICD and word lists are passed on."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from medlive.errors import BadInput
from medlive.text.normalise import normalise

_CODE_COLUMN_NAMES: Final = "code dms_id icd10 icd-10 icdcode icd_code ichicode icfcode id value"
_CODE_COLUMNS: Final = frozenset(_CODE_COLUMN_NAMES.split())
_TERM_COLUMN_NAMES: Final = (
    "title name term disease dms_name label preferredlabel descriptor description category catalog titleen "
    "categorytitle fulldescription syn synonym synonyms dms_synonym inclusion inclusions indexterm indexterms "
    "章 块 名称 疾病 疾病名称 诊断名称 词"
)
_TERM_COLUMNS: Final = frozenset(_TERM_COLUMN_NAMES.split())
_ANY_CODE: Final = re.compile(
    r"[A-Z]\d{2}(?:\.?[0-9A-Z-]{1,4})?|[A-Z0-9]{2}\d[0-9A-Z](?:\.[0-9A-Z]{1,2})?|[bsde]\d{1,5}|[A-Z]{3}\.[A-Z]{2}\.[A-Z]{2}"
    r"|[A-Z]\d{2}-[A-Z]\d{2}|\d{5,9}|DOID:\d+"
)
_ICD_CODE: Final = re.compile(r"[A-TV-Z]\d[0-9A-Z](?:\.[0-9A-Z-]{1,4})?")
_LEADING_MARKS: Final = re.compile(r"^(?:[-–•]\s*)+|^[A-Z]\d\d(?:-[A-Z]\d\d)?[：:]\s*")
_BLOCK: Final = re.compile(r"([A-Z]\d\d-[A-Z]\d\d)[：:]")
_TRAILING_CODE: Final = re.compile(r"[A-Z]\d{2}(?:\.[\d-])?[†*]?$")
_VAGUE: Final = re.compile(
    r"[,，]?\s*(?:unspecified|not elsewhere classified|nos|nec|未特指的?|不可归类在他处者?)$", re.IGNORECASE
)
_TERM_END: Final = "炎症病癌瘤疹痛疮癣疣痈疽痢疟痫痔疝疱斑"
"""Last characters that make a two-character word of a frequency list a term by itself."""


class Term(NamedTuple):
    """A term of a code book."""

    system: str
    """"ICD-10", "ICD-11", "ICF", "ICHI", or the file's name."""
    code: str
    """Empty if the list has none."""
    term: str


def clean_term(text: str) -> str:
    """Remove list marks, trailing cross-references and "unspecified" from a title."""
    text = _LEADING_MARKS.sub("", normalise(text).strip(" \"'"))
    if len(text) > 6:
        text = _TRAILING_CODE.sub("", text)
    return _VAGUE.sub("", text).strip(" ,;，；.")


def _usable(term: str) -> bool:
    if not 2 <= len(term) <= 80 or "/w/" in term or "%" in term:
        return False
    return len(term) >= 4 if term.isascii() else True


def _system(path: Path) -> str:
    name = path.name.lower().replace("_", "").replace("-", "").replace(" ", "")
    for mark, system in (
        ("icd11", "ICD-11"), ("icd10cm", "ICD-10-CM"), ("icd10", "ICD-10"), ("ichi", "ICHI"), ("icf", "ICF"),
        ("diseaseontology", "DOID"), ("doid", "DOID"),
    ):  # fmt: skip
        if mark in name:
            return system
    return path.stem


def _column(name: str) -> str:
    return re.sub(r"\.\d+$", "", name.strip().lower().lstrip("\ufeff")).replace(" ", "")


def _cell_terms(cell: str) -> list[str]:
    """A cell's terms: a plain title, or a printed list of quoted ones."""
    if cell.startswith("[") and cell.endswith("]"):
        return [t for t in re.findall(r"'''(.*?)'''|\"(.*?)\"|'(.*?)'", cell) for t in t if t]
    return [cell]


def read_terms(path: Path) -> Iterator[Term]:
    """The usable terms of a code-book file, duplicates included.

    Knows: tables with a header (comma, tab or semicolon; a code column and one or more title and synonym columns,
    as WHO's ICD-11, ICF and ICHI tabulations have); WHO's headerless ICD-10 `codes.txt`; two columns of code and
    title; a word list with frequencies; nested JSON of `value`, `label`, `children`. BadInput for anything else.
    """
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise BadInput(f"cannot read code book {path.name}: {exc.strerror}") from exc
    if raw.startswith(b"PK\x03\x04"):
        raise BadInput(f"{path.name} is a spreadsheet or archive", hint="save it as CSV or TSV, UTF-8")
    text = _decoded(raw, path)
    system = _system(path)
    seen = False
    pairs = _json_pairs(text, path) if text.lstrip()[:1] in "[{" else _table_pairs(text)
    for code, title in pairs:
        term = clean_term(title)
        if _usable(term):
            seen = True
            yield Term(system, code, term)
    if not seen:
        raise BadInput(f"{path.name} has no column of titles that is known", hint="see docs/codebooks.md")


def _decoded(raw: bytes, path: Path) -> str:
    for encoding in ("utf-8-sig", "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "gb18030"):
        try:
            return raw.decode(encoding).replace("\x00", "")
        except UnicodeDecodeError:
            continue
    raise BadInput(f"{path.name} is neither UTF-8 nor GB18030")


def _json_pairs(text: str, path: Path) -> Iterator[tuple[str, str]]:
    try:
        nodes = [json.loads(text)]
    except (ValueError, RecursionError) as exc:
        raise BadInput(f"{path.name} is no JSON") from exc
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes.extend(node)
        elif isinstance(node, dict):
            title = next(
                (node[k] for k in ("label", "title", "name", "term") if isinstance(node.get(k), str)), None
            )
            code = next((node[k] for k in ("value", "code", "id") if isinstance(node.get(k), str)), "")
            if title:
                yield code, title
            nodes.extend(v for v in node.values() if isinstance(v, list | dict))


def _table_pairs(text: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines()
    if not lines:
        return
    sample = "\n".join(lines[:5])
    delimiter = max("\t;,|", key=sample.count)
    csv.field_size_limit(10_000_000)
    rows = csv.reader(lines, delimiter=delimiter)
    first = next(rows, [])
    header = [_column(c) for c in first]
    titles = [i for i, name in enumerate(header) if name in _TERM_COLUMNS]
    if titles:
        codes = [i for i, name in enumerate(header) if name in _CODE_COLUMNS]
        for row in rows:
            code = next((row[i].strip() for i in codes if i < len(row) and row[i].strip()), "")
            for i in titles:
                if i < len(row) and row[i].strip():
                    for title in _cell_terms(row[i].strip()):
                        block = _BLOCK.match(title)
                        yield (block.group(1) if block else code.removeprefix("ICD10:")), title
        return
    for row in (first, *rows):
        yield from _plain_row([c.strip() for c in row])


def _plain_row(cells: list[str]) -> Iterator[tuple[str, str]]:
    """A row of a table without a header."""
    filled = [c for c in cells if c]
    if len(filled) == 2 and re.fullmatch(r"\d+", filled[1]) and not filled[0].isascii():
        word = filled[0]  # a word and how often it occurs
        if len(word) >= 3 or word[-1] in _TERM_END:
            yield "", word
    elif len(filled) == 3 and re.fullmatch(r"[A-Z][A-Z0-9-]{2,11}", filled[0]) and "\t" not in filled[2]:
        yield filled[1], filled[2]
    elif len(filled) == 2 and filled[0].startswith("ICHI") and not _ANY_CODE.fullmatch(filled[0]):
        yield "", filled[1]
    elif len(filled) == 2 and _ANY_CODE.fullmatch(filled[0]):
        yield filled[0], filled[1]
    elif len(filled) > 6:
        codes = [c for c in filled if _ICD_CODE.fullmatch(c)]
        words = [c for c in filled if " " in c or (len(c) > 6 and c.isalpha())]
        if codes and words:
            yield codes[-1], words[0]
    elif len(filled) == 1 and not re.search(r"[/%\d]", filled[0]):
        yield "", filled[0]
