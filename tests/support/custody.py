"""An instance whose raw pages can be looked into: harvested from samples, and searched to the last byte."""

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from sqlalchemy import text

from medlive.config import Settings
from medlive.db.session import Database
from medlive.demo.communities import serve_communities
from medlive.demo.samples import SampleThread, load_sample_threads
from medlive.service.harvest.harvest import HarvestResult, harvest_source
from medlive.sources.registry import build_site


def settings_of(database_url: str, home: Path, **more: Any) -> Settings:
    """The settings of an instance of its own."""
    url, fetching = SecretStr(database_url), {"allow_loopback": True, "backoff_s": 0.01}
    return Settings(home=home, database_url=url, harvest=fetching, **more)


def samples(*thread_ids: str, site: str = "sdn") -> list[SampleThread]:
    """The sample threads of those ids; all of the site when none is named."""
    return [
        t
        for t in load_sample_threads()
        if t.site == site and (not thread_ids or t.thread_id in thread_ids)
    ]


async def harvest(
    database: Database,
    settings: Settings,
    threads: Sequence[SampleThread],
    site: str = "sdn",
) -> HarvestResult:
    """Harvest a community that has these threads."""
    async with serve_communities(threads) as communities:
        overrides = {
            "base_url": communities[site].base_url,
            "boards": communities[site].boards,
            "min_interval_s": 0.0,
        }
        built = build_site(site, overrides)
        return await harvest_source(database, settings, built, again=True)


def words_of(thread: SampleThread) -> list[str]:
    """Words by which any trace of a thread is found: of its title, its address, its authors and its messages."""
    slug = thread.path.strip("/").split("/")[-1]
    authors = [m.author for m in thread.messages if len(m.author) >= 6]
    lines = [
        line for m in thread.messages for line in m.text.replace('"', "\n").splitlines()
    ]
    pieces = [
        line[i : i + 40] for line in lines for i in range(0, max(1, len(line) - 20), 20)
    ]
    return [thread.title, slug, *authors, *(p for p in pieces if len(p) >= 30)]


def traces_in_files(folder: Path, words: Iterable[str]) -> list[str]:
    """Which of these words the records in a folder's WARC files hold."""
    bodies = b"\n".join(
        gzip.decompress(path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    )
    return [word for word in words if word.encode() in bodies]


async def rows_of_tables(database: Database) -> list[tuple[str, str]]:
    """(table, row as text) for every row of every table."""
    async with database.begin() as session:
        tables = await session.scalars(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        )
        each = (
            f"SELECT '{name}', CAST(t AS text) FROM \"{name}\" AS t"
            for name in tables.all()
        )
        rows = await session.execute(text(" UNION ALL ".join(each)))
        return [(table, row) for table, row in rows]


async def traces_in_tables(
    database: Database, words: Iterable[str]
) -> set[tuple[str, str]]:
    """(table, word) for every table in one of whose rows one of these words stands."""
    words = list(words)
    return {
        (table, word)
        for table, row in await rows_of_tables(database)
        for word in words
        if word in row
    }
