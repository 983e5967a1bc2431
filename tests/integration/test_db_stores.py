"""The stores: what goes in comes out, once, and what is settled cannot be changed."""

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.curation.model import (
    AdviceFault,
    Alignment,
    Answer,
    Call,
    CaseText,
    Check,
    Citation,
    ClaimVerdict,
    ControllerCheck,
    CrossExamination,
    CrossQuestion,
    Curation,
    Element,
    ElementStatus,
    ElyCategory,
    FaultyAdvice,
    Kind,
    Origin,
    Outcome,
    Reason,
    Requirement,
    SecondCheck,
    SecondReading,
    Side,
    Stage,
    Thresholds,
)
from medlive.db.curation import cases, curations, funnel
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.mapping import dump_json, from_stored, load_json, to_stored
from medlive.db.release import fixing, snapshots
from medlive.db.release.rows import read_snapshots
from medlive.db.session import Database
from medlive.db.tables.release import CaseRow, CaseStatus
from medlive.db.threads import bands, threads
from medlive.digest import digest_text
from medlive.errors import BadInput, DatabaseUnavailable, MedliveError, UsageError
from medlive.evidence.passage import Hit, IndexIdentity, Passage, SideHit
from medlive.evidence.passage import Side as EvidenceSide
from medlive.filters.chain import ChainResult
from medlive.filters.model import FilterReason, FilterVerdict
from medlive.llm.ask import CallOutcome
from medlive.llm.engine import EngineIdentity, Finish, Prompt, Reply, Request, Usage
from medlive.rubric.model import Axis, Criterion, Rubric, Theme
from medlive.snapshot.model import SnapshotCase
from medlive.threads.model import Message, Role, Thread

CHAIN = digest_text("chain")
PIPELINE = digest_text("pipeline")
OTHER_PIPELINE = digest_text("another pipeline")
GATES = digest_text("gates")
KEY = b"an instance's key"
START = datetime(2026, 3, 1, 8, tzinfo=UTC)


def thread(number: int = 1, body: str = "I cough", source: str = "forum") -> Thread:
    return Thread(
        source=source,
        thread_id=f"t{number}",
        url=f"https://forum.example/t{number}",
        title="A cough",
        language="en",
        tags=("lungs",),
        posted_at=START,
        messages=(
            Message("m0", "a1", Role.PATIENT, False, body, START, ("image",)),
            Message("m1", "b2", Role.PHYSICIAN, True, "Rest and drink.", verified_by="Attending Physician"),
        ),
    )


async def saved(database: Database, *some: Thread) -> list[threads.SavedThread]:
    async with database.begin() as session:
        return await threads.save_threads(session, some)


# --- threads ---------------------------------------------------------------------------------------------


async def test_a_thread_comes_back_as_it_went(database: Database) -> None:
    odd = "NUL \x00, lone \ud83d, mark \U0010fffd0000;, emoji 🤒, Arabic سعال, Chinese 咳嗽"
    given_thread = replace(thread(body=odd), title=odd, tags=(odd, ""), posted_at=None)
    [first] = await saved(database, given_thread)
    async with database.begin() as session:
        found = await threads.load_thread(session, first.revision_pk)
    assert found.thread == given_thread
    assert found.thread.digest == given_thread.digest
    assert (found.thread_pk, found.posted_at_assumed) == (first.thread_pk, False)


async def test_the_same_is_unchanged_an_edit_is_a_revision_and_going_back_is_no_third(
    database: Database,
) -> None:
    old, new = thread(body="I cough"), thread(body="I cough blood")
    [first] = await saved(database, old)
    assert first.status == "new"
    assert [s.status for s in await saved(database, old, new, old, new)] == [
        "unchanged", "revised", "unchanged", "unchanged",
    ]  # fmt: skip
    elsewhere = replace(old, posted_at=START.astimezone(timezone(timedelta(hours=8))))
    assert [s.revision_pk for s in await saved(database, elsewhere)] == [first.revision_pk]


