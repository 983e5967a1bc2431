"""Upgrades of the schema, by one process at a time: `prepare` for every command, `upgrade`, `read_plan`; and `grant`,
which makes the roles.

Two groups of tables have a state: medlive's own, by Alembic's revision, and the job queue's, by the name of the last
applied migration in Procrastinate's package. Alembic's migrations are in `migrations/`. Of Procrastinate the whole
schema is applied once, and then each of its migrations. Neither library is imported before there is something to
upgrade, since every command asks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, create_engine, exc, text
from sqlalchemy.pool import NullPool

from medlive.db.session import CONNECT_ARGUMENTS, connection_url, translated_errors
from medlive.errors import (
    ConfigError,
    DatabaseForbidden,
    DatabaseUnavailable,
    SchemaUnsuitable,
)

from .rights import (
    WEB,
    WORKER,
    close_database,
    renew_rights,
    replace_rights,
)

_LOCK = {"key": 0x6D65646C}  # "medl"
_WAIT_FOR_OTHERS = "SET lock_timeout = '5min'"
LOCK_TIMEOUT = "5s"
"""How long a migration waits for a lock: meanwhile everybody who wants the table waits behind it."""
_NOTE_QUEUE = text("""
    INSERT INTO components (name, migration) VALUES ('procrastinate', :migration)
    ON CONFLICT (name) DO UPDATE SET migration = excluded.migration
""")


def upgrade(url: str) -> bool:
    """Bring the schema to its newest state; return whether anything had to be done.

    One process at a time does it; another waits up to five minutes for it. Roles that have rights get this version's.

    Raises:
        SchemaUnsuitable: if the schema is newer than this program, or older and this user may not upgrade it.
        DatabaseUnavailable: if the server cannot be used.
    """
    try:
        with connect(url) as connection:
            if is_newest(connection):
                return False
            connection.exec_driver_sql(_WAIT_FOR_OTHERS)
            # Until the connection is closed
            connection.execute(text("SELECT pg_advisory_lock(:key)"), _LOCK)
            connection.commit()
            if is_newest(connection):
                return False
            upgrade_own_tables(connection)
            upgrade_queue(connection)
            renew_rights(connection)
            return True
    except DatabaseForbidden as error:
        user = connection_url(url).username or ""
        raise SchemaUnsuitable(
            f"the database has no tables of this version, and the user {user} may not make those",
            hint="run `medlive db roles` as the owner",
        ) from error


def prepare(url: str) -> None:
    """Give an empty database its tables; a database in use is upgraded by `medlive db upgrade` alone.

    Raises:
        SchemaUnsuitable: where the schema is older than this program, or newer.
        DatabaseUnavailable: without the database.
    """
    with connect(url) as connection:
        if is_newest(connection):
            return
        revision = read_revision(connection)
        # The queue's tables come last: without them nothing is in use yet, and another process may be making them.
        is_in_use = read_queue_revision(connection) is not None
    if is_in_use:
        check_known(revision)
        raise SchemaUnsuitable(
            f"the database's schema is at {revision}, this medlive wants {head()}",
            hint="medlive db upgrade, which keeps a copy; --dry-run shows what it does",
        )
    upgrade(url)


def upgrade_own_tables(connection: Connection, to: str = "head") -> None:
    """Run medlive's migrations up to a revision."""
    from alembic import command
    from alembic.config import Config

    check_known(read_revision(connection))
    folder = str(migrations_folder()).replace("%", "%%")
    config = Config()
    config.set_main_option("script_location", folder)
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def upgrade_queue(connection: Connection) -> None:
    """Run Procrastinate's scripts, each in a transaction: a value that one adds to an enum can be used after it."""
    for name, script in pending_queue_scripts(connection).items():
        # A script has many statements, and its percent signs are no placeholders.
        raw = connection.execution_options(no_parameters=True)
        raw.exec_driver_sql(script.read_text(encoding="utf-8"))
        connection.execution_options(no_parameters=False)
        connection.execute(_NOTE_QUEUE, {"migration": name})
        connection.commit()


_LOCK_NOT_AVAILABLE = "55P03"


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    """A synchronous connection outside the pool. Raises DatabaseUnavailable, also after waiting too long for a lock."""
    parsed = connection_url(url)
    engine = create_engine(parsed, poolclass=NullPool, connect_args=CONNECT_ARGUMENTS)
    try:
        with translated_errors(parsed), engine.connect() as connection:
            yield connection
    except exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        raise DatabaseUnavailable(
            "another process holds a lock that the upgrade needs",
            hint="no migration was left half done; try again when it has finished",
        ) from error


# medlive's own tables


