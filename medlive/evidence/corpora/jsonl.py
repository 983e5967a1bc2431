"""Passages as JSON Lines: `id`, `title` and `text` (or `content`, as MedRAG's chunks have it), one a line.

Optional: `section`, `language`, `date`, `url`, `licence` (or `license`). A file, a gzip of one, or a folder
of them; a line may have at most `MAX_LINE` bytes.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from medlive.errors import BadInput
from medlive.evidence.corpora.chunk import Document, Section
from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.text import published_by

MAX_LINE = 16 * 1024 * 1024
_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson")


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(f for f in path.rglob("*") if f.name.lower().endswith(_SUFFIXES) and not f.is_symlink())
    return [path] if path.name.lower().endswith(_SUFFIXES) else []


def _sniff(path: Path) -> bool:
    return bool(_files(path))


def _documents(path: Path, log: ReadLog) -> Iterator[Document]:
    files = _files(path) or [path]
    for file in files:
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        try:
            stream = gzip.open(file, "rb") if file.name.lower().endswith(".gz") else file.open("rb")  # noqa: SIM115
        except OSError as exc:
            if not path.is_dir():
                raise BadInput(f"{file} cannot be read: {exc.strerror}") from exc
            log.problem(name, f"cannot be read: {exc.strerror}")
            continue
        with stream:
            yield from _lines(cast("IO[bytes]", stream), name, log)


def _lines(stream: IO[bytes], name: str, log: ReadLog) -> Iterator[Document]:
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
            document = _document(json.loads(line.decode("utf-8-sig")))
        except (ValueError, RecursionError) as exc:
            log.problem(place, str(exc) or type(exc).__name__)
            continue
        if document.sections[0].text.strip():
            yield document
        else:
            log.empty += 1


def _document(row: Any) -> Document:
    """One line's document; raises ValueError with the field that is wrong."""
    if not isinstance(row, dict):
        raise ValueError("the line is no object")
    identity = row.get("id")
    if not isinstance(identity, str | int) or isinstance(identity, bool) or not str(identity).strip():
        raise ValueError("`id` is missing or no text")
    text = _text(row, "text", "content", "contents")
    if text is None:
        raise ValueError("`text` (or `content`) is missing")
    try:
        published = published_by(row.get("date"))
    except ValueError as exc:
        raise ValueError(f"`date` is no ISO date: {str(row.get('date'))[:40]!r}") from exc
    return Document(
        id=str(identity),
        title=_text(row, "title") or "",
        sections=(Section(_text(row, "section") or "", text),),
        language=_text(row, "language") or None,
        published=published,
        url=_text(row, "url") or "",
        licence=_text(row, "licence", "license") or None,
    )


def _text(row: dict[str, Any], *names: str) -> str | None:
    """The first of the fields that is there; raises ValueError when it is no text."""
    for name in names:
        value = row.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise ValueError(f"`{name}` is no text")
            return value
    return None


READER = Reader(
    kind="passages",
    about="passages as JSON Lines (id, title, text; MedRAG's chunks too): a .jsonl(.gz) file or a folder",
    sniff=_sniff,
    documents=_documents,
    licence="unstated",
)
