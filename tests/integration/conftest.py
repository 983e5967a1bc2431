"""A real PostgreSQL for the tests: one server a run, one cloned database a test."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from argon2 import PasswordHasher
from sqlalchemy import make_url

from medlive.db import embedded
from medlive.db.migrate import upgrade
from medlive.db.roles import WEB, WORKER, grant
from medlive.db.session import Database
from medlive.web.accounts import passwords
from tests.support.reviewing import held, rejected, settings  # noqa: F401 - fixtures

_NUMBERS = count(1)
HASHER = passwords._HASHER
"""What passwords cost where this is no test."""


@pytest.fixture(scope="session")
def database_server() -> Iterator[str]:
    """The URL of a server that lives as long as the tests; its database holds the newest schema and no rows."""
    home = Path(tempfile.mkdtemp(prefix="medlive-test-"))
    home.chmod(0o755)  # root's server runs as another user, who must get in
    try:
        url = embedded.start(home)
        with psycopg.connect(plain(url), autocommit=True) as connection:
            # Nothing here outlives the machine.
            for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
        upgrade(url)
        grant(url)
        yield url
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True)
def _quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password costs as little as one can; a test of its own knows what it costs elsewhere."""
    monkeypatch.setattr(passwords, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    passwords._of_nobody.cache_clear()


@pytest.fixture
def database_url(database_server: str) -> Iterator[str]:
    """The URL of a database of this test's own."""
    name = f"test_{next(_NUMBERS)}"
    admin = plain(database_server).replace("/medlive?", "/postgres?")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE medlive STRATEGY FILE_COPY")
    yield database_server.replace("/medlive?", f"/{name}?")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


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


def plain(url: str) -> str:
    """The URL as psycopg itself reads it."""
    return url.replace("postgresql+psycopg://", "postgresql://")
