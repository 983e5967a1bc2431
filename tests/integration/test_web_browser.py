"""The downloads as a reader meets them: in a real browser, light and dark, with and without script."""

from typing import Any

import pytest

from tests.integration.test_web_downloads import NEW, Served, served

__all__ = ["served"]  # a fixture
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
DARK = "rgb(20, 22, 26)"


@pytest.mark.thorough
async def test_they_are_read_and_saved_with_and_without_script(
    served: Served, browser: Any
) -> None:
    for look in (follow_theme, read_moments, save_a_file):
        await look(served, browser)


async def follow_theme(served: Served, browser: Any) -> None:
    """Pages are dark where the reader's system is."""
    context = await browser.new_context(color_scheme="dark")
    page = await context.new_page()
    await page.goto(served.url + "/snapshots")
    assert await page.evaluate(BACKGROUND) == DARK
    await context.close()


async def read_moments(served: Served, browser: Any) -> None:
    """The line was frozen on 7 November 2026 at 08:30 UTC; with script it says so in the reader's zone."""
    for script, text in (
        (True, "Nov 7, 2026, 04:30 PM GMT+8"),
        (False, "2026-11-07 08:30 UTC"),
    ):
        context = await browser.new_context(
            timezone_id="Asia/Shanghai", locale="en-US", java_script_enabled=script
        )
        page = await context.new_page()
        await page.goto(f"{served.url}/snapshots")
        assert text in await page.locator("time").first.inner_text()
        await context.close()


async def save_a_file(served: Served, browser: Any) -> None:
    """A file is saved without script."""
    context = await browser.new_context(
        java_script_enabled=False, viewport={"width": 390, "height": 900}
    )
    page = await context.new_page()
    await page.goto(f"{served.url}/snapshots")
    await page.goto(f"{served.url}/medlive-{NEW}/")
    async with page.expect_download() as started:
        await page.get_by_role("link", name="data/cases.parquet").click()
    saved = await (await started.value).path()
    assert saved.read_bytes() == served.body(name="data/cases.parquet")
    await context.close()
