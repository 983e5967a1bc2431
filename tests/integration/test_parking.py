"""Parked threads: searched again in each library once, rejected in the end, and shown with what is missing."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from medlive.clock import now
from medlive.config import Settings
from medlive.curation.model import Outcome, Reason
from medlive.db.curation.curations import (
    latest_curation,
    load_curation,
    save_curation,
)
from medlive.db.curation.parking import list_due, list_parked
from medlive.db.jobs import find_lost
from medlive.db.release.weeks import note_queued, week_standing
from medlive.db.session import Database
from medlive.db.tables.accounts import Role
from medlive.db.tables.release import ReviewAction
from medlive.db.threads import threads
from medlive.evidence.passage import IndexIdentity
from medlive.integrity.digest import digest_text
from medlive.service.curation.curate import (
    curate_queued,
    curate_revision,
    queue_again,
)
from medlive.service.curation.parking import reject_expired
from medlive.service.curation.review import decide_case
from medlive.service.wiring import Pipeline
from medlive.web.site import Site
from tests.integration.test_curating_twice import Indexed
from tests.support.instance import Instance
from tests.support.prepared import Fill, Prepared
from tests.support.reviewing import HARMFUL, pipeline
from tests.support.scripted import THREAD, judged, second_look
from tests.support.web import Browser, add_account, served, session_of

WEEK = "2026.W03"
SUPPORTED = judged("supported", "lisinopril often cause a dry cough")


def off_subject(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing found is on the subject of any claim."""
    reply = judged("neutral")(inputs)
    for item in reply["verdicts"]:
        item |= {"on_subject": False, "nearest": "p1"}
    return reply


class Grown(Indexed):
    """Another library."""

    def __init__(self, name: str) -> None:
        digest = digest_text(name)
        self.identity = IndexIdentity("bm25", digest, {"demo": digest}, 2)


def library(
    database: Database, name: str = "first", alignment: Any = off_subject
) -> Pipeline:
    """The pipeline of a library: engines and prompts are the same in all."""
    engines = pipeline(
        database,
        validator__alignment=alignment,
        reader__case={**HARMFUL, "wrong": []},
    )
    return replace(
        engines,
        retriever=Grown(name),
        digest=digest_text(f"pipeline over {name}"),
    )


async def park(database: Database) -> int:
    """Make a thread that is parked; its revision."""
    async with database.begin() as session:
        saved = await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
        await note_queued(session, [saved[0].revision_pk], WEEK)
    curated = await curate_revision(library(database), saved[0].revision_pk)
    assert curated is not None
    assert (curated.outcome, curated.reason) == (Outcome.PARKED, Reason.NO_EVIDENCE)
    return saved[0].revision_pk


@pytest.fixture
def states() -> Mapping[str, Fill]:
    """What these tests begin with."""
    return {"parked": park}


@pytest.fixture
def parked(prepared: Prepared) -> int:
    """The revision that `park` has made."""
    return int(prepared.made)


async def search_again(own: Pipeline) -> Counter[str]:
    """The outcomes of a run that looks for parked threads too."""
    await queue_again(own, digest_text("chain"), max_attempts=1)
    return (await curate_queued(own)).outcomes


async def paid(database: Database, outcome: Outcome) -> Counter[str]:
    """The tasks that the latest decision asked an engine for, if that is its outcome."""
    async with database.begin() as session:
        revision = (
            await session.scalars(text("SELECT revision_id FROM curations"))
        ).first()
        latest = await latest_curation(session, revision or 0)
        assert latest is not None
        assert latest.outcome is outcome
        decided = await load_curation(session, latest.id)
    return Counter(call.task for call in decided.calls if not call.replayed)


async def age(database: Database, revision: int, by: timedelta) -> None:
    """Store the parking decision a second time, as of so long ago."""
    async with database.begin() as session:
        latest = await latest_curation(session, revision)
        assert latest is not None
        decided = await load_curation(session, latest.id)
        at = now() - by
        await save_curation(
            session,
            revision,
            digest_text("long ago"),
            replace(decided, calls=()),
            started_at=at,
            finished_at=at,
        )


