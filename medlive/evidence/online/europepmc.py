"""Europe PMC's articles web service: one request gives the most relevant articles with their abstracts.

Source: "Europe PMC RESTful Web Service" (europepmc.org/RestfulWebService), `searchPOST` with `resultType=core`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from medlive.evidence.corpora.model import Document, Section
from medlive.evidence.corpora.parsing.text import (
    is_retracted_title,
    one_line,
    sentences_of,
)
from medlive.evidence.online.service import (
    Literature,
    Unreadable,
    in_the_past,
    not_expected,
)
from medlive.evidence.passage import Passage

ADDRESS = "https://www.ebi.ac.uk/europepmc/webservices/rest"
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


_FIELDS = (
    "source",
    "id",
    "title",
    "abstractText",
    "firstPublicationDate",
    "pubTypeList",
    "commentCorrectionList",
)
"""What is read of an article."""


@dataclass(frozen=True)
class EuropePMC(Literature):
    """Europe PMC's articles."""

    name = "europepmc"
    licence = "Europe PMC terms; the abstract is its publisher's"
    address: str = ADDRESS

    async def search(
        self,
        words: str,
        *,
        most: int,
        not_after: date | None,
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
        documents = filter(None, map(document_of, json.loads(stored)))
        return self.passages(documents, not_after)


def read_search(body: bytes) -> bytes:
    """Return the articles of an answer as a JSON list. Raises Unreadable if it is not the answer of a search."""
    try:
        answer = json.loads(body)
        if problem := answer.get("errMsg"):
            raise Unreadable(f"it reports an error: {str(problem)[:200]}")
        articles = []
        for article in answer["resultList"]["result"]:
            document_of(article)
            articles.append({name: article.get(name) for name in _FIELDS})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as exc:
        raise not_expected(body, f"not the JSON of a search ({exc!r})") from exc
    return json.dumps(articles).encode()


def document_of(article: Mapping[str, Any]) -> Document | None:
    """Return an article that was reviewed, has an abstract, and is neither withdrawn nor questioned; else None.

    Raises LookupError, TypeError or AttributeError for what is no article.
    """
    kinds = {
        str(kind) for kind in (article.get("pubTypeList") or {}).get("pubType", ())
    }
    corrections = article.get("commentCorrectionList") or {}
    for comment in corrections.get("commentCorrection", ()):
        kinds.add(str(comment.get("type")))
    words = {name: one_line(article.get(name) or "") for name in _FIELDS[:5]}
    abstract, title = sentences_of(words["abstractText"]), words["title"]
    withdrawn = {kind.lower() for kind in kinds} & _NO_EVIDENCE
    if withdrawn or is_retracted_title(title) or words["source"] in _UNREVIEWED:
        return None
    if not (words["source"] and words["id"] and abstract):
        return None
    try:
        published = date.fromisoformat(words["firstPublicationDate"][:10])
    except ValueError:
        return None  # Undated evidence may be younger than it is allowed to be
    return Document(
        id=f"{words['source']}-{words['id']}",
        title=sentences_of(title),
        sections=(Section("", abstract),),
        published=published,
        url=f"https://europepmc.org/article/{words['source']}/{words['id']}",
        continuous=True,
    )
