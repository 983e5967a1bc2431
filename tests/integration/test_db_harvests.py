"""Harvests, imports, runs and evaluations: recorded, taken up again, found again."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text

from medlive.clock import now
from medlive.db import runs
from medlive.db.harvest import fetches, frontier, harvests
from medlive.db.mapping import as_dict
from medlive.db.session import Database, advisory_lock, ask_lock, lock_connection
from medlive.db.tables.intake import (
    FrontierRow,
    FrontierState,
    ImportRunRow,
    RunOutcome,
)
from medlive.db.tables.release import EvaluationRunRow, PipelineRunRow
from medlive.db.tables.work import JobFailureRow, OpenProblemRow, OutboxRow, Severity
from medlive.db.threads.takedowns import erase_thread
from medlive.errors import MedliveError, UsageError
from medlive.integrity.digest import digest_text
from medlive.sources.drift import Compared
from medlive.sources.ledger import (
    FetchedPage,
    KnownThread,
    Listed,
    ListState,
    Place,
)
from medlive.sources.source import Fetched, ListEntry, PageRequest

SOURCE = "forum"
WEEK = timedelta(days=7)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def entry(number: int, *, active: datetime | None = NOON) -> ListEntry:
    return ListEntry(f"https://forum.example/t/{number}", str(number), None, active)


def page(
    number: int, *, body: bytes = b"<html>\x00\xff", place: int = 1
) -> FetchedPage:
    url = f"https://forum.example/t/{number}?page={place}"
    headers = {"etag": '"1"', "content-type": "text/html"}
    page = Fetched(url, body, headers=headers, fetched_at=NOON, elapsed_ms=12)
    return FetchedPage(page, str(number), place)


async def start(
    database: Database, week: str, *, again: bool = False
) -> harvests.StartedRun:
    async with database.begin() as session:
        run = await harvests.start_harvest(session, SOURCE, week, again=again)
    assert run is not None
    return run


async def finish(database: Database, run: harvests.StartedRun, **how: Any) -> None:
    async with database.begin() as session:
        await harvests.add_counts(session, run, {"pages": 1})
        await harvests.finish_harvest(session, run, **how)


async def listed(
    database: Database,
    run: harvests.StartedRun,
    *entries: ListEntry,
    finished: bool = True,
) -> None:
    newest = max((e.last_post_at for e in entries if e.last_post_at), default=None)
    following = None if finished else PageRequest("https://forum.example/?page=2")
    event = Listed("list", entries, (), following, newest)
    async with database.begin() as session:
        await frontier.save_listed(session, SOURCE, run.run_id, "list", entries)
        await harvests.save_cursor(session, run.run_id, event)


async def settle(
    database: Database, run: harvests.StartedRun, *settled: FrontierRow
) -> None:
    async with database.begin() as session:
        await frontier.settle(session, SOURCE, run.run_id, settled)


def ended(thread_id: str, state: FrontierState, **values: Any) -> FrontierRow:
    return FrontierRow(thread_id=thread_id, state=state, **values)


def read(number: int, **values: Any) -> FrontierRow:
    fields = {"title": True, "messages": 3}
    return ended(str(number), FrontierState.READ, page_count=1, fields=fields, **values)


async def test_a_week_has_one_run_that_is_taken_up_until_it_is_done(
    database: Database,
) -> None:
    run = await start(database, "2026.W10")
    await finish(database, run, problem="blocked")
    async with database.begin() as session:
        [source] = await harvests.list_sources(session)
    assert (source.kind, source.last_run, source.last_outcome) == (
        "site",
        "2026.W10",
        RunOutcome.FAILED,
    )
    again = await start(database, "2026.W10")
    assert (again.run_id, again.start) == (run.run_id, 2)
    await finish(database, again, partial=True)
    third = await start(database, "2026.W10")
    await finish(database, third)
    async with database.begin() as session:
        assert await harvests.start_harvest(session, SOURCE, "2026.W10") is None
        row = (
            await session.execute(
                text("SELECT counts, starts, outcome, problem FROM harvest_runs")
            )
        ).one()
    assert tuple(row) == ({"pages": 3}, 3, "done", None)
    assert (await start(database, "2026.W11")).run_id != run.run_id


async def test_a_run_s_counts_are_its_latest_start_s_to_add_to(
    database: Database,
) -> None:
    run = await start(database, "2026.W10")
    async with database.begin() as session:
        await harvests.add_counts(session, run, {"pages": 2, "listed": 5})
        await harvests.add_counts(session, run, {})
    later = await start(database, "2026.W10")
    add_late = partial(harvests.add_counts, counts={"pages": 9})
    for late in (add_late, harvests.finish_harvest):
        with pytest.raises(MedliveError, match="taken this harvest over"):
            async with database.begin() as session:
                await late(session, run)
    await finish(database, later)
    async with database.begin() as session:
        row = (
            await session.execute(text("SELECT counts, outcome FROM harvest_runs"))
        ).one()
        assert (await harvests.run_figures(session, run.run_id))[1] == {"listed": 5}
    assert tuple(row) == ({"pages": 3, "listed": 5}, "done")
    await start(database, "2026.W10", again=True)
    async with database.begin() as session:
        assert (await harvests.run_figures(session, run.run_id))[1] == {"listed": 0}


async def test_a_run_that_is_repeated_has_dealt_with_nothing_and_keeps_what_it_knows(
    database: Database,
) -> None:
    run = await start(database, "2026.W10")
    await listed(database, run, entry(1), entry(3), entry(4))
    await settle(
        database,
        run,
        read(1, etag='"x"'),
        ended("3", FrontierState.FAILED, reason="fetch"),
    )
    await settle(database, run, ended("4", FrontierState.FAILED, reason="layout"))
    await finish(database, run)
    async with database.begin() as session:
        known = await frontier.look_up(session, SOURCE, run.run_id, ["1", "2"])
    assert known == {"1": KnownThread('"x"', None, 1, handled=True, met_by=run.run_id)}
    again = await start(database, "2026.W10", again=True)
    assert again.run_id == run.run_id
    async with database.begin() as session:
        known = await frontier.look_up(session, SOURCE, run.run_id, ["1", "2"])
        assert known == {
            "1": KnownThread('"x"', None, 1, handled=False, met_by=run.run_id)
        }
        assert not (await frontier.look_up(session, SOURCE, run.run_id, ["4"]))[
            "4"
        ].handled
        left = await frontier.take_left_over(session, SOURCE, run.run_id)
        assert [e.thread_id for e in left] == ["3"], (
            "tried again although no list shows it"
        )
        state = await harvests.list_state(session, run.run_id, SOURCE, "list", WEEK)
    assert state == ListState()


async def test_what_waits_or_failed_by_chance_is_left_over_and_nothing_else(
    database: Database,
) -> None:
    run = await start(database, "2026.W10")
    await listed(database, run, *map(entry, range(1, 7)), finished=False)
    failed = [(2, "fetch"), (3, "layout"), (4, "incomplete")]
    for number, reason in failed:
        await settle(
            database,
            run,
            ended(str(number), FrontierState.FAILED, reason=reason),
        )
    await settle(database, run, read(5), ended("6", FrontierState.GONE))
    await finish(database, run, problem="killed")
    later = await start(database, "2026.W11")
    async with database.begin() as session:
        found = await frontier.take_left_over(session, SOURCE, later.run_id)
    assert {e.thread_id for e in found} == {"1", "2", "4"}
    for attempt in range(frontier.MAX_ATTEMPTS):
        await settle(database, later, ended("2", FrontierState.FAILED, reason="fetch"))
        async with database.begin() as session:
            found = await frontier.take_left_over(session, SOURCE, later.run_id)
        # It failed once in the week before.
        assert ("2" in {e.thread_id for e in found}) == (
            attempt + 2 < frontier.MAX_ATTEMPTS
        )
    await listed(database, later, entry(2))
    async with database.begin() as session:
        assert "2" in {
            e.thread_id
            for e in await frontier.take_left_over(session, SOURCE, later.run_id)
        }


async def test_pages_of_a_reading_are_found_again_and_those_of_an_earlier_one_are_not(
    database: Database,
) -> None:
    async def keep(run: harvests.StartedRun, *pages: FetchedPage) -> None:
        async with database.begin() as session:
            number = await fetches.start_archive(
                session, run.run_id, f"{run.run_id}-{pages[0].number}", 0
            )
            places = [Place(100 * n, 50) for n in range(len(pages))]
            await fetches.save_pages(session, run.run_id, SOURCE, pages, number, places)

    async def kept(*, this_reading: bool) -> list[int]:
        async with database.begin() as session:
            after = (
                await frontier.reading_began(session, SOURCE, "1")
                if this_reading
                else 0
            )
            found = await fetches.kept_pages(session, SOURCE, "1", after_fetch=after)
            return [page.page_number for page in found]

    run = await start(database, "2026.W10")
    await listed(database, run, entry(1))
    assert await kept(this_reading=True) == []
    await keep(run, page(1), page(1, place=2))
    assert await kept(this_reading=True) == [1, 2]
    later = await start(database, "2026.W11")
    await listed(database, later, entry(1))
    assert await kept(this_reading=True) == []
    assert await kept(this_reading=False) == [1, 2]
    await keep(later, page(1))
    assert await kept(this_reading=False) == [1], (
        "the latest reading has one page so far"
    )


async def test_a_list_stops_where_finished_runs_saw_it_and_goes_on_where_this_one_stood(
    database: Database,
) -> None:
    async def state(run: harvests.StartedRun) -> ListState:
        async with database.begin() as session:
            return await harvests.list_state(session, run.run_id, SOURCE, "list", WEEK)

    run = await start(database, "2026.W10")
    assert await state(run) == ListState()
    await listed(database, run, entry(1), finished=False)
    assert await state(run) == ListState(
        next_page=PageRequest("https://forum.example/?page=2")
    )
    other = await start(database, "2026.W11")
    assert (await state(other)).cutoff is None, (
        "a list that was not read to its end says nothing"
    )
    await listed(database, run, entry(2, active=NOON - WEEK))
    assert (await state(run)).finished
    assert await state(other) == ListState(cutoff=NOON - WEEK, read_by=run.run_id)


async def test_what_a_list_should_have_shown_is_asked_for(database: Database) -> None:
    run = await start(database, "2026.W10")
    old, undated = NOON - 2 * WEEK, entry(4, active=None)
    await listed(database, run, entry(1), entry(2), entry(3, active=old), undated)
    await settle(database, run, *(read(n) for n in (1, 2, 3, 4)))
    async with database.begin() as session:
        assert (
            await frontier.take_not_listed(session, SOURCE, run.run_id, WEEK) == []
        ), "this run has listed them"
    later = await start(database, "2026.W11")
    await listed(database, later, entry(1))
    async with database.begin() as session:
        found = await frontier.take_not_listed(session, SOURCE, later.run_id, WEEK)
        assert {e.thread_id for e in found} == {"2", "4"}
        assert await frontier.take_not_listed(session, SOURCE, later.run_id, WEEK) == []


async def test_threads_of_a_list_without_dates_are_asked_for_while_they_are_young(
    database: Database,
) -> None:
    async def taken(run: harvests.StartedRun) -> set[str]:
        async with database.begin() as session:
            return {
                e.thread_id
                for e in await frontier.take_not_listed(
                    session, SOURCE, run.run_id, WEEK
                )
            }

    run = await start(database, "2026.W10")
    await listed(database, run, *(entry(n, active=None) for n in (1, 2, 3)))
    moment = now()
    await settle(
        database,
        run,
        read(1),
        read(2, posted_at=moment),
        read(3, posted_at=moment - 3 * WEEK),
    )
    later = await start(database, "2026.W11")
    assert await taken(later) == set(), "this run has not read the list"
    await listed(database, later)
    assert await taken(later) == {"1", "2"}, "3 is old"
    await settle(
        database,
        later,
        *(ended(i, FrontierState.NOT_MODIFIED) for i in "12"),
    )
    async with database.begin() as session:
        await session.execute(
            text("UPDATE harvest_runs SET started_at = now() - interval '20 days'")
        )
        await session.execute(
            text("UPDATE frontier SET posted_at = now() - interval '20 days'")
        )
    last = await start(database, "2026.W12")
    await listed(database, last)
    assert await taken(last) == set(), (
        "that they were asked for last week does not keep them young"
    )


async def test_a_list_that_is_read_again_from_its_beginning_misses_what_is_gone(
    database: Database,
) -> None:
    run = await start(database, "2026.W10")
    await listed(database, run, entry(1), entry(2, active=NOON - 9 * WEEK))
    await settle(database, run, read(1), read(2))
    await finish(database, run)
    again = await start(database, "2026.W10", again=True)
    await listed(database, again, entry(1))
    async with database.begin() as session:
        found = await frontier.take_not_listed(session, SOURCE, again.run_id, WEEK)
    assert [e.thread_id for e in found] == ["2"], (
        "no other run bounds how far it was read"
    )


async def test_a_source_is_quarantined_with_its_reason_and_lifted(
    database: Database,
) -> None:
    run = await start(database, "2026.W10")
    shown = [Compared("field:title", 1.0, 20, None, collapsed=False)]
    async with database.begin() as session:
        await harvests.save_measures(session, run.run_id, shown)
    await finish(database, run)
    async with database.begin() as session:
        await harvests.quarantine(session, SOURCE, "its layout changed")
        [source] = await harvests.list_sources(session)
        assert source.quarantine_reason == "its layout changed"
        assert source.quarantined_at is not None
    later = await start(database, "2026.W11")
    async with database.begin() as session:
        past = await harvests.past_measures(
            session, SOURCE, except_run=later.run_id, runs=8
        )
        assert past == [{"field:title": (1.0, 20)}]
        assert await harvests.latest_measures(session, SOURCE) == ("2026.W10", shown)
        await harvests.lift_quarantine(session, SOURCE)
        assert (await harvests.list_sources(session))[0].quarantined_at is None
        assert await harvests.past_measures(
            session, SOURCE, except_run=later.run_id, runs=8
        )
        await harvests.lift_quarantine(session, SOURCE, compare_anew=True)
        assert not await harvests.past_measures(
            session, SOURCE, except_run=later.run_id, runs=8
        )
        for change in (
            harvests.quarantine(session, "elsewhere", "x"),
            harvests.lift_quarantine(session, "elsewhere"),
        ):
            with pytest.raises(UsageError):
                await change


async def test_a_run_s_figures_are_those_of_what_it_read(database: Database) -> None:
    run = await start(database, "2026.W10")
    await listed(database, run, *map(entry, range(1, 6)))
    await settle(
        database,
        run,
        read(1),
        ended("3", FrontierState.FAILED, reason="layout"),
    )
    bare = ended(
        "2", FrontierState.READ, page_count=2, fields={"title": False, "messages": 6}
    )
    long = ended(
        "5", FrontierState.READ, page_count=99, fields={"title": True, "messages": 2000}
    )
    await settle(database, run, bare, long, ended("4", FrontierState.NOT_MODIFIED))
    async with database.begin() as session:
        fields, ends = await harvests.run_figures(session, run.run_id)
    assert fields == {"title": (pytest.approx(2 / 3), 3), "messages": (6, 3)}
    assert ends == Counter({"read": 3, "layout": 1, "not_modified": 1, "listed": 0})


async def test_a_lock_is_one_process_s_at_a_time_and_ends_with_it(
    database: Database,
) -> None:
    async with advisory_lock(database, "harvest forum") as first:
        assert first
        async with (
            advisory_lock(database, "harvest forum") as second,
            advisory_lock(database, "other") as other,
        ):
            assert not second
            assert other
    async with advisory_lock(database, "harvest forum") as free:
        assert free


async def test_a_lock_s_connection_ends_after_a_cancelled_question(
    database: Database,
) -> None:
    async with lock_connection(database) as connection:
        asked = asyncio.create_task(ask_lock(connection, "SELECT pg_sleep(60)", 0))
        await asyncio.sleep(0.2)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    async with lock_connection(database) as connection:
        assert await ask_lock(connection, "SELECT true", 0)


async def test_imports_are_recorded(database: Database, tmp_path: Path) -> None:
    name = str(tmp_path / "file \udcff.jsonl")
    async with database.begin() as session:
        run = await runs.start_import(session, name)
        await runs.finish_import(session, run, {"new": 3})
        stored = await session.get_one(ImportRunRow, run)
    assert (stored.file, stored.outcome) == (name, RunOutcome.DONE)


async def test_a_takedown_takes_the_address_out_of_what_was_said_of_it(
    database: Database,
) -> None:
    run = await start(database, "2026.W10")
    url = "https://sdn.test/'咳\\"
    said = f'in 2026.W10 its pages stopped fitting: "{url}": no layout'
    async with database.begin() as session:
        entry = ListEntry(url, "7")
        await frontier.save_listed(session, SOURCE, run.run_id, "list", [entry])
        step = PipelineRunRow(
            command="scheduler harvest sdn",
            settings={},
            code_version="1",
            outcome=RunOutcome.DONE,
            finished_at=func.now(),
            counts={"problem": f"quarantined: {said}"},
            log=["one", said],
        )
        problem = OpenProblemRow(
            code="source_quarantined",
            subject=SOURCE,
            severity=Severity.TICKET,
            text=said,
            next_step="look",
        )
        failure = JobFailureRow(job_id=1, queue="harvest", reason=said)
        message = OutboxRow(place="webhook", message={"text": said})
        rows = [step, problem, failure, message]
        session.add_all(rows)
        await erase_thread(session, SOURCE, "7", "the author asked")
        told = []
        for row in rows:
            await session.refresh(row)
            told.append(str(as_dict(row)))
    assert not [text for text in told if "sdn.test" in text]
    assert all("(taken down)" in text and "no layout" in text for text in told)


@pytest.mark.parametrize("odd", ["", "x" * 501, "1"])
async def test_a_list_is_kept_whatever_ids_it_shows(
    database: Database, odd: str
) -> None:
    run = await start(database, "2026.W10")
    entries = [ListEntry(f"u{i}", i) for i in ("1", odd)]
    skipped = {odd: ("u", "bad_id")}
    async with database.begin() as session:
        await frontier.save_listed(
            session, SOURCE, run.run_id, "list", entries, skipped
        )
    later = await start(database, "2026.W11")
    async with database.begin() as session:
        left = await frontier.take_left_over(session, SOURCE, later.run_id)
        assert len(left) == 1


async def test_runs_and_evaluations_are_recorded(database: Database) -> None:
    async with runs.recorded_run(
        database, "curate", {"limit": None}, iso_week="2026.W10"
    ) as run:
        run.counts = {"kept": 1}
    async with runs.recorded_run(database, "curate", {}) as run:
        run.failed = True
    async with database.begin() as session:
        outcomes = await session.scalars(
            text("SELECT outcome FROM pipeline_runs ORDER BY id")
        )
        assert list(outcomes) == ["done", "failed"]
        for score in (0.1, 0.2):
            number = await runs.record_evaluation(
                session,
                run_digest=digest_text("run"),
                snapshot_version="2026.W10",
                model="m",
                grader="g",
                path="somewhere",
                scores={"paper": score},
            )
        [row] = await session.scalars(select(EvaluationRunRow))
        assert (row.id, row.scores) == (number, {"paper": 0.2})


async def test_harvests_of_a_week_are_found_by_source(database: Database) -> None:
    async with database.begin() as session:
        one = await harvests.start_harvest(session, "icliniq", "2026.W40")
        await harvests.start_harvest(session, "sdn", "2026.W40")
        await harvests.start_harvest(session, "dxy", "2026.W39")
        await harvests.finish_harvest(session, one)
        found = await harvests.list_sources(session)
    assert [(s.name, s.last_run, s.last_outcome) for s in found] == [
        ("dxy", "2026.W39", "running"),
        ("icliniq", "2026.W40", "done"),
        ("sdn", "2026.W40", "running"),
    ]