async def test_a_library_is_searched_once_and_nothing_else_is_paid_for_twice(
    database: Database, parked: int
) -> None:
    assert await search_again(library(database)) == {}
    async with database.begin() as session:
        assert await find_lost(session) == []

    # What was found is the same, so that even the verdicts are replayed.
    assert await search_again(library(database, "second")) == {"parked": 1}
    assert await paid(database, Outcome.PARKED) == {}
    assert await search_again(library(database, "second")) == {}
    # Other engines or prompts over a library that was searched are no reason.
    reworded = replace(library(database), digest=digest_text("new prompts"))
    assert await search_again(reworded) == {}
    async with database.begin() as session:
        [waiting] = await list_parked(session)
    assert (waiting.name, waiting.libraries) == ("test/1", 2)


async def test_a_better_library_makes_a_case(database: Database, parked: int) -> None:
    grown = library(database, "second", SUPPORTED)
    await forget_verdicts(database)
    assert await search_again(grown) == {"kept": 1}
    before_writing = {"screener", "validator"}
    tasks = await paid(database, Outcome.KEPT)
    earlier = {t for t in tasks if t.partition(".")[0] in before_writing}
    assert earlier == {"validator.alignment"}
    async with database.begin() as session:
        assert await list_parked(session) == []


async def forget_verdicts(database: Database) -> None:
    """As if other passages had been found: another request, which no stored reply answers."""
    async with database.begin() as session:
        await session.execute(text("ALTER TABLE replies DISABLE TRIGGER USER"))
        await session.execute(text("ALTER TABLE agent_calls DISABLE TRIGGER USER"))
        await session.execute(
            text("DELETE FROM agent_calls WHERE task = 'validator.alignment'")
        )
        await session.execute(
            text("DELETE FROM replies WHERE task = 'validator.alignment'")
        )
        await session.execute(text("ALTER TABLE replies ENABLE TRIGGER USER"))
        await session.execute(text("ALTER TABLE agent_calls ENABLE TRIGGER USER"))


async def test_a_search_that_fails_leaves_the_thread_parked_and_is_tried_again(
    database: Database, parked: int
) -> None:
    await forget_verdicts(database)
    broken = library(database, "second", "rubbish")
    assert await search_again(broken) == {"failed": 1}
    assert await search_again(broken) == {}  # It failed as often as it may
    async with database.begin() as session:
        [waiting] = await list_parked(session)
        due = await list_due(
            session, library=digest_text("third"), pipeline_digest=digest_text("x")
        )
    assert (waiting.revision_id, due) == (parked, [parked])


async def test_a_thread_parked_too_long_is_rejected_as_the_paper_would(
    database: Database, parked: int
) -> None:
    await age(database, parked, timedelta(weeks=8))
    assert await reject_expired(database, 9) == 0
    assert await reject_expired(database, 8) == 1
    assert await reject_expired(database, 8) == 0
    assert await paid(database, Outcome.REJECTED) == {}
    async with database.begin() as session:
        latest = await latest_curation(session, parked)
        standing = await week_standing(session, WEEK, failure_share=0.5)
    assert latest is not None
    assert latest.reason is Reason.NOT_ALIGNED
    assert "0 of 2 supported; parked for 8 weeks" in latest.detail
    assert (standing.decided, standing.waiting) == (1, 0)
    assert await search_again(library(database, "second")) == {}


async def test_a_parked_thread_is_settled_for_its_week_until_it_is_queued_again(
    database: Database, parked: int
) -> None:
    async with database.begin() as session:
        standing = await week_standing(session, WEEK, failure_share=0.5)
    assert (standing.queued, standing.decided, standing.whole) == (1, 1, True)
    own = library(database, "second")
    await queue_again(own, digest_text("chain"), max_attempts=1, week=WEEK)
    async with database.begin() as session:
        standing = await week_standing(session, WEEK, failure_share=0.5)
    assert (standing.waiting, standing.whole) == (1, False)


