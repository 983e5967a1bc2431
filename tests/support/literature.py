"""PubMed's E-utilities and Europe PMC's web service in their response formats, on loopback, with their faults."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from aiohttp import web

_DOCTYPE = '<?xml version="1.0" encoding="UTF-8" ?>\n<!DOCTYPE {0} PUBLIC "-//NLM//DTD {0}//EN" "https://example.org/x.dtd">'


@dataclass(frozen=True)
class Article:
    """An article that both services know."""

    pmid: str
    title: str
    abstract: str
    year: int = 2015
    retracted: bool = False
    book: bool = False
    source: str = "MED"
    """Europe PMC's name for where it comes from; PubMed knows those of MED alone."""

    def pubmed(self) -> str:
        kind = "Retracted Publication" if self.retracted else "Journal Article"
        if self.book:
            return (
                f'<PubmedBookArticle><BookDocument><PMID Version="1">{self.pmid}</PMID>'
                f"<Book><BookTitle>StatPearls</BookTitle><PubDate><Year>{self.year}</Year></PubDate></Book>"
                f"<ArticleTitle>{escape(self.title)}</ArticleTitle><Language>eng</Language>"
                f"<Abstract><AbstractText>{escape(self.abstract)}</AbstractText></Abstract>"
                "</BookDocument></PubmedBookArticle>"
            )
        return (
            f'<PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="1">{self.pmid}</PMID><Article>'
            f"<Journal><JournalIssue><PubDate><Year>{self.year}</Year></PubDate></JournalIssue></Journal>"
            f"<ArticleTitle>{escape(self.title)}</ArticleTitle>"
            f"<Abstract><AbstractText>{escape(self.abstract)}</AbstractText></Abstract><Language>eng</Language>"
            f"<PublicationTypeList><PublicationType>{kind}</PublicationType></PublicationTypeList>"
            "</Article></MedlineCitation></PubmedArticle>"
        )

    def europepmc(self) -> dict[str, object]:
        kind = "retracted publication" if self.retracted else "journal article"
        return {
            "id": self.pmid,
            "source": self.source,
            "title": self.title,
            "abstractText": f"<h4>Background</h4>{escape(self.abstract)}",
            "firstPublicationDate": f"{self.year}-01-01",
            "pubTypeList": {"pubType": [kind]},
        }


@dataclass
class LiteratureServer:
    """Answers with the articles that share a word with the request, and with faults first."""

    articles: Sequence[Article] = ()
    faults: list[web.Response] = field(default_factory=list)
    """Answers that come before the right ones, in order."""
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """(path, form) of each request."""
    url: str = ""
    down: bool = False
    """Whether every request is answered with 503."""

    @property
    def addresses(self) -> dict[str, str]:
        return {"pubmed": f"{self.url}/eutils", "europepmc": f"{self.url}/europepmc"}

    def matching(self, words: str) -> list[Article]:
        """The articles, those with the most of the words first."""
        wanted = set(words.lower().split())
        shared = {a.pmid: len(wanted & words_of(a)) for a in self.articles}
        found = [a for a in self.articles if shared[a.pmid]]
        return sorted(found, key=lambda a: -shared[a.pmid])[:10]

    async def answer(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append((request.path, form))
        if self.down:
            return web.Response(status=503)
        if self.faults:
            return self.faults.pop(0)
        name = request.path.rsplit("/", 1)[-1]
        if name == "esearch.fcgi":
            found = self.matching(form["term"].partition(")")[0].strip("("))
            ids = "".join(
                f"<Id>{a.pmid}</Id>"
                for a in found
                if a.source == "MED" and not a.retracted
            )
            body = (
                f"<eSearchResult><Count>0</Count><IdList>{ids}</IdList></eSearchResult>"
            )
            return xml(_DOCTYPE.format("eSearchResult") + body)
        if name == "efetch.fcgi":
            wanted = form["id"].split(",")
            records = "".join(a.pubmed() for a in self.articles if a.pmid in wanted)
            body = f"<PubmedArticleSet>{records}</PubmedArticleSet>"
            return xml(_DOCTYPE.format("PubmedArticleSet") + body)
        words = form["query"].partition(")")[0].strip("(")
        results = [article.europepmc() for article in self.matching(words)]
        return web.json_response({"version": "6.9", "resultList": {"result": results}})


def words_of(article: Article) -> set[str]:
    """The words that an article is searched by."""
    return set(re.findall(r"\w+", f"{article.title} {article.abstract}".lower()))


def xml(body: str, status: int = 200) -> web.Response:
    """An answer in XML."""
    return web.Response(text=body, content_type="text/xml", status=status)


def json_error(text: str) -> web.Response:
    """Europe PMC's error."""
    return web.Response(
        text=json.dumps({"errCode": 404, "errMsg": text}),
        content_type="application/json",
    )


@asynccontextmanager
async def serve_literature(*articles: Article) -> AsyncIterator[LiteratureServer]:
    """Serve both services while the block runs."""
    server = LiteratureServer(articles)
    app = web.Application()
    app.router.add_post("/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
