"""PubMedQA: PubMed abstracts in labelled parts, one JSON object keyed by PMID.

The question is (or was made from) the article's title and is the passage's title; the long answer is the
abstract's own conclusion and its last section.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from medlive.errors import BadInput
from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.parsing.chunk import Document, Section
from medlive.evidence.corpora.parsing.text import published_by

MAX_FILE = 2 * 1024 * 1024 * 1024


def _sniff(path: Path) -> bool:
    if not path.is_file() or not path.name.lower().endswith(".json"):
        return False
    with path.open("rb") as handle:
        return b'"CONTEXTS"' in handle.read(1 << 16)


def _documents(path: Path, log: ReadLog) -> Iterator[Document]:
    try:
        if path.stat().st_size > MAX_FILE:
            raise BadInput(f"{path} is larger than {MAX_FILE} bytes")
        entries = json.loads(path.read_bytes())
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        raise BadInput(f"{path} is not JSON: {exc}") from exc
    if not isinstance(entries, dict):
        raise BadInput(f"{path} is not a PubMedQA file: expected an object keyed by PMID")
    for pmid, entry in entries.items():
        try:
            document = _document(pmid, entry)
        except ValueError as exc:
            log.problem(pmid, str(exc))
            continue
        if document.sections:
            yield document
        else:
            log.empty += 1


def _document(pmid: str, entry: Any) -> Document:
    """One abstract; raises ValueError where the entry is not of PubMedQA's shape."""
    if not isinstance(entry, dict):
        raise ValueError("expected the entry to be an object")
    contexts, labels = entry.get("CONTEXTS"), entry.get("LABELS") or []
    if not isinstance(contexts, list) or not all(isinstance(c, str) for c in contexts):
        raise ValueError("expected CONTEXTS to be a list of strings")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("expected LABELS to be a list of strings")
    question, conclusion = entry.get("QUESTION") or "", entry.get("LONG_ANSWER") or ""
    if not isinstance(question, str) or not isinstance(conclusion, str):
        raise ValueError("expected QUESTION and LONG_ANSWER to be strings")
    labels = labels + [""] * (len(contexts) - len(labels))
    parts = [*zip(labels, contexts, strict=False), ("CONCLUSIONS", conclusion)]
    return Document(
        id=pmid,
        title=question,
        sections=tuple(Section(label, text) for label, text in parts if text.strip()),
        published=published_by(entry.get("YEAR")),
        url=f"https://pubmed.ncbi.nlm.nih.gov/{pmid}/" if pmid.isascii() and pmid.isdigit() else "",
        continuous=True,
    )


READER = Reader(
    kind="pubmedqa",
    about="PubMedQA abstracts: its JSON file keyed by PMID",
    sniff=_sniff,
    documents=_documents,
    licence="MIT",
)
