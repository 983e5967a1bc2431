"""The harvest's ledger in PostgreSQL: what pages turn out to be other than they were asked for."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from medlive.db.harvest.frontier import take_left_over
from medlive.db.harvest.harvests import StartedRun, start_harvest
from medlive.db.session import Database
from medlive.service.harvest.ledger import PostgresLedger
from medlive.service.harvest.raw_files import sweep
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.fetching.policy import FetchSettings
from medlive.sources.ledger import (
    FetchedPage,
    HarvestedThread,
    HarvestProblem,
    Listed,
)
from medlive.sources.source import Fetched, ListEntry
from medlive.threads.model import Message, Thread

SOURCE = "forum"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def url_of(thread_id: str) -> str:
    return f"https://forum.example/t/{thread_id}"


def entry(thread_id: str) -> ListEntry:
    return ListEntry(url_of(thread_id), thread_id, None, NOON)


def page(thread_id: str) -> FetchedPage:
    url = url_of(thread_id)
    body = f"page of {thread_id}".encode()
    page = Fetched(url, body, headers={"content-type": "text/html"}, fetched_at=NOON)
    return FetchedPage(page, thread_id, 1)


def read(asked_as: str, thread_id: str) -> HarvestedThread:
    message = Message("m", "a", "patient", False, "I have a cough.", NOON, ())
    thread = Thread(
        SOURCE, thread_id, url_of(thread_id), "Cough", "en", (), NOON, (message,)
    )
    return HarvestedThread(thread, entry(asked_as), 1, {})


@dataclass
class Work:
    """A run, and its ledger."""

    database: Database
    run: StartedRun
    ledger: PostgresLedger

    async def listed(self, *thread_ids: str) -> None:
        await self.ledger.keep(
            Listed("list", tuple(map(entry, thread_ids)), (), None, NOON)
        )

    async def rows(self, query: str) -> list[tuple[object, ...]]:
        async with self.database.begin() as session:
            return [tuple(row) for row in await session.execute(text(query))]


@pytest.fixture
async def work(database: Database, tmp_path: Path) -> AsyncIterator[Work]:
    """A run that has begun."""
    async with database.begin() as session:
        run = await start_harvest(session, SOURCE, "2026.W10")
    assert run is not None
    async with Fetcher(FetchSettings(allow_loopback=True)) as fetcher:
        ledger = PostgresLedger(
            database,
            run,
            SOURCE,
            "2026.W10",
            folder=tmp_path,
            operator=None,
            overlap=timedelta(7),
            fetcher=fetcher,
        )
        yield Work(database, run, ledger)
        await ledger.aclose()


async def test_a_thread_that_leads_to_another_is_gone_and_the_other_is_kept(
    work: Work,
) -> None:
    await work.listed("1", "2")
    await work.ledger.keep(page("1"), read("1", "1"))
    await work.ledger.keep(page("2"), read("2", "2"))
    await work.listed("1")
    await work.ledger.keep(page("1"), read("1", "2"))
    found = await work.rows(
        "SELECT thread_id, gone_at IS NOT NULL FROM threads ORDER BY 1"
    )
    assert found == [("1", True), ("2", False)]


async def test_an_address_that_leads_to_what_was_taken_down_brings_nothing_back(
    work: Work,
) -> None:
    async with work.database.begin() as session:
        await session.execute(
            text(
                f"INSERT INTO takedowns (source, thread_id, reason) VALUES ('{SOURCE}', 'erased', 'asked')"
            )
        )
    await work.listed("1", "2")
    await work.ledger.keep(page("1"), read("1", "erased"))
    await work.ledger.keep(page("2"), read("2", "2"))
    assert await work.rows("SELECT thread_id FROM threads") == [("2",)]
    assert await work.rows("SELECT thread_id FROM fetches") == [("2",)]
    states = await work.rows("SELECT thread_id, state, reason FROM frontier ORDER BY 1")
    assert states == [("1", "skipped", "taken_down"), ("2", "read", None)]


async def test_no_page_is_kept_of_a_taken_down_thread_that_an_address_leads_to(
    work: Work,
) -> None:
    erased = f"INSERT INTO takedowns (source, thread_id, reason) VALUES ('{SOURCE}', 'erased', 'asked')"
    async with work.database.begin() as session:
        await session.execute(text(erased))
    await work.listed("1")
    await work.ledger.keep(page("1"))
    await work.ledger.keep(replace(page("1"), number=2), read("1", "erased"))
    assert await work.rows("SELECT thread_id FROM threads") == []
    kept = "SELECT archive_id, body_digest FROM fetches"
    assert await work.rows(kept) == [(None, None)]
    await work.ledger.aclose()
    await sweep(work.database, work.ledger.folder, SOURCE)
    assert not list(work.ledger.folder.rglob("*.warc.gz"))


async def test_a_thread_taken_down_while_it_is_read_is_not_stored(work: Work) -> None:
    await work.listed("1", "2")
    # As a takedown does that got the lock when the harvest had lost it.
    erased = f"INSERT INTO takedowns (source, thread_id, reason) VALUES ('{SOURCE}', '1', 'asked')"
    async with work.database.begin() as session:
        await session.execute(text(erased))
    await work.ledger.keep(page("1"))
    await work.ledger.keep(replace(page("1"), number=2), read("1", "1"))
    await work.ledger.keep(page("2"), read("2", "2"))
    assert await work.rows("SELECT thread_id FROM threads") == [("2",)]
    assert await work.rows("SELECT thread_id FROM fetches") == [("2",)]


async def test_a_thread_at_which_the_host_turns_away_does_not_keep_the_others_waiting(
    work: Work,
) -> None:
    async def block(thread_id: str) -> None:
        await work.ledger.keep(
            HarvestProblem(url_of(thread_id), "blocked", "403", thread_id)
        )

    async def left_over(run_id: int) -> list[str]:
        async with work.database.begin() as session:
            return [e.thread_id for e in await take_left_over(session, SOURCE, run_id)]

    await work.listed("1", "2", "3")
    await block("1")
    assert (await left_over(work.run.run_id))[2:] == ["1"]
    await block("1")
    assert sorted(await left_over(work.run.run_id)) == ["2", "3"], (
        "this run has tried twice"
    )
    async with work.database.begin() as session:
        later = await start_harvest(session, SOURCE, "2026.W11")
    assert (await left_over(later.run_id))[2:] == ["1"]


async def test_a_host_that_is_down_costs_a_thread_nothing(work: Work) -> None:
    await work.listed("1")
    await work.ledger.keep(
        HarvestProblem(url_of("1"), "down", "down", "1", ends_source=True)
    )
    assert await work.rows("SELECT state, attempts FROM frontier") == [("waiting", 0)]


async def test_a_robots_txt_that_cannot_be_read_once_loses_no_thread(
    work: Work,
) -> None:
    await work.listed("1")
    await work.ledger.keep(HarvestProblem(url_of("1"), "robots", "status 503", "1"))
    async with work.database.begin() as session:
        left = await take_left_over(session, SOURCE, work.run.run_id)
    assert [entry.thread_id for entry in left] == ["1"]
