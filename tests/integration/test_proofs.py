"""Proofs in the database: stored with their decision, shown to who reviews, their figures with the case."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from medlive.cli.audit.thread import describe_thread
from medlive.cli.output import Result, show_result
from medlive.clock import now
from medlive.config import Settings
from medlive.curation.model import Outcome, Reason
from medlive.db.curation.cases import latest_case
from medlive.db.curation.proofs import load_proof, proofs_made
from medlive.db.session import Database, Session
from medlive.db.tables.release import ReviewAction
from medlive.db.threads import threads
from medlive.errors import ServiceUnavailable
from medlive.rubric.proof import Probe
from medlive.service.curation import curate
from medlive.service.curation.complete import prove_again
from medlive.service.curation.curate import curate_queued, curate_revision
from medlive.service.curation.editing import CaseEdit, edit_case, load_edit
from medlive.service.curation.inspect import inspect_case
from medlive.service.curation.review import decide_case
from medlive.service.harvest.takedown import take_down
from medlive.service.wiring import Pipeline
from medlive.service.work.jobs import defer_proof, defer_revisions, open_app
from medlive.service.work.taken import PROVE
from tests.support.prepared import Fill, Prepared
from tests.support.proving import (
    ASKS,
    DENIES,
    STATES,
    TRIVIAL,
    answer,
    rubric,
    ruled,
    script,
)
from tests.support.reviewing import pipeline
from tests.support.scripted import THREAD, curation_settings


def proving(database: Database, **tasks: Any) -> Pipeline:
    """A pipeline that proves rubrics; every role is one model."""
    replies = {name.replace(".", "__"): reply for name, reply in script().items()}
    made = pipeline(database, **{**replies, **tasks})
    respondent = made.respondents["rubric"]
    roles = {**made.respondents, "prober": respondent, "grader": respondent}
    return replace(made, respondents=roles)


async def curated(database: Database, **tasks: Any) -> tuple[Outcome, str, int]:
    """The outcome of the one thread, its case and its decision."""
    thread = replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))
    async with database.begin() as session:
        (saved,) = await threads.save_threads(session, [thread])
    done = await curate_revision(proving(database, **tasks), saved.revision_pk)
    assert done is not None
    async with database.begin() as session:
        case_id = await session.scalar(text("SELECT id FROM cases"))
        decision = await session.scalar(text("SELECT max(id) FROM curations"))
    return done.outcome, case_id, decision


Proved = tuple[Outcome, str, int]


@pytest.fixture
def states() -> Mapping[str, Fill]:
    """What these tests begin with."""
    return {"proved": curated}


@pytest.fixture
def proved(prepared: Prepared) -> Proved:
    """What `curated` has said of a thread whose rubric is proved."""
    made: Proved = prepared.made
    return made


async def figures_of(database: Database, case_id: str) -> tuple[float | None, ...]:
    async with database.begin() as session:
        case = await latest_case(session, case_id)
    assert case is not None
    rubric = case.rubric
    return rubric.ceiling, rubric.floor, rubric.separation, rubric.ordinary


async def test_a_proof_is_stored_whole_and_its_figures_stand_with_the_case(
    database: Database, proved: Proved, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, case_id, decision = proved
    assert outcome is Outcome.KEPT
    assert await figures_of(database, case_id) == (1.0, 0.0, 1.0, 0.5833)
    async with database.begin() as session:
        proof = await load_proof(session, decision)
        found = await inspect_case(session, case_id)
        made = await proofs_made(session, datetime(2020, 1, 1, tzinfo=UTC), now())
    assert proof is not None
    assert [probe.probe for probe in proof.probes] == list(Probe)
    wrong = proof.probes[-1]
    assert (wrong.answer, wrong.note) == (answer("wrong"), "It should stop.")
    met = [c.criterion for c in proof.criteria if wrong.verdicts[c.id].met]
    assert met == [DENIES[0]]
    assert wrong.verdicts[proof.criteria[-1].id].quote in wrong.answer
    assert (made["passed"], made["failed"], made["ceiling"]) == (1, 0, 1.0)
    assert (made["one_model"], made["ordinary"]) == (["m-1"], [0.5833])
    slip = proof.probes[list(Probe).index(Probe.SLIP)]
    assert slip.harm is not None
    assert slip.harm.worst is None
    assert json.dumps(found["proof"])
    show_result(Result(None, describe_thread(case_id, found)))
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"proof passed ┃ [^━]+[━╇]+ True │ 0 │", shown)
    figures = r"ceiling ┃ floor ┃ separation ┃ ordinary [━╇]+ 1.0 │ 0.0 │ 1.0 │"
    assert re.search(figures, shown)


async def test_an_unproven_rubric_waits_with_its_answers_beside_it(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, case_id, decision = await curated(
        database,
        rubric__write=rubric(STATES, TRIVIAL, DENIES),
        rubric__defend=ruled(needed=True),
    )
    assert outcome is Outcome.HELD
    async with database.begin() as session:
        found = await inspect_case(session, case_id)
        made = await proofs_made(session, datetime(2020, 1, 1, tzinfo=UTC), now())
    assert found["curation"]["reason"] is Reason.RUBRIC_UNPROVEN
    assert found["case"]["status"] == "held"
    assert found["proof"]["passed"] is False
    assert (made["passed"], made["failed"], made["ceiling"]) == (0, 1, None)
    show_result(Result(None, describe_thread(case_id, found)))
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"proof passed ┃ [^━]+[━╇]+ False │ 2 │", shown)
    assert "continue3" in shown  # a word of the wrong answer
    await decide_case(database, case_id, ReviewAction.APPROVE, "it is short")
    assert await figures_of(database, case_id) == (None, None, None, None)
    async with database.begin() as session:
        assert await load_proof(session, decision) is not None


async def test_figures_stay_with_the_rubric_that_they_are_of(
    database: Database,
    proved: Proved,
) -> None:
    _, case_id, _ = proved
    await edit_case(
        database, case_id, CaseEdit(specialty="Pulmonary & Critical Care"), "kind"
    )
    assert await figures_of(database, case_id) == (1.0, 0.0, 1.0, 0.5833)
    async with database.begin() as session:
        case = await latest_case(session, case_id)
    assert case is not None
    first, *others = CaseEdit.of(case).criteria or ()
    lighter = (first.model_copy(update={"points": 3}), *others)
    await edit_case(database, case_id, CaseEdit(criteria=lighter), "weight")
    assert await figures_of(database, case_id) == (None, None, None, None)


async def test_a_takedown_erases_the_answers(
    database: Database, proved: Proved, settings: Settings
) -> None:
    await take_down(database, settings, THREAD.source, THREAD.thread_id, "asked")
    async with database.begin() as session:
        for table in ("rubric_proofs", "rubric_probes"):
            assert await session.scalar(text(f"SELECT count(*) FROM {table}")) == 0


async def test_a_criterion_that_nobody_needs_is_not_in_the_case(
    database: Database,
) -> None:
    _, case_id, _ = await curated(
        database, rubric__write=rubric(STATES, ASKS, TRIVIAL, DENIES)
    )
    async with database.begin() as session:
        case = await latest_case(session, case_id)
    assert case is not None
    assert TRIVIAL[0] not in {c.criterion for c in case.rubric.criteria}


async def test_a_proof_without_usable_replies_keeps_no_thread_waiting(
    database: Database,
    proved: Proved,
) -> None:
    _, case_id, _ = proved
    case = await load_edit(database, case_id)
    assert case.criteria is not None
    first, *others = case.criteria
    lighter = (first.model_copy(update={"points": 9}), *others)
    await edit_case(database, case_id, CaseEdit(criteria=lighter), "weight")
    other = replace(THREAD, thread_id="2", posted_at=datetime(2026, 1, 1, tzinfo=UTC))
    async with database.begin() as session:
        (saved,) = await threads.save_threads(session, [other])
    unusable = proving(database, name="m-2", rubric__probe="rubbish")
    one = replace(unusable, settings=curation_settings(concurrency=1))
    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_proof(session, case_id, 2)
            await defer_revisions(session, [saved.revision_pk])
        done = await curate_queued(one)
        jobs = await app.job_manager.list_jobs_async()
    assert (done.left, done.outcomes.total()) == (0, 1)
    assert [(job.task_name, job.status) for job in jobs] == [(PROVE, "failed")]


async def test_what_keeps_a_proof_from_being_made_is_said_by_the_run(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> None:
        raise ServiceUnavailable("nobody is there")

    monkeypatch.setattr(curate, "prove_again", away)
    made = proving(database)
    async with database.begin() as session:
        await defer_proof(session, "ml-0000000000000000", 1)
    done = await curate_queued(made)
    assert (done.left, done.stopped) == (1, "nobody is there")


async def test_a_takedown_reaches_what_a_later_proof_was_asked_and_answered(
    database: Database, proved: Proved, settings: Settings
) -> None:
    _, case_id, _ = proved
    words = "A man with a dry cough of four long weeks, on lisinopril since May."
    await edit_case(database, case_id, CaseEdit(narrative=words), "His own words.")
    await prove_again(proving(database), case_id, 2)
    holding = "SELECT count(*) FROM replies WHERE position(:words in CAST(inputs AS text)) > 0"

    async def count() -> int:
        return int(await database.ask(Session.value, holding, words=words))

    assert await count() > 0
    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            revision = await session.scalar(text("SELECT id FROM thread_revisions"))
            # One of another case: its revision is not one of the thread.
            await defer_proof(session, "ml-0000000000000000", revision)
            await defer_proof(session, case_id, 2)
        await take_down(database, settings, "test", "1", "She asked for it.")
        [left] = await app.job_manager.list_jobs_async()
    assert await count() == 0
    assert left.task_kwargs["case_id"] == "ml-0000000000000000"