async def test_what_was_fetched_is_the_latest_even_when_it_was_there_before(database: Database) -> None:
    old, new = thread(body="I cough"), thread(body="I cough blood")
    [first] = await saved(database, old)
    async with database.begin() as session:
        seen = await threads.save_threads(session, [old, new, new, old, old], fetch_ids=[None] * 5)
        latest = await threads.pending_revisions(session, chain_digest=CHAIN)
    assert [s.status for s in seen] == ["unchanged", "revised", "unchanged", "revised", "unchanged"]
    assert [w.revision_pk for w in latest] == [seen[3].revision_pk] == [seen[4].revision_pk]
    assert seen[0].revision_pk == first.revision_pk != seen[3].revision_pk
    async with database.begin() as session:
        assert (await threads.load_thread(session, seen[3].revision_pk)).thread == old
    [imported] = await saved(database, new)
    assert (imported.status, imported.revision_pk) == ("unchanged", seen[1].revision_pk)


async def test_processes_that_save_the_same_threads_at_once_double_none(database: Database) -> None:
    some = [thread(n) for n in range(40)]
    runs = await asyncio.gather(*(saved(database, *(some if i % 2 else some[::-1])) for i in range(8)))
    assert len({s.revision_pk for run in runs for s in run}) == 40
    assert sum(s.status == "new" for run in runs for s in run) == 40


@pytest.mark.parametrize(
    "wrong",
    [
        replace(thread(), thread_id=""),
        replace(thread(), thread_id="x" * 10_000),
        replace(thread(), source=""),
        replace(thread(), posted_at=datetime(2026, 1, 1)),  # noqa: DTZ001 - a date without a zone is the point
    ],
)
async def test_a_thread_without_an_identity_is_refused_by_name(database: Database, wrong: Thread) -> None:
    with pytest.raises(BadInput):
        await saved(database, wrong)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_survives_the_database(value: str) -> None:
    stored = to_stored(value)
    assert "\x00" not in stored
    stored.encode("utf-8")
    assert from_stored(stored) == value
    written = dump_json({"k": [value, {value: 1}]})
    assert "\x00" not in written.replace("\\\\u0000", "")
    assert load_json(written) == {"k": [value, {value: 1}]}


# --- filters and the funnel ------------------------------------------------------------------------------

PASSED = ChainResult((FilterVerdict("date", True), FilterVerdict("language", True)), None)
_LATE = FilterVerdict("date", False, FilterReason.POSTED_BEFORE, {"posted_at": "2019-01-01"})
REFUSED = ChainResult((_LATE, FilterVerdict("language", True)), _LATE)


async def test_a_chain_judges_each_latest_revision_once(database: Database) -> None:
    one, two = await saved(database, thread(1), thread(2))
    [edited] = await saved(database, thread(2, "I cough more"))
    async with database.begin() as session:
        waiting = await threads.pending_revisions(session, chain_digest=CHAIN)
        assert [w.revision_pk for w in waiting] == [one.revision_pk, edited.revision_pk]
        await funnel.save_chain_results(session, CHAIN, [(one.revision_pk, PASSED), (edited.revision_pk, REFUSED)])
        await funnel.save_chain_results(session, CHAIN, [(one.revision_pk, REFUSED)])
        assert await threads.pending_revisions(session, chain_digest=CHAIN) == []
        assert len(await threads.pending_revisions(session, chain_digest=digest_text("other"))) == 2
        assert await bands.find_candidates(session, CHAIN, [[7]]) == []
        await bands.save_bands(session, [(one.thread_pk, [7, 8]), (two.thread_pk, [7])])
        # The second's latest revision did not pass, nor did its first.
        passing = await bands.find_candidates(session, CHAIN, [[7], [9, 8], []])
        assert passing == [threads.PendingRevision(one.thread_pk, one.revision_pk)]
    assert two.thread_pk == edited.thread_pk


