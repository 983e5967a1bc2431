"""The audit room as its readers meet it: in Chromium, wide and narrow, light and dark, without script too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from medlive.config import Settings
from medlive.db.session import Database
from medlive.web.app import build_app, serve_web
from medlive.web.site import Site
from tests.support.web import PASSWORD, add_account


@pytest.fixture
async def url(
    database: Database, settings: Settings, tmp_path: Path
) -> AsyncIterator[str]:
    """The site's address; `ada` may do everything."""
    await add_account(database, "ada")
    async with serve_web(
        build_app(Site(database, settings, tmp_path)), "127.0.0.1", 0
    ) as address:
        yield address


@asynccontextmanager
async def signed_in(
    browser: Any, url: str, place: str = "/audit", **options: Any
) -> AsyncIterator[Any]:
    """A page at a place, which signing in led to; whatever its console says fails the test."""
    context = await browser.new_context(**options)
    page, said = await context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    await page.goto(url + place)
    await page.get_by_label("Name").fill("ada")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(url + place)
    yield page
    assert said == []
    await context.close()


@pytest.mark.thorough
async def test_a_rejected_thread_is_found_by_facets_and_says_why(
    browser: Any, url: str, rejected: int
) -> None:
    for script in (True, False):
        await find_rejected(browser, url, script)


async def find_rejected(browser: Any, url: str, script: bool) -> None:
    size = {"width": 1280, "height": 900}
    async with signed_in(
        browser, url, java_script_enabled=script, viewport=size
    ) as page:
        await page.get_by_role("link", name="Threads", exact=True).click()
        facets = page.get_by_role("complementary", name="Facets")
        await facets.get_by_role("link", name="rejected").click()
        await page.get_by_role("link", name="outcome: rejected").wait_for()
        await facets.get_by_role("link", name="contradicted").click()
        await page.wait_for_url("**/audit/threads?outcome=rejected&reason=contradicted")
        await page.get_by_role("link", name="Cough on a blood pressure tablet").click()
        main = page.locator("main")
        assert "Rejected by the validator: contradicted" in await main.inner_text()
        advice = page.get_by_role("region", name="Advice a1")
        assert "lisinopril often cause a dry cough" in await advice.inner_text()
        assert (
            "Second check: confirmed, false by the passage. says else"
            in await advice.inner_text()
        )
        lit = page.locator("mark.lit")
        if script:
            await page.locator("#e-a2").hover()
            assert await lit.all_inner_texts() == ["ask for losartan 50 mg instead"]
            await page.locator("#e-q a").focus()
            assert "What could cause it?" in await lit.all_inner_texts()
        await page.locator("#e-n2 a").click()
        assert page.url.endswith("#q-n2")
        target = page.locator(":target mark")
        assert await target.inner_text() == "dry cough for 3 weeks"
        await page.get_by_role("link", name="prompt as rendered").first.click()
        assert (
            "Cough on a blood pressure tablet"
            in await page.locator("main").inner_text()
        )


@pytest.mark.thorough
async def test_a_held_case_is_approved_from_its_list(
    browser: Any, url: str, held: str
) -> None:
    async with signed_in(browser, url, "/audit/cases?status=held") as page:
        await page.get_by_role("link", name="What could cause").click()
        await page.get_by_label("Reason").first.fill("Checked with the label.")
        await page.get_by_role("button", name="Approve for the next freeze").click()
        assert "ready" in await page.locator("main p .badge").first.inner_text()
        assert (
            "Checked with the label." in await page.locator("#log ~ .wide").inner_text()
        )
