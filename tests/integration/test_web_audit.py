"""The audit room by HTTP: lists, exports and pages of threads agree with the rows themselves."""

import csv
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from selectolax.lexbor import LexborHTMLParser as Html
from sqlalchemy import text

from medlive.config import Settings
from medlive.db.audit.tables import LISTINGS
from medlive.db.session import Database
from medlive.db.studies import Study, add_study, close_study
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Stratum, StudyKind
from medlive.db.tables.release import ReviewAction
from medlive.db.threads import threads
from medlive.integrity.digest import digest_text
from medlive.service.curation.review import decide_case, overrule_rejection
from medlive.web.site import Site
from tests.support.reviewing import drain, pipeline
from tests.support.scripted import PATIENT, THREAD
from tests.support.web import Browser, add_account, served, session_of

DAY = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def viewer(
    database: Database, web_database: Database, settings: Settings, tmp_path: Path
) -> AsyncIterator[Browser]:
    """A viewer's browser."""
    site = Site(web_database, settings, tmp_path)
    async with served(site) as browser:
        browser.headers.update(
            await session_of(site, await add_account(database, "vera", Role.VIEWER))
        )
        yield browser


@pytest.fixture
async def many(database: Database, settings: Settings) -> None:
    """120 threads of three sources that wait for the filters; one begins as a formula does."""
    made = [
        replace(
            THREAD,
            source=f"s{n % 3}",
            thread_id=f"a/{n}",
            title=f"=1+{n}",
            posted_at=DAY + timedelta(days=n),
        )
        for n in range(120)
    ]
    async with database.begin() as session:
        await threads.save_threads(session, made)


def total(page: Html) -> int:
    """How many rows a table page says that there are."""
    return int(page.css_first("#listing strong").text().replace(",", ""))


def rows(page: Html) -> list[str]:
    """Where the rows of a table page lead to."""
    return [str(a.attributes["href"]) for a in page.css("tbody td:first-child > a")]


async def read(browser: Browser, path: str) -> Html:
    answer = await browser.get(path)
    assert answer.status_code == 200, (path, answer.text[:500])
    return Html(answer.text)


async def test_every_value_of_a_facet_leads_to_as_many_rows_as_it_says(
    viewer: Browser, many: None
) -> None:
    page = await read(viewer, "/audit/threads?source=s1")
    assert total(page) == 40
    links = page.css("#facets li a")
    assert {
        parse_qs(urlsplit(str(a.attributes["href"])).query).get("source", [""])[0]
        for a in links
    } >= {"s1"}
    for link in links:
        shown = int(link.next.next.text()) if link.next and link.next.next else 0
        there = total(await read(viewer, str(link.attributes["href"])))
        taken_out = link.attributes.get("aria-current") == "true"
        sources = parse_qs(urlsplit(str(link.attributes["href"])).query).get(
            "source", []
        )
        assert there == (
            120 if taken_out else 40 * len(sources) if len(sources) > 1 else shown
        )


async def test_pages_lead_through_all_rows_and_back_and_an_export_has_exactly_these(
    viewer: Browser, many: None
) -> None:
    place, found, before = (
        "/audit/threads?source=s0&source=s1&sort=posted&order=asc",
        [],
        "",
    )
    while place:
        page = await read(viewer, place)
        found += rows(page)
        following, previous = (
            page.css_first("a[rel=next]"),
            page.css_first("a[rel=prev]"),
        )
        before = str(previous.attributes["href"]) if previous else ""
        place = str(following.attributes["href"]) if following else ""
    assert len(found) == len(set(found)) == 80
    assert rows(await read(viewer, before)) == found[:50]
    filtered = "source=s0&source=s1&sort=posted&order=asc"
    exported = await viewer.get(f"/audit/threads.csv?{filtered}")
    assert (
        exported.headers["Content-Disposition"]
        == 'attachment; filename="medlive-threads.csv"'
    )
    lines = list(csv.DictReader(io.StringIO(exported.text)))
    assert [urlsplit(href).path for href in found] == [
        f"/audit/threads/{r['source']}/{r['thread_id']}" for r in lines
    ]
    assert {r["title"][:2] for r in lines} == {"'="}


@pytest.mark.thorough
async def test_a_threads_page_leads_to_its_neighbours_in_the_list_it_came_from(
    viewer: Browser, many: None
) -> None:
    first, *others = rows(await read(viewer, "/audit/threads?source=s2&sort=posted"))
    place, met = first, [urlsplit(first).path]
    while (
        link := (await read(viewer, place)).css_first(
            "nav[aria-label=List] a[rel=next]"
        )
    ) is not None:
        place = str(link.attributes["href"])
        met.append(urlsplit(place).path)
    assert met == [urlsplit(href).path for href in (first, *others)]
    previous = (await read(viewer, place)).css_first("nav[aria-label=List] a[rel=prev]")
    assert previous is not None
    assert urlsplit(str(previous.attributes["href"])).path == met[-2]