async def test_the_funnel_counts_each_thread_once(database: Database) -> None:
    found = await saved(database, *(thread(n) for n in range(6)))
    await saved(database, thread(0, "edited"))
    pks = [s.revision_pk for s in found]
    async with database.begin() as session:
        await keep_replies(database, KEPT)
        await funnel.save_chain_results(session, CHAIN, [(pks[1], REFUSED), *((pk, PASSED) for pk in pks[2:])])
        await decide(session, pks[3], FAILED)
        await decide(session, pks[3], REJECTED)
        await decide(session, pks[4], FAILED)
        await decide(session, pks[5], KEPT)
        rows = await funnel.funnel(session)
        failures = await funnel.recent_failures(session)
    assert [(r.stage, r.outcome, r.reason, r.count) for r in rows] == [
        ("filters", "pending", None, 1),
        ("filters", "rejected", "posted_before", 1),
        ("screener", "failed", "invalid_reply", 1),
        ("screener", "pending", None, 1),
        ("screener", "rejected", "no_query", 1),
        ("rubric", "kept", None, 1),
    ]
    assert [(f.thread_id, f.reason) for f in failures] == [("t4", "invalid_reply")]


# --- curations -------------------------------------------------------------------------------------------

PASSAGES = [
    Passage(f"c:{n}:s", "c", "Cough", "Care", "Rest helps.", "en", date(2020, 1, 1) if n else None, "", "CC0")
    for n in range(3)
]
"""Equal texts under different ids: neither may stand for the other."""
SIDES = (SideHit(EvidenceSide.LEXICAL, 1, 3.5), SideHit(EvidenceSide.DENSE, 2, 0.25))
PROMPT = Prompt("screener.extract", "Find the question.")
ENGINE = EngineIdentity("openai", "m-1", {"temperature": 0})


def request(number: int = 0) -> Request:
    return Request("screener.extract", PROMPT, {"title": f"no {number} \x00\ud800"}, {"type": "object"})


def call(outcome: CallOutcome = CallOutcome.OK, number: int = 0) -> Call:
    return Call(
        "screener.extract", PROMPT.digest, "openai", "m-1", request(number).digest(ENGINE), 1, outcome, "", False
    )


def engines(*models: str) -> dict[str, Any]:
    return {m: {"engine": "openai", "model": m, "parameters": {"temperature": 0.0}} for m in models}


KEPT = Curation(
    outcome=Outcome.KEPT,
    stage=Stage.RUBRIC,
    reason=None,
    detail="",
    thresholds=Thresholds(0.5, 0.5),
    elements=(
        Element("n1", Side.NARRATIVE, Kind.SUBJECTIVE, "m0", "I cough", "The patient coughs."),
        Element("q", Side.QUERY, Kind.QUESTION, "title", "A cough", "What helps?"),
        Element("a1", Side.ADVICE, Kind.PLAN, "m1", "Rest", "Rest."),
        Element("a2", Side.ADVICE, Kind.PLAN, "m1", "drink", "Drink."),
        Element("n2", Side.NARRATIVE, Kind.OBJECTIVE, "m0", "I cough", "A fever.", ElementStatus.DROPPED),
    ),
    query_category=ElyCategory.TREATMENT,
    s_cc=1,
    s_inf=2 / 3,
    s_align=0.75,
    requirements=(
        Requirement("the symptom", True, ("n1",)),
        Requirement("the age", False, (), prudent=True),
    ),
    claims=(
        ClaimVerdict(
            "a1", "Rest helps against a cough.", ("rest cough", "cough treatment"), Alignment.SUPPORTED,
            (
                Hit(PASSAGES[2], 7.5, 1, SIDES),
                Hit(PASSAGES[0], 1 / 3, 2), Hit(PASSAGES[1], 0.1, 3),
            ),
            (Citation("c:1:s", "Rest helps."), Citation("c:2:s", "It does.")), "says so",
        ),
        ClaimVerdict(
            "a2", "Drink.", ("fluids cough", "hydration"), Alignment.NEUTRAL, (Hit(PASSAGES[0], 1.0, 1),),
            (Citation("c:0:s", "Never drink."),), "against",
            SecondCheck(False, (Citation("c:0:s", "At night."),), "not for this patient"), "a number is lost",
        ),
    ),
    cross_examination=CrossExamination(
        (
            CrossQuestion(Origin.THREAD, "Does the patient cough?", Answer.YES, Answer.YES),
            CrossQuestion(Origin.CASE, "Should the patient rest?", Answer.UNKNOWN, Answer.NO),
        ),
        100.0, 100.0, 100.0, 100.0, -25.5, 75.0, 50.0,
    ),
    index=IndexIdentity("hybrid", "sha256:1", {"c": "sha256:2"}, 3, {"encoder": "e", "recall": {"k": 32}}),
    checks=(ControllerCheck(Check.QUOTE_IN_MESSAGE, "n1", True, "found", 1),),
    text=CaseText("A patient coughs.", "What helps?", "Rest and drink."),
    second_reading=SecondReading(
        True, True, True, True, True, (FaultyAdvice("a2", AdviceFault.MINOR, "how much?"),), "", "sound",
        {"engine": "openai", "model": "reader", "parameters": {}},
    ),
    calls=(call(), call(CallOutcome.UNAVAILABLE, 99)),
    engines=engines("screener", "validator"),
)  # fmt: skip
FAILED = Curation(Outcome.FAILED, Stage.SCREENER, Reason.INVALID_REPLY, "it is no JSON", Thresholds())
REJECTED = Curation(Outcome.REJECTED, Stage.SCREENER, Reason.NO_QUERY, "nothing is asked", Thresholds())


