"""Who rates or checks blind is shown nothing before."""

import asyncio
import csv
import io
from pathlib import Path

import psycopg
import pytest

from medlive.db.audit_log import list_entries
from medlive.db.runs import record_evaluation
from medlive.db.session import Database
from medlive.db.tables.release import ReviewAction
from medlive.evaluation.bundles.bundle import make_bundle
from medlive.evaluation.bundles.files import archive
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.refusals import EVERYTHING
from medlive.instance.paths import report_path
from medlive.integrity.digest import digest_text
from medlive.service.curation.review import decide_case
from medlive.site.read import BUNDLES
from medlive.snapshot.load import load_snapshot
from medlive.web.site import Site
from tests.integration.test_web_review import FORM, find, site
from tests.support.instance import Instance
from tests.support.release import fill
from tests.support.runs import made_run
from tests.support.web import served, session_of, whole_site

__all__ = ["site"]  # a fixture


async def test_an_admin_who_rates_learns_nothing_before(
    database: Database, site: Site, held: str
) -> None:
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    async with served(site) as browser:
        browser.headers.update(await session_of(site, await find(database, "ada")))
        form = FORM | {"raters": "ada bob", "kind": "criterion_validity"}
        assert (await browser.post("/review/studies", data=form)).status_code == 303
        pages = ("/review/studies/first/results", "/review/studies/first/ratings.csv")
        for number in (1, 2, 3):
            assert (await browser.get(pages[1])).status_code == 403
            assert "Disagreements" not in (await browser.get(pages[0])).text
            assert (
                "2 –" not in (await browser.get("/review/studies/first")).text
            )  # The scale ends at 1
            for rating, status in (("2", 422), ("1", 303)):
                place = f"/review/studies/first/items/{number}"
                assert (
                    await browser.post(place, data={"rating": rating})
                ).status_code == status
        # Whoever has rated everything may still change it.
        assert "Disagreements" not in (await browser.get(pages[0])).text
        closed = [
            (await browser.post("/review/studies/first/close")).status_code
            for _ in range(2)
        ]
        assert closed == [303, 303]  # a double click
        assert "Disagreements" in (await browser.get(pages[0])).text
        assert (await browser.get(pages[1])).status_code == 200


@pytest.mark.thorough
async def test_while_a_check_is_blind_nobody_is_shown_the_verdicts_that_it_asks_about(
    database: Database, database_url: str, site: Site, tmp_path: Path
) -> None:
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        fill(connection, 3)
    instance = Instance(tmp_path, database_url)
    done = await asyncio.to_thread(
        lambda: instance.here("snapshot", "freeze", "--week", "2026.W47", "--json")
    )
    frozen = Path(done.json["path"])
    site = whole_site(site.database, site.settings, frozen.parent, preview=True)
    cases = from_snapshot(load_snapshot(frozen))
    made = made_run(cases, tmp_path / "run", "model-x", 0.6, missing=False)
    bundles = site.settings.home / BUNDLES
    bundles.mkdir(parents=True)
    files = make_bundle(load_graded(made), draws=20, allow=EVERYTHING)
    (bundles / "model-x.zip").write_bytes(archive(files))
    report = report_path(site.settings, "2026.W47")
    scores = {
        "metric": "paper",
        "overall": {"n": 3, "mean": 0.5, "low": None, "high": None},
    }
    async with database.begin() as session:
        await record_evaluation(
            session,
            run_digest=digest_text("1"),
            path=str(made),
            snapshot_version="2026.W47",
            model="model-x",
            grader="judge",
            scores=scores,
        )
    async with served(site) as browser:
        ada, ann = [
            await session_of(site, await find(database, name))
            for name in ("ada", "ann")
        ]

        async def begin(name: str, **fields: str) -> str:
            form = (
                FORM
                | {
                    "name": name,
                    "kind": "grader_check",
                    "run": str(made),
                    "sample": "3",
                }
                | fields
            )
            assert (
                await browser.post("/review/studies", data=form, headers=ada)
            ).status_code == 303
            return (
                await browser.get(f"/review/studies/{name}/results", headers=ada)
            ).text

        async def blinding(name: str) -> set[str]:
            export = (
                await browser.get(f"/review/studies/{name}/ratings.csv", headers=ada)
            ).text
            return {row["blinding"] for row in csv.DictReader(io.StringIO(export))}

        async def close(name: str) -> None:
            assert (
                await browser.post(f"/review/studies/{name}/close", headers=ada)
            ).status_code == 303

        async def see() -> list[int]:
            addresses = (
                "/report/2026.W47/",
                "/report/2026.W47/a.csv",
                "/data/board-1.bin",
            )
            return [
                (await browser.get(address, headers=ann)).status_code
                for address in addresses
            ]

        await begin("unreported")
        report.mkdir(parents=True)
        (report / "index.html").write_text("verdicts")
        (report / "a.csv").write_text("verdicts")
        assert await see() == [403, 403, 404]
        refusal = await browser.get("/report/2026.W47/")
        assert "verdicts" not in refusal.text.replace(
            "grader&#39;s verdicts", ""
        ).replace("holds the verdicts", "")
        assert "when their study is closed" in refusal.text
        board = await browser.get("/leaderboard.html")
        assert "a bundle: people check a grader&#39;s" in board.text
        page = await browser.get(f"/cases/{cases.cases[0].case_id}.html")
        assert "while people check them without seeing them" in page.text
        shown = await browser.get("/medlive-2026.W47/")
        assert "/report/" not in shown.text
        case = await browser.get(f"/audit/cases/{cases.cases[0].case_id}", headers=ada)
        assert (
            "without seeing them: the proof of its rubric is shown when the study is closed"
            in case.text
        )
        await browser.post(
            "/review/studies/unreported/items/1", data={"rating": "1"}, headers=ann
        )
        assert await blinding("unreported") == {"blind"}
        await close("unreported")
        assert await see() == [200, 200, 200]
        assert "raters may have read it" in await begin("after")
        assert await see() == [403, 403, 404]
        await close("after")
    async with database.begin() as session:
        log = await list_entries(session)
    begun = [
        entry.details["blinding"]
        for entry in log
        if entry.action.value == "start_study"
    ]
    assert begun == ["after_report", "blind"]
