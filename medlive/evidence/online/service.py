"""Search PubMed and Europe PMC over HTTP, with pace, retries and a cache of answers: `Literature.search`.

Sources: "A General Introduction to the E-utilities" (NCBI Bookshelf NBK25497): esearch by relevance, then efetch of the
articles; at most 3 requests a second, 10 with a key; `tool` and `email` in each; POST for long requests. "Europe PMC
RESTful Web Service" (europepmc.org/RestfulWebService): `searchPOST` with `resultType=core`, which gives the most
relevant articles with their abstracts.
"""

import asyncio
import io
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, Protocol
from xml.etree.ElementTree import Element

from medlive.clock import now, parse_retry_after
from medlive.errors import LiteratureUnavailable
from medlive.evidence.client import Client
from medlive.evidence.corpora.model import Document, ReadLog, Section, passages_of
from medlive.evidence.corpora.parsing.frames import frames
from medlive.evidence.corpora.parsing.text import (
    is_retracted_title,
    one_line,
    sentences_of,
)
from medlive.evidence.corpora.parsing.xml import UnsafeXml, parse
from medlive.evidence.corpora.pubmed import LICENCE, documents_of_record, pmid_of
from medlive.evidence.passage import Passage
from medlive.guard.bounds import LITERATURE_BYTES, LITERATURE_WAIT_S
from medlive.guard.circuit import Circuit
from medlive.guard.http import RETRIED_STATUSES
from medlive.integrity.digest import digest_json

ADDRESSES = {
    "pubmed": "https://eutils.ncbi.nlm.nih.gov/entrez/eutils",
    "europepmc": "https://www.ebi.ac.uk/europepmc/webservices/rest",
}
"""Service → its own address."""
_LICENCES = {
    "pubmed": LICENCE,
    "europepmc": "Europe PMC terms; the abstract is its publisher's",
}
"""Service → the licence of documents that name none."""
ATTEMPTS = 4
"""Requests in all before a service counts as away."""
INTERVAL_S = 0.35
"""Seconds between requests: a little more than the third that NCBI allows without a key, since requests travel for
unequal times. Europe PMC publishes no limit."""
INTERVAL_WITH_KEY_S = 0.105
BACKOFF_S = 1.0
"""Seconds before the second attempt, doubled each time; a Retry-After is waited for besides."""

_SECRETS = frozenset({"api_key", "email"})
"""Fields of a form that do not change the answer."""
EARLIEST = "1800"
"""E-utilities want both ends of a range of dates."""
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
"""Kinds of a publication in Europe PMC, or of a comment on it, that make it no evidence; in lower case."""
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
"""What is read of an article of Europe PMC."""


class Unreadable(Exception):
    """An answer that is not what the service promises; the text says what it is."""


class AnswerStore(Protocol):
    """Keeps answers, and the turns of all workers at a service."""

    async def load(self, key: str) -> bytes | None:
        """Return the answer of that key, if it is stored and recent enough."""

    async def save(self, service: str, key: str, body: bytes) -> None:
        """Store what was read from an answer."""

    async def take_turn(self, service: str, interval_s: float) -> float:
        """Reserve the next request to a service, over all workers; return the seconds to wait for it."""

    async def hold_back(self, service: str, wait_s: float) -> None:
        """Reserve no request of any worker for so long, as the service asked."""