async def test_it_is_counted_listed_shown_and_overruled(
    database: Database, database_url: str, tmp_path: Path, parked: int
) -> None:
    instance = Instance(tmp_path, database_url)

    def look() -> None:
        status = instance.here("status", "--json", status=None).json
        assert ["validator", "parked", "no_evidence", 1] in status["funnel"]
        assert status["parked"]["threads"] == 1
        [row] = instance.here("thread", "list", "--outcome", "parked", "--json").json[
            "rows"
        ]
        assert (row["reason"], row["thread_id"]) == ("no_evidence", "1")
        shown = instance.here("thread", "show", "test/1", "--json").json
        assert shown["parked"]["libraries"] == 1
        assert [c["on_subject"] for c in shown["curation"]["claims"]] == [False] * 2
        gaps = instance.here("evidence", "gaps", "--json").json
        found = {(g["kind"], g["name"]): g for g in gaps}
        cough = found["disease", "cough"]
        assert cough["threads"] == ["test/1"]
        assert cough["searched"] == ["lisinopril cough"]
        assert cough["nearest"] == "demo:1:0"
        assert cough["nearest_title"] == "ACE inhibitor cough"
        assert "cough" in instance.here("evidence", "gaps").out
        why = ("test/1", "--reason", "Every textbook says so.")
        assert "no_evidence" in instance.here("review", "overrule", *why).out
        assert instance.here("evidence", "gaps", "--json").json == []

    await asyncio.to_thread(look)
    assert await search_again(library(database)) == {"kept": 1}


def refute(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The first claim is contradicted, the others are supported."""
    reply = SUPPORTED(inputs)
    reply["verdicts"][0] |= {"verdict": "contradicted", "reason": "It says else."}
    return reply


def doubt(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The second check confirms nothing."""
    ids = [claim["id"] for claim in inputs["claims"]]
    return {"verdicts": [second_look(i, reason="No, it does not.") for i in ids]}


async def test_a_disputed_case_is_held_and_shown_with_both_sentences(
    database: Database,
    web_database: Database,
    settings: Settings,
    database_url: str,
    tmp_path: Path,
) -> None:
    async with database.begin() as session:
        saved = await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
    own = pipeline(
        database,
        validator__alignment=refute,
        validator__veto=doubt,
        reader__case={**HARMFUL, "wrong": []},
    )
    curated = await curate_revision(own, saved[0].revision_pk)
    assert curated is not None
    assert (curated.outcome, curated.reason) == (Outcome.HELD, Reason.DISPUTED)
    both = ("lisinopril often cause a dry cough", "No, it does not.")
    instance = Instance(tmp_path, database_url)

    def review() -> str:
        listed = instance.here("review", "list", "--json")
        case_id = str(listed.json[0]["case_id"])
        shown = instance.here("review", "show", case_id).out
        flat = " ".join(shown.split())
        assert "disputed" in flat
        hold = instance.here("review", "show", case_id, "--json").json
        assert all(part in hold["curation"]["holds"][0]["detail"] for part in both)
        return case_id

    case_id = await asyncio.to_thread(review)
    site = Site(web_database, settings, tmp_path)
    async with served(site) as browser:
        account = await add_account(database, "ada", Role.ADMIN)
        browser.headers.update(await session_of(site, account))
        page = (await browser.get(f"/audit/cases/{case_id}")).text
    notice = page.partition('class="notice"')[2].partition("</div>")[0]
    assert "Held for <strong>disputed</strong> (a1)" in notice
    assert all(part in notice for part in both)
    await decide_case(database, case_id, ReviewAction.APPROVE, "The passage is old.")


async def test_the_audit_room_shows_what_is_missing(
    database: Database,
    web_database: Database,
    settings: Settings,
    tmp_path: Path,
    parked: int,
) -> None:
    site = Site(web_database, settings, tmp_path)
    async with served(site) as browser:
        account = await add_account(database, "ada", Role.ADMIN)
        browser.headers.update(await session_of(site, account))
        await look_around(browser)


async def look_around(browser: Browser) -> None:
    gaps = (await browser.get("/audit/gaps")).text
    assert "lisinopril cough" in gaps
    assert "<strong>1</strong> thread is parked" in gaps
    listed = (await browser.get("/audit/threads?outcome=parked")).text
    assert "no evidence" in listed
    page = (await browser.get("/audit/threads/test/1")).text
    assert "Parked since" in page
    assert "No passage is on its subject" in page
    assert 'value="overrule"' in page
    claims = (await browser.get("/audit/claims?subject=not+found")).text
    assert "Ask for losartan 50 mg." in claims
    assert ">parked</th>" in (await browser.get("/audit")).text
