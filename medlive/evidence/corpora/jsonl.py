"""Readers of corpora in JSON: passages, clinical guidelines, PubMedQA.

Passages and guidelines are JSON Lines: a file, a gzip of one, or a folder of them; a line may have at most
`PASSAGE_LINE_BYTES` bytes.

- Passages, also MedRAG's chunks as published: `id`, `title` and `text` (or `content`); optional: `section`,
  `language`, `date`, `url`, `licence` (or `license`).
- Clinical guidelines as published for training: `id`, `source` (who published it: cdc, nice, who …), `title`,
  `clean_text` with headings in Markdown, `overview`, `url`; optional: `date` (a day, month or year; a guideline of a
  year counts as published at its end) and `publisher` (the society).
- PubMedQA, PubMed abstracts in labelled parts: one JSON object keyed by PMID. The question is (or was made from) the
  article's title and is the passage's title; the long answer is the abstract's own conclusion and its last section.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
)

from medlive.errors import BadInput, first_fault
from medlive.guard.bounds import PASSAGE_LINE_BYTES
from medlive.integrity.folder import open_given, read_given

from .folder import titled_sections
from .model import Document, Reader, ReadLog, Section
from .parsing.files import CorpusFiles, head_of, open_unpacked
from .parsing.text import latest_date

T = TypeVar("T")

_FILES = CorpusFiles((".jsonl", ".jsonl.gz", ".ndjson"))

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Published = Annotated[date | None, BeforeValidator(latest_date)]
"""The last day that a date may mean."""


class Row(BaseModel):
    """The fields of every line, whatever the kind of corpus."""

    id: Annotated[
        str,
        BeforeValidator(lambda value: str(value) if type(value) is int else value),
        Field(pattern=r"\S"),
    ]
    title: Text = ""
    url: Text = ""
    published: Published = Field(None, validation_alias="date")


class _Passage(Row):
    text: str = Field(validation_alias=AliasChoices("text", "content"))
    section: Text = ""
    language: str | None = None
    licence: str | None = Field(
        None, validation_alias=AliasChoices("licence", "license")
    )
    PMID: int | None = None


def files_of(path: Path) -> list[Path]:
    """The JSON Lines files of a folder, or the file itself when it is one."""
    files = _FILES.below(path, ReadLog())
    return [file for name, file in files if _FILES.include(name)]


def documents_of(
    path: Path,
    log: ReadLog,
    document: Callable[[bytes], Document],
) -> Iterator[Document]:
    """The documents of a file of JSON Lines, of a gzip of one, or of a folder of them.

    `document` parses a line and raises ValueError with what is wrong with it.
    """
    for name, file in _FILES.below(path, log):
        yield from converted(_lines(name, file, log), log, document)


def converted(
    rows: Iterable[tuple[str, T]],
    log: ReadLog,
    document: Callable[[T], Document],
) -> Iterator[Document]:
    """The documents made of rows; invalid rows go to the log, rows without text are counted there as left out.

    Args:
        rows: Each with its place, which the log names.
        log: The account of the reading.
        document: Makes a document; raises ValueError with what is wrong with the row.
    """
    for place, row in rows:
        try:
            made = document(row)
        except ValueError as exc:
            fault = first_fault(exc) if isinstance(exc, ValidationError) else str(exc)
            log.problem(place, fault)
            continue
        if any(section.text.strip() for section in made.sections):
            yield made
        else:
            log.left_out += 1


def _lines(
    name: str,
    file: Path,
    log: ReadLog,
) -> Iterator[tuple[str, bytes]]:
    """(place, line) of every line that is not blank."""
    number = 0
    try:
        with open_unpacked(file) as stream:
            while line := stream.readline(PASSAGE_LINE_BYTES):
                number += 1
                place = f"{name}:{number}"
                if len(line) == PASSAGE_LINE_BYTES and not line.endswith(b"\n"):
                    log.problem(place, f"longer than {PASSAGE_LINE_BYTES} bytes")
                    while line and not line.endswith(b"\n"):
                        line = stream.readline(PASSAGE_LINE_BYTES)
                elif line := line.strip(b" \t\r\n\xef\xbb\xbf"):
                    yield place, line
    except (OSError, EOFError, zlib.error) as exc:
        place = f"{name}:{number + 1}" if number else name
        log.problem(place, f"the file cannot be read from here on: {exc}")


def _passage(line: bytes) -> Document:
    row = _Passage.model_validate_json(line)
    url = row.url
    if row.PMID is not None and not url:
        url = f"https://pubmed.ncbi.nlm.nih.gov/{row.PMID}/"
    return Document(
        id=row.id,
        title=row.title,
        sections=(Section(row.section, row.text),),
        language=row.language or None,
        published=row.published,
        url=url,
        licence=row.licence or None,
    )


PASSAGES = Reader(
    kind="passages",
    about="passages as JSON Lines (id, title, text; MedRAG's chunks too): a .jsonl(.gz) file or a folder",
    sniff=lambda path: bool(files_of(path)),
    documents=partial(documents_of, document=_passage),
    licence="unstated",
)


_FIELDS = (b'"source"', b'"clean_text"')
_NO_EVIDENCE = frozenset(
    (
        "interventions and practices considered",
        "qualifying statements",
        "type of evidence supporting the recommendations",
        "target population",
        "disease/condition(s)",
        "clinical algorithm(s)",
        "potential benefits",
    )
)
"""Sections of a clearinghouse's summaries that recommend nothing and warn of nothing: what was considered, for
whom, on what grounds. Short and full of the subject's words, they would come before the recommendations."""


