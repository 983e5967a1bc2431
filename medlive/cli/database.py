"""The database, as commands use it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from medlive.cli.output import wait_for

if TYPE_CHECKING:
    from medlive.config import Settings
    from medlive.db.session import Database

T = TypeVar("T")


def with_database(settings: "Settings", work: "Callable[[Database], Awaitable[T]]") -> T:
    """What `work` returns for the configured database, which is migrated and open meanwhile."""

    async def run() -> T:
        from medlive.service.database import open_database

        async with open_database(settings) as database:
            return await work(database)

    return wait_for(run())


def with_session(settings: "Settings", work: Callable[[Any], Awaitable[T]]) -> T:
    """The same for a session of it, whose transaction is committed at the end."""

    async def run(database: "Database") -> T:
        async with database.begin() as session:
            return await work(session)

    return with_database(settings, run)
