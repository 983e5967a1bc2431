"""What the audit room lists: pages, counts, search and streams agree with the rows themselves."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from medlive.db.audit.listing import (
    Counts,
    Filter,
    Listing,
    count_rows,
    load_page,
    stream_rows,
)
from medlive.db.audit.tables import CASES, CLAIMS, FACETS, LISTINGS, PAGES, THREADS
from medlive.db.session import Database
from medlive.db.threads import threads
from medlive.errors import UsageError
from medlive.integrity.digest import digest_text
from medlive.service.listings import cells, without_identifiers
from tests.support.prepared import Fill
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


async def add_threads(database: Database) -> None:
    """Sixty threads of three sources, most judged by the filters, in five weeks."""
    made = [
        replace(
            THREAD,
            source=f"s{n % 3}",
            thread_id=str(n),
            title=WORDS[n % 5],
            language=("en", "zh", None)[n % 3],
            posted_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=n % 7),
        )
        for n in range(60)
    ]
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
                {
                    "r": one.revision_pk,
                    "c": CHAIN,
                    "p": reason is None,
                    "why": reason,
                    "at": at,
                },
            )


@pytest.fixture
def states() -> Mapping[str, Fill]:
    """What these tests begin with."""
    return {"filled": add_threads, "with_rows": add_rows}


@pytest.fixture
def filled(database: Database) -> Database:
    """The database with those threads."""
    return database


@pytest.fixture
def with_rows(database: Database) -> Database:
    """The database with rows of each table."""
    return database


async def every(
    database: Database, where: Filter, listing: Listing = THREADS
) -> list[Any]:
    async with database.begin() as session:
        return [row async for row in stream_rows(session, listing, where)]


def names(rows: Sequence[Any]) -> list[str]:
    return [f"{row.source}/{row.thread_id}" for row in rows]


FILTERS = (
    Filter(),
    Filter({"source": ("s1",)}),
    Filter({"source": ("s1", "s2"), "stage": ("filters",), "reason": ("duplicate",)}),
    Filter({"week": ("2026.W06", "2026.W07")}),
    Filter({"week": ("2026.W06",), "language": ("zh",)}),
    Filter(
        since=datetime(2026, 2, 4, tzinfo=UTC), until=datetime(2026, 2, 9, tzinfo=UTC)
    ),
    Filter({"source": ("s1",)}, since=datetime(2026, 2, 4, tzinfo=UTC)),
    Filter(
        {"stage": ("filters",), "language": ("en", "zh")},
        until=datetime(2026, 2, 9, tzinfo=UTC),
    ),
    Filter(text="headaches"),
    Filter({"source": ("s0",)}, text="头痛"),
    Filter({"language": ("",)}),
    Filter({"reason": ("nothing",)}),
)


@pytest.mark.thorough
@pytest.mark.parametrize("sort", ["changed", "posted"])
async def test_pages_in_both_directions_are_the_whole_list(
    filled: Database, sort: str
) -> None:
    for where in FILTERS:
        await check_pages(filled, where, sort)


async def check_pages(
    database: Database, where: Filter, sort: str, size: int = 7
) -> None:
    """Pages in both directions, one after another, are the whole list in its order."""
    for descending in (True, False):
        where = replace(where, sort=sort, descending=descending)
        whole = await every(database, where)
        value = {"changed": "changed_at", "posted": "posted_at"}[sort]
        assert [getattr(r, value) for r in whole] == sorted(
            (getattr(r, value) for r in whole), reverse=descending
        )
        forwards: list[Any] = []
        after, pages = None, []
        async with database.begin() as session:
            while True:
                page = await load_page(session, THREADS, where, after=after, size=size)
                assert (page.before is None) == (after is None)
                pages.append(page)
                forwards += page.rows
                if (after := page.after) is None:
                    break
            assert forwards == whole
            backwards, before = list(pages[-1].rows), pages[-1].before
            while before is not None:
                page = await load_page(
                    session, THREADS, where, before=before, size=size
                )
                backwards, before = [*page.rows, *backwards], page.before
            assert backwards == whole


def brute(rows: Sequence[Any], facet: str, where: Filter) -> dict[str, int]:
    """The counts of a facet over all threads, by looking at each."""
    others = {name: values for name, values in where.facets.items() if name != facet}
    kept = [
        r
        for r in rows
        if all(getattr(r, name) in values for name, values in others.items())
    ]
    return dict(Counter(getattr(r, facet) for r in kept))


async def test_counts_follow_the_filter(filled: Database) -> None:
    of = [name for name in FACETS if name not in ("specialty", "status", "week")]
    for where in FILTERS:
        plain = replace(where, facets={})
        rows = await every(filled, plain)
        async with filled.begin() as session:
            counts = await count_rows(session, THREADS, where)
        assert counts.total == len(await every(filled, where)), where
        assert not counts.capped
        for facet in of:
            assert counts.facets[facet] == brute(rows, facet, where), (where, facet)


async def test_threads_that_go_are_counted_no_more(filled: Database) -> None:
    async def counts() -> Counts:
        async with filled.begin() as session:
            return await count_rows(session, THREADS, Filter())

    before = await counts()
    async with filled.begin() as session:
        await session.execute(text("DELETE FROM thread_standings WHERE source = 's1'"))
    left = {k: v for k, v in before.facets["source"].items() if k != "s1"}
    assert (await counts()).facets["source"] == left
    assert await every(filled, Filter({"source": ("s1",)})) == []


async def test_chinese_is_found_by_any_two_characters_and_english_by_its_stems(
    filled: Database,
) -> None:
    async def found(words: str) -> set[str]:
        return {row.title for row in await every(filled, Filter(text=words))}

    assert await found("头痛") == {WORDS[1], WORDS[3]}
    assert await found("高血压") == {WORDS[3]}
    assert await found("布洛芬 头痛") == {WORDS[1]}
    assert await found("痛") == {WORDS[1], WORDS[3]}
    assert await found("痛头") == set()
    assert await found("knee") == {WORDS[4]}
    assert await found("losartan night") == {WORDS[0]}  # of a message and of the title
    assert await found("'; DROP TABLE threads; --") == set()


async def test_cases_are_threads_that_have_one(filled: Database) -> None:
    assert await every(filled, Filter(), CASES) == []
    async with filled.begin() as session:
        assert (await count_rows(session, CASES, Filter())).total == 0


ROWS = """
INSERT INTO procrastinate_jobs (queue_name, task_name, args)
    SELECT 'curation', 'task', '{}' FROM generate_series(1, 15) AS i;