def sniff_guidelines(path: Path) -> bool:
    """Whether the first line of the first file, of which perhaps only the beginning is read, has the fields."""
    for file in files_of(path):
        head = head_of(file)
        line = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
        return line.startswith(b"{") and all(field in line for field in _FIELDS)
    return False


class _Guideline(Row):
    source: Text = ""
    publisher: Text = ""
    clean_text: str
    overview: Text = ""


def _guideline(line: bytes) -> Document:
    """A guideline without the sections that recommend nothing. Raises ValueError."""
    row = _Guideline.model_validate_json(line)
    source = row.source.strip()
    heading, sections = titled_sections(row.clean_text)
    evidence = []
    for section in sections:
        if section.label.rpartition(" > ")[2].casefold() not in _NO_EVIDENCE:
            evidence.append(section)
    # The source's title, the text's own, or at least what it is about.
    title = (row.title or heading or row.overview).strip()
    publisher = row.publisher.strip() or source.upper()
    if title and publisher:
        title = f"{title[:200]} ({publisher[:100]})"
    return Document(
        id=f"{source}-{row.id}" if source else row.id,
        title=title or publisher,
        sections=tuple(evidence) or sections,
        published=row.published,
        url=row.url,
    )


GUIDELINES = Reader(
    kind="guidelines",
    about="clinical guidelines as JSON Lines (id, source, title, clean_text): a .jsonl(.gz) file or a folder",
    sniff=sniff_guidelines,
    documents=partial(documents_of, document=_guideline),
    licence="each publisher's own terms",
)


def sniff_pubmedqa(path: Path) -> bool:
    """Whether it is a JSON file whose beginning names the parts of an abstract."""
    if not path.is_file() or not path.name.lower().endswith(".json"):
        return False
    with open_given(path) as handle:
        return b'"CONTEXTS"' in handle.read(1 << 16)


class _Entry(BaseModel):
    CONTEXTS: list[str]
    LABELS: list[str] = []
    QUESTION: Text = ""
    LONG_ANSWER: Text = ""
    published: Published = Field(None, validation_alias="YEAR")


def abstracts(path: Path, log: ReadLog) -> Iterator[Document]:
    """Every abstract of the file."""
    try:
        entries = TypeAdapter(dict[str, Any]).validate_json(read_given(path))
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc
    except ValidationError as exc:
        raise BadInput(
            f"{path} is not a PubMedQA file, a JSON object keyed by PMID: {first_fault(exc)}"
        ) from exc
    rows = zip(entries, entries.items(), strict=True)
    yield from converted(rows, log, _abstract)


def _abstract(row: tuple[str, Any]) -> Document:
    """The abstract of a PMID and its entry, the long answer as its conclusions. Raises ValueError."""
    pmid, entry = row[0], _Entry.model_validate(row[1])
    labels = entry.LABELS[: len(entry.CONTEXTS)]
    parts = [*zip_longest(labels, entry.CONTEXTS, fillvalue="")]
    parts.append(("CONCLUSIONS", entry.LONG_ANSWER))
    numbered = pmid.isascii() and pmid.isdigit()
    return Document(
        id=pmid,
        title=entry.QUESTION,
        sections=tuple(Section(label, text) for label, text in parts if text.strip()),
        published=entry.published,
        url=f"https://pubmed.ncbi.nlm.nih.gov/{pmid}/" if numbered else "",
        continuous=True,
    )


PUBMEDQA = Reader(
    kind="pubmedqa",
    about="PubMedQA abstracts: its JSON file keyed by PMID",
    sniff=sniff_pubmedqa,
    documents=abstracts,
    licence="MIT",
)
