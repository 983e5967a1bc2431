"""A thread beyond measure is shown in parts, which hold nobody else up."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser as Html
from sqlalchemy import text

from medlive.config import Settings
from medlive.db.session import Database
from medlive.db.tables.accounts import Role
from medlive.db.threads.threads import save_threads
from medlive.guard import bounds
from medlive.service.curation import inspect
from medlive.web.audit import thread
from medlive.web.site import Site
from tests.support.scripted import THREAD
from tests.support.web import Browser, add_account, served, session_of

PAGE = f"/audit/threads/{THREAD.source}/{THREAD.thread_id}"
SHORT = (
    "SELECT 'message ' || n || ' of many' AS words FROM generate_series(0, 299999) AS n"
)
LONG = "SELECT repeat('a cough for weeks. ', 100000) AS words"
REVISION = """
INSERT INTO thread_revisions (thread_id, revision, digest, title, tags, posted_at_assumed, messages)
SELECT id, 2, 'sha256:' || repeat('0', 64), 'Long', '{{}}', false,
  (SELECT jsonb_agg(jsonb_build_object('id', 'm', 'author', 'u_1', 'role', 'patient', 'verified', false,
    'text', words, 'posted_at', null, 'media', '[]'::jsonb)) FROM ({}) AS made)
FROM threads"""


@pytest.fixture
async def viewer(
    database: Database, settings: Settings, tmp_path: Path
) -> AsyncIterator[Browser]:
    """A viewer's browser, and a thread."""
    async with database.begin() as session:
        await save_threads(session, [THREAD])
    site = Site(database, settings, tmp_path)
    async with served(site) as browser:
        browser.headers.update(
            await session_of(site, await add_account(database, "vera", Role.VIEWER))
        )
        yield browser


async def make(database: Database, messages: str) -> None:
    """Give the thread a revision with the messages of a query."""
    async with database.begin() as session:
        await session.execute(text(REVISION.format(messages)))


async def read(browser: Browser, address: str) -> tuple[Html, str]:
    """A page, which is bounded, and the text of the messages on it."""
    answer = await browser.get(address)
    assert answer.status_code == 200, answer.text[:300]
    assert len(answer.content) < 2 * bounds.MESSAGES_SHOWN * bounds.MESSAGE_CHARS_SHOWN
    page = Html(answer.text)
    return page, "".join(node.text() for node in page.css(".message .text"))


def link(page: Html, words: str) -> str:
    """Where the link with these words leads to."""
    return PAGE + next(
        str(a.attributes["href"]) for a in page.css("a") if words in a.text()
    )


@pytest.mark.thorough
async def test_a_thread_of_many_messages_is_paged(
    viewer: Browser, database: Database
) -> None:
    await make(database, SHORT)
    page, words = await read(viewer, PAGE)
    assert len(page.css("article.message")) == bounds.MESSAGES_SHOWN
    page, words = await read(viewer, link(page, "next page"))
    assert f"message {bounds.MESSAGES_SHOWN} of many" in words
    assert page.css_first(f"#m{bounds.MESSAGES_SHOWN}") is not None
    page, words = await read(viewer, f"{PAGE}?page={300_000 // bounds.MESSAGES_SHOWN}")
    assert "message 299999 of many" in words
    assert not [a for a in page.css("a") if "next page" in a.text()]
    assert (await viewer.get(f"{PAGE}?page=6001")).status_code == 404
    for wrong in ("page=0", "page=x", "page=99999999999999999999"):
        assert (await viewer.get(f"{PAGE}?{wrong}")).status_code == 422, wrong


async def test_of_a_message_beyond_measure_the_beginning_is_shown(
    viewer: Browser, database: Database
) -> None:
    await make(database, LONG)
    page, words = await read(viewer, PAGE)
    assert "The first 8,000 of 1,900,000 characters" in page.text()
    assert len(words.strip()) == bounds.MESSAGE_CHARS_SHOWN


async def test_an_identifier_at_the_end_of_the_beginning_is_not_shown(
    viewer: Browser, database: Database
) -> None:
    name, edge = "My name is Jonathan Featherstone. ", bounds.MESSAGE_CHARS_SHOWN
    for cut in (15, 22, 30):
        words = "a cough ".ljust(8) * (edge // 8)
        long = words[: edge - cut] + name + words
        changed = replace(THREAD, messages=(replace(THREAD.messages[0], text=long),))
        async with database.begin() as session:
            await save_threads(session, [changed])
        _, text = await read(viewer, PAGE)
        for part in ("Jonathan", "Feather", "stone", "than"):
            assert part not in text


async def test_probes_are_answered_while_a_page_is_made(viewer: Browser) -> None:
    for module, step in (
        (inspect, "_excerpt_as_json"),
        (thread, "mark_thread"),
        (thread, "render"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            await probe_during(viewer, patch, module, step)


async def probe_during(
    viewer: Browser, patch: pytest.MonkeyPatch, module: Any, step: str
) -> None:
    """Ask for a page, and during one step of it for a probe."""
    begun, probed = threading.Event(), threading.Event()
    waited: list[bool] = []

    def slowly(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **options: Any) -> Any:
            begun.set()
            waited.append(probed.wait(10))  # As long as nobody answers a probe
            return make(*arguments, **options)

        return made

    patch.setattr(module, step, slowly(getattr(module, step)))
    page = asyncio.create_task(viewer.get(PAGE))
    assert await asyncio.to_thread(begun.wait, 10)
    assert (await viewer.get("/healthz")).status_code == 200
    probed.set()
    assert (await page).status_code == 200
    assert waited == [True]
