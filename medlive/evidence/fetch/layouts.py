"""How each publisher arranges its files: `LISTS` reads its index page or list, `CHECKSUMS` its checksum files.

A name on a page becomes a file's name only if it has the form that the publisher gives its names. A file's `mark`
changes when the publisher changes the file.
"""

import csv
import html
import json
import re
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode, urljoin

from medlive.evidence.client import Client, FetchFailed

from .sources import RemoteFile, Source

_PUBMED_ROW = re.compile(
    r'<a href="(pubmed\d{2}n(\d{4,5})\.xml\.gz)">[^<]*</a>\s*(\d{4}-\d\d-\d\d \d\d:\d\d)\s+([\d.]+[KMG]?)'
)
_MD5_LINE = re.compile(r"MD5\s*\((\S+)\)\s*=\s*([0-9a-fA-F]{32})\s*")
_BOOK = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/\w[\w.-]*_NBK\d+\.tar\.gz")
_TOPICS = re.compile(r'href="([^"]*?(mplus_topics_compressed_(\d{4}-\d\d-\d\d)\.zip))"')
_RELEASE = re.compile(r"(dm_spl_release_\w+?\.zip)")
_LINK = re.compile(r'href="([^"]*?(dm_spl_release_\w+?\.zip))"')
_MD5 = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{32}(?![0-9a-fA-F])")
_IDS_A_PAGE = 10_000  # Articles that one request lists


async def list_pubmed(client: Client, source: Source) -> list[RemoteFile]:
    """The baseline and the update files."""
    files: list[RemoteFile] = []
    for folder in ("baseline", "updatefiles"):
        address = urljoin(source.address, f"{folder}/")
        rows = _PUBMED_ROW.findall(await client.page(address))
        if not rows:
            raise FetchFailed(
                f"{address} lists no file such as pubmed26n0001.xml.gz; expected PubMed's index page"
            )
        numbers = {int(number) for _, number, _, _ in rows}
        missing = set(range(1, max(numbers) + 1)) - numbers
        if missing and folder == "baseline":
            raise FetchFailed(
                f"{address} lists {len(rows)} files up to number {max(numbers)}; number {min(missing)} is missing",
                hint="the publisher may be renewing the files; run the same command again later",
            )
        for name, _, changed, size in rows:
            url = urljoin(address, name)
            files.append(
                RemoteFile(
                    name=f"{folder}/{name}",
                    url=url,
                    mark=f"{changed} {size}",
                    checksum_url=f"{url}.md5",
                )
            )
    return files


def pubmed_checksum(text: str, file: RemoteFile) -> str:
    """The MD5 from a `.md5` file, which must name `file`."""
    matched = _MD5_LINE.fullmatch(text.strip())
    name = file.name.rpartition("/")[2]
    if matched is None or matched[1] != name:
        raise FetchFailed(
            f"{file.checksum_url}: expected MD5({name})= and 32 hexadecimal digits"
        )
    return matched[2].lower()


async def list_bookshelf(client: Client, source: Source) -> list[RemoteFile]:
    """A book's archive, found in the CSV list."""
    listed = await client.page(source.address)
    for row in csv.DictReader(listed.splitlines()):
        if (row.get("Accession ID") or "").strip() != source.wanted:
            continue
        name = (row.get("File") or "").strip()
        if not _BOOK.fullmatch(name):
            raise FetchFailed(
                f"{source.address} gives {source.wanted} the file {name[:200]!r}; expected a .tar.gz"
            )
        changed = ""
        for title, value in row.items():
            if title and title.startswith("Last Updated"):
                changed = value or ""
        url = urljoin(source.files, name)
        return [RemoteFile(name=name, url=url, mark=changed)]
    raise FetchFailed(
        f"{source.address} does not list {source.wanted}",
        hint="the book may have left the open-access subset",
    )


