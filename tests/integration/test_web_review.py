"""The review desk: drawing, blindness, agreement against sums by hand, and the whole way in Chromium."""

import asyncio
import csv
import io
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from medlive.config import Settings
from medlive.db.audit_log import list_entries
from medlive.db.runs import record_evaluation
from medlive.db.session import Database
from medlive.db.studies import (
    Rating,
    Study,
    find_study,
    items_of,
    ratings_of,
    save_rating,
)
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Stratum, StudyKind
from medlive.db.tables.release import ReviewAction
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.scoring.graded import load_graded
from medlive.grader.rated import case_parts
from medlive.integrity.digest import digest_text
from medlive.service.curation.review import decide_case
from medlive.service.harvest.takedown import take_down
from medlive.service.studies import draw, evaluate, start_study
from medlive.snapshot.load import load_snapshot
from medlive.web.app import build_app, serve_web
from medlive.web.site import Site
from tests.support.instance import Instance
from tests.support.release import fill
from tests.support.reviewing import status_of
from tests.support.runs import graded_by, made_run
from tests.support.web import PASSWORD, add_account, served, session_of, whole_site

FORM = {
    "name": "first",
    "kind": "case_quality",
    "sample": "5",
    "raters": "ann, bob",
    "adjudicator": "cleo",
}


@pytest.fixture
async def site(
    database: Database, web_database: Database, settings: Settings, tmp_path: Path
) -> Site:
    """A site with an admin, two raters and an adjudicator."""
    for name, role in (
        ("ada", Role.ADMIN),
        ("ann", Role.REVIEWER),
        ("bob", Role.REVIEWER),
        ("cleo", Role.REVIEWER),
    ):
        await add_account(database, name, role)
    return whole_site(web_database, settings, tmp_path)


def test_a_sample_has_as_many_of_each_stratum_and_is_the_seed_s() -> None:
    known = [
        SimpleNamespace(case_id=f"c{n:03}", language="zh" if n % 10 == 0 else "en")
        for n in range(100)
    ]
    drawn = draw(known, 16, Stratum.LANGUAGE, 3)
    assert Counter(c.language for c in drawn) == {"en": 8, "zh": 8}
    assert Counter(c.language for c in draw(known, 40, Stratum.LANGUAGE, 3)) == {
        "en": 30,
        "zh": 10,
    }
    assert (
        drawn
        == draw(known[::-1], 16, Stratum.LANGUAGE, 3)
        != draw(known, 16, Stratum.LANGUAGE, 4)
    )
    assert draw(known, 1000, Stratum.NONE, 0) == known
    assert draw([], 5, Stratum.THEME, 0) == []


