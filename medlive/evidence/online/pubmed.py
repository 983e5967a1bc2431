"""PubMed through NCBI's E-utilities: esearch by relevance, then efetch of the articles.

Source: "A General Introduction to the E-utilities" (NCBI Bookshelf NBK25497): at most 3 requests a second, 10 with
a key; `tool` and `email` in each; POST for long requests.
"""

import io
from dataclasses import dataclass
from datetime import date
from xml.etree.ElementTree import Element

from medlive.evidence.corpora.model import Document, ReadLog
from medlive.evidence.corpora.parsing.frames import frames
from medlive.evidence.corpora.parsing.xml import UnsafeXml, parse
from medlive.evidence.corpora.pubmed import LICENCE, documents_of_record, pmid_of
from medlive.evidence.online.service import (
    INTERVAL_S,
    Literature,
    TryAgain,
    Unreadable,
    in_the_past,
    not_expected,
)
from medlive.evidence.passage import Passage

ADDRESS = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
INTERVAL_WITH_KEY_S = 0.105
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


@dataclass(frozen=True)
class PubMed(Literature):
    """PubMed's articles."""

    name = "pubmed"
    licence = LICENCE
    api_key: str = ""  # An API key; empty for none
    address: str = ADDRESS

    @property
    def interval_s(self) -> float:
        """See `Literature`."""
        return INTERVAL_WITH_KEY_S if self.api_key else INTERVAL_S

    def _form(self, **fields: str) -> dict[str, str]:
        form = {"tool": "medlive", "email": self.contact, "db": "pubmed", **fields}
        if self.api_key:
            form["api_key"] = self.api_key
        return form | {"retmode": "xml"}

    async def search(
        self,
        words: str,
        *,
        most: int,
        not_after: date | None,
    ) -> list[Passage]:
        """See `Literature`."""
        term = f"({words}) NOT retracted publication[pt]"
        form = self._form(
            term=term,
            retmax=str(most),
            sort="relevance",
        )
        if (day := in_the_past(not_after)) is not None:
            form |= {
                "datetype": "pdat",
                "mindate": EARLIEST,
                "maxdate": f"{day:%Y/%m/%d}",
            }
        listed = await self.ask(f"{self.address}/esearch.fcgi", form, read_search)
        articles = listed.decode().split()
        if not articles:
            return []
        form = self._form(id=",".join(sorted(articles, key=int)))
        fetched = await self.ask(f"{self.address}/efetch.fcgi", form, read_articles)
        records = {}
        for frame in frames(io.BytesIO(fetched)):
            if frame.kind:
                records[pmid_of(frame.data)] = frame
        documents: list[Document] = []
        for article in articles:
            if article in records:
                documents += documents_of_record(records[article], ReadLog())
        return self.passages(documents, not_after)


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
    except UnsafeXml as exc:
        raise Unreadable(str(exc)) from exc
    if damage and b"</PubmedArticleSet" not in body:
        raise TryAgain(f"the answer was cut: {damage[0]}")
    return body


def _parse(body: bytes, root_name: str) -> Element:
    """Return the root element. Raises Unreadable for another one, and for an error that the service reports."""
    try:
        root = parse(body)
    except UnsafeXml as exc:
        raise not_expected(body, f"not XML ({exc})") from exc
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
