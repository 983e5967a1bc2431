"""One real PostgreSQL for all tests of a process, and databases of their own in it."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg

PRISTINE = "pristine"
"""The database that holds the newest schema, its roles and no rows."""
_NUMBERS = count(1)


def plain(url: str) -> str:
    """The URL as psycopg itself reads it."""
    return url.replace("postgresql+psycopg://", "postgresql://")


def named(url: str, database: str) -> str:
    """The URL of another database of the server, whose own is `medlive`."""
    return url.replace("/medlive?", f"/{database}?")


def copy_database(
    connection: psycopg.Connection[Any], name: str, template: str = PRISTINE
) -> None:
    """Make a database of that name with what another one holds; nobody may be connected to that one."""
    connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")


@contextmanager
def own_database(server: str, template: str = PRISTINE) -> Iterator[str]:
    """The URL of a new copy of a database, which is dropped in the end.

    Its name holds the start of the test's, so that a warning about a connection shows who left it open.
    """
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::test_")[2]
    words = re.sub(r"[^a-z0-9]+", "_", test[:32].lower())
    name = f"test_{next(_NUMBERS)}_{words}"
    with psycopg.connect(
        plain(named(server, "postgres")), autocommit=True
    ) as connection:
        copy_database(connection, name, template)
        try:
            yield named(server, name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