@pytest.mark.thorough
async def test_raters_see_neither_each_other_nor_other_studies(
    database: Database, site: Site, held: str
) -> None:
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    async with served(site) as browser:
        people = {
            name: await session_of(site, account)
            for name in ("ada", "ann", "bob", "cleo")
            if (account := await find(database, name))
        }

        async def send(who: str, path: str, **fields: str) -> int:
            return (
                await browser.post(f"/review/{path}", data=fields, headers=people[who])
            ).status_code

        async def see(who: str, path: str) -> Any:
            return await browser.get(f"/review{path}", headers=people[who])

        for wrong in (
            {"raters": "ann"},
            {"raters": "ann ann"},
            {"raters": "ann zoe"},
            {"adjudicator": "ann"},
            {"sample": "x"},
            {"sample": "-1"},
            {"kind": "x"},
            {"version": "2020.W01"},
            {"name": "A b"},
            {"seed": "9" * 20},
        ):
            assert await send("ada", "studies", **FORM | wrong) == 422, wrong
        assert await send("ada", "studies", **FORM) == 303
        assert await send("ada", "studies", **FORM) == 422
        assert (await see("cleo", "/studies/first")).status_code == 403
        for name in ("ann", "bob"):
            assert (await see(name, "/studies/first/results")).status_code == 403
        assert (
            await send(
                "ann",
                "studies/first/items/1",
                rating="2",
                comment="Seen by nobody else.",
            )
            == 303
        )
        assert await send("ann", "studies/first/items/1", rating="3") == 422
        assert await send("ann", "studies/first/items/9", rating="1") == 422
        assert (
            await send("cleo", "studies/first/items/1", rating="1") == 422
        )  # Nothing to settle yet
        assert await send("ada", "studies/first/items/1", rating="1") == 403
        for path in (
            "",
            "/studies/first",
            "/studies/first?item=1",
            "/studies/first?item=2",
        ):
            shown = (await see("bob", path)).text
            assert "Seen by nobody else." not in shown
            assert 'aria-pressed="true"' not in shown
        assert 'aria-pressed="true"' in (await see("ann", "/studies/first?item=1")).text
        for who, number, rating in (("ann", 2, "1"), ("bob", 1, "2"), ("bob", 2, "0")):
            assert (
                await send(who, f"studies/first/items/{number}", rating=rating) == 303
            )
        results = (await see("cleo", "/studies/first/results")).text
        assert "ann" not in results.split("Disagreements")[1]
        assert "2 items in common are too few" not in results.split("Disagreements")[1]
        assert (
            await send("cleo", "studies/first/items/1", rating="1") == 422
        )  # They agree on it
        assert (
            await send(
                "cleo", "studies/first/items/2", rating="1", comment="Acceptable."
            )
            == 303
        )
        assert (
            "Settled: 1, Acceptable."
            in (await see("cleo", "/studies/first/results")).text
        )
        assert (await see("ann", "/studies/first/ratings.csv")).status_code == 403
        rows = list(
            csv.DictReader(
                io.StringIO((await see("ada", "/studies/first/ratings.csv")).text)
            )
        )
        assert Counter((r["rater"], r["rating"]) for r in rows) == {
            ("ann", "2"): 1,
            ("ann", "1"): 1,
            ("bob", "2"): 1,
            ("bob", "0"): 1,
        }
        settled = (await see("ada", "/studies/first/ratings.csv?adjudicated=true")).text
        assert [row.split(",")[1:] for row in settled.split()[1:]] == [["cleo", "1"]]
        for _ in range(2):  # A double click
            assert await send("ada", "studies/first/close") == 303
        assert await send("ann", "studies/first/items/1", rating="0") == 422
    async with database.begin() as session:
        log = [
            e.action.value for e in await list_entries(session, subject="study:first")
        ]
    assert log == ["close_study", "start_study"]
    await take_down(database, site.settings, "test", "1", "The author asked.")
    async with database.begin() as session:
        assert (
            await items_of(session, "first"),
            await ratings_of(session, "first"),
        ) == ([], [])


