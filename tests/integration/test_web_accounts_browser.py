"""The pages of accounts in Debian's Chromium: by keyboard, without script, at two widths."""

from pathlib import Path
from typing import Any

import pytest

from medlive.db import accounts
from medlive.db.session import Database
from medlive.db.tables.accounts import Role
from medlive.web.app import build_app, serve_web
from tests.support.web import PASSWORD, site_of

NEW = "another long password"

# Fields that a reader sees, without a label of their own.
UNLABELLED = """() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea")]
    .filter(field => !field.labels.length).map(field => field.outerHTML)"""
# Words that `aria-describedby` gives to the field that has the error.
DESCRIBED = """() => [...document.querySelectorAll("[aria-invalid]")].map(field => [field.id, field
    .getAttribute("aria-describedby").split(" ").map(id => document.getElementById(id).innerText).join(" ")])"""
TOO_WIDE = (
    "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
)


@pytest.mark.thorough
async def test_somebody_invited_signs_in_by_keyboard_and_changes_the_password(
    browser: Any, database: Database, tmp_path: Path
) -> None:
    await join(browser, database, tmp_path, "ada", width=390, scripts=False)
    await join(browser, database, tmp_path, "bob", width=1280, scripts=True)


async def join(
    browser: Any,
    database: Database,
    tmp_path: Path,
    name: str,
    *,
    width: int,
    scripts: bool,
) -> None:
    async with database.begin() as session:
        token = await accounts.invite(session, name, Role.REVIEWER)
    async with serve_web(build_app(site_of(database, tmp_path)), "127.0.0.1", 0) as url:
        context = await browser.new_context(
            viewport={"width": width, "height": 800}, java_script_enabled=scripts
        )
        page, wrong = await context.new_page(), []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda said: (
                None if "status of 422" in said.text else wrong.append(said.text)
            ),
        )

        async def send(field: str, *words: str) -> None:
            """Go on from a field by keyboard alone."""
            await page.focus(field)
            for word in words:
                await page.keyboard.type(word)
                await page.keyboard.press("Tab")
            async with page.expect_navigation():
                await page.keyboard.press("Enter")
            assert await page.evaluate(UNLABELLED) == []
            assert not await page.evaluate(TOO_WIDE)

        await page.goto(f"{url}/invitation/{token}")
        await send("#password", PASSWORD, PASSWORD)
        assert page.url == f"{url}/account"
        await send("#current", "not the password", NEW, NEW)
        assert await page.evaluate(DESCRIBED) == [
            ["current", "This is not the current password."]
        ]
        await send("#current", PASSWORD, NEW, NEW)
        assert page.url == f"{url}/account?changed=1"
        await page.get_by_role("button", name="Sign out everywhere").press("Enter")
        await page.wait_for_url(f"{url}/sign-in")
        await send("#name", name, PASSWORD)
        assert await page.evaluate(DESCRIBED) == [
            ["password", "The name or the password is wrong."]
        ]
        await send("#password", NEW)
        assert page.url == f"{url}/account"
        assert wrong == []
        await context.close()
