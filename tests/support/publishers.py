"""Publishers of public corpora on this machine: their index pages, lists, checksums and files, sound and spoilt.

Runs in a thread of its own, because what is tested waits for its answers.
"""

import asyncio
import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

DAY = "2026-10-05 18:08"


@dataclass
class Spoilt:
    """What is wrong with the answers for a path."""

    status: int | None = None  # Answered instead
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1_000_000  # After so many answers the path is sound again
    cut_after: int | None = None  # Bytes, then the connection ends
    # Bytes, then nothing more comes until the publisher stops
    hold_after: int | None = None
    endless: bool = False
    body: bytes | None = None  # Sent instead, with no length announced where `chunked`
    chunked: bool = False
    no_ranges: bool = False


@dataclass
class Publisher:
    """What is published, what is wrong with it, and what was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    spoilt: dict[str, Spoilt] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    ranges: list[tuple[str, str]] = field(default_factory=list)  # Path, Range header
    agents: set[str] = field(default_factory=set)
    open_now: int = 0
    most_open: int = 0
    url: str = ""
    # What a path holds after its next answer
    after: dict[str, bytes] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Host and port."""
        return self.url.removeprefix("http://")

    def count(self, path: str) -> int:
        """How often a path was asked for."""
        return self.asked.count(path)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer as the publisher would, or as it is spoilt."""
        path = request.path
        self.asked.append(path)
        self.agents.add(request.headers.get("User-Agent", ""))
        if "Range" in request.headers:
            self.ranges.append((path, request.headers["Range"]))
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            return await self._answer(request, path)
        finally:
            self.open_now -= 1
            if path in self.after:
                self.files[path] = self.after.pop(path)

    async def _answer(self, request: web.Request, path: str) -> web.StreamResponse:
        spoilt = self.spoilt.get(path, Spoilt(times=0))
        if spoilt.times <= 0:
            spoilt = Spoilt(times=0)
        spoilt.times -= 1
        if spoilt.status is not None:
            return web.Response(status=spoilt.status, headers=spoilt.headers)
        if spoilt.endless:
            return await self._endless(request)
        body = self.files.get(path) if spoilt.body is None else spoilt.body
        if path == "/pmc/esearch.fcgi":
            body = self._search(request)
        if body is None:
            return web.Response(status=404)
        if spoilt.chunked:
            return await self._chunked(request, body)
        return await self._send(request, body, spoilt)

    async def _send(
        self, request: web.Request, body: bytes, spoilt: Spoilt
    ) -> web.StreamResponse:
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {"ETag": tag, "Content-Type": "application/octet-stream"}
        asked, start, status = request.headers.get("Range"), 0, 200
        if (
            asked
            and not spoilt.no_ranges
            and request.headers.get("If-Range", tag) == tag
        ):
            start, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        part = body[start:]
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = len(part)
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        for limit in (spoilt.cut_after, spoilt.hold_after):
            if limit is not None and len(part) > limit:
                await response.write(part[:limit])
                await asyncio.sleep(0.02)
                if limit is spoilt.hold_after:
                    await asyncio.sleep(60)
                if request.transport is not None:
                    request.transport.close()
                return response
        await response.write(part)
        await response.write_eof()
        return response

    async def _chunked(self, request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(body)
        await response.write_eof()
        return response

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"\x1f\x8b")
        while True:
            await response.write(b"\0" * 65536)

    def _search(self, request: web.Request) -> bytes:
        numbers = sorted(
            {p.split("/")[-1][3:-6] for p in self.files if p.startswith("/pmc/PMC")}
        )
        start, most = int(request.query["retstart"]), int(request.query["retmax"])
        found = {"count": str(len(numbers)), "idlist": numbers[start : start + most]}
        return json.dumps({"header": {}, "esearchresult": found}).encode()


@contextmanager
def serve_publisher() -> Iterator[Publisher]:
    """A publisher on a loopback port while the block runs."""
    publisher = Publisher()
    loop = asyncio.new_event_loop()
    started = threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", publisher.answer)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        publisher.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(
        target=loop.run_until_complete, args=(serve(),), daemon=True
    )
    thread.start()
    started.wait(10)
    try:
        yield publisher
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Article:
    """What a made PubMed record says."""

    number: int
    kind: str = "Review"
    year: int = 2024
    language: str = "eng"
    version: int = 1
    refers: str = ""  # E.g. RetractionOf:12
    text: str = ""

    def xml(self) -> str:
        kind, _, other = self.refers.partition(":")
        notice = (
            f'<CommentsCorrectionsList><CommentsCorrections RefType="{kind}"><PMID Version="1">{other}</PMID>'
            "</CommentsCorrections></CommentsCorrectionsList>"
            if kind
            else ""
        )
        words = (
            self.text
            or f"Metformin lowers glucose in study number {self.number} of many adults."
        )
        return (
            f'<PubmedArticle><MedlineCitation><PMID Version="{self.version}">{self.number}</PMID><Article>'
            f"<Journal><JournalIssue><PubDate><Year>{self.year}</Year></PubDate></JournalIssue></Journal>"
            f"<ArticleTitle>Title {self.number}</ArticleTitle><Abstract><AbstractText>{words}</AbstractText>"
            f"</Abstract><Language>{self.language}</Language><PublicationTypeList>"
            f'<PublicationType UI="D1">{self.kind}</PublicationType></PublicationTypeList></Article>{notice}'
            "</MedlineCitation></PubmedArticle>"
        )


def pubmed_file(articles: Sequence[Article], deleted: Sequence[int] = ()) -> bytes:
    """A PubMed file as it is published."""
    gone = "".join(f'<PMID Version="1">{number}</PMID>' for number in deleted)
    deletions = f"<DeleteCitation>{gone}</DeleteCitation>" if deleted else ""
    records = "".join(article.xml() for article in articles) + deletions
    text = f'<?xml version="1.0"?><PubmedArticleSet>{records}</PubmedArticleSet>'
    return gzip.compress(text.encode(), mtime=0)


def put_pubmed(
    publisher: Publisher, folder: str, files: dict[str, bytes], day: str = DAY
) -> None:
    """Publish PubMed files with checksums, and list everything that is in the folder."""
    for name, data in files.items():
        publisher.files[f"/pubmed/{folder}/{name}"] = data
        publisher.files[f"/pubmed/{folder}/{name}.md5"] = (
            f"MD5({name})= {md5(data)}\n".encode()
        )
    rows = []
    for path, data in sorted(publisher.files.items()):
        if path.startswith(f"/pubmed/{folder}/pubmed"):
            name = path.rpartition("/")[2]
            size = f"{len(data) / 1024:.1f}K" if len(data) >= 1024 else str(len(data))
            rows.append(f'<a href="{name}">{name}</a>{" " * 20}{day}  {size}\n')
    page = f"<html><title>Index of /pubmed/{folder}</title><body><pre>{''.join(rows)}</pre></body></html>"
    publisher.files[f"/pubmed/{folder}/"] = page.encode()


def put_book(
    publisher: Publisher, accession: str, text: str, name: str = "3d/12/statpearls"
) -> str:
    """Publish a book of one chapter, and return the path of its archive."""
    chapter = (
        "<book-part-wrapper><book-meta><book-title-group><book-title>A book</book-title></book-title-group>"
        f"</book-meta><book-part><book-part-meta><title-group><title>Chapter</title></title-group></book-part-meta>"
        f"<body><p>{text}</p></body></book-part></book-part-wrapper>"
    ).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo(f"book_{accession}/chapter.nxml")
        info.size = len(chapter)
        archive.addfile(info, io.BytesIO(chapter))
    file = f"{name}_{accession}.tar.gz"
    publisher.files[f"/books/{file}"] = packed.getvalue()
    head = "File,Title,Publisher,Publication Year,Accession ID,Last Updated (YYYY-MM-DD HH:MM:SS)\n"
    row = f'{file},"A book, of medicine",NLM,2026,{accession},{DAY}:00\n'
    publisher.files["/books/file_list.csv"] = (head + row).encode()
    return f"/books/{file}"


TOPICS = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE health-topics SYSTEM "https://medlineplus.gov/xml/mplus_topics.dtd">
<health-topics total="2" date-generated="10/05/2026 02:30:32">
<health-topic meta-desc="x" title="Rosacea" url="https://medlineplus.gov/rosacea.html" id="379" language="English"
 date-created="05/23/2003"><also-called>Acne rosacea</also-called>
<full-summary>&lt;p&gt;Rosacea is a long-term skin disease &amp;amp; it reddens the face.&lt;/p&gt;
&lt;h3&gt;Treatment&lt;/h3&gt;&lt;ul&gt;&lt;li&gt;Avoid the sun&lt;/li&gt;&lt;li&gt;Metronidazole
gel&lt;/li&gt;&lt;/ul&gt;</full-summary><group url="u" id="6">Skin</group></health-topic>
<health-topic title="Rosácea" url="https://medlineplus.gov/spanish/rosacea.html" id="2700" language="Spanish"
 date-created="05/23/2003">
<full-summary>&lt;p&gt;La rosácea es una enfermedad.&lt;/p&gt;</full-summary></health-topic>
</health-topics>
"""


