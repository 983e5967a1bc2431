"""Clinical guidelines as published for training: JSON Lines with a cleaned text, its headings in Markdown.

Fields: `id`, `source` (who published it: cdc, nice, who …), `title`, `clean_text` (else `raw_text`), `overview`,
`url`, and optionally `date` (a day, month or year; a guideline of a year counts as published at its end) and
`publisher` (the society).
"""

from functools import partial
from pathlib import Path

from medlive.evidence.corpora.folder import titled_sections
from medlive.evidence.corpora.jsonl import Row, Text, documents_of, files_of
from medlive.evidence.corpora.model import Document, Reader
from medlive.evidence.corpora.parsing.files import head_of

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


def sniff(path: Path) -> bool:
    """Whether the first line of the first file, of which perhaps only the beginning is read, has the fields."""
    for file in files_of(path):
        head = head_of(file)
        line = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
        return line.startswith(b"{") and all(field in line for field in _FIELDS)
    return False


class _Guideline(Row):
    source: Text = ""
    publisher: Text = ""
    clean_text: str | None = None
    raw_text: str | None = None
    overview: Text = ""


def _document(line: bytes) -> Document:
    row = _Guideline.model_validate_json(line)
    text = row.clean_text if (row.clean_text or "").strip() else row.raw_text
    if text is None:
        raise ValueError("`clean_text` is missing")
    source = row.source.strip()
    heading, sections = titled_sections(text)
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


READER = Reader(
    kind="guidelines",
    about="clinical guidelines as JSON Lines (id, source, title, clean_text): a .jsonl(.gz) file or a folder",
    sniff=sniff,
    documents=partial(documents_of, document=_document),
    licence="each publisher's own terms",
)
