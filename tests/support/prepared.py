"""Databases in which many tests begin with the same: made once, and copied for each of them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import psycopg

from medlive.db.session import Database
from tests.support.server import copy_database, named, plain

Fill = Callable[[Database], Awaitable[Any]]


class Prepared(NamedTuple):
    """A database to copy, and what was returned by who filled it."""

    database: str
    made: Any


_MADE: dict[tuple[Fill, date], Prepared] = {}


def prepare(server: str, fill: Fill) -> Prepared:
    """The database that `fill` has filled today, so that what it did lies in the week of the test."""
    key = (fill, datetime.now(UTC).date())
    if key not in _MADE:
        name = f"prepared_{len(_MADE)}"
        with psycopg.connect(
            plain(named(server, "postgres")), autocommit=True
        ) as connection:
            copy_database(connection, name)
        _MADE[key] = Prepared(name, asyncio.run(_filled(named(server, name), fill)))
    return _MADE[key]


async def _filled(url: str, fill: Fill) -> Any:
    database = Database.connect(url)
    try:
        return await fill(database)
    finally:
        await database.aclose()