@pytest.mark.thorough
async def test_studies_come_to_what_was_rated_and_eval_meta_reads_a_grader_check(
    database: Database, database_url: str, site: Site, tmp_path: Path
) -> None:
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        fill(connection, 8)
    instance = Instance(tmp_path, database_url)

    async def run(*arguments: str | Path) -> Any:
        return (
            await asyncio.to_thread(lambda: instance.here(*arguments, "--json"))
        ).json

    frozen = Path((await run("snapshot", "freeze", "--week", "2026.W47"))["path"])
    made = made_run(
        from_snapshot(load_snapshot(frozen)),
        tmp_path / "run",
        "model-x",
        0.6,
        missing=False,
    )
    scores = {
        "metric": "paper",
        "overall": {"n": 8, "mean": 0.5, "low": None, "high": None},
    }
    known: dict[str, Any] = {
        "snapshot_version": "2026.W47",
        "model": "model-x",
        "grader": "judge",
        "scores": scores,
    }
    async with database.begin() as session:
        await record_evaluation(
            session, run_digest=digest_text("1"), path=str(made), **known
        )
        await record_evaluation(
            session, run_digest=digest_text("2"), path=str(tmp_path), **known
        )
    async with served(site) as browser:
        people = {
            name: await session_of(site, await find(database, name))
            for name in ("ada", "ann")
        }

        async def get(who: str, path: str) -> str:
            return (
                await browser.get(f"/review/studies/{path}", headers=people[who])
            ).text

        for path in ("", "/etc", str(tmp_path)):
            refused = FORM | {"kind": "grader_check", "run": path}
            answer = await browser.post(
                "/review/studies", data=refused, headers=people["ada"]
            )
            assert answer.status_code == 422, path
        for kind, count in (
            ("case_quality", 16),
            ("criterion_validity", 24),
            ("grader_check", 24),
        ):
            form = FORM | {
                "name": kind.replace("_", "-"),
                "kind": kind,
                "sample": "8",
                "run": str(made),
            }
            assert (
                await browser.post(
                    "/review/studies",
                    data=form | {"version": "2026.W47"},
                    headers=people["ada"],
                )
            ).status_code == 303
            async with database.begin() as session:
                study = await find_study(session, form["name"])
                items = await items_of(session, study.name)
                assert len(items) == count
                for n, item in enumerate(
                    items
                ):  # They differ on every fifth, and once bob cannot decide
                    for rater, rating in (
                        ("ann", n % 3 > 0),
                        ("bob", None if n == 5 else n % 3 > 0 and n % 5 > 0),
                    ):
                        given = rating if rating is None else int(rating)
                        await save_rating(
                            session,
                            study.name,
                            Rating(
                                item=item.item, rater=rater, rating=given, comment=""
                            ),
                        )
                    if n % 5 == 0:
                        await save_rating(
                            session,
                            study.name,
                            Rating(item=item.item, rater="cleo", rating=1, comment=""),
                        )
                results = await evaluate(session, study)
            shown = await get("ann", f"{study.name}?item=1")
            assert not any(word in shown for word in ("model-x", "judge", str(made)))
            files = [tmp_path / f"{kind}.csv", tmp_path / f"{kind}-settled.csv"]
            for file, query in zip(files, ("", "?adjudicated=true"), strict=True):
                file.write_text(await get("ada", f"{study.name}/ratings.csv{query}"))
            if kind != "grader_check":
                assert any(one.ac1.value != 1.0 for one in results.aspects)
                continue
            read = await run(
                "eval",
                "meta",
                made,
                "--human",
                files[0],
                "--human",
                files[1],
                "--adjudicator",
                "cleo",
            )
            assert results.grading is not None
            assert results.grading.majority is not None
            assert read["coverage"]["graded"] == read["coverage"]["rated"] == 24
            for name in (
                "people_ac1",
                "people_macro_f1",
                "grader_ac1",
                "grader_macro_f1",
            ):
                assert getattr(results.grading, name).value == pytest.approx(
                    read["criteria"][name]["value"]
                ), name
            agreed = results.grading.majority
            assert (agreed.first, agreed.equal.n) == (
                "adjudicated",
                read["criteria"]["majority"]["equal"]["n"],
            )
            assert agreed.macro_f1.value == pytest.approx(
                read["criteria"]["majority"]["macro_f1"]["value"]
            )
            by_hand = {
                i.item
                for n, i in enumerate(items)
                if n % 5 and i.verdict is not (n % 3 > 0)
            } | {i.item for n, i in enumerate(items) if n % 15 == 0 and i.verdict}
            assert {item.item for item in results.overturned} == by_hand != set()
            page = await get("ada", "grader-check/results")
            assert all(
                f"{getattr(agreed, name).value:.3f}" in page
                for name in ("ac1", "macro_f1")
            )
            assert page.count("every rater:") == len(by_hand)

        # Another judge decides the first criterion of each case otherwise: people settle those eight alone.
        base = load_graded(made)
        flipped = {case.criteria[0].id for case in base.run.cases}
        graded_by(
            "second",
            made,
            lambda case, c: base.verdicts(case.case_id)[c.id] is not (c.id in flipped),
        )
        form = FORM | {
            "name": "dual",
            "kind": "grader_check",
            "sample": "8",
            "run": str(made),
        }
        two = "judge-2026-01-01 second"
        for judges, status in (("nobody second", 422), ("second", 422), (two, 303)):
            answer = await browser.post(
                "/review/studies", data=form | {"judges": judges}, headers=people["ada"]
            )
            assert answer.status_code == status, judges
        async with database.begin() as session:
            study, items = (
                await find_study(session, "dual"),
                await items_of(session, "dual"),
            )
            assert (study.grader, study.against) == tuple(two.split())
            assert {f"{item.case_id}-{item.criterion_id}" for item in items} == flipped
            for n, item in enumerate(items):
                for who, value in (
                    ("ann", 1),
                    ("bob", int(n > 0)),
                    *([("cleo", 0)] if n == 0 else []),
                ):
                    await save_rating(
                        session,
                        "dual",
                        Rating(item=item.item, rater=who, rating=value, comment=""),
                    )
        assert "where second decides otherwise" in await get("ada", "dual/results")
        for file, query in zip(files, ("", "?adjudicated=true"), strict=True):
            file.write_text(await get("ada", f"dual/ratings.csv{query}"))
        ratings = [file.read_text().split()[1:] for file in files]
        assert [len(rows) for rows in ratings] == [16, 1]


