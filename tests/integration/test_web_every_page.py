"""Every page that there is: hostile texts stay texts, and axe-core finds nothing serious, light and dark.

A route that is added needs a line in `house`, or in `NOT_PAGES`.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser as Html
from sqlalchemy import text as sql

from medlive.config import Settings
from medlive.curation.model import Outcome
from medlive.db import accounts
from medlive.db.audit.tables import LISTINGS
from medlive.db.curation.cases import set_status
from medlive.db.runs import record_evaluation
from medlive.db.session import Database
from medlive.db.studies import (
    Rating,
    Study,
    StudyItem,
    add_study,
    items_of,
    save_rating,
)
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Stratum, StudyKind
from medlive.db.tables.release import CaseStatus
from medlive.db.threads import threads
from medlive.integrity.digest import digest_text
from medlive.service.curation.curate import curate_revision
from medlive.service.curation.review import dispute_case
from medlive.service.studies import start_study
from medlive.site.pages import SECTIONS
from medlive.snapshot.diff import Change
from medlive.snapshot.errata import Errata, Erratum, WithdrawalKind, write_errata_file
from medlive.web.app import ROOMS, build_app, serve_web
from tests.integration.test_web_access import routes
from tests.integration.test_web_downloads import register
from tests.support.hostile import TEXTS
from tests.support.releases import case, criterion, release
from tests.support.reviewing import pipeline, rubric
from tests.support.scripted import PATIENT, THREAD, judged
from tests.support.web import Browser, add_account, session_of, whole_site

axe = pytest.importorskip(
    "axe_playwright_python.async_playwright", reason="axe-core is not installed"
)

DAY = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = "2026.W46", "2026.W47"
SITE_PAGES = ("leaderboard", "scale", "cases", "weeks", "method", "downloads", "enter")
NOT_PAGES = {
    f"GET {path}"
    for path in (
        "/index.html",
        "/assets/{name}",
        "/data/{name}",
        # Of the site, whose own tests look at them
        "/cases/{name}",
        "/lists/{name}",
        "/models/{name}",
        "/latest",
        "/latest/{name:path}",
        "/latest.json",
        "/feed.xml",
        "/minisign.pub",
        "/errata.json",
        "/errata.json.minisig",
        "/report/{version}/{name:path}",
        "/medlive-{version}/{name:path}",
        "/sign-in/provider",
        "/sign-in/provider/back",
        "/audit/{table}.csv",
        "/review/studies/{name}/ratings.csv",
    )
}
"""Files and redirections."""
INJECTED = (
    "[data-xss], iframe, base, main style, main svg:not(.picture, .bar, .timeline), "
    "main script, form[action^='//']"
)
LEADS_TO_SCRIPT = "document.querySelectorAll('a[href^=\"javascript:\" i]').length"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
WHITE, DARK = "rgb(255, 255, 255)", "rgb(20, 22, 26)"
TOO_WIDE = "document.documentElement.scrollWidth > innerWidth"
UNLABELLED = (
    "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
    ".filter(field => !field.labels.length).map(field => field.outerHTML)"
)


@dataclass(frozen=True)
class House:
    """A site that holds something hostile wherever it can; `ada` is its admin."""

    url: str
    pages: Mapping[str, tuple[str, ...]]  # Route → addresses of its pages
    full: tuple[str, ...]  # The pages that show every hostile text
    headers: Mapping[str, str]  # Of ada's browser


def replies_with(text: str) -> dict[str, Any]:
    """Replies of an engine that writes a text wherever it may."""

    def written(inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "narrative": f"Dry cough. {text}",
            "advice": " ".join(e["statement"] for e in inputs["advice"]),
        }

    def criteria(inputs: Mapping[str, Any]) -> dict[str, Any]:
        found = rubric(inputs)
        return {
            **found,
            "criteria": [
                c | {"criterion": f"{c['criterion']} {text}"} for c in found["criteria"]
            ],
        }

    verdict = {
        "verdict": "supported",
        "reason": text,
        "evidence": [
            {"passage_id": "p1", "quotes": ["lisinopril often cause a dry cough"]}
        ],
    }

    def judged(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"verdicts": [{"id": c["id"], **verdict} for c in inputs["claims"]]}

    return {
        "controller__write": written,
        "rubric__write": criteria,
        "validator__alignment": judged,
    }


async def curate_hostile(database: Database) -> list[str]:
    """Curate threads that hold a text each, in title, message and tag, and whose engine repeats it; case ids."""
    opening, *rest = THREAD.messages
    made = [
        replace(
            THREAD,
            thread_id=f"{n}-{text}",
            title=text,
            tags=(text,),
            posted_at=DAY,
            messages=(replace(opening, text=f"{PATIENT} {text}"), *rest),
        )
        for n, text in enumerate(TEXTS)
    ]
    async with database.begin() as session:
        saved = await threads.save_threads(session, made)
    for text, one in zip(TEXTS, saved, strict=True):
        await curate_revision(
            pipeline(database, text, **replies_with(text)), one.revision_pk
        )
    async with database.begin() as session:
        return list(await session.scalars(sql("SELECT id FROM cases ORDER BY id")))


async def park_hostile(database: Database) -> None:
    """A parked thread whose claims were searched by such texts."""
    phrases = [text[:100] for text in TEXTS if len(text.strip()) > 1]

    def claims(inputs: Mapping[str, Any]) -> dict[str, Any]:
        stated = []
        for place, one in enumerate(inputs["advice"]):
            own = phrases[4 * place : 4 * place + 4]
            stated.append(
                {"id": one["id"], "statement": one["statement"], "queries": own}
            )
        return {"claims": stated}

    def align(inputs: Mapping[str, Any]) -> dict[str, Any]:
        reply = judged("neutral")(inputs)
        for item in reply["verdicts"]:
            item |= {"on_subject": False, "nearest": "p1"}
        return reply

    made = replace(THREAD, thread_id="parked", posted_at=DAY)
    async with database.begin() as session:
        [saved] = await threads.save_threads(session, [made])
    own = pipeline(
        database, "parked", validator__claims=claims, validator__alignment=align
    )
    curated = await curate_revision(own, saved.revision_pk)
    assert curated is not None
    assert curated.outcome is Outcome.PARKED


async def fill_reviews(
    database: Database, settings: Settings, cases: list[str]
) -> None:
    """Held cases, disputes, quarantined sources, and two studies: one rated by ada, one settled."""
    for case_id, text in zip(cases, TEXTS, strict=False):
        await dispute_case(database, case_id, text, by="ada")
    for text in TEXTS[len(cases) :]:
        await dispute_case(database, cases[0], text, by="ada")
    common: dict[str, Any] = {
        "version": None,
        "stratum": Stratum.NONE,
        "seed": 0,
        "created_by": "ada",
        "created_at": DAY,
    }
    first = Study(
        name="first",
        kind=StudyKind.CASE_QUALITY,
        raters=["ada", "bob"],
        **common,
    )
    async with database.begin() as session:
        await set_status(session, cases[0], CaseStatus.READY, None)
    await start_study(database, settings, first, 1)
    check = Study(
        name="check",
        kind=StudyKind.GRADER_CHECK,
        run=TEXTS[0],
        grader=TEXTS[0],
        raters=["ann", "bob"],
        adjudicator="ada",
        **common,
    )
    items = [
        StudyItem(
            item=f"i-{n}",
            case_id=cases[0],
            revision=1,
            aspect="verdict",
            criterion_id="c1",
            answer=text,
            verdict=n % 3 != 1,
        )
        for n, text in enumerate(TEXTS, 1)
    ]
    async with database.begin() as session:
        for case_id, text in zip(cases[1:4], TEXTS, strict=False):
            await set_status(session, case_id, CaseStatus.HELD, text)
        for item in await items_of(session, "first"):
            await save_rating(
                session,
                "first",
                Rating(item=item.item, rater="ada", rating=1, comment=TEXTS[7]),
            )
        await add_study(session, check, items)
        for n, item in enumerate(items):
            await save_rating(
                session,
                "check",
                Rating(
                    item=item.item, rater="ann", rating=1, comment=item.answer or ""
                ),
            )
            await save_rating(
                session,
                "check",
                Rating(item=item.item, rater="bob", rating=int(n % 3 == 0), comment=""),
            )
        for n, text in enumerate(TEXTS):
            await session.execute(
                sql(
                    "INSERT INTO sources (name, kind, quarantined_at, quarantine_reason)"
                    " VALUES (:name, 'site', now(), :reason)"
                ),
                {"name": f"s{n}", "reason": text},
            )


async def list_of(database: Database) -> list[accounts.Account]:
    async with database.begin() as session:
        return await accounts.list_accounts(session)


async def fill_downloads(database: Database, settings: Settings) -> None:
    """Two snapshots whose difference, errata, evaluations and leaderboard hold every text."""
    root = settings.home / "snapshots"
    before = [case(f"h{n}", first_release=OLD) for n in range(len(TEXTS))]
    after = [
        replace(
            c,
            advice=text,
            narrative=text,
            revision=2,
            criteria=(criterion(c.case_id, 1, f"Says {text}"), c.criteria[1]),
        )
        for c, text in zip(before, TEXTS, strict=True)
    ]
    changes = tuple(Change("revised", c.case_id, c.advice, 1, 2) for c in after)
    first = release(root, OLD, before)
    after = [
        replace(c, criteria=tuple(replace(k, revision=2) for k in c.criteria))
        for c in after
    ]
    second = release(root, NEW, after, first, changes)
    for made in (first, second):
        await register(database, made.manifest.version, made.path, [])
    entries = [
        Erratum(
            id=n,
            issued_at=DAY,
            kind=WithdrawalKind.ERRATUM,
            case_id=f"h{n - 1}",
            criterion_id=None,
            reason=text,
            revision=None,
            snapshots=(NEW,),
            fixed_in=None,
        )
        for n, text in enumerate(TEXTS, 1)
    ]
    write_errata_file(root, Errata(entries=tuple(entries)), None)
    score = {"n": 9, "mean": 0.5, "low": None, "high": 0.75}
    async with database.begin() as session:
        for text in TEXTS:
            await record_evaluation(
                session,
                run_digest=digest_text(text),
                snapshot_version=NEW,
                model=text,
                grader=text,
                path=text,
                scores={"metric": "paper", "overall": score},
            )


@pytest.fixture
async def house(database: Database, settings: Settings) -> AsyncIterator[House]:
    for name, role in (
        ("ada", Role.ADMIN),
        ("ann", Role.REVIEWER),
        ("bob", Role.REVIEWER),
    ):
        await add_account(database, name, role)
    cases = await curate_hostile(database)
    await park_hostile(database)
    await fill_reviews(database, settings, cases)
    await fill_downloads(database, settings)
    async with database.begin() as session:
        token = await accounts.invite(session, "zoe", Role.VIEWER)
        [request] = await session.scalars(
            sql("SELECT request_digest FROM agent_calls ORDER BY 1 LIMIT 1")
        )
    site = whole_site(database, settings, settings.home / "snapshots")
    headers = await session_of(
        site, next(a for a in await list_of(database) if a.name == "ada")
    )
    async with (
        serve_web(build_app(site), "127.0.0.1", 0) as url,
        Browser(base_url=url) as browser,
    ):
        browser.headers.update(headers)
        listed = Html((await browser.get("/audit/threads")).text)
        own = [
            str(a.attributes["href"]) for a in listed.css("tbody td:first-child > a")
        ]
        pages = {
            "/": ("/",),
            **{f"/{name}.html": (f"/{name}.html",) for name in SITE_PAGES},
            "/snapshots": ("/snapshots",),
            "/medlive-{version}/": (f"/medlive-{NEW}/",),
            "/sign-in": ("/sign-in",),
            "/invitation/{token}": (f"/invitation/{token}",),
            "/account": ("/account",),
            "/audit": ("/audit",),
            "/audit/gaps": ("/audit/gaps",),
            "/audit/{table}": tuple(f"/audit/{name}" for name in LISTINGS),
            "/audit/threads/{source}/{thread_id:path}": tuple(own),
            "/audit/cases/{case_id}": tuple(
                f"/audit/cases/{case_id}" for case_id in cases
            ),
            "/audit/requests/{digest}": (
                f"/audit/requests/{request}",
                "/audit/requests/screener.extract",
            ),
            "/review": ("/review",),
            "/review/studies/{name}": (
                "/review/studies/first?item=1",
                "/review/studies/first",
            ),
            "/review/studies/{name}/results": (
                "/review/studies/check/results",
                "/review/studies/first/results",
            ),
            "/acts/log": ("/acts/log",),
            "/acts/case/{case_id}": tuple(f"/acts/case/{c}" for c in cases[:4]),
            "/acts/withdraw/{case_id}": (f"/acts/withdraw/{cases[0]}",),
            "/acts/take-down/{source}/{thread_id:path}": (
                own[0].replace("/audit/threads/", "/acts/take-down/").partition("?")[0],
            ),
        }
        full = (
            f"/medlive-{NEW}/",
            "/audit",
            "/audit/threads",
            "/review",
            "/acts/log",
            "/review/studies/check/results",
        )
        yield House(url, pages, full, headers)


@pytest.mark.thorough
async def test_no_page_takes_a_text_for_markup_and_axe_finds_nothing_serious(
    house: House, browser: Any
) -> None:
    private = {route for public in (True, False) for route in routes(public)}
    gets = {route for route in private if route.startswith("GET ")}
    # The public site's pages are one route.
    of_site = {f"/{name}" for name, *_ in SECTIONS} - {"/", "/index.html"}
    others = {f"GET {route}" for route in house.pages if route not in of_site}
    assert of_site <= house.pages.keys()
    assert others | {"GET /{name}.html"} == gets - NOT_PAGES
    assert len(house.pages["/audit/cases/{case_id}"]) >= 15
    assert len(ROOMS) == 5  # Each is in `pages`
    await read_all(house)
    await look_at_all(house, browser)


async def read_all(house: House) -> None:
    """Every page by HTTP: what a parser finds in it is the page's own."""
    async with Browser(base_url=house.url, headers=house.headers) as browser:
        for path in (path for paths in house.pages.values() for path in paths):
            answer = await browser.get(path)
            assert answer.status_code == 200, (path, answer.text[:500])
            assert "default-src 'none'" in (
                policy := answer.headers["Content-Security-Policy"]
            )
            assert "unsafe" not in policy
            page = Html(answer.text)
            assert page.css(INJECTED) == [], path
            assert [
                script
                for script in page.css("script")
                if not script.attributes.get("src")
            ] == [], path
            assert [
                a
                for a in page.css("a")
                if str(a.attributes.get("href", "")).startswith("javascript:")
            ] == []
            if path in house.full:
                shown = " ".join(page.css_first("main").text().split())
                assert [
                    text for text in TEXTS if " ".join(text.split()) not in shown
                ] == [], path