async def decide(session: AsyncSession, revision_pk: int, curation: Curation) -> int:
    return await curations.save_curation(
        session, revision_pk, PIPELINE, curation, started_at=START, finished_at=START + timedelta(seconds=1)
    )


async def keep_replies(database: Database, curation: Curation) -> None:
    store = PostgresReplyStore(database)
    for c in curation.calls:
        if c.outcome not in (CallOutcome.UNAVAILABLE, CallOutcome.OVER_BUDGET):
            await store.keep(c.request_digest, request(), ENGINE, Reply("{}", Finish.STOP, Usage(), "m-1"))


@pytest.mark.parametrize("curation", [KEPT, FAILED, REJECTED], ids=lambda c: c.outcome.value)
async def test_a_decision_comes_back_as_it_went(database: Database, curation: Curation) -> None:
    [one] = await saved(database, thread())
    await keep_replies(database, curation)
    async with database.begin() as session:
        number = await decide(session, one.revision_pk, curation)
    async with database.begin() as session:
        assert await curations.load_curation(session, number) == curation
        assert await curations.latest_outcome(session, one.revision_pk, PIPELINE) is curation.outcome


async def test_failures_are_tried_again_and_a_decision_stands(database: Database) -> None:
    [one] = await saved(database, thread())
    await keep_replies(database, KEPT)
    async with database.begin() as session:
        await funnel.save_chain_results(session, CHAIN, [(one.revision_pk, PASSED)])
        assert await curations.untried_revisions(session, CHAIN, PIPELINE) == [one.revision_pk]
        await decide(session, one.revision_pk, FAILED)
        assert await curations.untried_revisions(session, CHAIN, PIPELINE) == []
        assert await curations.failed_revisions(session, PIPELINE) == [one.revision_pk]
        assert await curations.failed_revisions(session, PIPELINE, max_attempts=1) == []
        # Another pipeline has tried nothing yet, so that it takes over what this one failed at.
        assert await curations.failed_revisions(session, OTHER_PIPELINE, max_attempts=1) == [one.revision_pk]

    async def late() -> int:
        async with database.begin() as session:
            return await decide(session, one.revision_pk, KEPT)

    assert len(set(await asyncio.gather(*(late() for _ in range(6))))) == 1
    async with database.begin() as session:
        assert await curations.failed_revisions(session, PIPELINE) == []
        query = text("SELECT array_agg(attempt ORDER BY attempt) FROM curations")
        assert await session.scalar(query) == [1, 2]


IMPOSSIBLE = [
    replace(KEPT, reason=Reason.NO_QUERY),
    replace(KEPT, s_cc=0),
    replace(KEPT, s_inf=0.5),
    replace(KEPT, s_align=None),
    replace(KEPT, text=None),
    replace(KEPT, index=None),
    replace(KEPT, stage=Stage.VALIDATOR),
    replace(REJECTED, reason=None),
    replace(REJECTED, reason=Reason.ENDPOINT_UNAVAILABLE),
    replace(FAILED, reason=Reason.NO_ADVICE),
    replace(KEPT, requirements=(Requirement("age", True, ()),)),
    replace(KEPT, claims=(replace(KEPT.claims[0], citations=()),)),
    replace(KEPT, claims=(replace(KEPT.claims[0], citations=(Citation("c:1:s", ""),)),)),
    replace(KEPT, claims=(replace(KEPT.claims[0], second=SecondCheck(True, (), "")),)),
    replace(KEPT, claims=(replace(KEPT.claims[0], queries=()),)),
    replace(KEPT, outcome=Outcome.HELD),
    replace(KEPT, reason=Reason.ADVICE_WRONG),
    replace(KEPT, claims=(replace(KEPT.claims[0], element_id="a9"),)),
]


