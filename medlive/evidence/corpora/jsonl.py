"""Passages as JSON Lines: `id`, `title` and `text` (or `content`), one a line; MedRAG's chunks as published.

Optional: `section`, `language`, `date`, `url`, `licence` (or `license`). A file, a gzip of one, or a folder
of them; a line may have at most `MAX_LINE` bytes.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import IO, Any

from medlive.errors import BadInput
from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.parsing.chunk import Document, Section
from medlive.evidence.corpora.parsing.files import open_unpacked
from medlive.evidence.corpora.parsing.text import published_by

MAX_LINE = 16 * 1024 * 1024
_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson")
_CHAPTER = re.compile(r"(article-\d+)_\d+")
"""A chunk of StatPearls: the chapter's own name in the book, and the chunk's number."""


def files_of(path: Path) -> list[Path]:
    """The JSON Lines files of a folder, or the file itself when it is one."""
    if path.is_dir():
        return sorted(f for f in path.rglob("*") if f.name.lower().endswith(_SUFFIXES) and not f.is_symlink())
    return [path] if path.name.lower().endswith(_SUFFIXES) else []


def _sniff(path: Path) -> bool:
    return bool(files_of(path))


def _documents(path: Path, log: ReadLog) -> Iterator[Document]:
    return documents_of(path, log, _document)


def documents_of(path: Path, log: ReadLog, document: Callable[[Any], Document]) -> Iterator[Document]:
    """The documents of a file of JSON Lines, of a gzip of one, or of a folder of them.

    `document` makes one of a line's value and raises ValueError with what is wrong with it; such lines go to
    the log by number, documents without text to its count. Raises BadInput when the only file cannot be read.
    """
    files = files_of(path) or [path]
    for file in files:
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        try:
            stream = open_unpacked(file)
        except OSError as exc:
            if not path.is_dir():
                raise BadInput(f"{file} cannot be read: {exc.strerror}") from exc
            log.problem(name, f"cannot be read: {exc.strerror}")
            continue
        with stream:
            yield from _lines(stream, name, log, document)


def _lines(stream: IO[bytes], name: str, log: ReadLog, document: Callable[[Any], Document]) -> Iterator[Document]:
    number = 0
    while True:
        number += 1
        place = f"{name}:{number}"
        try:
            line = stream.readline(MAX_LINE)
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                log.problem(place, f"longer than {MAX_LINE} bytes")
                while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                    pass
                continue
        except (OSError, EOFError, zlib.error) as exc:
            log.problem(place, f"the file is damaged from here on: {exc}")
            return
        if not line:
            return
        if not line.strip(b" \t\r\n\xef\xbb\xbf"):
            continue
        try:
            found = document(json.loads(line.decode("utf-8-sig")))
        except (ValueError, RecursionError) as exc:
            log.problem(place, str(exc) or type(exc).__name__)
            continue
        if any(section.text.strip() for section in found.sections):
            yield found
        else:
            log.empty += 1


def _document(row: Any) -> Document:
    """One line's document; raises ValueError with the field that is wrong."""
    identity = identity_of(row)
    title = text_of(row, "title") or ""
    text = _text(row, title)
    section = text_of(row, "section") or ""
    chapter = _CHAPTER.fullmatch(identity)
    if chapter and " -- " in title and not section:
        title, section = title.split(" -- ", 1)
        section = section.replace(" -- ", " > ")
    return Document(
        id=identity,
        title=title,
        sections=(Section(section, text),),
        language=text_of(row, "language") or None,
        published=published_of(row),
        url=text_of(row, "url") or _url(row, chapter),
        licence=text_of(row, "licence", "license") or None,
    )


def _text(row: Any, title: str) -> str:
    text = text_of(row, "text", "content")
    if text is not None:
        return text
    joined = text_of(row, "contents")
    if joined is None:
        raise ValueError("`text` (or `content`) is missing")
    # MedRAG's `contents` is the title and the content in one.
    return joined[len(title) :].lstrip(". ") if title and joined.startswith(title) else joined


def _url(row: Any, chapter: re.Match[str] | None) -> str:
    if chapter:
        return f"https://www.ncbi.nlm.nih.gov/books/n/statpearls/{chapter[1]}/"
    pmid = row.get("PMID")
    named = isinstance(pmid, int | str) and str(pmid).isascii() and str(pmid).isdigit()
    return f"https://pubmed.ncbi.nlm.nih.gov/{int(pmid)}/" if named else ""


def published_of(row: Any) -> date | None:
    """The last day that the row's `date` may mean. Raises ValueError when it is not a date."""
    try:
        return published_by(row.get("date"))
    except ValueError as exc:
        raise ValueError(f"`date` is not an ISO date: {str(row.get('date'))[:40]!r}") from exc


def identity_of(row: Any) -> str:
    """The row's `id`; raises ValueError when the row is no object or has none."""
    if not isinstance(row, dict):
        raise ValueError("expected an object")
    identity = row.get("id")
    if not isinstance(identity, str | int) or isinstance(identity, bool) or not str(identity).strip():
        raise ValueError("`id` is missing or no text")
    return str(identity)


def text_of(row: dict[str, Any], *names: str) -> str | None:
    """The first of the fields that is there; raises ValueError when it is no text."""
    for name in names:
        value = row.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise ValueError(f"expected `{name}` to be a string")
            return value
    return None


READER = Reader(
    kind="passages",
    about="passages as JSON Lines (id, title, text; MedRAG's chunks too): a .jsonl(.gz) file or a folder",
    sniff=_sniff,
    documents=_documents,
    licence="unstated",
)