async def test_wrong_addresses_are_said(viewer: Browser, many: None) -> None:
    big = "9" * 30
    for path, status in (
        ("nothing", 404),
        ("threads/s0/nothing", 404),
        ("cases/ml-0", 404),
        ("requests/sha256:0", 404),
        ("requests/" + "x" * 5000, 404),
        ("requests/%00", 404),
        ("cases/%00", 404),
        ("threads?week=soon", 422),
        ("threads?week=9999.W52", 422),
        ("threads?since=never", 422),
        ("threads?since=0001-01-01T00:00:00%2B14:00", 422),
        ("threads?sort=nothing", 422),
        ("threads?after=[]", 422),
        (f"pages?after={big}", 422),
        ("pages?status=%00", 200),
        ("pages.csv?status=%00", 200),
        ("nothing.csv", 404),
        ("threads?nothing=1", 200),
        ("threads?text=%00", 200),
        ("/acts/log?before=" + big, 422),
        ("/acts/log?before=0", 200),
    ):
        assert (
            await viewer.get(path if path.startswith("/") else f"/audit/{path}")
        ).status_code == status, path
    gone = await viewer.get(
        "/audit/threads?source=s1&before=9999-01-01T00:00:00%2B00:00~1"
    )
    assert (gone.status_code, gone.headers["Location"]) == (
        303,
        "/audit/threads?source=s1",
    )


async def test_a_moment_of_another_zone_stays_that_moment(viewer: Browser) -> None:
    page = await read(viewer, "/audit/threads?since=2026-11-22T00:00:00%2B08:00")
    links = [
        str(a.attributes["href"])
        for a in page.css("#listing a")
        if "since=" in str(a.attributes["href"])
    ]
    since = {parse_qs(urlsplit(link).query)["since"][0] for link in links}
    assert since == {"2026-11-22T00:00:00+08:00"}


async def test_empty_tables_say_what_fills_them(viewer: Browser) -> None:
    assert "medlive demo" in (await viewer.get("/audit")).text
    for name in LISTINGS:
        page = await read(viewer, f"/audit/{name}")
        assert page.css_first(".empty code").text().startswith("medlive ")
        assert page.css("tbody") == []
    assert "Nothing matches" in (await viewer.get("/audit/threads?source=s9")).text


async def test_a_cases_page_shows_the_whole_line_of_decisions_and_who_approved_it(
    database: Database, viewer: Browser, held: str
) -> None:
    page = await read(viewer, f"/audit/cases/{held}")
    text = page.css_first("main").text()
    for words in (
        "What could cause a dry cough for 3 weeks?",
        "Held for advice harmful (a2)",
        "S_inf",
        "Lisinopril can cause a dry cough",
        "demo:1:0",
        "No snapshot holds it",
        "Tea soothes. a1, writing: trivial",
        "Points that the advice lacks",
        "not with this patient",
    ):
        assert words in text, words
    lit = {
        name
        for mark in page.css(".thread mark")
        for name in str(mark.attributes["data-of"]).split()
    }
    assert {"n1", "n2", "q", "a1", "a2"} <= lit
    assert {str(a.attributes["href"]) for a in page.css("a[href^='#q-']")} == {
        f"#q-{name}" for name in lit
    }
    assert all(page.css_first(f"#q-{name}") for name in lit)
    assert page.css("form[action^='/acts/']") == []  # a viewer may not act
    prompts = [
        str(a.attributes["href"]) for a in page.css("a[href^='/audit/requests/']")
    ]
    assert len(prompts) >= 10
    asked = await read(viewer, prompts[0])
    assert PATIENT[:40] in asked.css_first("main").text()
    await decide_case(database, held, ReviewAction.APPROVE, "Checked.", by="Bo")
    page = await read(viewer, f"/audit/cases/{held}")
    notice = page.css_first(".notice").text()
    assert "Approved by Bo on" in notice
    assert "Checked." in notice
    badges = [badge.text() for badge in page.css("main h1 + p .badge")]
    assert badges == ["ready"]


async def test_a_page_says_what_holds_a_case_whose_filters_were_overruled(
    database: Database, viewer: Browser
) -> None:
    async with database.begin() as session:
        [saved] = await threads.save_threads(session, [replace(THREAD, posted_at=DAY)])
        rejected = (
            "INSERT INTO filter_results (revision_id, chain_digest, passed, rejected_by, reason)"
            " VALUES (:r, :c, false, 'codebook', 'no_codebook_term')"
        )
        values = {"r": saved.revision_pk, "c": digest_text("chain")}
        await session.execute(text(rejected), values)
    address = "/audit/threads/test/1"
    notice = (await read(viewer, address)).css_first(".notice").text()
    assert "Rejected by the filters: no codebook term" in notice
    await overrule_rejection(database, "test", "1", "A cough is clinical.")
    await drain(pipeline(database))
    notice = (await read(viewer, address)).css_first(".notice").text()
    assert "Held for advice harmful" in notice


async def test_a_cases_page_shows_no_verdicts_to_who_rates(
    database: Database, viewer: Browser, held: str
) -> None:
    async def is_withheld() -> bool:
        page = await read(viewer, f"/audit/cases/{held}")
        return "is shown when the study is closed" in page.css_first("main").text()

    assert not await is_withheld()
    async with database.begin() as session:
        await add_study(
            session,
            Study(
                name="s",
                kind=StudyKind.CASE_QUALITY,
                stratum=Stratum.NONE,
                seed=1,
                raters=["vera", "bo"],
                created_by="ada",
            ),
            [],
        )
    assert await is_withheld()
    async with database.begin() as session:
        await close_study(session, "s")
    assert not await is_withheld()
