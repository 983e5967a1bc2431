"""A database of a test's own, and who may do what in it."""

from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from typing import Any

import psycopg
import pytest
from argon2 import PasswordHasher
from sqlalchemy import make_url

from medlive.db.schema.rights import WEB, WORKER
from medlive.db.session import Database
from medlive.web.accounts import passwords
from tests.support.browser import running_chromium
from tests.support.prepared import Fill, Prepared, prepare
from tests.support.reviewing import (
    held,  # noqa: F401 - a fixture
    hold,
    reject,
    rejected,  # noqa: F401 - a fixture
    settings,  # noqa: F401 - a fixture
)
from tests.support.server import PRISTINE, own_database, plain

_NUMBERS = count(1)
HASHER = passwords._HASHER
"""What passwords cost where this is no test."""


@pytest.fixture(autouse=True)
def _quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password costs as little as one can; a test of its own knows what it costs elsewhere."""
    monkeypatch.setattr(
        passwords, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    )
    passwords.hash_of_nobody.cache_clear()


@pytest.fixture(scope="session")
def chromium_address() -> Iterator[str]:
    """One Chromium for all tests of this process."""
    with running_chromium() as address:
        yield address


@pytest.fixture
async def browser(chromium_address: str) -> AsyncIterator[Any]:
    """Chromium; what a test opens in it is closed in the end."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        connected = await playwright.chromium.connect_over_cdp(chromium_address)
        yield connected
        await connected.close()


@pytest.fixture
def states() -> Mapping[str, Fill]:
    """The fixture that a test asks for → what is in its database then; a module may name others."""
    return {"held": hold, "rejected": reject}


@pytest.fixture
def prepared(
    request: pytest.FixtureRequest, server: str, states: Mapping[str, Fill]
) -> Prepared:
    """What this test's database is a copy of."""
    for name, fill in states.items():
        if name in request.fixturenames:
            return prepare(server, fill)
    return Prepared(PRISTINE, None)


@pytest.fixture
def database_url(server: str, prepared: Prepared) -> Iterator[str]:
    """The URL of a database of this test's own."""
    with own_database(server, prepared.database) as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """The test's own database, migrated and empty."""
    database = Database.connect(database_url)
    yield database
    await database.aclose()


def _login(url: str, role: str) -> Iterator[str]:
    """The URL of a new user that has this role and nothing else."""
    name = f"login_{role}_{next(_NUMBERS)}"
    with psycopg.connect(plain(url), autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN IN ROLE {role}")
        yield make_url(url).set(username=name).render_as_string(hide_password=False)
        # A connection's temporary tables go only when the server has ended it
        owner.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE usename = %s",
            (name,),
        )
        owner.execute(f"DROP ROLE {name}")


@pytest.fixture
def worker_url(database_url: str) -> Iterator[str]:
    yield from _login(database_url, WORKER)


@pytest.fixture
def web_url(database_url: str) -> Iterator[str]:
    yield from _login(database_url, WEB)


@pytest.fixture
async def web_database(web_url: str) -> AsyncIterator[Database]:
    """The test's own database, as the web of a deployment may use it."""
    database = Database.connect(web_url)
    yield database
    await database.aclose()