async def look_at_all(house: House, chromium: Any) -> None:
    """One page or two of each route in a browser: it runs nothing, fits, and can be used by everybody."""
    said: list[str] = []
    context = await chromium.new_context(
        extra_http_headers={"Cookie": house.headers["Cookie"]}
    )
    page = await context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    checker = axe.Axe()
    for route, paths in house.pages.items():
        for path in (
            paths if route == "/audit/{table}" else paths[: 2 if "case" in route else 1]
        ):
            await page.emulate_media(color_scheme="light", reduced_motion="reduce")
            await page.set_viewport_size({"width": 390, "height": 900})
            await page.goto(house.url + path)
            assert await page.locator(INJECTED).count() == 0, path
            assert await page.evaluate(LEADS_TO_SCRIPT) == 0, path
            assert await page.evaluate(UNLABELLED) == [], path
            assert await page.locator("main h1").count() == 1, path
            assert not await page.evaluate(TOO_WIDE), path
            assert await page.evaluate(BACKGROUND) == WHITE, path
            await check(checker, page, path)
            await page.emulate_media(color_scheme="dark")
            assert await page.evaluate(BACKGROUND) == DARK, path
            await check(
                checker, page, path, runOnly=["color-contrast"]
            )  # Nothing else has changed
            await page.set_viewport_size({"width": 1280, "height": 900})
            assert not await page.evaluate(TOO_WIDE), path
            assert said == [], path
    await context.close()


async def check(checker: Any, page: Any, path: str, **options: Any) -> None:
    found = (
        await checker.run(page, options={"resultTypes": ["violations"], **options})
    ).response["violations"]
    serious = [
        (v["id"], v["nodes"][0]["html"])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == [], path
