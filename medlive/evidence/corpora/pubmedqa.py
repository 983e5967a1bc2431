"""PubMedQA: PubMed abstracts in labelled parts, one JSON object keyed by PMID.

The question is (or was made from) the article's title and is the passage's title; the long answer is the
abstract's own conclusion and its last section.
"""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from medlive.errors import BadInput
from medlive.evidence.corpora.jsonl import Published, Text, converted
from medlive.evidence.corpora.model import Document, Reader, ReadLog, Section
from medlive.integrity.folder import TooLong, open_given, read_given


def sniff(path: Path) -> bool:
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


def documents(path: Path, log: ReadLog) -> Iterator[Document]:
    """Every abstract of the file."""
    try:
        entries = TypeAdapter(dict[str, Any]).validate_json(read_given(path))
    except (OSError, TooLong) as exc:
        raise BadInput(
            f"{path} cannot be read: {getattr(exc, 'strerror', None) or exc}"
        ) from exc
    except ValidationError as exc:
        raise BadInput(
            f"{path} is not a PubMedQA file: expected a JSON object keyed by PMID"
        ) from exc
    rows = zip(entries, entries.items(), strict=True)
    yield from converted(rows, log, _document)


def _document(row: tuple[str, Any]) -> Document:
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


READER = Reader(
    kind="pubmedqa",
    about="PubMedQA abstracts: its JSON file keyed by PMID",
    sniff=sniff,
    documents=documents,
    licence="MIT",
)
