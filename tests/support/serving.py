"""A process that serves queues, as other processes see it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from medlive.db.jobs import announce_serving
from medlive.db.session import Database, lock_connection


@asynccontextmanager
async def serving(database: Database, queues: Sequence[str]) -> AsyncIterator[None]:
    """Make it known while the block runs that this process serves these queues."""
    async with lock_connection(database) as connection:
        await announce_serving(connection, queues)
        yield
