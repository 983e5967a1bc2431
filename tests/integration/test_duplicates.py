"""Near-duplicates in PostgreSQL: the decisions of brute force, whatever the batches, runs, kills and edits."""

import asyncio
import json
import multiprocessing
import os
import random
import signal
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from medlive.db.curation.funnel import save_chain_results
from medlive.db.session import Database, Session
from medlive.db.threads import bands
from medlive.db.threads.threads import save_threads
from medlive.filters.codebooks import load_codebook
from medlive.filters.model import FilterSettings, FilterVerdict
from medlive.filters.rules import FilterChain
from medlive.service.curation import filtering
from medlive.threads.model import Message, Thread
from medlive.threads.near_duplicates import Sketch, jaccard, scheme, shingles, sketches


def sketch(text: str) -> Sketch:
    return sketches([text])[0]


_WORDS = (
    "fever cough headache asthma diabetes migraine rash nausea vertigo insomnia since morning night doctor tablet "
    "pain left right knee chest sleep week month after before eating walking running severe mild often never "
    "blood sugar pressure test normal high low"
)
_ENGLISH = tuple(_WORDS.split())
_CHINESE = tuple(
    "我妈妈今年高血压糖尿病头痛发烧咳嗽胸闷腹泻失眠请问需要检查吃药早上晚上一周已经两个月怎么办医院"
)


@cache
def chain(**changed: Any) -> FilterChain:
    """The chain as shipped, or another with some settings changed."""
    return FilterChain(FilterSettings(**changed), load_codebook())


def consultation(number: int, ask: str, source: str = "one") -> Thread:
    """A thread that every rule but the duplicates' lets pass."""
    reply = "It may be asthma; please see a doctor for a chest examination and take paracetamol 500 mg."
    if not ask.isascii():
        reply = "考虑高血压，建议到医院检查血压，按时服用降压药，注意休息，低盐饮食。"
    messages = (
        Message("m0", "asker", "patient", False, ask),
        Message("m1", "doctor", "physician", True, reply),
    )
    posted = datetime(2025, 1, 1, tzinfo=UTC)
    return Thread(
        source,
        f"t{number:03}",
        f"https://{source}.example/{number}",
        "A question",
        None,
        (),
        posted,
        messages,
    )


def question(rng: random.Random) -> list[str]:
    """The words or characters of a question of 40 to 90 of them; both languages."""
    return rng.choices(
        _ENGLISH if rng.random() < 0.5 else _CHINESE, k=rng.randint(40, 90)
    )


def written(units: Sequence[str]) -> str:
    """Words with spaces, characters without."""
    if units[0].isascii():
        return "I have asthma and ask: " + " ".join(units) + "?"
    return "我有高血压，" + "".join(units) + "？"


def mixture(count: int, seed: int = 5) -> list[Thread]:
    """Questions, of which about a half are others copied or edited, in two languages and three sources.

    Sources and ids are in order, so that threads saved at once have their numbers in it.
    """
    rng = random.Random(seed)
    told: list[list[str]] = []
    for _ in range(count):
        units = list(rng.choice(told)) if told and rng.random() < 0.5 else question(rng)
        for _ in range(rng.choice([0, 1, 1, 2, 4, 8]) if told else 0):
            units[rng.randrange(len(units))] = rng.choice(
                _ENGLISH if units[0].isascii() else _CHINESE
            )
        told.append(units)
    return [
        consultation(n, written(u), f"source{n * 3 // count}")
        for n, u in enumerate(told)
    ]


def by_brute_force(threads: Sequence[Thread]) -> dict[str, str | None]:
    """Thread's id → the id of what it repeats, or None: every pair compared, one after the other."""
    held: list[tuple[Thread, set[int], str]] = []
    answers: dict[str, str | None] = {}
    for thread in threads:
        text = thread.messages[0].text
        grams, digest = set(shingles(text).tolist()), sketch(text).digest
        near = []
        for place, (earlier, theirs, their_digest) in enumerate(held):
            similarity = len(grams & theirs) / len(grams | theirs)
            if similarity >= 0.8:
                near.append(
                    (their_digest != digest, -similarity, place, earlier.thread_id)
                )
        answers[thread.thread_id] = min(near)[3] if near else None
        if not near:
            held.append((thread, grams, digest))
    return answers