UPDATE procrastinate_jobs SET status = 'cancelled' WHERE id % 2 = 0;
SET LOCAL session_replication_role = replica;
INSERT INTO thread_standings SELECT i, i, i, NULL, NULL, 's' || i % 3, 'en', 'validator', 'rejected',
    'contradicted', 'm', '', '', to_char(at AT TIME ZONE 'UTC', 'IYYY."W"IW'), at, now(), ''
    FROM generate_series(1, 20) AS i, LATERAL (SELECT now() - i % 5 * interval '3 days' AS at) AS decided;
INSERT INTO threads (id, source, thread_id, url) OVERRIDING SYSTEM VALUE
    SELECT i, 's' || i % 3, 't' || i, '' FROM generate_series(1, 20) AS i;
INSERT INTO agent_calls SELECT i, k, 'task.' || k, 'sha256:' || repeat('0', 64), 'openai', 'm',
    'sha256:' || repeat('0', 64), NULL, 1, 'unavailable', '', false
    FROM generate_series(1, 20) AS i, generate_series(1, 3) AS k;
INSERT INTO claim_verdicts SELECT i, 'a' || k, k, CASE WHEN i % 2 = 0 THEN 'neutral' ELSE 'contradicted' END,
    CASE WHEN i % 2 = 0 THEN 0.5 ELSE 0 END, 'claim', '{w}', '', i % 2, 'r',
    CASE WHEN i % 3 = 0 THEN i % 2 = 1 END,
    CASE WHEN i % 3 = 0 THEN 'why' END FROM generate_series(1, 20) AS i, generate_series(1, 2) AS k;
INSERT INTO harvest_runs (source, iso_week, outcome, problem, started_at, finished_at)
    SELECT 's' || i % 3, '2026.W' || 10 + i, CASE WHEN i % 4 = 0 THEN 'failed' ELSE 'done' END, 'timed out',
    now() - i * interval '1 day', now() FROM generate_series(1, 20) AS i;
INSERT INTO fetches (run_id, source, kind, thread_id, url, status, fetched_at, error) SELECT i % 4, 's' || i % 3,
    'thread', 't', 'https://example.org/' || i, CASE WHEN i % 5 > 0 THEN 200 END, now(), 'e'
    FROM generate_series(1, 30) AS i;
INSERT INTO snapshots (version, state) SELECT '2026.W' || 10 + i, 'building' FROM generate_series(1, 15) AS i;
INSERT INTO withdrawals (case_id, revision, kind, reason) SELECT 'ml-' || repeat('0', 10) || 10 + i, 1,
    CASE WHEN i % 2 = 0 THEN 'erratum' ELSE 'privacy' END, 'r' FROM generate_series(1, 15) AS i;
