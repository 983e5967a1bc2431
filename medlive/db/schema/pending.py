"""Which migrations a database has still to go through, and what going back asks of it."""

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.schema import revisions

_SIZE = text("SELECT pg_database_size(current_database())")
_OTHERS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


async def count_others(session: AsyncSession) -> int:
    """How many others are connected to the session's database."""
    return int(await session.scalar(_OTHERS) or 0)


async def empty_schema(session: AsyncSession) -> None:
    """Remove everything that is in the session's schema, for a restore."""
    name = await session.scalar(text("SELECT quote_ident(current_schema())"))
    await session.execute(text(f"DROP SCHEMA {name} CASCADE"))
    await session.execute(text(f"CREATE SCHEMA {name}"))
    await session.execute(text(f"GRANT USAGE ON SCHEMA {name} TO PUBLIC"))


class Pending(NamedTuple):
    """A migration that is still to be done."""

    number: str
    what: str


class Plan(NamedTuple):
    """What an upgrade would do."""

    revision: str | None  # Of the database; None: it is empty
    head: str  # Of the program
    migrations: tuple[Pending, ...]
    bytes: int  # Of the database
    connections: int  # Others that are connected to it


def read_plan(url: str) -> Plan:
    """What an upgrade of the database would do.

    Raises:
        DatabaseUnavailable: without the database.
        ConfigError: where it is newer than this program.
    """
    with revisions.connect(url) as connection:
        revision = revisions.read_revision(connection)
        size = connection.scalar(_SIZE) or 0
        others = connection.scalar(_OTHERS) or 0
        migrations = [*_of_schema(revision), *_of_queue(connection)]
        return Plan(revision, revisions.head(), tuple(migrations), size, others)


def _of_schema(revision: str | None) -> Iterator[Pending]:
    from alembic.script import ScriptDirectory

    revisions.check_known(revision)
    scripts = ScriptDirectory(str(revisions.migrations_folder()))
    found = scripts.iterate_revisions("head", revision or "base")
    for script in reversed([*found]):
        yield Pending(script.revision, script.doc)


def _of_queue(connection: Connection) -> Iterator[Pending]:
    for name in revisions.pending_queue_scripts(connection):
        number = f"procrastinate {name.partition('_pre')[0].removesuffix('.sql')}"
        yield Pending(number, "The job queue's own tables.")