def zipped(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return packed.getvalue()


def put_medlineplus(publisher: Publisher, day: str, text: str = TOPICS) -> str:
    """Publish a day's topics beside an older file, and return the path of the zip."""
    path = f"/medlineplus/xml/mplus_topics_compressed_{day}.zip"
    publisher.files[path] = zipped({f"mplus_topics_{day}.xml": text.encode()})
    old = '<a href="/medlineplus/xml/mplus_topics_compressed_2026-01-01.zip">old</a>'
    page = f'<html>{old}<a href="{publisher.url}{path}">MedlinePlus Health Topic Compressed XML</a></html>'
    publisher.files["/medlineplus/xml.html"] = page.encode()
    return path


def label_xml(number: str, name: str = "Zestril", sections: str = "") -> bytes:
    """A label as SPL writes it."""
    usage = (
        '<component><section><code code="34067-9" codeSystem="2.16.840.1.113883.6.1"/><title>1 INDICATIONS</title>'
        "<text><paragraph>Zestril is indicated for hypertension.</paragraph></text><component><section>"
        '<code code="42229-5"/><title>1.1 Heart failure</title><text><list><item>Reduces signs of systolic heart '
        "failure</item></list></text></section></component></section></component>"
        '<component><section><code code="34089-3"/><text><paragraph>White tablets.</paragraph></text></section>'
        "</component>"
    )
    return (
        f'<?xml version="1.0"?><document xmlns="urn:hl7-org:v3"><setId root="{number}"/>'
        '<effectiveTime value="20260311"/><title>These highlights do not include everything</title>'
        "<component><structuredBody><component><section><subject><manufacturedProduct><manufacturedProduct>"
        f"<name>{name}</name><asEntityWithGeneric><genericMedicine><name>lisinopril</name></genericMedicine>"
        "</asEntityWithGeneric></manufacturedProduct></manufacturedProduct></subject></section></component>"
        f"{sections or usage}</structuredBody></component></document>"
    ).encode()


def put_dailymed(publisher: Publisher, kind: str, labels: dict[str, bytes]) -> str:
    """Publish one part of a release with its MD5, and return its path."""
    inner = {
        f"prescription/20260311_{n}.zip": zipped({f"{n}.xml": xml})
        for n, xml in labels.items()
    }
    data = zipped(inner)
    name = f"dm_spl_release_human_{kind}_part1.zip"
    publisher.files[f"/dailymed/{name}"] = data
    publisher.files["/dailymed/spl-resources-all-drug-labels.cfm"] = (
        f'<ul><li>Part 1: <a href="{publisher.url}/dailymed/{name}">{name}</a> [{len(data) / 1024:.2f}KB,'
        f" MD5 checksum: {md5(data)}, last modified: Oct 2, 2026]</li></ul>"
    ).encode()
    return f"/dailymed/{name}"


def put_article(publisher: Publisher, number: int, text: str) -> str:
    """Publish an article in the cloud service, and return the path of its XML."""
    xml = (
        '<article xml:lang="zh" article-type="research-article"><front><article-meta>'
        f'<article-id pub-id-type="pmc">{number}</article-id><title-group><article-title>肺癌指南</article-title>'
        '</title-group><pub-date pub-type="epub"><year>2025</year></pub-date></article-meta></front>'
        f"<body><sec><title>治疗</title><p>{text}</p></sec></body></article>"
    ).encode()
    name = f"PMC{number}.1"
    publisher.files[f"/pmc/{name}/{name}.xml"] = xml
    meta = {
        "pmcid": f"PMC{number}",
        "xml_url": f"s3://pmc-oa-opendata/{name}/{name}.xml?md5={md5(xml)}",
    }
    publisher.files[f"/pmc/metadata/{name}.json"] = json.dumps(meta).encode()
    return f"/pmc/{name}/{name}.xml"
