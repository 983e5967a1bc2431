"""Exports whose readers do not read: they hold no connection of the database, and an account has few of them."""

import asyncio
import socket
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from medlive.config import Settings
from medlive.db.session import Database
from medlive.db.tables.accounts import Role
from medlive.db.threads import threads
from medlive.guard.bounds import EXPORTS
from medlive.web.site import Site
from tests.support.scripted import THREAD
from tests.support.web import add_account, served, session_of

READERS = 16
ROWS = 9_000
PATH = "/audit/threads.csv"


def open_slowly(base: str, headers: dict[str, str]) -> socket.socket:
    """A reader that asks for an export, takes the first bytes of the answer, and no more."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    address = urlsplit(base)
    reader.settimeout(60)
    reader.connect((address.hostname, address.port))
    lines = [f"GET {PATH} HTTP/1.1", f"Host: {address.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    reader.sendall("\r\n".join([*lines, "", ""]).encode())
    assert reader.recv(12) == b"HTTP/1.1 200"
    return reader


@pytest.mark.thorough
async def test_sixteen_readers_who_stop_reading_do_not_stop_the_site(
    database: Database, web_database: Database, settings: Settings, tmp_path: Path
) -> None:
    long_id = "x" * 480
    made = [replace(THREAD, thread_id=f"{long_id}{n}") for n in range(ROWS)]
    async with database.begin() as session:
        await threads.save_threads(session, made)
    site = Site(web_database, settings, tmp_path)
    async with served(site) as browser:
        base = str(browser.base_url)
        with ExitStack() as readers:
            for number in range(READERS // EXPORTS):
                account = await add_account(database, f"v{number}", Role.VIEWER)
                headers = await session_of(site, account)
                for _ in range(EXPORTS):
                    reader = await asyncio.to_thread(open_slowly, base, headers)
                    readers.enter_context(reader)
            assert web_database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
            browser.headers.update(headers)
            answers = [browser.get("/audit/threads?source=x") for _ in range(4)]
            for answer in await asyncio.gather(*answers):
                assert answer.status_code == 200
            refused = await browser.get(PATH)
            assert refused.status_code == 429, len(refused.content)
        for _ in range(600):
            if not any(site.exports.running.values()):
                break
            await asyncio.sleep(0.1)
        answer = await browser.get(PATH)
        assert answer.status_code == 200
        assert len(answer.content) > ROWS * len(long_id)
