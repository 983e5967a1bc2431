"""Harvests, imports, runs and evaluations: recorded, taken up again, found again."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from medlive.db import evaluations, harvests, runs
from medlive.db.session import Database
from medlive.db.tables import RunOutcome, SourceKind
from medlive.digest import digest_text
from medlive.errors import UsageError
from medlive.sources.fetched import Fetched
from medlive.sources.files import ImportProblem, ProblemReason
from medlive.sources.harvest import FetchedPage, HarvestProblem, KnownThread, PageKind, ProblemKind
from medlive.sources.source import Page

URL = "https://forum.example/t/1"


def page(body: bytes = b"<html>\x00\xff", *, etag: str = '"1"', thread_id: str | None = "1") -> FetchedPage:
    fetched = Fetched(
        url=URL,
        status=200,
        headers={"etag": etag, "content-type": "text/html"},
        body=body,
        fetched_at=datetime(2026, 3, 1, tzinfo=UTC),
        elapsed_ms=12,
    )
    kind = PageKind.LISTING if thread_id is None else PageKind.THREAD
    return FetchedPage(kind, Page(URL, body), fetched, thread_id)


async def test_a_page_is_kept_and_known_once_its_thread_was_read(database: Database) -> None:
    async with database.begin() as session:
        run = await harvests.start_harvest(session, "forum", "2026.W10")
        await harvests.save_page(session, run, "forum", page(thread_id=None))
        first = await harvests.save_page(session, run, "forum", page())
        await harvests.save_page(session, run, "forum", page(b"2"), page_number=2)
        assert await harvests.known_threads(session, "forum") == {}
        await harvests.mark_read(session, first, 2)
        unread = await harvests.save_page(session, run, "forum", page(etag='"2"'))
        assert await harvests.known_threads(session, "forum") == {"1": KnownThread('"1"', None, 2)}
        await harvests.mark_read(session, unread, 1)
        assert await harvests.known_threads(session, "forum") == {"1": KnownThread('"2"', None, 1)}
        assert await harvests.load_body(session, first) == b"<html>\x00\xff"
        assert await harvests.known_threads(session, "elsewhere") == {}


async def test_a_week_has_one_run_that_is_taken_up_again(database: Database) -> None:
    async with database.begin() as session:
        run = await harvests.start_harvest(session, "forum", "2026.W10")
        problem = HarvestProblem(URL, ProblemKind.BLOCKED, "403", "1", ends_source=True)
        await harvests.save_harvest_problem(session, run, "forum", problem)
        await harvests.finish_harvest(session, run, {"threads": 2}, problem="blocked")
        [source] = await harvests.list_sources(session)
        assert (source.kind, source.last_run, source.last_outcome) == (
            SourceKind.SITE,
            "2026.W10",
            RunOutcome.FAILED,
        )
        assert await harvests.start_harvest(session, "forum", "2026.W10") == run
        await harvests.finish_harvest(session, run, {"threads": 3, "pages": 1})
        row = (await session.execute(text("SELECT counts, starts, outcome, problem FROM harvest_runs"))).one()
        assert tuple(row) == ({"threads": 5, "pages": 1}, 2, "done", None)
        assert await harvests.start_harvest(session, "forum", "2026.W11") != run


async def test_a_source_is_quarantined_with_its_reason(database: Database) -> None:
    async with database.begin() as session:
        await harvests.start_harvest(session, "forum", "2026.W10")
        await harvests.quarantine(session, "forum", "its layout changed")
        [source] = await harvests.list_sources(session)
        assert source.quarantine_reason == "its layout changed"
        assert source.quarantined_at is not None
        await harvests.quarantine(session, "forum", None)
        assert (await harvests.list_sources(session))[0].quarantined_at is None
        with pytest.raises(UsageError):
            await harvests.quarantine(session, "elsewhere", "x")


async def test_imports_and_their_bad_lines_are_recorded(database: Database, tmp_path: Path) -> None:
    name = str(tmp_path / "file \udcff.jsonl")
    problems = [
        ImportProblem(7, ProblemReason.NOT_JSON, "no JSON", "{"),
        ImportProblem(2, ProblemReason.BAD_DATE, "no date", "x"),
    ]
    async with database.begin() as session:
        run = await runs.start_import(session, name)
        await runs.save_problems(session, run, name, problems)
        await runs.save_problems(session, run, name, problems[:1])
        await runs.finish_import(session, run, {"new": 3})
        found = await runs.load_problems(session, run)
    assert [(p.line, p.reason, p.file) for p in found] == [(2, "bad_date", name), (7, "not_json", name)]


async def test_runs_and_evaluations_are_recorded(database: Database) -> None:
    async with database.begin() as session:
        run = await runs.start_run(session, "curate", {"limit": None}, iso_week="2026.W10")
        await runs.finish_run(session, run, {"kept": 1})
        again = await runs.start_run(session, "curate", {})
        await runs.finish_run(session, again, {}, failed=True)
        outcomes = await session.scalars(text("SELECT outcome FROM pipeline_runs ORDER BY id"))
        assert list(outcomes) == ["done", "failed"]
        for score in (0.1, 0.2):
            number = await evaluations.record_evaluation(
                session,
                run_digest=digest_text("run"),
                snapshot_version="2026.W10",
                model="m",
                grader="g",
                path="somewhere",
                scores={"paper": score},
            )
        [row] = await evaluations.list_evaluations(session, snapshot_version="2026.W10")
        assert (row.id, row.scores) == (number, {"paper": 0.2})
        assert await evaluations.list_evaluations(session, snapshot_version="2026.W11") == []