"""


async def add_rows(database: Database) -> None:
    """Some rows of each table, without what they refer to."""
    async with database.begin() as session:
        for statement in ROWS.strip().removesuffix(";").split(";\n"):
            await session.execute(text(statement))


@pytest.mark.parametrize(
    "name", [name for name in LISTINGS if name not in ("threads", "cases")]
)
async def test_every_table_pages_counts_and_streams_alike(
    with_rows: Database, name: str
) -> None:
    listing = LISTINGS[name]
    whole = await every(with_rows, Filter(), listing)
    assert len(whole) >= 15
    assert whole == (await every(with_rows, Filter(descending=False), listing))[::-1]
    forwards: list[Any] = []
    after, last = None, None
    async with with_rows.begin() as session:
        counts = await count_rows(session, listing, Filter())
        while last is None or (after := last.after) is not None:
            last = await load_page(session, listing, Filter(), after=after, size=4)
            forwards += last.rows
        backwards, before = list(last.rows), last.before
        while before is not None:
            page = await load_page(session, listing, Filter(), before=before, size=4)
            backwards, before = [*page.rows, *backwards], page.before
    assert forwards == whole == backwards
    assert (counts.total, counts.capped, counts.facets.keys()) == (
        len(whole),
        False,
        listing.facets.keys(),
    )
    for facet, values in counts.facets.items():
        assert sum(values.values()) == len(whole)
        for value, n in values.items():
            chosen: dict[str, Any] = {facet: (value,)}
            assert len(await every(with_rows, Filter(chosen), listing)) == n, (
                facet,
                value,
            )
    later = Filter(since=datetime.now(UTC) + timedelta(days=1))
    assert await every(with_rows, later, listing) == []
    assert await every(with_rows, Filter(text="no such words 头痛"), listing) == []


async def test_a_page_shows_its_status_as_a_number_and_is_found_by_it(
    with_rows: Database,
) -> None:
    statuses = [row.status for row in await every(with_rows, Filter(), PAGES)]
    assert set(statuses) == {200, None}
    found = await every(with_rows, Filter({"status": ("200",)}), PAGES)
    assert len(found) == statuses.count(200)
    found = await every(with_rows, Filter({"status": ("",)}), PAGES)
    assert len(found) == statuses.count(None)


async def test_more_rows_than_are_counted_are_a_lower_bound(
    with_rows: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medlive.db.audit.listing.MOST_COUNTED", 10)
    async with with_rows.begin() as session:
        counts = await count_rows(session, CLAIMS, Filter())
        few = await count_rows(
            session, CLAIMS, Filter({"source": ("s0",), "second": ("confirmed",)})
        )
    assert (counts.total, counts.capped) == (10, True)
    assert (few.total, few.capped) == (6, False)
    assert few.facets["source"] == {"s0": 6}
    assert few.facets["verdict"] == {"contradicted": 6}


NO_KEYS = (
    "x",
    "[1]",
    "2026-01-01T00:00:00+00:00",
    "2026-01-01T00:00:00+00:00~1~1",
    "2026-01-01T00:00:00+00:00~1e3",
    "2026-01-01T00:00:00+00:00~" + "9" * 19,
)


async def test_a_key_that_is_none_is_refused(database: Database) -> None:
    for key in NO_KEYS:
        with pytest.raises(UsageError):
            async with database.begin() as session:
                await load_page(session, THREADS, Filter(), after=key)
    async with database.begin() as session:
        with pytest.raises(UsageError):
            await load_page(session, THREADS, Filter(sort="words"))


def test_no_cell_is_a_formula_and_no_title_names_a_person() -> None:
    at = datetime(2026, 2, 1, tzinfo=UTC)
    title = "=HYPERLINK(1) of Dr. John Smith"
    item = SimpleNamespace(
        source="s",
        thread_id="-1",
        title=title,
        language="en",
        evidence=["+a", "b"],
        engine="m",
        case_id=None,
        changed_at=at,
    )
    [shown] = without_identifiers([item])
    assert "Smith" not in shown.title
    assert cells(shown)[1:3] == ["'-1", "'" + shown.title]
    assert cells(shown)[4:7] == ["'+a\nb", "m", ""]


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


async def test_what_is_searched_for_is_text_and_never_sql(filled: Database) -> None:
    for facet in FACETS:
        if facet != "week":
            assert await every(filled, Filter({facet: HOSTILE})) == []
    for words in HOSTILE:
        with pytest.raises(UsageError):
            await every(filled, Filter({"week": (words,)}))
        await every(filled, Filter(text=words))
    assert len(await every(filled, Filter())) == 60
