"""Passages as JSON Lines: `id`, `title` and `text` (or `content`), one a line; MedRAG's chunks as published.

Optional: `section`, `language`, `date`, `url`, `licence` (or `license`). A file, a gzip of one, or a folder
of them; a line may have at most `PASSAGE_LINE_BYTES` bytes.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from medlive.errors import first_fault
from medlive.evidence.corpora.model import Document, Reader, ReadLog, Section
from medlive.evidence.corpora.parsing.files import (
    files_below,
    is_named,
    open_unpacked,
)
from medlive.evidence.corpora.parsing.text import published_by
from medlive.guard.bounds import PASSAGE_LINE_BYTES

T = TypeVar("T")

_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson")
_CHAPTER = re.compile(r"(article-\d+)_\d+")
"""A chunk of StatPearls: the chapter's own name in the book, and the chunk's number."""

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Published = Annotated[date | None, BeforeValidator(published_by)]
"""The last day that a date may mean."""


class Row(BaseModel):
    """What every line has."""

    id: Annotated[
        str,
        BeforeValidator(lambda value: str(value) if type(value) is int else value),
        Field(pattern=r"\S"),
    ]
    title: Text = ""
    url: Text = ""
    published: Published = Field(None, validation_alias="date")


class _Passage(Row):
    text: str | None = Field(None, validation_alias=AliasChoices("text", "content"))
    contents: str | None = None  # MedRAG's title and content in one
    section: Text = ""
    language: str | None = None
    licence: str | None = Field(
        None, validation_alias=AliasChoices("licence", "license")
    )
    PMID: int | str | None = None


def files_of(path: Path) -> list[Path]:
    """The JSON Lines files of a folder, or the file itself when it is one."""
    files = files_below(path, _SUFFIXES, ReadLog())
    return [file for name, file in files if is_named(name, _SUFFIXES)]


def documents_of(
    path: Path,
    log: ReadLog,
    document: Callable[[bytes], Document],
) -> Iterator[Document]:
    """The documents of a file of JSON Lines, of a gzip of one, or of a folder of them.

    `document` parses a line and raises ValueError with what is wrong with it.
    """
    for name, file in files_below(path, _SUFFIXES, log):
        yield from converted(_lines(name, file, log), log, document)


def converted(
    rows: Iterable[tuple[str, T]],
    log: ReadLog,
    document: Callable[[T], Document],
) -> Iterator[Document]:
    """The documents made of the rows of a source; invalid ones go to the log, those without text to its count.

    Args:
        rows: Each with its place.
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
            log.empty += 1


def _lines(name: str, file: Path, log: ReadLog) -> Iterator[tuple[str, bytes]]:
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


def _document(line: bytes) -> Document:
    row = _Passage.model_validate_json(line)
    title, section, text = row.title, row.section, row.text
    chapter = _CHAPTER.fullmatch(row.id)
    if text is None:
        if row.contents is None:
            raise ValueError("`text` (or `content`) is missing")
        inside = title and row.contents.startswith(title)
        text = row.contents[len(title) :].lstrip(". ") if inside else row.contents
    url = row.url
    if chapter and " -- " in title and not section:
        title, section = title.split(" -- ", 1)
        section = section.replace(" -- ", " > ")
    if chapter and not url:
        url = f"https://www.ncbi.nlm.nih.gov/books/n/statpearls/{chapter[1]}/"
    elif row.PMID and not url and re.fullmatch("[0-9]+", str(row.PMID)):
        url = f"https://pubmed.ncbi.nlm.nih.gov/{int(row.PMID)}/"
    return Document(
        id=row.id,
        title=title,
        sections=(Section(section, text),),
        language=row.language or None,
        published=row.published,
        url=url,
        licence=row.licence or None,
    )


READER = Reader(
    kind="passages",
    about="passages as JSON Lines (id, title, text; MedRAG's chunks too): a .jsonl(.gz) file or a folder",
    sniff=lambda path: bool(files_of(path)),
    documents=partial(documents_of, document=_document),
    licence="unstated",
)
