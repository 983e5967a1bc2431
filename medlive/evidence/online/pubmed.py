"""PubMed through NCBI's E-utilities: esearch by relevance, efetch of the articles that are not known yet.

Source: "A General Introduction to the E-utilities" (NCBI Bookshelf NBK25497): at most 3 requests a second, 10 with
a key; `tool` and `email` in each; POST for long requests.
"""

import io
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain
from xml.etree.ElementTree import Element

from medlive.evidence.corpora.model import ReadLog
from medlive.evidence.corpora.parsing.chunk import Document
from medlive.evidence.corpora.parsing.frames import Frame, frames
from medlive.evidence.corpora.parsing.frames import Unreadable as UnreadableFile
from medlive.evidence.corpora.parsing.xml import UnsafeXml, parse
from medlive.evidence.corpora.pubmed import LICENCE, documents_of_record, pmid_of
from medlive.evidence.online.service import (
    AnswerStore,
    Caller,
    Gate,
    Post,
    TryAgain,
    Unreadable,
    in_the_past,
    passages_by,
)
from medlive.evidence.passage import Passage

ADDRESS = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
INTERVAL_S = 0.35
INTERVAL_WITH_KEY_S = 0.105
"""A little more than a third and a tenth of a second: requests travel for unequal times."""
EARLIEST = "1800"
"""E-utilities want both ends of a range of dates."""
_BUSY = (
    "api rate limit",
    "temporarily",
    "try again",
    "unable to obtain",
    "backend failed",
)
"""Words of errors that another attempt may mend, in lower case."""


class PubMed:
    """A `Literature` service."""

    name = "pubmed"

    def __init__(
        self,
        post: Post,
        store: AnswerStore,
        gate: Gate,
        *,
        contact: str,
        key: str = "",
        address: str = ADDRESS,
    ) -> None:
        """Prepare requests; none is made.

        Args:
            post: Makes requests.
            store: Keeps answers and articles.
            gate: Keeps requests from the service while it is away.
            contact: The operator's e-mail address, which NCBI asks for.
            key: An API key; "" for none.
            address: Where the E-utilities are.
        """
        interval_s = INTERVAL_WITH_KEY_S if key else INTERVAL_S
        self._caller = Caller(
            self.name,
            interval_s,
            post,
            store,
            gate,
            secrets=frozenset({"api_key", "email"}),
        )
        self._store = store
        self._address = address
        self._own = {"tool": "medlive", "email": contact, "db": "pubmed"}
        if key:
            self._own["api_key"] = key

    async def search(
        self, words: str, *, most: int, not_after: date | None
    ) -> list[Passage]:
        """See `Literature`. Retracted articles and those under an expression of concern are left out."""
        term = f"({words}) NOT retracted publication[pt]"
        form = {
            **self._own,
            "term": term,
            "retmax": str(most),
            "sort": "relevance",
            "retmode": "xml",
        }
        if (day := in_the_past(not_after)) is not None:
            form |= {
                "datetype": "pdat",
                "mindate": EARLIEST,
                "maxdate": f"{day:%Y/%m/%d}",
            }
        listed = await self._caller.ask(
            f"{self._address}/esearch.fcgi", form, read_search
        )
        articles = listed.decode().split()
        records = await self._records(articles)
        found = [records[article] for article in articles if article in records]
        documents = chain.from_iterable(map(_documents, found))
        return passages_by(documents, self.name, LICENCE, not_after)

    async def _records(self, articles: Sequence[str]) -> dict[str, bytes]:
        """Return each article's record; those that are not stored are asked for together."""
        if not articles:
            return {}
        keys = {article: self._article_key(article) for article in articles}
        stored = await self._store.load(keys.values())
        records: dict[str, bytes] = {}
        for article in articles:
            if keys[article] in stored:
                records[article] = stored[keys[article]]
        missing = {article for article in articles if article not in records}
        if missing:
            form = {
                **self._own,
                "id": ",".join(sorted(missing, key=int)),
                "retmode": "xml",
            }
            body = await self._caller.fetch(
                f"{self._address}/efetch.fcgi", form, read_articles
            )
            fetched: dict[str, bytes] = {}
            for frame in frames(io.BytesIO(body)):
                article = pmid_of(frame.data) or ""
                if article in missing:
                    fetched[article] = frame.data
            if fetched:
                await self._store.save(
                    self.name,
                    {keys[article]: data for article, data in fetched.items()},
                )
            records |= fetched
        return records

    def _article_key(self, article: str) -> str:
        return self._caller.key("article", {"id": article})


def read_search(body: bytes) -> bytes:
    """Return the PMIDs of an esearch, most relevant first, one a line; b"" where nothing matched.

    Raises Unreadable if the body is not the answer of an esearch.
    """
    ids = []
    listed = _parse(body, "eSearchResult").find("IdList")
    if listed is None:
        raise TryAgain("expected an IdList")
    for element in listed.findall("Id"):
        text = (element.text or "").strip()
        if text.isascii() and text.isdigit() and len(text) <= 8:
            ids.append(text)
    return "\n".join(ids).encode()


def read_articles(body: bytes) -> bytes:
    """Return a set of articles as it is. Raises Unreadable if the body is none."""
    if b"<PubmedArticleSet" not in body[:4096]:
        _parse(body, "PubmedArticleSet")
    try:
        damage = [frame.damage for frame in frames(io.BytesIO(body)) if not frame.kind]
    except UnreadableFile as exc:
        raise Unreadable(str(exc)) from exc
    if damage and b"</PubmedArticleSet" not in body:
        raise TryAgain(f"the answer was cut: {damage[0]}")
    return body


def _parse(body: bytes, root_name: str) -> Element:
    """Return the root element. Raises Unreadable for another one, and for an error that the service reports."""
    try:
        root = parse(body)
    except UnsafeXml as exc:
        kind = "a web page" if b"<html" in body[:2000].lower() else f"not XML ({exc})"
        raise TryAgain(f"the answer is {kind}") from exc
    error = root if root.tag == "ERROR" else root.find("ERROR")
    if error is not None:
        text = (error.text or "").strip()[:200]
        for words in _BUSY:
            if words in text.lower():
                raise TryAgain(f"it reports an error: {words}")
        raise Unreadable(f"it reports an error: {text}")
    if root.tag != root_name:
        raise TryAgain(f"expected <{root_name}>, got <{str(root.tag)[:40]}>")
    return root


def _documents(record: bytes) -> Iterator[Document]:
    book = record.startswith(b"<PubmedBookArticle")
    kind = "PubmedBookArticle" if book else "PubmedArticle"
    return documents_of_record(Frame(kind, 1, record), ReadLog())
