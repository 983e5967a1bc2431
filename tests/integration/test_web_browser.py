"""The downloads as a reader meets them: in a real browser, wide and narrow, light and dark, without script.

Skipped where there is no Chromium (`apt-get install chromium`) or no Playwright to drive it.
"""

import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.test_web_downloads import MIDDLE, NEW, Served, served

async_api = pytest.importorskip("playwright.async_api", reason="playwright is not installed: no browser is driven")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("no chromium on this machine: the pages are not looked at", allow_module_level=True)

__all__ = ["served"]  # a fixture
DIFF = f"/diff?old={MIDDLE}&new={NEW}"
PAGES = ("/", f"/medlive-{NEW}/", "/diff", DIFF, "/errata", "/leaderboard", "/api")
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
WHITE, DARK = "rgb(255, 255, 255)", "rgb(20, 22, 26)"


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


async def test_pages_fit_follow_the_scheme_and_say_nothing_in_the_console(served: Served, browser: Any) -> None:
    for width in (1280, 390):
        for scheme, background in (("light", WHITE), ("dark", DARK)):
            context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page = await context.new_page()
            said: list[str] = []
            page.on("console", lambda message, said=said: said.append(message.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            for path in PAGES:
                await page.goto(served.url + path)
                assert said == [], path
                assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (path, width)
                assert await page.evaluate(BACKGROUND) == background, path
                assert await page.locator("main h1").count() == 1, path
            await context.close()


async def test_the_theme_is_switched_and_kept(served: Served, browser: Any) -> None:
    for script in (True, False):
        context = await browser.new_context(color_scheme="light", java_script_enabled=script)
        page = await context.new_page()
        await page.goto(served.url + DIFF)
        await page.get_by_role("link", name="dark", exact=True).click()
        assert page.url == served.url + DIFF
        await page.get_by_role("link", name="Errata").click()
        assert await page.locator("html").get_attribute("data-theme") == "dark"
        if script:
            assert await page.evaluate(BACKGROUND) == DARK
        await context.close()


async def test_moments_stand_in_the_readers_zone_or_without_script_in_utc(served: Served, browser: Any) -> None:
    # The line was frozen on 7 November 2026 at 08:30 UTC.
    for script, text in ((True, "Nov 7, 2026, 4:30"), (False, "2026-11-07 08:30 UTC")):
        context = await browser.new_context(
            timezone_id="Asia/Shanghai", locale="en-US", java_script_enabled=script
        )
        page = await context.new_page()
        await page.goto(served.url)
        assert text in await page.locator("time").first.inner_text()
        await context.close()


async def test_two_snapshots_are_compared_and_a_file_saved_without_script(served: Served, browser: Any) -> None:
    context = await browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 900})
    page = await context.new_page()
    await page.goto(served.url)
    await page.get_by_role("link", name="Differences").click()
    await page.get_by_label("From").select_option(MIDDLE)
    await page.get_by_label("To").select_option(NEW)
    await page.get_by_role("button", name="Compare").click()
    assert "1 revised" in await page.locator("main").inner_text()
    await page.locator("summary", has_text="the advice was incomplete").click()
    assert await page.get_by_text("Rest, and see a doctor if it lasts.").is_visible()
    await page.goto(f"{served.url}/medlive-{NEW}/")
    async with page.expect_download() as started:
        await page.get_by_role("link", name="data/cases.parquet").click()
    saved = await (await started.value).path()
    assert saved.read_bytes() == served.body(name="data/cases.parquet")
    await context.close()
