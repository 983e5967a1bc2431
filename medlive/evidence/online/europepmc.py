"""Europe PMC's articles web service: one request gives the most relevant articles with their abstracts.

Source: "Europe PMC RESTful Web Service" (europepmc.org/RestfulWebService), `searchPOST` with `resultType=core`.
"""

from dataclasses import dataclass
from datetime import date

from pydantic import BaseModel, TypeAdapter, ValidationError

from medlive.errors import first_fault
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


class _Kinds(BaseModel):
    pubType: list[str] = []


class _Comment(BaseModel):
    type: str = ""


class _Comments(BaseModel):
    commentCorrection: list[_Comment] = []


class _Article(BaseModel):
    """What is read of an article; other fields are passed over."""

    source: str = ""
    id: str = ""
    title: str = ""
    abstractText: str = ""
    firstPublicationDate: str = ""
    pubTypeList: _Kinds = _Kinds()
    commentCorrectionList: _Comments = _Comments()

    @property
    def is_evidence(self) -> bool:
        """Whether it was reviewed, and is neither withdrawn nor under an expression of concern."""
        kinds = {kind.lower() for kind in self.pubTypeList.pubType}
        for comment in self.commentCorrectionList.commentCorrection:
            kinds.add(comment.type.lower())
        withdrawn = kinds & _NO_EVIDENCE or is_retracted_title(one_line(self.title))
        return not withdrawn and self.source not in _UNREVIEWED


_ARTICLES = TypeAdapter(list[_Article])


class _Results(BaseModel):
    result: list[_Article]


class _Answer(BaseModel):
    errMsg: str = ""
    resultList: _Results | None = None


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
        documents = filter(None, map(_document, _ARTICLES.validate_json(stored)))
        return passages_by(documents, self.name, LICENCE, not_after)


def read_search(body: bytes) -> bytes:
    """Return the articles of an answer as a JSON list. Raises Unreadable if it is not the answer of a search."""
    try:
        answer = _Answer.model_validate_json(body)
    except ValidationError as exc:
        cause = f"not the JSON of a search ({first_fault(exc)})"
        raise not_expected(body, cause) from exc
    if answer.errMsg:
        raise Unreadable(f"it reports an error: {answer.errMsg[:200]}")
    if answer.resultList is None:
        raise not_expected(body, "not the JSON of a search (expected resultList)")
    return _ARTICLES.dump_json(answer.resultList.result)


def _document(article: _Article) -> Document | None:
    abstract = sentences_of(one_line(article.abstractText))
    if not (article.source and article.id and abstract and article.is_evidence):
        return None
    try:
        published = date.fromisoformat(article.firstPublicationDate[:10])
    except ValueError:
        return None  # Undated evidence may be younger than it is allowed to be
    return Document(
        id=f"{article.source}-{article.id}",
        title=sentences_of(one_line(article.title)),
        sections=(Section("", abstract),),
        published=published,
        url=f"https://europepmc.org/article/{article.source}/{article.id}",
        licence=LICENCE,
        continuous=True,
    )