async def test_impossible_decisions_are_refused(database: Database) -> None:
    [one] = await saved(database, thread())
    await keep_replies(database, KEPT)

    async def attempt(curation: Curation) -> None:
        async with database.begin() as session:
            await decide(session, one.revision_pk, curation)

    for impossible in IMPOSSIBLE:
        with pytest.raises(IntegrityError):
            await attempt(impossible)
    await attempt(KEPT)


async def test_a_decision_must_rest_on_what_is_stored(database: Database) -> None:
    [one] = await saved(database, thread())
    with pytest.raises(IntegrityError, match="reply_digest"):
        async with database.begin() as session:
            await decide(session, one.revision_pk, KEPT)
    await keep_replies(database, KEPT)
    invented = replace(KEPT, claims=(replace(KEPT.claims[0], citations=(Citation("c:7:s", "x"),)),))
    with pytest.raises(MedliveError, match="c:7:s"):
        async with database.begin() as session:
            await decide(session, one.revision_pk, invented)


# --- replies ---------------------------------------------------------------------------------------------


async def test_replies_are_kept_once(database: Database) -> None:
    store = PostgresReplyStore(database)
    usage = Usage(10, 4, 3, 0.0001, 12.5)
    replies = {
        request(n).digest(ENGINE): (request(n), Reply(f"{n} \x00\ud800", Finish.STOP, usage, "m-1-of-today"))
        for n in range(100)
    }
    assert await store.find(next(iter(replies))) is None
    await asyncio.gather(
        *(store.keep(digest, r, ENGINE, reply) for _ in range(3) for digest, (r, reply) in replies.items())
    )
    async with database.begin() as session:
        assert await session.scalar(text("SELECT count(*) FROM replies")) == 100
        assert await session.scalar(text("SELECT count(*) FROM prompts")) == 1
    other = PostgresReplyStore(database)
    found = await asyncio.gather(*(other.find(digest) for digest in replies))
    assert found == [reply for _, reply in replies.values()]
    await store.keep(next(iter(replies)), request(0), ENGINE, Reply("else", Finish.STOP, usage, "m"))
    assert await other.find(next(iter(replies))) == found[0]


async def test_one_reply_that_cannot_be_kept_fails_alone(database: Database) -> None:
    store = PostgresReplyStore(database)
    fine = Reply("{}", Finish.STOP, Usage(), "m-1")
    wrong = Reply("{}", Finish.STOP, Usage(input_tokens=-1), "m-1")
    done = await asyncio.gather(
        *(store.keep(request(n).digest(ENGINE), request(n), ENGINE, wrong if n == 3 else fine) for n in range(8)),
        return_exceptions=True,
    )
    assert [n for n, result in enumerate(done) if result is not None] == [3]
    async with database.begin() as session:
        assert await session.scalar(text("SELECT count(*) FROM replies")) == 7


async def test_a_store_without_a_database_says_so() -> None:
    database = Database.connect("postgresql://nobody@127.0.0.1:1/nothing")
    store = PostgresReplyStore(database)
    found = await asyncio.gather(*(store.find(digest_text(str(n))) for n in range(3)), return_exceptions=True)
    assert all(isinstance(f, DatabaseUnavailable) for f in found)
    await database.aclose()


# --- cases and snapshots ---------------------------------------------------------------------------------

RUBRIC = Rubric(
    Theme.RESPONSE_DEPTH,
    "Pulmonary & Critical Care",
    (
        Criterion("c1", 1, "Advises rest.", Axis.ACCURACY, 5, "a1"),
        Criterion("c2", 2, "Advises smoking.", Axis.SAFETY, -10, "a2"),
    ),
)


