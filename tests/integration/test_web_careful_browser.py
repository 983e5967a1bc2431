"""What cannot be undone is not done by accident: in Chromium, as an admin meets it."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from medlive.config import Settings
from medlive.db.accounts import list_accounts
from medlive.db.curation.cases import latest_case
from medlive.db.session import Database
from medlive.service.curation.complete import prove_again
from medlive.service.curation.editing import CaseEdit, edit_case, load_edit
from medlive.service.curation.inspect import inspect_case
from medlive.web.app import build_app, serve_web
from medlive.web.site import Site
from tests.integration.test_proofs import curated, proving
from tests.support.instance import Instance
from tests.support.proving import TRIVIAL, graded_all
from tests.support.reviewing import contradicting, drain, status_of
from tests.support.web import add_account, session_of


@pytest.fixture
async def site(database: Database, settings: Settings, tmp_path: Path) -> Site:
    """A site in which `ada` and `bo` may do everything."""
    for name in ("ada", "bo"):
        await add_account(database, name)
    return Site(database, settings, tmp_path)


@pytest.fixture
async def url(site: Site) -> AsyncIterator[str]:
    """The site's address."""
    async with serve_web(build_app(site), "127.0.0.1", 0) as address:
        yield address


@asynccontextmanager
async def signed_in(
    browser: Any, site: Site, url: str, place: str, name: str = "ada"
) -> AsyncIterator[Any]:
    """A page at a place, of somebody who has signed in."""
    known = {a.name: a for a in await site.database.ask(list_accounts)}
    cookie, _, value = (await session_of(site, known[name]))["Cookie"].partition("=")
    context = await browser.new_context()
    await context.add_cookies([{"name": cookie, "value": value, "url": url}])
    page = await context.new_page()
    await page.goto(url + place)
    yield page
    await context.close()


async def test_a_takedown_is_on_a_page_of_its_own_and_wants_the_id_typed(
    browser: Any, site: Site, url: str, rejected: int
) -> None:
    async with signed_in(browser, site, url, "/audit/threads/test/1") as page:
        buttons = await page.get_by_role("button").all_inner_texts()
        assert [name for name in buttons if "down" in name] == []
        await page.get_by_role("link", name="Take the thread down").click()
        main = page.locator("main")
        assert "Erased: 1 revision" in await main.inner_text()
        await page.get_by_label("Reason").fill("The author asked.")
        await page.get_by_label("Type test/1 to confirm").fill("test/2")
        await page.get_by_role("button", name="Take it down for good").click()
        assert "type test/1 to confirm" in await page.get_by_role("alert").inner_text()
        assert await page.get_by_label("Reason").input_value() == "The author asked."
        back = page.get_by_role("link", name="Back, without doing it")
        assert await back.get_attribute("href") == "/audit/threads/test/1"
        await page.get_by_label("Type test/1 to confirm").fill("test/1")
        await page.get_by_role("button", name="Take it down for good").click()
        await page.wait_for_url("**/acts/log")
        assert "take down" in await main.inner_text()


@pytest.mark.thorough
async def test_an_act_that_is_clicked_twice_is_done_once(
    browser: Any, site: Site, url: str, database: Database, held: str
) -> None:
    async with signed_in(browser, site, url, f"/acts/case/{held}") as page:
        await page.locator("#act-reason").fill("Fine.")
        await page.get_by_role("button", name="Approve for the next freeze").dblclick()
        await page.locator("strong", has_text="ready").wait_for()
        assert await page.locator("tbody tr").count() == 1
    assert await status_of(database, held) == "ready"


