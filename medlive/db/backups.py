"""Queries of backups (a common state for pg_dump, counts, takedowns, size), and the scratch database in which a backup
is restored to try it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from medlive.errors import CheckFailed, DatabaseForbidden

from .session import Database, Session
from .tables.intake import TakedownRow

SCRATCH_SUFFIX = "_restore_check"
"""The scratch database has the name of the instance's own database with this suffix."""
SCRATCH_NOTE = (
    "scratch database of medlive: backups are tried in it, and it may be dropped"
)
_SIZE = "SELECT pg_database_size(current_database())"
_NOTE_OF = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = :name"

_TABLES = (
    "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1"
)


async def export_snapshot(session: Session) -> str:
    """Fix the state that this session sees; return its name, by which pg_dump reads the same. Call it first."""
    await session.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    return str(await session.value("SELECT pg_export_snapshot()"))


async def count_rows(session: Session) -> dict[str, int]:
    """Table → its rows; empty for a database without tables."""
    counts = {}
    for name in await session.column(_TABLES):
        counts[name] = await session.value(f'SELECT count(*) FROM "{name}"') or 0
    return counts


async def list_takedowns(
    session: Session, *, lifted: bool = False
) -> dict[tuple[str, str], str]:
    """(source, thread id) → the takedown's reason, of erased threads that must not come back; `lifted`: that may."""
    rows = await session.rows(
        TakedownRow,
        "WHERE (lifted_at IS NOT NULL) = :lifted ORDER BY source, thread_id",
        lifted=lifted,
    )
    return {(row.source, row.thread_id): row.reason for row in rows}


async def server_version(session: Session) -> int:
    """The server's major version."""
    return int(await session.value("SHOW server_version_num")) // 10_000


async def database_size(session: Session) -> int:
    """The bytes of the session's database on disk."""
    return int(await session.value(_SIZE) or 0)


@asynccontextmanager
async def scratch_database(database: Database) -> AsyncIterator[str]:
    """The URL of a new, empty database beside this one, which is dropped in the end.

    Raises:
        CheckFailed: if a database of its name exists that medlive did not make as one.
        DatabaseForbidden: if this user may not create databases.
        DatabaseUnavailable: without the server.
    """
    url = database.engine.url
    name = f"{(url.database or '')[: 63 - len(SCRATCH_SUFFIX)]}{SCRATCH_SUFFIX}"
    quoted = '"' + name.replace('"', '""') + '"'
    drop = f"DROP DATABASE IF EXISTS {quoted} WITH (FORCE)"
    try:
        async with database.read() as session:
            existing = (await session.run(_NOTE_OF, name=name)).first()
            if existing is not None and existing[0] != SCRATCH_NOTE:
                raise CheckFailed(
                    f"the database {name} exists, and medlive did not make it",
                    hint="rename or drop it: backups are tried in a database of that name, which is then dropped",
                )
            await session.run(drop)  # one that a kill left behind
            await session.run(f"CREATE DATABASE {quoted} TEMPLATE template0")
            await session.run(f"COMMENT ON DATABASE {quoted} IS '{SCRATCH_NOTE}'")
            await session.run(f"REVOKE CONNECT ON DATABASE {quoted} FROM PUBLIC")
    except DatabaseForbidden as error:
        user = url.username or "USER"
        hint = f"ALTER ROLE {user} CREATEDB, or set [backup] check = false"
        raise DatabaseForbidden(error.message, hint=hint) from error
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        async with database.read() as session:
            await session.run(drop)
