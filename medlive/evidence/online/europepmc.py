"""Europe PMC's articles web service: one request gives the most relevant articles with their abstracts.

Source: "Europe PMC RESTful Web Service" (europepmc.org/RestfulWebService), `searchPOST` with `resultType=core`.
"""

import json
from dataclasses import dataclass
from datetime import date
from typing import Any

from medlive.evidence.corpora.parsing.chunk import Document, Section
from medlive.evidence.corpora.parsing.html import sentences_of
from medlive.evidence.corpora.parsing.text import is_retracted_title, one_line
from medlive.evidence.online.service import (
    Literature,
    Unreadable,
    in_the_past,
    not_expected,
    passages_by,
)
from medlive.evidence.passage import Passage

ADDRESS = "https://www.ebi.ac.uk/europepmc/webservices/rest"
INTERVAL_S = 0.35
"""The service publishes no limit; it is asked no more often than NCBI allows without a key."""
LICENCE = "Europe PMC terms; the abstract is its publisher's"
_NO_EVIDENCE = frozenset(
    {
        "retracted publication",
        "retraction of publication",
        "expression of concern",
        "retraction notice",
        "retraction in",
        "partial retraction in",
        "expression of concern in",
    }
)
"""Kinds of a publication, or of a comment on it, that make it no evidence; in lower case."""

_UNREVIEWED = ("PPR", "PAT", "ETH")
"""Preprints, patents and theses: nobody reviewed what they say of medicine."""


@dataclass(frozen=True)
class EuropePMC(Literature):
    """Europe PMC's articles."""

    name = "europepmc"
    address: str = ADDRESS

    @property
    def interval_s(self) -> float:
        """See `Literature`."""
        return INTERVAL_S

    async def search(
        self, words: str, *, most: int, not_after: date | None
    ) -> list[Passage]:
        """See `Literature`."""
        unreviewed = " OR ".join(f"SRC:{source}" for source in _UNREVIEWED)
        query = f"({words}) AND HAS_ABSTRACT:Y NOT ({unreviewed})"
        if (day := in_the_past(not_after)) is not None:
            query += f" AND FIRST_PDATE:[1800-01-01 TO {day.isoformat()}]"
        form = {
            "query": query,
            "resultType": "core",
            "format": "json",
            "pageSize": str(most),
            "email": self.contact,
        }
        stored = await self.ask(f"{self.address}/searchPOST", form, read_search)
        documents = filter(None, map(_document, json.loads(stored)))
        return passages_by(documents, self.name, LICENCE, not_after)


def read_search(body: bytes) -> bytes:
    """Return the articles of an answer as a JSON list. Raises Unreadable if it is not the answer of a search."""
    try:
        return json.dumps(_results(body), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError) as exc:
        raise not_expected(body, f"not the JSON of a search ({exc})") from exc


def _results(body: bytes) -> list[dict[str, Any]]:
    """Return the articles of an answer. Raises ValueError, or Unreadable where the service reports an error."""
    answer = json.loads(body)
    if not isinstance(answer, dict):
        raise ValueError("expected an object")
    if "errMsg" in answer:
        raise Unreadable(f"it reports an error: {str(answer['errMsg'])[:200]}")
    listed = answer.get("resultList")
    results = listed.get("result") if isinstance(listed, dict) else None
    if not isinstance(results, list):
        raise ValueError("expected resultList.result")
    return [result for result in results if isinstance(result, dict)]


def _document(result: dict[str, Any]) -> Document | None:
    source, identity = _text(result, "source"), _text(result, "id")
    abstract = sentences_of(_text(result, "abstractText"))
    if not (source and identity and abstract) or source in _UNREVIEWED:
        return None
    if _is_withdrawn(result):
        return None
    return Document(
        id=f"{source}-{identity}",
        title=sentences_of(_text(result, "title")),
        sections=(Section("", abstract),),
        published=_published(result),
        url=f"https://europepmc.org/article/{source}/{identity}",
        licence=LICENCE,
        continuous=True,
    )


def _is_withdrawn(result: dict[str, Any]) -> bool:
    kinds = {str(k).lower() for k in _listed(result, "pubTypeList", "pubType")}
    for comment in _listed(result, "commentCorrectionList", "commentCorrection"):
        if isinstance(comment, dict):
            kinds.add(_text(comment, "type").lower())
    return bool(kinds & _NO_EVIDENCE) or is_retracted_title(_text(result, "title"))


def _listed(result: dict[str, Any], outer: str, inner: str) -> list[Any]:
    holder = result.get(outer)
    items = holder.get(inner) if isinstance(holder, dict) else None
    return items if isinstance(items, list) else []


def _text(result: dict[str, Any], name: str) -> str:
    value = result.get(name)
    return one_line(value) if isinstance(value, str) else ""


def _published(result: dict[str, Any]) -> date | None:
    try:
        return date.fromisoformat(_text(result, "firstPublicationDate")[:10])
    except ValueError:
        return None
