"""Clinical guidelines as published for training: JSON Lines with a cleaned text, its headings in Markdown.

Fields: `id`, `source` (who published it: cdc, nice, who …), `title`, `clean_text` (else `raw_text`), `overview`,
`url`, and optionally `date` (a day, month or year; a guideline of a year counts as published at its end) and
`publisher` (the society).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from medlive.evidence.corpora.folder import titled_sections
from medlive.evidence.corpora.jsonl import documents_of, files_of, identity_of, text_of
from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.parsing.chunk import Document
from medlive.evidence.corpora.parsing.files import head_of
from medlive.evidence.corpora.parsing.text import published_by

_NO_EVIDENCE: Final = frozenset(
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


def _sniff(path: Path) -> bool:
    files = files_of(path)
    return bool(files) and _is_guideline(head_of(files[0]))


def _is_guideline(head: bytes) -> bool:
    """Whether the first line, of which perhaps only the beginning is there, has the fields."""
    line = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return line.startswith(b"{") and b'"source"' in line and b'"clean_text"' in line
    return isinstance(row, dict) and "source" in row and "clean_text" in row


def _documents(path: Path, log: ReadLog) -> Iterator[Document]:
    return documents_of(path, log, _document)


def _document(row: Any) -> Document:
    """One guideline; raises ValueError with the field that is wrong."""
    identity = identity_of(row)
    text = text_of(row, "clean_text")
    if not (text or "").strip():
        text = text_of(row, "raw_text")
    if text is None:
        raise ValueError("`clean_text` is missing")
    source = (text_of(row, "source") or "").strip()
    publisher = (text_of(row, "publisher") or "").strip() or source.upper()
    try:
        published = published_by(row.get("date"))
    except ValueError as exc:
        raise ValueError(f"`date` is not a date: {str(row.get('date'))[:40]!r}") from exc
    heading, found = titled_sections(text)
    labels = (s for s in found if s.label.rpartition(" > ")[2].casefold() not in _NO_EVIDENCE)
    sections = tuple(labels) or found
    # A line has the source's title, the text's own, or at least what it is about.
    title = (text_of(row, "title") or heading or text_of(row, "overview") or "").strip()
    return Document(
        id=f"{source}-{identity}" if source else identity,
        title=f"{title[:200]} ({publisher[:100]})" if title and publisher else title or publisher,
        sections=sections,
        published=published,
        url=text_of(row, "url") or "",
    )


READER = Reader(
    kind="guidelines",
    about="clinical guidelines as JSON Lines (id, source, title, clean_text): a .jsonl(.gz) file or a folder",
    sniff=_sniff,
    documents=_documents,
    licence="each publisher's own terms",
)
