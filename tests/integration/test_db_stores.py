"""Threads, filter results, decisions and replies: what goes in comes out, once."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.types.json import Json
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from medlive.curation.model import (
    Citation,
    Curation,
    Outcome,
    Reason,
    Requirement,
    SecondCheck,
)
from medlive.db.adapters import dump_json, from_stored, load_json, to_stored
from medlive.db.audit.health import failed_threads
from medlive.db.curation import curations, funnel
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.session import Database
from medlive.db.threads import bands, threads
from medlive.errors import BadInput, DatabaseUnavailable, MedliveError
from medlive.filters.model import FilterVerdict
from medlive.integrity.digest import digest_text
from medlive.llm.engine import Finish, Reply, Usage
from medlive.threads.model import Thread
from tests.support.decisions import (
    DISPUTED,
    ENGINE,
    FAILED,
    KEPT,
    PARKED,
    PIPELINE,
    REJECTED,
    START,
    decide,
    keep_replies,
    request,
    saved,
    thread,
)

CHAIN = digest_text("chain")
OTHER_PIPELINE = digest_text("another pipeline")


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
        "unchanged",
        "revised",
        "unchanged",
        "unchanged",
    ]
    elsewhere = replace(old, posted_at=START.astimezone(timezone(timedelta(hours=8))))
    assert [s.revision_pk for s in await saved(database, elsewhere)] == [
        first.revision_pk
    ]


async def test_what_was_fetched_is_the_latest_even_when_it_was_there_before(
    database: Database,
) -> None:
    old, new = thread(body="I cough"), thread(body="I cough blood")
    [first] = await saved(database, old)
    async with database.begin() as session:
        seen = await threads.save_threads(
            session, [old, new, new, old, old], fetch_ids=[None] * 5
        )
        latest = await threads.pending_revisions(session, chain_digest=CHAIN)
    assert [s.status for s in seen] == [
        "unchanged",
        "revised",
        "unchanged",
        "revised",
        "unchanged",
    ]
    assert (
        [w.revision_pk for w in latest]
        == [seen[3].revision_pk]
        == [seen[4].revision_pk]
    )
    assert seen[0].revision_pk == first.revision_pk != seen[3].revision_pk
    async with database.begin() as session:
        assert (await threads.load_thread(session, seen[3].revision_pk)).thread == old
    [imported] = await saved(database, new)
    assert (imported.status, imported.revision_pk) == ("unchanged", seen[1].revision_pk)


async def test_processes_that_save_the_same_threads_at_once_double_none(
    database: Database,
) -> None:
    some = [thread(n) for n in range(40)]
    runs = await asyncio.gather(
        *(saved(database, *(some if i % 2 else some[::-1])) for i in range(8))
    )
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
async def test_a_thread_without_an_identity_is_refused_by_name(
    database: Database, wrong: Thread
) -> None:
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


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", "\U0010fffd0000;"])
async def test_every_way_of_asking_gives_text_as_it_came(
    database: Database, value: str
) -> None:
    query = """
        SELECT CAST(:value AS text) AS plain, ARRAY[CAST(:value AS text)] AS listed, CAST(:json AS jsonb) AS json
    """
    given = {"value": value, "json": Json({"k": [value]})}
    async with database.read() as session:
        [row] = await session.run(query, **given)
        [record] = await session.records(query, **given)
        json = await session.value("SELECT CAST(:json AS jsonb)", **given)
        [text] = await session.column("SELECT CAST(:value AS text)", **given)
    expected = (value, [value], {"k": [value]})
    assert tuple(row) == tuple(vars(record).values()) == expected
    assert (text, json) == (value, {"k": [value]})


# --- filters and the funnel ------------------------------------------------------------------------------

PASSED = (FilterVerdict("date", True), FilterVerdict("language", True))
_LATE = FilterVerdict("date", False, "posted_before", {"posted_at": "2019-01-01"})
REFUSED = (_LATE, FilterVerdict("language", True))


async def test_a_chain_judges_each_latest_revision_once(database: Database) -> None:
    one, two = await saved(database, thread(1), thread(2))
    [edited] = await saved(database, thread(2, "I cough more"))
    async with database.begin() as session:
        waiting = await threads.pending_revisions(session, chain_digest=CHAIN)
        assert [w.revision_pk for w in waiting] == [one.revision_pk, edited.revision_pk]
        await funnel.save_chain_results(
            session, CHAIN, [(one.revision_pk, PASSED), (edited.revision_pk, REFUSED)]
        )
        await funnel.save_chain_results(session, CHAIN, [(one.revision_pk, REFUSED)])
        assert await threads.pending_revisions(session, chain_digest=CHAIN) == []
        assert (
            len(
                await threads.pending_revisions(
                    session, chain_digest=digest_text("other")
                )
            )
            == 2
        )
        assert await bands.find_candidates(session, CHAIN, [[7]]) == []
        await bands.save_bands(session, [(one.thread_pk, [7, 8]), (two.thread_pk, [7])])
        # The second's latest revision did not pass, nor did its first.
        passing = await bands.find_candidates(session, CHAIN, [[7], [9, 8], []])
        assert [(p.thread_pk, p.revision_pk) for p in passing] == [
            (one.thread_pk, one.revision_pk)
        ]
    assert two.thread_pk == edited.thread_pk


async def test_the_funnel_counts_each_thread_once(database: Database) -> None:
    found = await saved(database, *(thread(n) for n in range(6)))
    await saved(database, thread(0, "edited"))
    pks = [s.revision_pk for s in found]
    async with database.begin() as session:
        await keep_replies(database, KEPT)
        await funnel.save_chain_results(
            session, CHAIN, [(pks[1], REFUSED), *((pk, PASSED) for pk in pks[2:])]
        )
        await decide(session, pks[3], FAILED)
        await decide(session, pks[3], REJECTED)
        await decide(session, pks[4], FAILED)
        await decide(session, pks[5], KEPT)
        rows = await funnel.funnel(session)
        failures = await failed_threads(session)
    assert rows == [
        ("filters", "pending", None, 1),
        ("filters", "rejected", "posted_before", 1),
        ("screener", "failed", "invalid_reply", 1),
        ("screener", "pending", None, 1),
        ("screener", "rejected", "no_query", 1),
        ("rubric", "kept", None, 1),
    ]
    assert [(f.thread_id, f.reason) for f in failures] == [("t4", "invalid_reply")]


# --- curations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "curation",
    [KEPT, FAILED, REJECTED, PARKED, DISPUTED],
    ids=lambda c: c.outcome.value,
)
async def test_a_decision_comes_back_as_it_went(
    database: Database, curation: Curation
) -> None:
    [one] = await saved(database, thread())
    await keep_replies(database, curation)
    async with database.begin() as session:
        number = await decide(session, one.revision_pk, curation)
    async with database.begin() as session:
        assert await curations.load_curation(session, number) == curation
        [decided] = await curations.list_curations(session, one.revision_pk)
        assert decided.outcome is curation.outcome


async def test_failures_are_tried_again_and_a_decision_stands(
    database: Database,
) -> None:
    [one] = await saved(database, thread())
    await keep_replies(database, KEPT)
    async with database.begin() as session:
        await funnel.save_chain_results(session, CHAIN, [(one.revision_pk, PASSED)])
        assert await curations.untried_revisions(session, CHAIN, PIPELINE) == [
            one.revision_pk
        ]
        await decide(session, one.revision_pk, FAILED)
        assert await curations.untried_revisions(session, CHAIN, PIPELINE) == []
        assert await curations.failed_revisions(session, PIPELINE) == [one.revision_pk]
        assert await curations.failed_revisions(session, PIPELINE, max_attempts=1) == []
        # Another pipeline has tried nothing yet, so that it takes over what this one failed at.
        assert await curations.failed_revisions(
            session, OTHER_PIPELINE, max_attempts=1
        ) == [one.revision_pk]

    async def late() -> int:
        async with database.begin() as session:
            return await decide(session, one.revision_pk, KEPT)

    assert len(set(await asyncio.gather(*(late() for _ in range(6))))) == 1
    async with database.begin() as session:
        assert await curations.failed_revisions(session, PIPELINE) == []
        query = text("SELECT array_agg(attempt ORDER BY attempt) FROM curations")
        assert await session.scalar(query) == [1, 2]


CONFIRMED = SecondCheck(
    false_by_passage=True,
    could_hurt=False,
    citations=(),
    harm_citations=(),
    reason="",
)
IMPOSSIBLE = [
    replace(KEPT, reason=Reason.NO_QUERY),
    replace(KEPT, s_cc=0),
    replace(KEPT, s_inf=0.5),
    replace(KEPT, s_align=None),
    replace(KEPT, text=None),
    replace(KEPT, index=None),
    replace(KEPT, stage="validator"),
    replace(REJECTED, reason=None),
    replace(REJECTED, reason=Reason.ENDPOINT_UNAVAILABLE),
    replace(FAILED, reason=Reason.NO_ADVICE),
    replace(KEPT, requirements=(Requirement("age", True, ()),)),
    replace(KEPT, claims=(replace(KEPT.claims[0], citations=()),)),
    replace(
        KEPT, claims=(replace(KEPT.claims[0], citations=(Citation("c:1:s", ""),)),)
    ),
    replace(KEPT, claims=(replace(KEPT.claims[0], second=CONFIRMED),)),
    replace(KEPT, claims=(replace(KEPT.claims[0], queries=()),)),
    replace(KEPT, claims=(replace(KEPT.claims[0], on_subject=False),)),
    replace(PARKED, reason=Reason.NOT_ALIGNED),
    replace(REJECTED, reason=Reason.NO_EVIDENCE),
    replace(DISPUTED, reason=Reason.ADVICE_WRONG),
    replace(DISPUTED, claims=(replace(DISPUTED.claims[0], second=None),)),
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
    invented = replace(
        KEPT, claims=(replace(KEPT.claims[0], citations=(Citation("c:7:s", "x"),)),)
    )
    with pytest.raises(MedliveError, match="c:7:s"):
        async with database.begin() as session:
            await decide(session, one.revision_pk, invented)


# --- replies ---------------------------------------------------------------------------------------------


async def test_replies_are_kept_once(database: Database) -> None:
    store = PostgresReplyStore(database)
    usage = Usage(10, 4, 3, 0.0001, 12.5)
    replies = {
        request(n).digest(ENGINE): (
            request(n),
            Reply(f"{n} \x00\ud800", Finish.STOP, usage, "m-1-of-today"),
        )
        for n in range(100)
    }
    assert await store.find(next(iter(replies))) is None
    await asyncio.gather(
        *(
            store.keep(digest, r, ENGINE, reply)
            for _ in range(3)
            for digest, (r, reply) in replies.items()
        )
    )
    async with database.begin() as session:
        assert await session.scalar(text("SELECT count(*) FROM replies")) == 100
        assert await session.scalar(text("SELECT count(*) FROM prompts")) == 1
    other = PostgresReplyStore(database)
    found = await asyncio.gather(*(other.find(digest) for digest in replies))
    assert found == [reply for _, reply in replies.values()]
    await store.keep(
        next(iter(replies)), request(0), ENGINE, Reply("else", Finish.STOP, usage, "m")
    )
    assert await other.find(next(iter(replies))) == found[0]


async def test_one_reply_that_cannot_be_kept_fails_alone(database: Database) -> None:
    store = PostgresReplyStore(database)
    fine = Reply("{}", Finish.STOP, Usage(), "m-1")
    wrong = Reply("{}", Finish.STOP, Usage(input_tokens=-1), "m-1")
    done = await asyncio.gather(
        *(
            store.keep(
                request(n).digest(ENGINE), request(n), ENGINE, wrong if n == 3 else fine
            )
            for n in range(8)
        ),
        return_exceptions=True,
    )
    assert [n for n, result in enumerate(done) if result is not None] == [3]
    async with database.begin() as session:
        assert await session.scalar(text("SELECT count(*) FROM replies")) == 7


async def test_a_store_without_a_database_says_so() -> None:
    database = Database.connect("postgresql://nobody@127.0.0.1:1/nothing")
    store = PostgresReplyStore(database)
    found = await asyncio.gather(
        *(store.find(digest_text(str(n))) for n in range(3)), return_exceptions=True
    )
    assert all(isinstance(f, DatabaseUnavailable) for f in found)
    await database.aclose()