@pytest.mark.thorough
async def test_an_edited_rubric_is_not_proved_until_it_is_proved_again(
    browser: Any, database: Database, database_url: str, tmp_path: Path
) -> None:
    _, case_id, _ = await curated(database)
    case = await load_edit(database, case_id)
    assert case.criteria is not None
    first, *others = case.criteria
    lighter = (first.model_copy(update={"points": 9}), *others)
    await edit_case(database, case_id, CaseEdit(criteria=lighter), "weight")
    await add_account(database, "ada")
    role = {"engine": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m-1"}
    values = {"home": tmp_path, "roles": {"rubric": role, "reader": role}}
    settings = Settings.model_validate(values | {"release": {"unproved": "hold"}})
    instance = Instance(tmp_path, database_url, {"MEDLIVE_RELEASE__UNPROVED": "hold"})
    site = Site(database, settings, tmp_path)
    place = f"/acts/case/{case_id}"
    async with (
        serve_web(build_app(site), "127.0.0.1", 0) as address,
        signed_in(browser, site, address, f"/audit/cases/{case_id}") as page,
    ):
        notice = page.locator("#proof + .notice")
        assert "Not proved since revision 2" in await notice.inner_text()
        await page.goto(address + place)
        main = page.locator("main")
        assert "not proved since revision 2" in await main.inner_text()
        assert "the next freeze leaves it out" in await main.inner_text()
        freeze = ("snapshot", "freeze", "--week", "2026.W03")
        kept_out = await asyncio.to_thread(lambda: instance.here(*freeze, status=1).err)
        assert "no case is ready" in kept_out
        shown = await asyncio.to_thread(
            lambda: instance.here("review", "show", case_id).out
        )
        assert "not proved since revision 2" in " ".join(shown.split())
        await page.get_by_role("button", name="Prove it again").click()
        await page.get_by_role("heading", name="The proof is queued").wait_for()
        await drain(proving(database))
        await page.goto(address + place)
        assert "not proved" not in await main.inner_text()
        await page.goto(f"{address}/audit/cases/{case_id}")
        assert await notice.count() == 0
        assert "revision 3" in await main.inner_text()
    async with database.begin() as session:
        now = await latest_case(session, case_id)
    assert now is not None
    assert (now.rubric.ceiling, now.rubric.criteria[0].points) == (1.0, 9)
    frozen = await asyncio.to_thread(lambda: instance.here(*freeze, "--json"))
    assert frozen.json["cases"] == 1


async def test_a_proof_that_fails_again_says_so_and_gives_no_figures(
    database: Database,
) -> None:
    _, case_id, _ = await curated(database)
    case = await load_edit(database, case_id)
    assert case.criteria is not None
    first, *others = case.criteria
    turned = first.model_copy(update={"points": 9, "criterion": TRIVIAL[0]})
    await edit_case(
        database, case_id, CaseEdit(criteria=(turned, *others)), "it is wrong"
    )
    met_by_all = graded_all(lambda kind, criterion: criterion == TRIVIAL[0])
    await prove_again(proving(database, grader__answers=met_by_all), case_id, 2)
    async with database.begin() as session:
        found = await inspect_case(session, case_id)
    assert (found["proof"]["passed"], found["proof"]["applies"]) == (False, True)
    assert (found["case"]["revision"], found["case"]["unproved_since"]) == (2, 2)


@pytest.mark.thorough
async def test_a_confirmed_veto_is_overruled_by_two_people(
    browser: Any, site: Site, url: str, database: Database, rejected: int
) -> None:
    place = "/audit/threads/test/1"
    button = "Overrule the rejection"
    async with signed_in(browser, site, url, place) as page:
        main = page.locator("main")
        assert "overruling it takes two people" in await main.inner_text()
        await page.get_by_label("Reason").fill("The passage is of 1990.")
        await page.get_by_role("button", name=button).click()
        await page.get_by_text("ada overruled this veto").wait_for()
        assert await drain(contradicting(database)) == {}
    async with signed_in(browser, site, url, "/review", "bo") as page:
        main = page.locator("main")
        assert "The passage is of 1990." in await main.inner_text()
        await page.get_by_role("link", name="test/1").click()
        assert "lisinopril often cause a dry cough" in await main.inner_text()
        assert "The passage is of 1990." in await main.inner_text()
        await page.get_by_label("Reason").fill("It was withdrawn.")
        await page.get_by_role("button", name=button).click()
        await page.wait_for_url("**" + place)
        assert await drain(contradicting(database)) == {"kept": 1}
        await page.goto(url + place)
        notice = page.get_by_text("A confirmed veto was overruled").locator("..")
        assert "It was withdrawn." in await notice.inner_text()


@pytest.mark.thorough
async def test_a_rejection_names_its_cause_alone_and_its_passage_opens_in_full(
    browser: Any, site: Site, url: str, rejected: int
) -> None:
    async with signed_in(browser, site, url, "/audit/threads/test/1") as page:
        main = page.locator("main")
        assert "S_align" in await main.inner_text()
        assert "has to exceed" not in await main.inner_text()
        zone = re.compile(r"\d:\d\d.* (UTC|GMT)")
        assert zone.search(await page.locator("time").first.inner_text())
        cited = page.locator("details.cited").first
        whole = cited.locator("p.text")
        assert not await whole.is_visible()
        await cited.locator("summary").click()
        assert "dry cough" in await whole.inner_text()
        scores = page.locator("summary", has_text="search scores").first
        await page.locator("summary", has_text="judged as a claim").first.click()
        assert not await scores.is_visible()
        await page.goto(url + "/audit")
        steps = page.locator("h2", has_text="Steps").locator("~ table").first
        assert "not due yet" in await steps.inner_text()
        assert "done" not in await steps.locator("tbody").inner_text()


@pytest.mark.thorough
async def test_the_form_of_a_case_links_thread_evidence_and_proof(
    browser: Any, site: Site, url: str, database: Database
) -> None:
    _, case_id, _ = await curated(database)
    place = f"/acts/case/{case_id}"
    async with signed_in(browser, site, url, place) as page:
        for name in ("Thread", "Evidence", "Proof of the rubric"):
            await page.goto(url + place)
            await page.get_by_role("link", name=name, exact=True).click()
            await page.wait_for_url(f"**/audit/cases/{case_id}#*")
            assert await page.locator(":target").count() == 1