async def make_case(
    database: Database,
    number: int = 1,
    *,
    rubric: Rubric = RUBRIC,
    body: str = "I cough",
    held: str | None = None,
    **more: Any,
) -> cases.SavedCase:
    [one] = await saved(database, thread(number, body))
    await keep_replies(database, KEPT)
    async with database.begin() as session:
        curation_id = await decide(session, one.revision_pk, KEPT)
        arguments: dict[str, Any] = {"publishable": True, "text": KEPT.text, **more}
        content = cases.CaseContent(
            curation_id=curation_id, language="en", source="forum", posted_at=START, rubric=rubric, **arguments
        )
        return await cases.save_case(session, content, thread_pk=one.thread_pk, key=KEY, held=held)


async def frozen(database: Database, version: str) -> snapshots.SnapshotInfo:
    async with database.begin() as session:
        await fixing.save_verdicts(session, GATES, [(i, n, []) for i, n in await pending(session)])
    async with database.begin() as session:
        info = await snapshots.begin_snapshot(session, version)
        assert await fixing.judge(session, version, info.parent, GATES, publishable_only=False) == 0
        await fixing.add_members(session, version, due=[], held_out=[])
        numbers = await snapshots.count_members(session, version)
        return await snapshots.freeze_snapshot(
            session,
            version,
            manifest={"counts": {"cases": numbers.cases, "criteria": numbers.criteria}},
            manifest_digest=digest_text(version),
            sums_digest=digest_text(version + " sums"),
            signature=None,
            path="somewhere",
            publishable=True,
            why_not=[],
        )


async def pending(session: AsyncSession) -> list[tuple[str, int]]:
    parent = await snapshots.latest_frozen(session)
    return await fixing.unchecked(session, parent.version if parent else None, GATES, after="", most=99)


def members(database: Database, version: str) -> list[SnapshotCase]:
    with read_snapshots(database.engine.url) as reader:
        return list(reader.cases(version))


async def test_a_case_has_one_stable_id_and_a_revision_for_each_wording(database: Database) -> None:
    first = await make_case(database)
    assert (first.revision, first.status) == (1, "new")
    assert first.case_id == cases.case_id_of("forum", "t1", KEY)
    assert first.case_id != cases.case_id_of("forum", "t1", b"another key")
    assert (await make_case(database)).status == "unchanged"
    heavier = replace(RUBRIC, criteria=(replace(RUBRIC.criteria[0], points=6), RUBRIC.criteria[1]))
    again = await make_case(database, rubric=heavier)
    assert (again.case_id, again.revision, again.status) == (first.case_id, 2, "revised")
    async with database.begin() as session:
        ready = await cases.latest_case(session, first.case_id)
    assert ready is not None
    assert (ready.revision, ready.rubric, ready.text) == (2, heavier, KEPT.text)


async def test_held_and_withdrawn_cases_are_not_ready(database: Database) -> None:
    held = await make_case(database, 1, held="two facts in one criterion")
    gone = await make_case(database, 2)
    await make_case(database, 3)
    async with database.begin() as session:
        await cases.set_status(session, gone.case_id, CaseStatus.WITHDRAWN, "retracted")
        with pytest.raises(UsageError):
            await cases.lock_case(session, "ml-000000000000")
    assert (await make_case(database, 2)).status == "unchanged"
    async with database.begin() as session:
        rows = {row.id: row.status_reason for row in await session.scalars(select(CaseRow))}
    ready = cases.case_id_of("forum", "t3", KEY)
    assert rows == {held.case_id: "two facts in one criterion", gone.case_id: "retracted", ready: None}