async def find(database: Database, name: str) -> Any:
    from medlive.db.accounts import list_accounts

    async with database.begin() as session:
        return next(a for a in await list_accounts(session) if a.name == name)


async def enter(
    browser: Any, url: str, name: str, width: int, theme: str, faults: list[str]
) -> Any:
    """A page of somebody who has signed in at the desk by keyboard; what its console says is a fault."""
    context = await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=theme,
        reduced_motion="reduce",
    )
    page = await context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text))
    await page.goto(f"{url}/sign-in?next=/review")
    await page.fill("#name", name)
    await page.fill("#password", PASSWORD)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{url}/review")
    return page


async def test_a_rater_signs_in_and_rates_by_keyboard_in_a_browser(
    browser: Any, database: Database, site: Site, held: str
) -> None:
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    study = Study(
        name="first",
        kind=StudyKind.CASE_QUALITY,
        version=None,
        stratum=Stratum.NONE,
        seed=0,
        raters=["ann", "bob"],
        created_by="ada",
    )
    await start_study(database, site.settings, study, 5)
    faults: list[str] = []
    async with serve_web(build_app(site), "127.0.0.1", 0) as url:
        page = await enter(browser, url, "ann", 390, "dark", faults)
        await page.click("text=first")
        for done_before, key in enumerate("2x"):
            await page.wait_for_selector(f"text={done_before} of 2 rated")
            await page.keyboard.press(key)
        await page.wait_for_selector("text=You rated everything")
    assert faults == []
    async with database.begin() as session:
        items = [one.item for one in await items_of(session, "first")]
        given = {
            (r.item, r.rater): r.rating for r in await ratings_of(session, "first")
        }
    assert given == {(items[0], "ann"): 2, (items[1], "ann"): None}


@pytest.mark.thorough
async def test_from_an_edited_case_to_a_settled_snapshot_in_a_browser(
    browser: Any,
    database: Database,
    database_url: str,
    site: Site,
    held: str,
    tmp_path: Path,
) -> None:
    async with serve_web(build_app(site), "127.0.0.1", 0) as url:
        faults: list[str] = []
        admin = await enter(browser, url, "ada", 1280, "light", faults)
        await admin.click(f"text={held}")
        await admin.fill("#query", "Why do I cough?")
        await admin.fill("#c2", "")  # Retired
        await admin.fill("#edit-reason", "Too long.")
        await admin.click("text=Save as a new revision")
        await admin.wait_for_selector("text=Revision 2")
        assert await status_of(database, held) == "held"
        await admin.fill("#act-reason", "Fine now.")
        await admin.click("text=Approve for the next freeze")
        await admin.wait_for_selector(
            "text=Approve for the next freeze", state="detached"
        )
        instance = Instance(tmp_path, database_url)
        done = await asyncio.to_thread(
            lambda: (
                instance.here("snapshot", "freeze", "--week", "2026.W03", "--json").json
            )
        )
        snapshot = load_snapshot(Path(done["path"]))
        [case] = from_snapshot(snapshot).cases
        assert (case.query, len(case.criteria)) == ("Why do I cough?", 2)

        await admin.goto(f"{url}/review")
        await admin.click("text=Begin a study")
        for field, value in (FORM | {"version": "2026.W03"}).items():
            if field == "kind":
                await admin.select_option("#kind", value)
            else:
                await admin.fill(f"#{field}", value)
        await admin.click("text=Draw and begin")
        await admin.wait_for_url(f"{url}/review/studies/first/results")
        first, second = [
            item
            for item, _, _ in case_parts(case.case_id, case.question, case.advice, {})
        ]
        async with database.begin() as session:
            for item, rater, rating in (
                (first, "ann", 2),
                (first, "bob", 2),
                (second, "ann", None),
                (second, "bob", 1),
            ):
                await save_rating(
                    session,
                    "first",
                    Rating(item=item, rater=rater, rating=rating, comment=""),
                )
        settler = await enter(browser, url, "cleo", 390, "light", faults)
        await settler.click("text=Results of first")
        await settler.click("text=1 – acceptable")
        await settler.wait_for_selector("text=Settled: 1")
        # The page's icon is asked for after it is loaded.
        await admin.goto(f"{url}/acts/log", wait_until="networkidle")
    assert faults == []
    async with database.begin() as session:
        ratings = await ratings_of(session, "first")
    settled = [(r.item, r.rating) for r in ratings if r.rater == "cleo"]
    assert settled == [(second, 1)]