def migrations_folder() -> Path:
    """`migrations/` beside the package in a checkout, or the copy inside an installed one."""
    package = Path(str(resources.files("medlive")))
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise ConfigError("the migrations are not installed with medlive")


def known_revisions() -> set[str]:
    """Every revision that this program knows; a migration's file name begins with its revision."""
    files = (migrations_folder() / "versions").glob("[0-9]*_*.py")
    return {file.name.partition("_")[0] for file in files}


def head() -> str:
    """The newest revision that this program knows."""
    return max(known_revisions())


def read_revision(connection: Connection) -> str | None:
    """The database's revision; None where it has no tables of medlive."""
    return _read_state(
        connection, "alembic_version", "SELECT version_num FROM alembic_version"
    )


def check_known(revision: str | None) -> None:
    """Raise SchemaUnsuitable for a revision that this program does not know."""
    if revision is not None and revision not in known_revisions():
        raise SchemaUnsuitable(
            f"the database is at revision {revision}, which this medlive does not know",
            hint="it was upgraded by a newer medlive: install that one",
        )


# The job queue's tables


def read_queue_revision(connection: Connection) -> str | None:
    """The last of Procrastinate's migrations that was applied; None before the first."""
    return _read_state(
        connection,
        "components",
        "SELECT migration FROM components WHERE name = 'procrastinate'",
    )


def queue_head() -> str:
    """The last migration of the installed Procrastinate."""
    return max(_queue_migrations())


def pending_queue_scripts(connection: Connection) -> dict[str, Path]:
    """Migration → Procrastinate's script that is still to be run to reach it, in order."""
    applied = read_queue_revision(connection)
    if applied is None:
        return {queue_head(): _queue_folder() / "schema.sql"}
    scripts = _queue_migrations()
    return {name: script for name, script in scripts.items() if name > applied}


def _queue_migrations() -> dict[str, Path]:
    """The installed Procrastinate's migrations: name → script, in order."""
    scripts = sorted((_queue_folder() / "migrations").glob("*.sql"))
    return {script.name: script for script in scripts}


def _queue_folder() -> Path:
    """Where Procrastinate's scripts are, found without importing it."""
    spec = find_spec("procrastinate")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "No module named 'procrastinate'", name="procrastinate"
        )
    return Path(spec.origin).parent / "sql"


# Both


class Plan(NamedTuple):
    """What an upgrade would do."""

    revision: str | None  # Of the database; None: it is empty
    head: str  # Of the program
    migrations: list[tuple[str, str]]  # Each one's name, and what it does
    bytes: int  # Of the database


def read_plan(url: str) -> Plan:
    """What an upgrade of the database would do.

    Raises:
        DatabaseUnavailable: without the database.
        SchemaUnsuitable: where it is newer than this program.
    """
    from alembic.script import ScriptDirectory

    migrations: list[tuple[str, str]] = []
    with connect(url) as connection:
        revision = read_revision(connection)
        check_known(revision)
        scripts = ScriptDirectory(str(migrations_folder()))
        for script in scripts.iterate_revisions("head", revision or "base"):
            migrations.insert(0, (script.revision, script.doc))
        for name in pending_queue_scripts(connection):
            number = name.partition("_pre")[0].removesuffix(".sql")
            what = "The job queue's own tables."
            migrations.append((f"procrastinate {number}", what))
        size = connection.scalar(text("SELECT pg_database_size(current_database())"))
    return Plan(revision, head(), migrations, size or 0)


def is_newest(connection: Connection) -> bool:
    """Whether there is nothing to upgrade."""
    state = read_revision(connection), read_queue_revision(connection)
    return state == (head(), queue_head())


def _read_state(connection: Connection, table: str, query: str) -> str | None:
    """The one value that a query gives; None where its table does not exist yet."""
    exists = text(f"SELECT to_regclass('{table}') IS NOT NULL")
    state: str | None = None
    if connection.scalar(exists):
        state = connection.scalar(text(query))
    connection.rollback()
    return state


def grant(url: str) -> list[str]:
    """Create both roles, without a login, replace their rights, and return their names.

    Raises DatabaseUnavailable, and DatabaseForbidden for a user who may not do it.
    """
    with connect(url) as connection:
        for role in (WEB, WORKER):
            # Roles belong to the server: another database may make the same one at the same time.
            connection.execute(
                text(f"""
                    DO $$ BEGIN IF to_regrole('{role}') IS NULL THEN CREATE ROLE {role} NOLOGIN; END IF;
                    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$
                """)
            )
            replace_rights(connection, role)
        close_database(connection)
        connection.commit()
    return [WEB, WORKER]