async def test_snapshots_hold_their_rows_and_know_first_releases(database: Database) -> None:
    one = await make_case(database, 1)
    info = await frozen(database, "2026.W10")
    assert (info.cases, info.criteria, info.parent, info.publishable) == (1, 2, None, True)
    two = await make_case(database, 2)
    assert (await frozen(database, "2026.W11")).parent == "2026.W10"
    async with database.begin() as session:
        rows = members(database, "2026.W11")
        assert {c.case_id: c.first_release for c in rows} == {
            one.case_id: "2026.W10",
            two.case_id: "2026.W11",
        }
        assert [c.points for c in rows[0].criteria] == [5, -10]
        assert len({c.criterion_id for case in rows for c in case.criteria}) == 4
        assert rows == members(database, "2026.W11")
        provenance = await snapshots.load_provenance(session, "2026.W11", code_version="1")
        assert provenance.prompts == {"screener.extract": PROMPT.digest}
        assert [e.role for e in provenance.engines] == ["screener", "validator"]
        assert provenance.thresholds == {"sufficiency": 0.5, "alignment": 0.5}
        assert [s.version for s in await snapshots.list_snapshots(session)] == ["2026.W11", "2026.W10"]
    for version in ("2026.W11", "2026.W09"):
        with pytest.raises(UsageError):
            async with database.begin() as session:
                await snapshots.begin_snapshot(session, version)


async def test_counts_that_are_not_the_members_freeze_nothing(database: Database) -> None:
    await make_case(database)
    async with database.begin() as session:
        await snapshots.begin_snapshot(session, "2026.W10")
        with pytest.raises(snapshots.MembersGone):
            await snapshots.freeze_snapshot(
                session,
                "2026.W10",
                manifest={"counts": {"cases": 1, "criteria": 2}},
                manifest_digest=digest_text(""),
                sums_digest=digest_text(""),
                signature=None,
                path="p",
                publishable=True,
                why_not=[],
            )


REFUSED_CHANGES = [
    "UPDATE snapshots SET path = 'elsewhere'",
    "UPDATE snapshots SET state = 'building', frozen_at = NULL",
    "DELETE FROM snapshots",
    "TRUNCATE snapshots CASCADE",
    "TRUNCATE snapshot_members",
    "DELETE FROM snapshot_members",
    "UPDATE snapshot_members SET revision = 1",
    "UPDATE snapshot_members SET salt = repeat('0', 64)",
    "UPDATE snapshots SET sums_digest = manifest_digest",
    "INSERT INTO snapshot_changes VALUES ('2026.W10', 'x', 'added', 'x', NULL, 1)",
    "INSERT INTO snapshot_kept_out VALUES ('2026.W10', 'x', 1, 'text', 'x')",
    "TRUNCATE snapshot_changes",
    "UPDATE snapshot_members SET version = '2026.W12'",
    "INSERT INTO snapshot_members SELECT '2026.W10', case_id, revision, '2026.W10' FROM case_revisions"
    " WHERE case_id NOT IN (SELECT case_id FROM snapshot_members)",
    "UPDATE case_revisions SET query = 'else'",
    "DELETE FROM criteria",
    "UPDATE criteria SET points = 1",
    "UPDATE thread_revisions SET title = 'else'",
    "DELETE FROM thread_revisions",
    "UPDATE replies SET text = 'else'",
    "DELETE FROM replies",
    "UPDATE prompts SET text = 'else'",
    "UPDATE curations SET outcome = 'rejected', reason = 'no_query'",
    "UPDATE elements SET quote = 'else'",
    "UPDATE claim_verdicts SET reason = 'else'",
    "DELETE FROM claim_evidence",
    "UPDATE cross_examinations SET summary = 100",
    "DELETE FROM cross_questions",
    "UPDATE passages SET text = 'else'",
    "TRUNCATE replies CASCADE",
]


async def test_what_is_settled_cannot_be_changed(database: Database) -> None:
    await make_case(database)
    await frozen(database, "2026.W10")
    await make_case(database, 2)
    async with database.begin() as session:
        await snapshots.begin_snapshot(session, "2026.W12")

    async def attempt(change: str) -> None:
        async with database.begin() as session:
            await session.execute(text(change))

    for change in REFUSED_CHANGES:
        with pytest.raises(DBAPIError, match="refused"):
            await attempt(change)
    assert len(members(database, "2026.W10")) == 1


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(points=st.integers(-12, 12))
async def test_points_are_bounded_and_never_zero(database: Database, points: int) -> None:
    rubric = replace(RUBRIC, criteria=(replace(RUBRIC.criteria[0], points=points),))
    if points and abs(points) <= 10:
        await make_case(database, rubric=rubric)
    else:
        with pytest.raises(IntegrityError):
            await make_case(database, rubric=rubric)
