"""Literature on demand against both services' formats and faults, with answers kept in a real database."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from medlive.clock import iso_week, now
from medlive.config import Settings
from medlive.db.curation import literature
from medlive.db.curation.circuits import PostgresCircuits
from medlive.db.curation.literature import PostgresAnswers
from medlive.db.session import Database
from medlive.errors import CircuitOpen, LiteratureUnavailable
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.online import service
from medlive.evidence.online.retriever import MOST_WORDS, OnlineRetriever, plain_words
from medlive.guard import circuit
from medlive.instance.paths import index_path
from medlive.integrity.digest import digest_text
from medlive.service.schedule.scheduler import WORK
from medlive.service.schedule.steps import RETENTION
from medlive.service.wiring import (
    literature_circuits,
    open_online,
)
from tests.support.literature import (
    Article,
    LiteratureServer,
    json_error,
    serve_literature,
    xml,
)

GOUT = Article(
    "101", "Colchicine in gout", "Colchicine relieves acute gout within a day."
)
NEW = Article("102", "Gout and diet", "A new diet for gout was tried.", year=2024)
WITHDRAWN = Article("103", "Gout cured", "Gout is cured by honey.", retracted=True)
BOOK = Article(
    "104", "Gout", "Gout is treated with colchicine, says a chapter.", book=True
)
PREPRINT = Article(
    "105", "Gout", "Gout is treated with lasers, says a preprint.", source="PPR"
)
CHAPTER = Article(
    "106", "Gout", "Gout attacks are treated with colchicine.", source="PMC"
)
BOTH = ("pubmed", "europepmc")
ERROR_PAGE = "<html><body>Service unavailable</body></html>"
LIMITED = "<eSearchResult><ERROR>API rate limit exceeded</ERROR></eSearchResult>"
REFUSED = (
    "<eSearchResult><ERROR>Invalid db name specified: pubmedd</ERROR></eSearchResult>"
)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "BACKOFF_S", 0.0)
    monkeypatch.setattr(service, "INTERVAL_S", 0.0)


@pytest.fixture
async def served() -> AsyncIterator[LiteratureServer]:
    async with serve_literature(
        GOUT, NEW, WITHDRAWN, BOOK, PREPRINT, CHAPTER
    ) as server:
        yield server


def settings_of(server: LiteratureServer, *names: str) -> Settings:
    evidence = {
        "online": names or BOTH,
        "online_email": "ops@example.org",
        "online_addresses": server.addresses,
    }
    return Settings.model_validate({"home": "/nonexistent", "evidence": evidence})


def opened(
    database: Database, server: LiteratureServer, *names: str
) -> OnlineRetriever:
    retriever = open_online(settings_of(server, *names), database)
    assert retriever is not None
    return retriever


async def test_a_claim_meets_both_services_and_nothing_that_was_withdrawn(
    database: Database, served: LiteratureServer
) -> None:
    retriever = opened(database, served)
    (hits,) = await retriever.search(
        [("colchicine gout",)], k=10, not_after=date(2020, 1, 1)
    )
    await retriever.aclose()
    documents = {
        (hit.passage.corpus, hit.passage.url.rstrip("/").rsplit("/", 1)[-1])
        for hit in hits
    }
    assert documents == {("pubmed", "101"), ("pubmed", "104"), ("europepmc", "106")}
    assert len(hits) == 3  # an article that both know is one
    assert {side.side for hit in hits for side in hit.sides} == {
        "pubmed",
        "europepmc",
    }
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert all(
        "Background" not in hit.passage.text or "." in hit.passage.text for hit in hits
    )


async def test_what_was_answered_once_is_not_asked_again_by_any_worker(
    database: Database, served: LiteratureServer
) -> None:
    first, second = opened(database, served), opened(database, served)
    once = await first.search([("colchicine gout",)], k=10)
    asked = len(served.asked)
    assert await second.search([("colchicine gout",)], k=10) == once
    assert len(served.asked) == asked == 3  # esearch, efetch, and Europe PMC's search
    async with database.begin() as session:
        stored = await session.scalars(
            text("SELECT convert_from(body, 'UTF8') FROM literature_answers")
        )
        assert not any(
            "colchicine gout" in body for body in stored
        )  # the words of a thread
    await first.aclose()
    await second.aclose()


async def test_requests_say_who_asks_and_nothing_else_of_the_thread(
    database: Database, served: LiteratureServer
) -> None:
    retriever = opened(database, served)
    phrases = (
        'gout[Title] OR (x) AND "y" NOT z*',
        "Mrs Jane Smith of 12 Baker Street",
        "痛风 秋水仙碱",
    )
    await retriever.search([tuple(phrases)], k=5)
    await retriever.aclose()
    for _, form in served.asked:
        assert form["email"] == "ops@example.org"
        words = form.get("term", form.get("query", ""))
        assert "smith" not in words.lower()
        assert "[" not in form.get("term", "").partition(")")[0]
        assert "痛风" not in words
    assert any(form.get("tool") == "medlive" for _, form in served.asked)


PASSING = {
    "429": web.Response(status=429, headers={"Retry-After": "0"}),
    "502": web.Response(status=502, text=ERROR_PAGE),
    "page": xml(ERROR_PAGE),
    "rate": xml(LIMITED),
    "cut": xml("<eSearchResult><IdList><Id>1"),
    "unlisted": xml("<eSearchResult><Count>3</Count></eSearchResult>"),
}


async def test_a_passing_fault_is_asked_again(database: Database) -> None:
    async with serve_literature(GOUT) as server:
        retriever = opened(database, server, "pubmed")
        for name, fault in PASSING.items():
            server.faults = [copy_of(fault)]
            (hits,) = await retriever.search([(f"colchicine {name}",)], k=5)
            assert [hit.passage.text for hit in hits] == [GOUT.abstract], name
            assert server.faults == [], name
        await retriever.aclose()


LASTING = {
    "503": web.Response(status=503),
    "day": web.Response(status=429, headers={"Retry-After": "86400"}),
    "redirect": web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}),
    "page": web.Response(text=ERROR_PAGE, content_type="text/html"),
    "refused": xml(REFUSED),
    "error": json_error("bad query"),
    "key": web.Response(status=400, text='{"error":"API key invalid","api-key":"k3y"}'),
    "long": web.Response(body=b"x" * 2000),
    "nested": web.Response(body=b"[" * 1400),
}


@pytest.mark.parametrize("name", BOTH)
async def test_a_service_that_fails_is_an_error_and_never_an_empty_result(
    database: Database, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(service, "LITERATURE_BYTES", 1500)
    async with serve_literature(GOUT) as server:
        for word, fault in LASTING.items():
            server.faults = [copy_of(fault) for _ in range(service.ATTEMPTS)]
            retriever = opened(database, server, name)
            with pytest.raises(LiteratureUnavailable) as raised:
                await retriever.search([(f"colchicine {word}",)], k=5)
            assert name in raised.value.message
            assert "k3y" not in raised.value.message
            await retriever.aclose()
            server.faults = []
            retriever = opened(database, server, name)
            # nothing of the failure was kept
            (hits,) = await retriever.search([(f"colchicine {word}",)], k=5)
            await retriever.aclose()
            assert len(hits) == 1, word


async def test_a_request_that_is_refused_alone_opens_no_circuit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit, "FAILING_S", 0.0)
    async with serve_literature(GOUT) as server:
        server.faults = [web.Response(status=400) for _ in range(circuit.FAILURES)]
        settings = settings_of(server, "pubmed")
        gates = literature_circuits(settings, PostgresCircuits(database))
        retriever = open_online(settings, database, gates)
        assert retriever is not None
        for number in range(circuit.FAILURES):
            with pytest.raises(LiteratureUnavailable, match="status 400"):
                await retriever.search([(f"colchicine {number}",)], k=5)
        assert len(server.asked) == circuit.FAILURES, "each is asked once"
        (hits,) = await retriever.search([("colchicine",)], k=5)
        await retriever.aclose()
        assert len(hits) == 1


def copy_of(response: web.Response) -> web.Response:
    """A response can be sent once."""
    headers = {
        name: response.headers[name]
        for name in ("Retry-After", "Location")
        if name in response.headers
    }
    kind = response.content_type or "text/plain"
    return web.Response(
        body=response.body, status=response.status, headers=headers, content_type=kind
    )


async def test_nothing_found_is_an_empty_result(
    database: Database, served: LiteratureServer
) -> None:
    retriever = opened(database, served)
    assert await retriever.search([("zebra",)], k=5) == [[]]
    await retriever.aclose()


async def test_all_workers_together_keep_the_pace(database: Database) -> None:
    stores = [PostgresAnswers(database, days=1) for _ in range(4)]
    waits = await asyncio.gather(*(store.take_turn("pubmed", 10.0) for store in stores))
    assert [round(wait / 10) for wait in sorted(waits)] == [0, 1, 2, 3]


async def test_a_service_that_asks_to_wait_holds_back_every_worker(
    database: Database,
) -> None:
    store = PostgresAnswers(database, days=1)
    await store.hold_back("pubmed", 50.0)
    await store.hold_back("pubmed", 5.0)
    assert 40 < await PostgresAnswers(database, days=1).take_turn("pubmed", 0.0) <= 50
    assert await store.take_turn("europepmc", 0.0) == 0


async def test_an_article_that_was_withdrawn_since_is_not_given(
    database: Database,
) -> None:
    async with serve_literature(GOUT) as server:
        retriever = opened(database, server)
        assert await retriever.search([("colchicine",)], k=5) != [[]]
        server.articles = [replace(GOUT, retracted=True)]
        # A request that was not made before, with the article's record as it was stored.
        assert await retriever.search([("colchicine gout",)], k=5) == [[]]
        await retriever.aclose()


async def test_an_answer_of_today_serves_tomorrow_and_one_about_the_past_has_its_limit(
    database: Database, served: LiteratureServer
) -> None:
    retriever = opened(database, served)
    today = now().date()
    for day in (today, today + timedelta(days=1)):
        await retriever.search([("colchicine gout",)], k=5, not_after=day)
    assert len(served.asked) == 3
    await retriever.search([("colchicine gout",)], k=5, not_after=date(2020, 1, 1))
    await retriever.aclose()
    limits = [
        form.get("maxdate") or form.get("query", "") for _, form in served.asked[3:]
    ]
    assert any("2020/01/01" in limit for limit in limits)
    assert any("TO 2020-01-01]" in limit for limit in limits)


async def test_a_local_corpus_of_a_services_name_keeps_its_digest_and_is_searched(
    database: Database, tmp_path: Path
) -> None:
    settings = Settings.model_validate({"home": tmp_path})
    rows = tmp_path / "rows.jsonl"
    url = "https://pubmed.ncbi.nlm.nih.gov/106/"
    rows.write_text(
        json.dumps({"id": "a", "title": "Gout", "text": "Gout is treated.", "url": url})
        + "\n"
    )
    build_index([open_corpus(rows, name="pubmed")], index_path(settings))
    async with serve_literature(replace(CHAPTER, source="MED")) as server:
        online = settings_of(server).model_copy(update={"home": tmp_path})
        retriever = open_online(online, database)
        assert retriever is not None
        assert retriever.identity.corpora["pubmed"].startswith("sha256:")
        (hits,) = await retriever.search([("gout",)], k=5)
        await retriever.aclose()
    assert {side.side for hit in hits for side in hit.sides} >= {
        "lexical",
        "pubmed",
    }


async def test_answers_that_are_no_longer_used_are_deleted(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(literature, "BATCH", 2)
    settings = Settings.model_validate(
        {"home": tmp_path, "evidence": {"online_days": 10}}
    )
    store = PostgresAnswers(database, days=10)
    keys = [digest_text(str(number)) for number in range(6)]
    for key in keys:
        await store.save("pubmed", key, b"x")
    old = "UPDATE literature_answers SET fetched_at = now() - interval '11 days' WHERE key <> :key"
    async with database.begin() as session:
        await session.execute(text(old), {"key": keys[0]})
    assert (await WORK[RETENTION](database, settings, iso_week(now())))["answers"] == 5
    assert [await store.load(key) for key in keys] == [b"x"] + [None] * 5


async def test_a_service_that_is_away_is_asked_no_more_until_it_answers(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit, "FAILING_S", 0.0)
    async with serve_literature(GOUT) as server:
        settings = settings_of(server, "pubmed")
        store = PostgresCircuits(database)
        first, second = [
            open_online(settings, database, literature_circuits(settings, store))
            for _ in range(2)
        ]
        assert first is not None
        assert second is not None
        await second.search([("gout",)], k=5)
        server.down = True
        for expected in (LiteratureUnavailable, LiteratureUnavailable, CircuitOpen):
            with pytest.raises(expected):
                await first.search([("colchicine",)], k=5)
        asked = len(server.asked)
        monkeypatch.setattr(circuit, "FRESH_S", 0.0)
        with pytest.raises(CircuitOpen):
            await second.search([("colchicine",)], k=5)
        assert len(server.asked) == asked
        assert await second.search([("gout",)], k=5) != [
            []
        ]  # what is stored needs no service
        server.down = False
        async with database.begin() as session:
            await session.execute(text("UPDATE circuits SET retry_at = now()"))
        assert await second.search([("colchicine",)], k=5) != [[]]
        assert await first.search([("colchicine gout",)], k=5) != [[]]
        await first.aclose()
        await second.aclose()


@given(st.text(max_size=200))
def test_no_operator_leaves_the_house(phrase: str) -> None:
    words = plain_words(phrase).split(" ")
    assert len(words) <= MOST_WORDS
    assert not {"and", "or", "not", "to"} & set(words)
    assert all(c.isalnum() or c in "-'" for word in words for c in word)