async def judged(
    database: Database, judging: FilterChain | None = None, *, limit: int | None = None
) -> None:
    """Filter what waits."""
    await filtering.filter_pending(database, judging or chain(), limit=limit)


async def saved(database: Database, threads: Sequence[Thread]) -> None:
    """Save threads."""
    async with database.begin() as session:
        await save_threads(session, threads)


def rows(url: str, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        cursor = connection.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def answers(url: str, judging: FilterChain | None = None) -> dict[str, str | None]:
    """Thread's id → the id of what its latest judged revision repeats, or None where it passed."""
    found = rows(
        url,
        """
        SELECT DISTINCT ON (t.id) t.thread_id, f.rejected_by, o.thread_id
        FROM filter_results f
        JOIN thread_revisions r ON r.id = f.revision_id
        JOIN threads t ON t.id = r.thread_id
        LEFT JOIN jsonb_array_elements(f.verdicts) v ON v ->> 'rule' = 'duplicate'
        LEFT JOIN threads o ON o.id = CAST(v -> 'evidence' ->> 'of' AS int)
        WHERE f.chain_digest = %s
        ORDER BY t.id, r.revision DESC
        """,
        (judging or chain()).digest,
    )
    assert {rule for _, rule, _ in found} <= {None, "duplicate"}
    assert all((rule is None) == (of is None) for _, rule, of in found)
    return {thread_id: of for thread_id, _, of in found}


@pytest.mark.parametrize(
    "batch",
    [
        7,
        pytest.param(1, marks=pytest.mark.thorough),
        pytest.param(200, marks=pytest.mark.thorough),
    ],
)
async def test_decisions_are_those_of_brute_force(
    database: Database, database_url: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "BATCH", batch)
    threads = mixture({1: 24, 7: 60, 200: 80}[batch])
    expected = by_brute_force(threads)
    assert (
        len(threads) * 0.2
        < sum(of is not None for of in expected.values())
        < len(threads) * 0.6
    )
    await saved(database, threads)
    await judged(database, limit=len(threads) // 2)
    await judged(database)
    assert answers(database_url) == expected
    [(jobs,)] = rows(database_url, "SELECT count(*) FROM procrastinate_jobs")
    assert jobs == sum(of is None for of in expected.values())


@pytest.mark.parametrize("order", [0, 1])
async def test_the_best_match_is_the_same_in_whatever_order(
    database: Database, database_url: str, order: int
) -> None:
    rng = random.Random(2)
    units = rng.choices(_ENGLISH, k=90)
    nearer, farther = list(units), list(units)
    nearer[10] = farther[40] = farther[60] = "swollen"
    texts = [written(nearer), written(farther)][:: -1 if order else 1]
    assert jaccard(shingles(texts[0]), shingles(texts[1])) < 0.85
    strict = chain(duplicate_similarity=0.85)
    await saved(database, [consultation(n, text) for n, text in enumerate(texts)])
    await judged(database, strict)
    await saved(
        database,
        [
            consultation(5, written(units)),
            consultation(6, written(rng.choices(_ENGLISH, k=90))),
        ],
    )
    await judged(database, strict)
    assert answers(database_url, strict) == {
        "t000": None,
        "t001": None,
        "t005": f"t{texts.index(written(nearer)):03}",
        "t006": None,
    }


async def test_sources_meet_widths_are_one_and_scripts_are_not(
    database: Database, database_url: str
) -> None:
    ask = "我妈妈今年65岁，高血压10年，CT显示腔隙性脑梗死，最近一周头晕乏力，请问需要去医院做哪些检查？"
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in ask)
    traditional = "我媽媽今年65歲，高血壓10年，CT顯示腔隙性腦梗死，最近一週頭暈乏力，請問需要去醫院做哪些檢查？"
    threads = [
        consultation(0, ask, "a"),
        consultation(1, wide, "b"),
        consultation(2, ask + "谢谢", "c"),
        consultation(3, traditional, "c"),
    ]
    await saved(database, threads)
    await judged(database)
    found = rows(
        database_url,
        "SELECT r.thread_id, v -> 'evidence' ->> 'of', v -> 'evidence' ->> 'kind' FROM filter_results f "
        "JOIN thread_revisions r ON r.id = f.revision_id CROSS JOIN jsonb_array_elements(f.verdicts) v "
        "WHERE v ->> 'rule' = 'duplicate' ORDER BY 1",
    )
    assert found == [
        (1, None, None),
        (2, "1", "exact"),
        (3, "1", "near"),
        (4, None, None),
    ]


async def test_an_edited_thread_counts_with_its_latest_accepted_text(
    database: Database, database_url: str
) -> None:
    rng = random.Random(3)
    old, new = written(question(rng)), written(question(rng))
    await saved(database, [consultation(0, old)])
    await judged(database)
    await saved(
        database, [consultation(0, old + " thank you")]
    )  # near its own earlier text
    await judged(database)
    assert answers(database_url) == {"t000": None}
    await saved(database, [consultation(0, new)])
    await judged(database)
    await saved(database, [consultation(1, old), consultation(2, new)])
    await judged(database)
    assert answers(database_url) == {"t000": None, "t001": None, "t002": "t000"}
    # An edit that is refused leaves the text that was accepted.
    await saved(database, [consultation(0, old + " please"), consultation(3, new)])
    await judged(database)
    assert answers(database_url) == {
        "t000": "t001",
        "t001": None,
        "t002": "t000",
        "t003": "t000",
    }


async def test_a_chain_knows_what_it_accepted_itself(
    database: Database, database_url: str
) -> None:
    threads = mixture(30)
    await saved(database, threads)
    await judged(database)
    [(before,)] = rows(database_url, "SELECT count(*) FROM bands")
    other = chain(posted_before="2022-01-01")
    await judged(database, other)
    assert (
        answers(database_url, other) == answers(database_url) == by_brute_force(threads)
    )
    assert rows(database_url, "SELECT count(*) FROM bands") == [(before,)]


# --- at the same time, and killed ------------------------------------------------------------------------


class _Deadly(FilterChain):
    """A chain that kills its process at its n-th thread."""

    left = 0

    def judge(self, *args: Any, **kwargs: Any) -> tuple[FilterVerdict, ...]:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().judge(*args, **kwargs)


def run_filters(url: str, batch: int, kill_at: int | None = None) -> None:
    """Filter what waits, in a process of its own; at the n-th thread it may be killed."""

    async def run() -> None:
        database = Database.connect(url)
        filtering.BATCH = batch
        judging = chain()
        if kill_at is not None:
            judging = _Deadly(judging.settings, judging.codebook)
            judging.left = kill_at
        await judged(database, judging)
        await database.aclose()

    asyncio.run(run())


@pytest.mark.thorough
async def test_two_processes_accept_one_of_each_pair_and_a_kill_loses_nothing(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = mixture(70)
    expected = by_brute_force(threads)
    await saved(database, threads)
    processes = multiprocessing.get_context("spawn")
    killed = processes.Process(target=run_filters, args=(database_url, 10, 35))
    killed.start()
    await asyncio.to_thread(killed.join)
    assert killed.exitcode == -signal.SIGKILL
    assert len(answers(database_url)) == 30  # whole batches
    beside = processes.Process(target=run_filters, args=(database_url, 2))
    beside.start()
    while not rows(database_url, "SELECT 1 FROM filter_results OFFSET 30"):
        assert beside.is_alive()
        await asyncio.sleep(0.01)
    monkeypatch.setattr(filtering, "BATCH", 3)
    await judged(database)
    await asyncio.to_thread(beside.join)
    assert beside.exitcode == 0
    assert answers(database_url) == expected
    [(jobs,)] = rows(database_url, "SELECT count(*) FROM procrastinate_jobs")
    assert jobs == sum(of is None for of in expected.values())


async def test_a_run_waits_for_the_batch_of_another(
    database: Database, database_url: str
) -> None:
    await saved(database, mixture(10))
    async with database.begin() as session:
        await bands.take_turn(session)
        waiting = asyncio.create_task(judged(database))
        while not rows(
            database_url,
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
        ):
            assert not waiting.done()
            await asyncio.sleep(0.01)
        assert answers(database_url) == {}
    await waiting
    assert answers(database_url) == by_brute_force(mixture(10))


# --- bands that were not there, and bands of thousands ---------------------------------------------------


async def test_what_was_accepted_before_gets_its_bands(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "BATCH", 10)
    threads = mixture(45)
    expected = by_brute_force(threads)
    await saved(database, threads[:30])
    await judged(database)
    held = rows(database_url, "SELECT key, thread_id FROM bands ORDER BY 1, 2")
    assert held
    # As after the migration; then as a library's change leaves it; then as a kill in the middle leaves it.
    rows(database_url, "DELETE FROM band_schemes")
    rows(database_url, "DELETE FROM bands")
    await filtering.fill_bands(database)
    assert rows(database_url, "SELECT key, thread_id FROM bands ORDER BY 1, 2") == held
    rows(database_url, "UPDATE band_schemes SET scheme = 'another'")
    rows(database_url, "UPDATE bands SET key = key + 1")
    await filtering.fill_bands(database)
    assert rows(database_url, "SELECT key, thread_id FROM bands ORDER BY 1, 2") == held
    assert rows(database_url, "SELECT scheme FROM band_schemes") == [(scheme(),)]
    rows(database_url, "UPDATE band_schemes SET finished_at = NULL")
    rows(database_url, "DELETE FROM bands WHERE thread_id > 15")
    await saved(database, threads[30:])
    await judged(database)
    assert answers(database_url) == expected


def _many(url: str, count: int, shared: Sequence[int]) -> None:
    """`count` more accepted threads with these bands; the planner is not told of their results."""
    message = json.dumps(
        [
            {
                "id": "m0",
                "author": "a",
                "role": "patient",
                "verified": False,
                "text": "x",
                "posted_at": None,
                "media": [],
            }
        ]
    )
    made = "SELECT id FROM threads WHERE source = 'many'"
    rows(
        url,
        "INSERT INTO sources (name, kind) VALUES ('many', 'file') ON CONFLICT DO NOTHING",
    )
    rows(
        url,
        "INSERT INTO threads (source, thread_id, url) SELECT 'many', gen_random_uuid(), '' "
        "FROM generate_series(1, %s)",
        count,
    )
    rows(
        url,
        "INSERT INTO thread_revisions (thread_id, revision, digest, title, tags, posted_at_assumed, messages) "
        "SELECT id, 1, 'sha256:' || repeat('0', 64), '', '{}', false, CAST(%s AS jsonb) "
        f"FROM ({made}) AS made ON CONFLICT DO NOTHING",
        message,
    )
    rows(
        url,
        "INSERT INTO filter_results (revision_id, chain_digest, passed) SELECT id, %s, true "
        f"FROM thread_revisions WHERE thread_id IN ({made}) ON CONFLICT DO NOTHING",
        chain().digest,
    )
    rows(
        url,
        f"INSERT INTO bands (key, thread_id) SELECT key, made.id FROM ({made}) AS made, "
        "unnest(%s::bigint[]) AS key ON CONFLICT DO NOTHING",
        list(shared),
    )
    rows(url, "ANALYZE bands")


def _rows(plan: dict[str, Any]) -> int:
    """Rows of the table of bands that a plan read."""
    mine = (
        plan["Actual Rows"] * plan["Actual Loops"]
        if plan.get("Relation Name") == "bands"
        else 0
    )
    return round(mine) + sum(map(_rows, plan.get("Plans", [])))


async def test_a_band_of_thousands_costs_no_more_and_hides_nothing(
    database: Database, database_url: str
) -> None:
    rng = random.Random(4)
    units = rng.choices(_ENGLISH, k=90)
    near = [*units[:40], "swollen", *units[41:]]
    exact = rng.choices(_CHINESE, k=60)
    await saved(
        database, [consultation(0, written(units)), consultation(1, written(exact))]
    )
    await judged(database)
    held, asked = sketch(written(units)), sketch(written(near))
    common = sorted(set(held.bands) & set(asked.bands))
    assert len(common) > 4
    # Boilerplate in all but two of the bands that the two have in common, and in every band of the other.
    shared = [
        *common[2:],
        *set(asked.bands) - set(held.bands),
        *sketch(written(exact)).bands[1:],
    ]
    read, pages = [], []
    for count in (300, 900):
        _many(database_url, count, shared)
        async with database.begin() as session:
            found = await bands.find_candidates(session, chain().digest, [asked.bands])
            assert 1 in {f.thread_pk for f in found}
            assert len(found) <= bands.CANDIDATES
            rows_read, pages_read = await _work(session, asked.bands)
            read.append(rows_read)
            pages.append(pages_read)
    assert 0 < read[1] <= bands.NEWEST * len(asked.bands)
    assert read[1] == read[0]
    assert pages[1] < 1.5 * pages[0]
    await saved(
        database,
        [
            consultation(2, written(near)),
            replace(consultation(3, written(exact)), source="b"),
        ],
    )
    await judged(database)
    found_now = answers(database_url)
    assert (found_now["t002"], found_now["t003"]) == ("t000", "t001")


async def _work(session: Session, keys: Sequence[int]) -> tuple[int, int]:
    """(rows of bands, pages of all tables) that the look-up's own statement reads for these keys."""
    values = {
        "places": [0] * len(keys),
        "keys": list(keys),
        "chain": chain().digest,
        "newest": bands.NEWEST,
        "candidates": bands.CANDIDATES,
    }
    explain = text("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + bands._CANDIDATES)
    [plan] = await session.scalar(explain, values)
    top = plan["Plan"]
    return _rows(top), top["Shared Hit Blocks"] + top["Shared Read Blocks"]


async def test_a_look_up_in_a_great_table_reads_only_what_meets(
    database: Database, database_url: str
) -> None:
    await saved(database, [consultation(0, written(question(random.Random(6))))])
    await judged(database)
    rows(
        database_url,
        "INSERT INTO bands (key, thread_id) SELECT (random() * 9e18)::bigint, 1 FROM generate_series(1, 10000)",
    )
    rows(database_url, "ANALYZE")
    keys = sketch(written(question(random.Random(6)))).bands
    async with database.begin() as session:
        assert (await _work(session, keys))[0] == len(keys)


async def test_a_thread_that_is_committed_late_is_filtered_by_the_same_run(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "BATCH", 2)
    save, slow = save_chain_results, database.begin()
    await saved(database, [consultation(9, "my back hurts since monday")])
    late = await slow.__aenter__()
    await save_threads(
        late, [consultation(0, "my knee hurts since monday")]
    )  # the lowest number, not committed
    await saved(
        database,
        [consultation(n, f"headache and fever number {n}") for n in range(1, 6)],
    )

    async def commit_first(*arguments: Any) -> None:
        if late.in_transaction():
            await slow.__aexit__(None, None, None)
        await save(*arguments)

    monkeypatch.setattr(filtering, "save_chain_results", commit_first)
    await judged(database)
    assert len(answers(database_url)) == 7