@dataclass(frozen=True, kw_only=True)
class Literature:
    """A service that finds articles, asked politely."""

    name: Literal["pubmed", "europepmc"]
    """Of the service, of its corpus, and of the side as which its hits are recorded."""
    client: Client
    store: AnswerStore
    gate: Circuit  # Keeps all workers from the service while it is away
    contact: str  # The operator's e-mail address
    address: str  # Of the service, or of a mirror
    api_key: str = ""  # Of E-utilities; empty for none

    async def search(
        self,
        words: str,
        *,
        most: int,
        not_after: date | None,
    ) -> list[Passage]:
        """Return the passages of the most relevant articles, best first.

        Retracted articles and those under an expression of concern are left out, and an undated one, which may be
        younger than it is allowed to be.

        Raises LiteratureUnavailable where this request got no usable answer, CircuitOpen where none is made.
        """
        # No limit from today on, so that the answer is found again tomorrow.
        past = not_after is not None and not_after < now().date()
        find = search_pubmed if self.name == "pubmed" else search_europepmc
        passages: list[Passage] = []
        for document in await find(self, words, most, not_after if past else None):
            published = document.published
            if published is not None and (not_after is None or published <= not_after):
                licence = _LICENCES[self.name]
                passages += passages_of(document, corpus=self.name, licence=licence)
        return passages

    async def ask(
        self,
        address: str,
        form: Mapping[str, str],
        read: Callable[[bytes], bytes],
    ) -> bytes:
        """Return what was read from the answer to a request, now or earlier.

        Args:
            address: Where the form is posted.
            form: The request. It is not stored: its words come from a thread, which may be taken down.
            read: Returns what is stored of an answer, without the request that services repeat in it. Raises
                Unreadable for a body that is not an answer.

        Raises:
            LiteratureUnavailable: if no usable answer came.
            CircuitOpen: if the service's circuit is open, so that it is not asked.
        """
        shown = {name: text for name, text in form.items() if name not in _SECRETS}
        key = digest_json({"service": self.name, "address": address, "form": shown})
        stored = await self.store.load(key)
        if stored is not None:
            return stored
        cause = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(BACKOFF_S * 2.0 ** (attempt - 1))
            await self.gate.check()
            interval_s = INTERVAL_WITH_KEY_S if self.api_key else INTERVAL_S
            wait_s = await self.store.take_turn(self.name, interval_s)
            await asyncio.sleep(wait_s)
            began = time.monotonic()
            try:
                content = await self._attempt(address, form, read)
            except OSError as exc:
                cause = f"no answer ({type(exc).__name__})"
            except Unreadable as exc:
                cause = str(exc)
            else:
                await self.gate.answered()
                await self.store.save(self.name, key, content)
                return content
            await self.gate.failed(cause, began)
        raise self._away(f"{cause}, {ATTEMPTS} times")

    async def _attempt(
        self,
        address: str,
        form: Mapping[str, str],
        read: Callable[[bytes], bytes],
    ) -> bytes:
        """Ask once; a wait that the service asks for holds back every worker.

        Raises OSError or Unreadable if it may be asked again, LiteratureUnavailable if not.
        """
        response, body = await self.client.post(address, form)
        status = f"status {response.status_code}"
        if response.status_code in RETRIED_STATUSES:
            wait_s = parse_retry_after(response.headers.get("retry-after", "")) or 0.0
            if wait_s > LITERATURE_WAIT_S:
                cause = f"{status}; it asks to wait {wait_s:.0f} s"
                await self.gate.refused(cause, certain=True)
                raise self._away(cause)
            if wait_s:
                await self.store.hold_back(self.name, wait_s)
            raise Unreadable(status)
        # The service answers no request from here: the address, the network or the key is refused.
        refusal = "" if response.status_code in (200, 400) else status
        if b"api key invalid" in body[:1000].lower():
            refusal = "the API key is not valid"
        if refusal:
            await self.gate.refused(refusal)
            raise self._away(refusal)
        problem = status if response.status_code == 400 else ""
        if len(body) > LITERATURE_BYTES:
            problem = f"more than {LITERATURE_BYTES} bytes"
        if problem:
            # Only this request gets no answer: the service is not away.
            await self.gate.answered()
            raise self._away(problem)
        return read(body)

    def _away(self, cause: str) -> LiteratureUnavailable:
        return LiteratureUnavailable(
            f"{self.name} gave no usable answer: {cause}",
            hint="the threads concerned are retried; [evidence] online = [] does without it",
        )


