"""Which migrations a database has still to go through, what each one's own SQL would touch, and the way back."""

import inspect
import io
import re
from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db import migrate

_BODY = re.compile(r"(\$\w*\$).*?\1", re.DOTALL)
"""A function's text, which is stored and not run."""
_NAME = r"\"?(?P<table>\w+)\"?"
_CREATED = re.compile(rf"\bCREATE TABLE (?:IF NOT EXISTS )?{_NAME}", re.IGNORECASE)
_CHANGED = (
    re.compile(rf"\bALTER TABLE (?:IF EXISTS )?(?:ONLY )?{_NAME}", re.IGNORECASE),
    re.compile(rf"\bDROP TABLE (?:IF EXISTS )?{_NAME}", re.IGNORECASE),
    re.compile(rf"\bCREATE [^;]*?\bINDEX [^;]*?\bON {_NAME}", re.IGNORECASE),
    re.compile(rf"\bCREATE [^;]*?\bTRIGGER [^;]*?\bON {_NAME}", re.IGNORECASE),
    re.compile(rf"\bUPDATE {_NAME} (?:AS \w+ )?SET\b", re.IGNORECASE),
    re.compile(rf"\bINSERT INTO {_NAME}", re.IGNORECASE),
    re.compile(rf"\bDELETE FROM {_NAME}", re.IGNORECASE),
)
_BYTES = text("SELECT pg_total_relation_size(to_regclass(:table))")
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


class Touched(NamedTuple):
    """An existing table that a migration changes, and for whose lock it waits."""

    table: str
    bytes: int


class Pending(NamedTuple):
    """A migration that is still to be done."""

    number: str
    what: str
    creates: tuple[str, ...]
    changes: tuple[Touched, ...]
    reversible: bool
    """Whether it has a way back of its own."""


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
    with migrate.connect(url) as connection:
        revision = migrate.read_revision(connection)
        size = connection.scalar(_SIZE) or 0
        others = connection.scalar(_OTHERS) or 0
        migrations = [
            *_of_schema(connection, revision),
            *_of_queue(connection, revision),
        ]
        return Plan(revision, migrate.head(), tuple(migrations), size, others)


def _of_schema(connection: Connection, revision: str | None) -> Iterator[Pending]:
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    migrate.check_known(revision)
    scripts = ScriptDirectory(str(migrate.migrations_folder()))
    found = scripts.iterate_revisions("head", revision or "base")
    for script in reversed([*found]):
        written = io.StringIO()
        options = {"as_sql": True, "output_buffer": written}
        context = MigrationContext.configure(dialect_name="postgresql", opts=options)
        with Operations.context(context):
            script.module.upgrade()
        what = inspect.getdoc(script.module) or script.revision
        yield _describe(
            connection,
            script.revision,
            what.splitlines()[0],
            written.getvalue(),
            hasattr(script.module, "downgrade"),
        )


def _of_queue(connection: Connection, revision: str | None) -> Iterator[Pending]:
    for name, script in migrate.pending_queue_scripts(connection).items():
        number = f"procrastinate {name.partition('_pre')[0].removesuffix('.sql')}"
        statements = script.read_text(encoding="utf-8")
        yield _describe(
            connection, number, "The job queue's own tables.", statements, False
        )


def _describe(
    connection: Connection, number: str, what: str, statements: str, reversible: bool
) -> Pending:
    bare = _BODY.sub("", re.sub(r"--[^\n]*", "", statements))
    creates = tuple(dict.fromkeys(match["table"] for match in _CREATED.finditer(bare)))
    names: dict[str, None] = {}
    for pattern in _CHANGED:
        for match in pattern.finditer(bare):
            names.setdefault(match["table"])
    changes = []
    for name in sorted(names):
        size = connection.scalar(_BYTES, {"table": name})
        if size is not None and name not in creates:
            changes.append(Touched(name, size))
    return Pending(number, what, creates, tuple(changes), reversible)
