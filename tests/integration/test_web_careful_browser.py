"""What cannot be undone is not done by accident: in Chromium, as an admin meets it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from medlive.config import Settings
from medlive.db.session import Database
from medlive.web.app import build_app
from medlive.web.serving import serve_web
from medlive.web.site import Site
from tests.support.reviewing import status_of
from tests.support.web import PASSWORD, add_account


@pytest.fixture
async def url(
    database: Database, settings: Settings, tmp_path: Path
) -> AsyncIterator[str]:
    """The site's address; `ada` and `bo` may do everything."""
    for name in ("ada", "bo"):
        await add_account(database, name)
    app = build_app(Site(database, settings, tmp_path))
    async with serve_web(app, "127.0.0.1", 0) as address:
        yield address


@asynccontextmanager
async def signed_in(
    browser: Any, url: str, place: str, name: str = "ada"
) -> AsyncIterator[Any]:
    """A page at a place, to which signing in led."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(url + place)
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(url + place)
    yield page
    await context.close()


async def test_a_takedown_is_on_a_page_of_its_own_and_wants_the_id_typed(
    browser: Any, url: str, rejected: int
) -> None:
    async with signed_in(browser, url, "/audit/threads/test/1") as page:
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
        await page.get_by_role("link", name="Back, without doing it").click()
        assert "Cough on a blood pressure tablet" in await main.inner_text()
        await page.get_by_role("link", name="Take the thread down").click()
        await page.get_by_label("Reason").fill("The author asked.")
        await page.get_by_label("Type test/1 to confirm").fill("test/1")
        await page.get_by_role("button", name="Take it down for good").click()
        await page.wait_for_url("**/acts/log")
        assert "take down" in await main.inner_text()


async def test_an_act_that_is_clicked_twice_is_done_once(
    browser: Any, url: str, database: Database, held: str
) -> None:
    async with signed_in(browser, url, f"/acts/case/{held}") as page:
        await page.locator("#act-reason").fill("Fine.")
        await page.get_by_role("button", name="Approve for the next freeze").dblclick()
        await page.locator("strong", has_text="ready").wait_for()
        assert await page.locator("tbody tr").count() == 1
    assert await status_of(database, held) == "ready"