async def search_pubmed(
    service: Literature,
    words: str,
    most: int,
    day: date | None,
) -> Iterable[Document]:
    """Return PubMed's articles, most relevant first; `day` is the last of publication, None for any."""
    form = {
        "tool": "medlive",
        "email": service.contact,
        "db": "pubmed",
        "retmode": "xml",
    }
    if service.api_key:
        form["api_key"] = service.api_key
    query = form | {
        "term": f"({words}) NOT retracted publication[pt]",
        "retmax": str(most),
        "sort": "relevance",
    }
    if day is not None:
        query |= {
            "datetype": "pdat",
            "mindate": EARLIEST,
            "maxdate": f"{day:%Y/%m/%d}",
        }
    listed = await service.ask(f"{service.address}/esearch.fcgi", query, read_pmids)
    articles = listed.decode().split()
    if not articles:
        return ()
    wanted = form | {"id": ",".join(sorted(articles, key=int))}
    address = f"{service.address}/efetch.fcgi"
    fetched = await service.ask(address, wanted, read_articles)
    records = {}
    for frame in frames(io.BytesIO(fetched)):
        if frame.kind:
            records[pmid_of(frame.data)] = frame
    documents: list[Document] = []
    for article in articles:
        if article in records:
            documents += documents_of_record(records[article], ReadLog())
    return documents


def read_pmids(body: bytes) -> bytes:
    """Return the PMIDs of an esearch, most relevant first, one a line; b"" where nothing matched.

    Raises Unreadable if the body is not the answer of an esearch.
    """
    ids = []
    listed = _parse(body, "eSearchResult").find("IdList")
    if listed is None:
        raise Unreadable("expected an IdList")
    for element in listed.findall("Id"):
        text = (element.text or "").strip()
        if re.fullmatch("[0-9]{1,8}", text):
            ids.append(text)
    return "\n".join(ids).encode()


def read_articles(body: bytes) -> bytes:
    """Return a set of articles as it is. Raises Unreadable if the body is not one, or is cut."""
    try:
        records = list(frames(io.BytesIO(body)))
    except UnsafeXml as exc:
        raise Unreadable(f"the answer is not XML ({exc})") from exc
    # A record that cannot be read costs itself alone: asked again, it comes again.
    if not records or b"</PubmedArticleSet" not in body:
        _parse(body, "PubmedArticleSet")
    return body


def _parse(body: bytes, root_name: str) -> Element:
    """Return the root element. Raises Unreadable for another one, and for an error that the service reports."""
    try:
        root = parse(body)
    except UnsafeXml as exc:
        raise Unreadable(f"the answer is not XML ({exc})") from exc
    error = root if root.tag == "ERROR" else root.find("ERROR")
    if error is not None:
        text = (error.text or "").strip()[:200]
        raise Unreadable(f"it reports an error: {text}")
    if root.tag != root_name:
        raise Unreadable(f"expected <{root_name}>, got <{root.tag[:40]}>")
    return root


async def search_europepmc(
    service: Literature,
    words: str,
    most: int,
    day: date | None,
) -> Iterable[Document]:
    """Return Europe PMC's articles, most relevant first; `day` is the last of publication, None for any."""
    unreviewed = " OR ".join(f"SRC:{source}" for source in _UNREVIEWED)
    query = f"({words}) AND HAS_ABSTRACT:Y NOT ({unreviewed})"
    if day is not None:
        query += f" AND FIRST_PDATE:[1800-01-01 TO {day.isoformat()}]"
    form = {
        "query": query,
        "resultType": "core",
        "format": "json",
        "pageSize": str(most),
        "email": service.contact,
    }
    address = f"{service.address}/searchPOST"
    stored = await service.ask(address, form, read_articles_of_europepmc)
    return filter(None, map(document_of, json.loads(stored)))


def read_articles_of_europepmc(body: bytes) -> bytes:
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
        raise Unreadable(f"the answer is not the JSON of a search ({exc!r})") from exc
    return json.dumps(articles).encode()


def document_of(article: Mapping[str, Any]) -> Document | None:
    """Return an article that was reviewed, has an abstract, and is neither withdrawn nor questioned; else None.

    Raises LookupError, TypeError or AttributeError for what is no article.
    """
    kinds = list((article.get("pubTypeList") or {}).get("pubType", ()))
    corrections = article.get("commentCorrectionList") or {}
    for comment in corrections.get("commentCorrection", ()):
        kinds.append(comment.get("type"))
    words = {name: one_line(article.get(name) or "") for name in _FIELDS[:5]}
    abstract, title = sentences_of(words["abstractText"]), words["title"]
    withdrawn = _NO_EVIDENCE.intersection(str(kind).lower() for kind in kinds)
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
