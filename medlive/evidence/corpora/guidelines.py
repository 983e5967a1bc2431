"""Clinical guidelines as published for training: JSON Lines with a cleaned text, its headings in Markdown.

Fields: `id`, `source` (who published it: cdc, nice, who …), `title`, `clean_text` (else `raw_text`), `overview`,
`url`. They carry no date.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from medlive.evidence.corpora.chunk import Document
from medlive.evidence.corpora.jsonl import documents_of, files_of, identity_of, text_of
from medlive.evidence.corpora.markdown import titled_sections
from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.sniff import head_of


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
    heading, sections = titled_sections(text)
    # A line has the source's title, the text's own, or at least what it is about.
    title = (text_of(row, "title") or heading or text_of(row, "overview") or "").strip()
    return Document(
        id=f"{source}-{identity}" if source else identity,
        title=f"{title[:200]} ({source.upper()})" if title and source else title or source.upper(),
        sections=sections,
        url=text_of(row, "url") or "",
    )


READER = Reader(
    kind="guidelines",
    about="clinical guidelines as JSON Lines (id, source, title, clean_text): a .jsonl(.gz) file or a folder",
    sniff=_sniff,
    documents=_documents,
    licence="each publisher's own terms",
)
