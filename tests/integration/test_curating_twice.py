"""Two processes with one revision: what was decided first stands, and the other leaves no case behind."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from medlive.curation.chain import CurationSettings
from medlive.curation.model import Outcome
from medlive.db.curation.curations import list_curations
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.session import Database
from medlive.db.tables.decisions import ReplyRow
from medlive.db.tables.intake import ThreadRevisionRow
from medlive.db.tables.release import CaseRow
from medlive.db.threads import threads
from medlive.errors import ConfigError
from medlive.evidence.passage import IndexIdentity
from medlive.integrity.digest import digest_text
from medlive.llm.budget import Budget
from medlive.llm.engine import EngineIdentity, Reply, Request
from medlive.llm.replay import ReplayEngine
from medlive.service.curation.curate import (
    CurationCounts,
    curate_queued,
    curate_revision,
    curation_works,
)
from medlive.service.wiring import CURATION_ROLES, Pipeline
from medlive.service.work.jobs import defer_revisions, open_app
from medlive.service.work.taken import CURATE
from tests.support.scripted import (
    KIND,
    THREAD,
    OnePassage,
    Scripted,
    changed,
    curation_settings,
)

RUBRIC: dict[str, Any] = {
    "asked": [{"id": "q1", "text": "What could cause it?"}],
    "theme": "Response Depth",
    "specialty": "Family & General Practice",
    "facts": [
        {"id": "f1", "advice_id": "a1", "fact": "Lisinopril can cause a dry cough."},
        {"id": "f2", "advice_id": "a2", "fact": "Ask for losartan 50 mg."},
    ],
    "criteria": [
        {
            "fact_id": "f1",
            "criterion": "States that lisinopril can cause a dry cough.",
            "axis": "Accuracy",
            "points": 7,
            "asked": "q1",
        },
        {
            "fact_id": "f2",
            "criterion": "Recommends losartan 50 mg.",
            "axis": "Accuracy",
            "points": 7,
            "asked": "q1",
        },
        {
            "fact_id": "f1",
            "criterion": "Denies it.",
            "axis": "Accuracy",
            "points": -5,
            "likely": "Some answers do.",
        },
    ],
    "no_negative": "",
}
REVIEWED: dict[str, Any] = {
    "reader__rubric": {"problems": [], "life_critical": []},
    "reader__identifiers": {"found": []},
    "rubric__complete": {"points": []},
    "rubric__classify": KIND,
}
PIPELINE = digest_text("one")


class Indexed(OnePassage):
    """With an identity that a database takes."""

    identity = IndexIdentity(
        "bm25", digest_text("index"), {"demo": digest_text("corpus")}, 1
    )


class Gated(Scripted):
    """Waits before the rubric until it is let go."""

    def __init__(self, name: str, **tasks: Any) -> None:
        super().__init__(changed(rubric__write=RUBRIC, **REVIEWED, **tasks))
        self.name, self.reached, self.go = name, asyncio.Event(), asyncio.Event()

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity("openai", self.name, pinned=False)

    async def answer(self, request: Request) -> Reply:
        if request.task == "rubric.write":
            self.reached.set()
            await self.go.wait()
        return await super().answer(request)


def pipeline(database: Database, engine: Scripted) -> Pipeline:
    """The same pipeline by its digest, whoever answers."""
    respondent = ReplayEngine(engine, PostgresReplyStore(database))
    return Pipeline(
        database=database,
        settings=curation_settings(concurrency=2),
        key=b"key",
        respondents=dict.fromkeys(CURATION_ROLES, respondent),
        retriever=Indexed(),
        curation=CurationSettings(),
        digest=PIPELINE,
        scanner=PIPELINE,
        budget=Budget(),
    )


async def test_who_comes_second_leaves_no_case_behind(database: Database) -> None:
    async with database.begin() as session:
        await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
        revision = (await session.scalars(select(ThreadRevisionRow.id))).one()
    keeps = Gated("keeps")
    nonclinical = {
        "category": "nonclinical",
        "meaningful": False,
        "of_its_time": False,
        "reason": "no",
    }
    rejects = Gated("rejects", validator__query=nonclinical)
    second = asyncio.create_task(curate_revision(pipeline(database, keeps), revision))
    await keeps.reached.wait()
    first = await curate_revision(pipeline(database, rejects), revision)
    keeps.go.set()
    assert first.outcome is Outcome.REJECTED
    assert await second is None
    async with database.begin() as session:
        [decided] = await list_curations(session, revision)
        assert decided.outcome is Outcome.REJECTED
        assert await session.scalar(select(func.count()).select_from(CaseRow)) == 0


async def test_a_revision_that_is_superseded_makes_no_case(database: Database) -> None:
    posted = replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))
    await database.ask(threads.save_threads, [posted])
    async with database.begin() as session:
        revision = (await session.scalars(select(ThreadRevisionRow.id))).one()
    keeps, late = Gated("keeps"), Gated("late")
    under_way = asyncio.create_task(
        curate_revision(pipeline(database, keeps), revision)
    )
    await keeps.reached.wait()
    await database.ask(threads.save_threads, [replace(posted, title="Another title")])
    keeps.go.set()
    assert await under_way is None
    # One that waited for its next attempt meanwhile asks nobody.
    assert await curate_revision(pipeline(database, late), revision) is None
    assert late.requests == []
    async with database.begin() as session:
        assert await session.scalar(select(func.count()).select_from(CaseRow)) == 0


async def test_a_parameter_that_a_model_does_not_take_leaves_the_queue_for_another_configuration(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    async with database.begin() as session:
        await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
        revision = (await session.scalars(select(ThreadRevisionRow.id))).one()
    refusing = Gated(
        "refuses", screener__extract=ConfigError("no temperature", hint="Take it out.")
    )
    found = replace(
        pipeline(database, refusing), settings=curation_settings(concurrency=1)
    )
    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_revisions(session, [revision, revision + 1])
        done = await curate_queued(found)
        # Both are given back, without an attempt, and nobody went on to the second.
        jobs = await app.job_manager.list_jobs_async()
    assert [(job.status, job.attempts) for job in jobs] == [("todo", 0)] * 2
    assert (done.left, done.faults, done.misconfigured) == (
        2,
        [],
        "no temperature (Take it out.)",
    )
    assert (len(refusing.requests), found.budget.stopped) == (1, None)
    async with database.begin() as session:
        assert await list_curations(session, revision) == []


async def test_who_is_broken_off_keeps_what_is_under_way_before_another_asks(
    database: Database,
) -> None:
    async with database.begin() as session:
        await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
        revision = (await session.scalars(select(ThreadRevisionRow.id))).one()
    keeps = Gated("keeps")
    job = asyncio.ensure_future(
        curation_works(pipeline(database, keeps), CurationCounts())[CURATE](revision)
    )
    await keeps.reached.wait()
    job.cancel()
    assert await asyncio.wait([job], timeout=0.2) == (set(), {job})
    keeps.go.set()
    with pytest.raises(asyncio.CancelledError):
        await job
    async with database.begin() as session:
        assert "rubric.write" in set(await session.scalars(select(ReplyRow.task)))


async def test_who_keeps_alone_leaves_a_case_also_where_the_clock_is_set_back(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter((datetime(2026, 1, 3, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)))
    monkeypatch.setattr("medlive.service.curation.curate.now", lambda: next(moments))
    async with database.begin() as session:
        await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
        revision = (await session.scalars(select(ThreadRevisionRow.id))).one()
    keeps = Gated("keeps")
    keeps.go.set()
    kept = await curate_revision(pipeline(database, keeps), revision)
    assert kept.outcome is Outcome.KEPT, kept.detail
    async with database.begin() as session:
        assert await session.scalar(select(func.count()).select_from(CaseRow)) == 1
