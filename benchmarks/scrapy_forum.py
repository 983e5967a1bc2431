"""The Scrapy side of `harvest.py`: a spider and a pipeline that write the same WARC records and rows as medlive.

Scrapy fetches, follows and schedules; parser, archive and tables are medlive's, so that both sides do the same
with a page. Each item is archived, synced to disk, and committed in a transaction of its own, one after the other;
a queue on disk (JOBDIR) remembers what waits.

    python benchmarks/scrapy_forum.py URL DATABASE FOLDER CONNECTIONS
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import Crawler, CrawlerProcess
from scrapy.http import Response

from medlive.db.harvest import fetches, harvests
from medlive.db.session import Database
from medlive.db.threads.threads import save_identifiers, save_threads
from medlive.deidentify.detect import keyed_handle
from medlive.sources.archive import ArchiveWriter
from medlive.sources.ledger import FetchedPage
from medlive.sources.registry import build_site
from medlive.sources.source import Fetched
from medlive.threads.model import Thread
from medlive.threads.prepare import thread_identifiers

Item = dict[str, Any]
"""`page`: FetchedPage; `thread`: Thread, or None for a list."""

SITE = build_site("sdn")


class Forum(scrapy.Spider):  # type: ignore[misc]  # Scrapy's types are not read
    """A board and its threads of one page each."""

    name = "forum"

    async def start(self) -> Any:
        """Ask for the board's first page."""
        yield scrapy.Request(sys.argv[1], self.parse)

    def parse(self, response: Response, **_: Any) -> Iterator[Item | scrapy.Request]:
        """Follow a list."""
        page = fetched(response)
        listing = SITE.parse_listing(page)
        yield {"page": FetchedPage(page, None), "thread": None}
        for entry in listing.entries:
            yield scrapy.Request(
                entry.url, self.thread, cb_kwargs={"thread_id": entry.thread_id}
            )
        if listing.next_page is not None:
            yield scrapy.Request(listing.next_page.url, self.parse)

    def thread(self, response: Response, thread_id: str) -> Iterator[Item]:
        """Read a thread."""
        page = fetched(response)
        thread = SITE.parse_thread([page], partial(keyed_handle, key=b"benchmark"))
        yield {"page": FetchedPage(page, thread_id), "thread": thread}


def fetched(response: Response) -> Fetched:
    """A response as medlive's parsers and archive take it."""
    names = ("content-type", "date")
    headers = {
        name: value.decode()
        for name in names
        if (value := response.headers.get(name)) is not None
    }
    return Fetched(
        response.url,
        response.body,
        status=response.status,
        headers=headers,
        fetched_at=datetime.now(UTC),
    )


class Store:
    """Archives and stores each item."""

    async def open_spider(self) -> None:
        """Begin a run and its file."""
        self.database = Database.connect(sys.argv[2])
        self.turn = asyncio.Lock()
        async with self.database.begin() as session:
            run = await harvests.start_harvest(session, "sdn", "2026.W01")
            assert run is not None
            self.run_id = run.run_id
            path = Path(sys.argv[3]) / "sdn.warc.gz"
            self.writer = ArchiveWriter(path, software="scrapy", operator=None)
            self.archive_id = await fetches.start_archive(
                session, self.run_id, path.name, self.writer.size
            )

    async def close_spider(self) -> None:
        """Close the file and the pool."""
        self.writer.close()
        await self.database.aclose()

    async def process_item(self, item: Item) -> Item:
        """Archive a page, then commit its rows and its thread's."""
        page: FetchedPage = item["page"]
        thread: Thread | None = item["thread"]
        found = [] if thread is None else [thread_identifiers(thread)]
        async with (
            self.turn
        ):  # a file has one writer, and its size in the database only grows
            places = await asyncio.to_thread(self.writer.append, [page.page])
            async with self.database.begin() as session:
                ids = await fetches.save_pages(
                    session, self.run_id, "sdn", [page], self.archive_id, places
                )
                if thread is not None:
                    saved = await save_threads(session, [thread], fetch_ids=ids)
                    await save_identifiers(session, saved, found)
        return item


def main() -> None:
    """Crawl; print the seconds and processor seconds from the spider's start, and how many pages were stored."""
    process = CrawlerProcess(
        {
            "DOWNLOAD_DELAY": 0,
            "ROBOTSTXT_OBEY": False,
            "JOBDIR": f"{sys.argv[3]}/job",
            "CONCURRENT_REQUESTS": int(sys.argv[4]),
            "CONCURRENT_REQUESTS_PER_DOMAIN": int(sys.argv[4]),
            "ITEM_PIPELINES": {Store: 1},
            "LOG_LEVEL": "ERROR",
            "TELNETCONSOLE_ENABLED": False,
        }
    )
    crawler: Crawler = process.create_crawler(Forum)
    process.crawl(crawler)
    started = time.process_time()
    process.start()
    assert crawler.stats is not None
    stats = crawler.stats.get_stats()
    print(
        stats["elapsed_time_seconds"],
        time.process_time() - started,
        stats["item_scraped_count"],
    )


if __name__ == "__main__":
    main()
