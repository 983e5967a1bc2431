"""Fetching from a publisher on this machine, and what is in the folder then."""

import asyncio
from pathlib import Path

from medlive.evidence.client import Client
from medlive.evidence.corpora.model import ReadLog
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.fetch.fetching import (
    Fetch,
    corpus_path,
    make_plan,
    run_plan,
)
from medlive.evidence.fetch.sources import Selection, Source, find_source, read_ledger
from tests.support.publishers import (
    Article,
    Publisher,
    pubmed_file,
    put_pubmed,
)

ALL = Selection()
REVIEWS = Selection(types=("review",))
FIRST = "pubmed26n0001.xml.gz"
SECOND = "pubmed26n0002.xml.gz"
THIRD = "pubmed26n0003.xml.gz"
FOLDERS = {
    "statpearls": "books",
    "pdq": "books",
    "pubmed": "pubmed",
    "medlineplus": "medlineplus",
    "pmc-chinese": "pmc",
}


def source_at(publisher: Publisher, name: str) -> Source:
    folder = FOLDERS.get(name, "dailymed")
    return find_source(name, f"{publisher.url}/{folder}")


async def make(
    source: Source, folder: Path, selection: Selection, *, run: bool
) -> Fetch:
    async with Client(None, source.hosts) as client:
        plan = await make_plan(source, folder, selection, client)
        if run:
            await run_plan(plan, client, lambda done, total: None)
        return plan


def plan_of(source: Source, folder: Path, selection: Selection = ALL) -> Fetch:
    return asyncio.run(make(source, folder, selection, run=False))


def fetch(source: Source, folder: Path, selection: Selection = ALL) -> Fetch:
    return asyncio.run(make(source, folder, selection, run=True))


def put_two(publisher: Publisher) -> dict[str, bytes]:
    """A baseline file and an update file."""
    files = {
        f"baseline/{FIRST}": pubmed_file([Article(number) for number in range(1, 400)]),
        f"updatefiles/{SECOND}": pubmed_file(
            [Article(3, text="A newer abstract of metformin.")], deleted=[5]
        ),
    }
    put_pubmed(publisher, "baseline", {FIRST: files[f"baseline/{FIRST}"]})
    put_pubmed(publisher, "updatefiles", {SECOND: files[f"updatefiles/{SECOND}"]})
    return files


def held_files(folder: Path) -> dict[str, bytes]:
    root = folder / "files"
    return {
        p.relative_to(root).as_posix(): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def pages_of(source: Source, folder: Path) -> tuple[dict[str, str], ReadLog]:
    """Passage id → text of the corpus as it would be indexed."""
    ledger = read_ledger(folder)
    assert ledger is not None
    log = ReadLog()
    corpus = open_corpus(
        corpus_path(source, folder, ledger), source.reader, source.name
    )
    return {passage.id: passage.text for passage in corpus.passages(log)}, log
