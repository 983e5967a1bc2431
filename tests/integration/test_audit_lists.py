"""What the audit room lists: pages, counts, search and streams agree with the rows themselves."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from medlive.db.audit.listing import Counts, Filter, Listing, count_rows, load_page, stream_rows
from medlive.db.audit.tables import CLAIMS, LISTINGS, ClaimFilter
from medlive.db.audit.threads import CASES, FACETS, THREADS, ThreadFilter, ThreadItem, sum_counts
from medlive.db.session import Database
from medlive.db.threads import threads
from medlive.digest import digest_text
from medlive.errors import UsageError
from tests.support.scripted import THREAD

CHAIN = digest_text("chain")
WORDS = (
    "chest pain at night",
    "头痛三天，吃了布洛芬",
    "a mild headache",
    "高血压患者头痛",
    "knees hurting after runs",
)
REASONS = ("duplicate", "no_codebook_term", None)


@pytest.fixture
async def filled(database: Database) -> Database:
    """Sixty threads of three sources, most judged by the filters, in five weeks."""
    made = [
        replace(
            THREAD, source=f"s{n % 3}", thread_id=str(n), title=WORDS[n % 5], language=("en", "zh", None)[n % 3],
            posted_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=n % 7),
        )
        for n in range(60)
    ]  # fmt: skip
    async with database.begin() as session:
        saved = await threads.save_threads(session, made)
        for n, one in enumerate(saved[:50]):
            reason = REASONS[n % len(REASONS)]
            at = datetime(2026, 2, 1, tzinfo=UTC) + timedelta(days=n % 30, hours=n % 2)
            await session.execute(
                text(
                    "INSERT INTO filter_results (revision_id, chain_digest, passed, rejected_by, reason,"
                    " decided_at) VALUES (:r, :c, :p, :why, :why, :at)"
                ),
                {"r": one.revision_pk, "c": CHAIN, "p": reason is None, "why": reason, "at": at},
            )
    return database


async def every(database: Database, where: Filter, listing: Listing[Any] = THREADS, **order: Any) -> list[Any]:
    async with database.begin() as session:
        return [row async for row in stream_rows(session, listing, where, **order)]


def names(rows: Sequence[ThreadItem]) -> list[str]:
    return [f"{row.source}/{row.thread_id}" for row in rows]


FILTERS = (
    ThreadFilter(),
    ThreadFilter(source=("s1",)),
    ThreadFilter(source=("s1", "s2"), stage=("filters",), reason=("duplicate",)),
    ThreadFilter(week=("2026.W06", "2026.W07")),
    ThreadFilter(week=("2026.W06",), language=("zh",)),
    ThreadFilter(since=datetime(2026, 2, 4, tzinfo=UTC), until=datetime(2026, 2, 9, tzinfo=UTC)),
    ThreadFilter(text="headaches"),
    ThreadFilter(text="头痛", source=("s0",)),
    ThreadFilter(language=("",)),
    ThreadFilter(reason=("nothing",)),
)


@pytest.mark.parametrize("sort", THREADS.sorts)
async def test_pages_in_both_directions_are_the_whole_list(filled: Database, sort: str) -> None:
    for where in FILTERS:
        for descending in (True, False):
            order: dict[str, Any] = {"sort": sort, "descending": descending}
            whole = await every(filled, where, **order)
            value = {"changed": "changed_at", "posted": "posted_at"}[sort]
            assert [getattr(r, value) for r in whole] == sorted(
                (getattr(r, value) for r in whole), reverse=descending
            )
            forwards: list[Any] = []
            after, pages = None, []
            async with filled.begin() as session:
                while True:
                    page = await load_page(session, THREADS, where, after=after, size=7, **order)
                    assert (page.before is None) == (after is None)
                    pages.append(page)
                    forwards += page.rows
                    if (after := page.after) is None:
                        break
                assert forwards == whole
                backwards, before = list(pages[-1].rows), pages[-1].before
                while before is not None:
                    page = await load_page(session, THREADS, where, before=before, size=7, **order)
                    backwards, before = [*page.rows, *backwards], page.before
                assert backwards == whole


def brute(rows: Sequence[ThreadItem], facet: str, where: ThreadFilter) -> dict[str, int]:
    """The counts of a facet over all threads, by looking at each."""
    others = {name: values for name, values in where.facets().items() if name != facet}
    kept = [r for r in rows if all(getattr(r, name) in values for name, values in others.items())]
    return dict(Counter(getattr(r, facet) for r in kept))


async def test_counts_follow_the_filter(filled: Database) -> None:
    of = [name for name in FACETS if name not in ("specialty", "status", "week")]
    for where in FILTERS:
        plain = replace(where, week=(), source=(), language=(), stage=(), reason=())
        rows = await every(filled, plain)
        async with filled.begin() as session:
            counts = await count_rows(session, THREADS, where)
        assert counts.total == len(await every(filled, where)), where
        assert not counts.capped
        for facet in of:
            assert counts.facets[facet] == brute(rows, facet, where), (where, facet)


async def test_counts_stay_right_when_sums_are_added_up_and_threads_go(filled: Database) -> None:
    async def counts() -> Counts:
        async with filled.begin() as session:
            return await count_rows(session, THREADS, ThreadFilter())

    before = await counts()
    async with filled.begin() as session:
        rows = await session.scalar(text("SELECT count(*) FROM thread_counts"))
        await sum_counts(session)
        assert await session.scalar(text("SELECT count(*) FROM thread_counts")) < rows
    assert await counts() == before
    async with filled.begin() as session:
        await session.execute(text("DELETE FROM thread_standings WHERE source = 's1'"))
    left = {k: v for k, v in before.facets["source"].items() if k != "s1"}
    assert (await counts()).facets["source"] == left
    assert await every(filled, ThreadFilter(source=("s1",))) == []


async def test_chinese_is_found_by_any_two_characters_and_english_by_its_stems(filled: Database) -> None:
    async def found(words: str) -> set[str]:
        return {row.title for row in await every(filled, ThreadFilter(text=words))}

    assert await found("头痛") == {WORDS[1], WORDS[3]}
    assert await found("高血压") == {WORDS[3]}
    assert await found("布洛芬 头痛") == {WORDS[1]}
    assert await found("痛") == {WORDS[1], WORDS[3]}
    assert await found("痛头") == set()
    assert await found("knee") == {WORDS[4]}
    assert await found("losartan night") == {WORDS[0]}  # of a message and of the title
    assert await found("'; DROP TABLE threads; --") == set()


async def test_cases_are_threads_that_have_one(filled: Database) -> None:
    assert await every(filled, ThreadFilter(), CASES) == []
    async with filled.begin() as session:
        assert (await count_rows(session, CASES, ThreadFilter())).total == 0


HOSTILE = (
    "'; DROP TABLE threads; --",
    "' OR '1'='1",
    "%",
    "_",
    "\\",
    "$$",
    ":x",
    "a' & !b | (c",
    "头'痛",
    "\u202e",
)


@pytest.mark.parametrize("words", HOSTILE)
async def test_what_is_searched_for_is_text_and_never_sql(filled: Database, words: str) -> None:
    for facet in set(FACETS) - {"week"}:
        wanted: dict[str, Any] = {facet: (words,)}
        assert await every(filled, ThreadFilter(**wanted)) == []
    with pytest.raises(UsageError, match="ISO week"):
        await every(filled, ThreadFilter(week=(words,)))
    await every(filled, ThreadFilter(text=words))
    assert len(await every(filled, ThreadFilter())) == 60