async def list_medlineplus(client: Client, source: Source) -> list[RemoteFile]:
    """The newest file of topics."""
    links = _TOPICS.findall(await client.page(source.address))
    if not links:
        raise FetchFailed(
            f"{source.address} links no file such as mplus_topics_compressed_2026-06-06.zip"
        )
    address, name, day = max(links, key=lambda link: str(link[2]))
    return [RemoteFile(name=name, url=urljoin(source.address, address), mark=day)]


async def list_dailymed(client: Client, source: Source) -> list[RemoteFile]:
    """The parts of a full release of labels."""
    page = html.unescape(await client.page(source.address))
    checksums: dict[str, str] = {}
    # A file's checksum stands between its name and the next one's.
    _, *cut = _RELEASE.split(page)
    for name, text in zip(cut[::2], cut[1::2], strict=True):
        if checksum := _MD5.search(text):
            checksums.setdefault(name, checksum[0].lower())
    prefix = f"dm_spl_release_human_{source.wanted}_part"
    files: dict[str, RemoteFile] = {}
    for address, name in _LINK.findall(page):
        if name.startswith(prefix) and name not in files:
            url, md5 = urljoin(source.address, address), checksums.get(name, "")
            files[name] = RemoteFile(
                name=name,
                url=url,
                mark=md5,
                md5=md5,
            )
    if not files or any(not file.md5 for file in files.values()):
        raise FetchFailed(
            f"{source.address} links no file such as {prefix}1.zip, or gives no MD5 beside it"
        )
    return list(files.values())


async def list_pmc(client: Client, source: Source) -> list[RemoteFile]:
    """The articles of some journals: their numbers from E-utilities, their files from the PMC Cloud Service."""
    files: list[RemoteFile] = []
    count = 1
    while len(files) < count:
        query = {
            "db": "pmc",
            "term": source.wanted,
            "retmode": "json",
            "tool": "medlive",
            "retstart": len(files),
            "retmax": _IDS_A_PAGE,
        }
        text = await client.page(f"{source.address}?{urlencode(query)}")
        try:
            result = json.loads(text)["esearchresult"]
            count, numbers = int(result["count"]), list(map(str, result["idlist"]))
        except (ValueError, LookupError, TypeError, RecursionError) as exc:
            raise FetchFailed(
                f"{source.address} answers with no list of articles: {exc!r}"
            ) from exc
        if not numbers:
            raise FetchFailed(
                f"{source.address} lists {len(files)} of {count} articles, and no more"
            )
        for number in numbers:
            if not number.isdecimal():
                raise FetchFailed(
                    f"{source.address} lists {number[:40]!r}; expected the number of an article"
                )
            version = f"PMC{number}.1"
            file = RemoteFile(
                name=f"{version}.xml",
                url=urljoin(source.files, f"{version}/{version}.xml"),
                mark="1",
                checksum_url=urljoin(source.files, f"metadata/{version}.json"),
            )
            files.append(file)
    return files


def pmc_checksum(text: str, file: RemoteFile) -> str:
    """The MD5 in `xml_url` of an article's metadata."""
    try:
        checksum, *_ = _MD5.findall(str(json.loads(text)["xml_url"]))
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise FetchFailed(
            f"{file.checksum_url}: expected a JSON object with an MD5 in xml_url"
        ) from exc
    return str(checksum).lower()


LISTS: dict[str, Callable[[Client, Source], Awaitable[list[RemoteFile]]]] = {
    "bookshelf": list_bookshelf,
    "medlineplus": list_medlineplus,
    "dailymed": list_dailymed,
    "pubmed": list_pubmed,
    "pmc": list_pmc,
}
"""By publisher: what lists its files."""
CHECKSUMS: dict[str, Callable[[str, RemoteFile], str]] = {
    "pubmed": pubmed_checksum,
    "pmc": pmc_checksum,
}
"""By publisher: what reads the MD5 of a file in the text at its `checksum_url`."""
