"""Upgrades of the schema under an advisory lock, and a check that schema and model agree.

Alembic's migrations are in `migrations/`, in files that begin with their revision; alembic itself is imported only
when there is something to upgrade or check. Procrastinate keeps tables of its own: its whole schema is applied
once, and then each of its packaged migrations after the recorded one.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, exc, text
from sqlalchemy.pool import NullPool

from medlive.db.schema.rights import IMMUTABLE, renew_rights
from medlive.db.session import CONNECT_ARGUMENTS, connection_url, translated_errors
from medlive.db.tables import Base
from medlive.errors import (
    ConfigError,
    DatabaseForbidden,
    DatabaseUnavailable,
    SchemaUnsuitable,
)

_LOCK = 0x6D65646C  # "medl"
LOCK_TIMEOUT = "5s"
"""How long a migration waits for a lock: meanwhile whoever wants the table waits behind it."""
_RECORD = text(
    "INSERT INTO components (name, migration) VALUES ('procrastinate', :migration) "
    "ON CONFLICT (name) DO UPDATE SET migration = excluded.migration"
)

_OF_SNAPSHOTS = ("snapshot_members", "snapshot_changes", "snapshot_kept_out")
_TRIGGERS = {
    **dict.fromkeys(IMMUTABLE, ("immutable", "not_truncated")),
    **dict.fromkeys(_OF_SNAPSHOTS, ("frozen", "not_truncated", "added")),
    "snapshots": ("frozen", "not_truncated"),
    "takedowns": ("noted", "kept", "not_truncated"),
    "disputes": ("closed", "kept", "not_truncated"),
    "audit_log": ("chained", "immutable", "not_truncated"),
    "studies": ("closed", "kept"),
    "study_items": ("open", "kept"),
    "study_ratings": ("open", "kept"),
    "cases": ("stand", "moved"),
    "filter_results": ("stand",),
}
"""Table → the triggers that it must have, without their prefix."""


def upgrade(url: str) -> bool:
    """Bring the schema to its newest state; return whether anything had to be done.

    One process at a time does it; another waits up to five minutes for it. Roles that have rights get those of
    this version.

    Raises:
        SchemaUnsuitable: if the schema is newer than this program, or older and this user may not upgrade it.
        DatabaseUnavailable: if the server cannot be used.
    """
    with connect(url) as connection:
        if _is_newest(connection):
            return False
        revision = read_revision(connection)
    try:
        return _upgrade(url)
    except DatabaseForbidden as error:
        user = connection_url(url).username or ""
        state = "has no tables" if revision is None else "has older tables"
        raise SchemaUnsuitable(
            f"the database {state}, and the user {user} may not make those of this version",
            hint="run `medlive db roles` as the owner",
        ) from error


def _upgrade(url: str) -> bool:
    with connect(url) as connection:
        connection.execute(text("SET lock_timeout = '5min'"))
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.commit()
        try:
            if _is_newest(connection):
                return False
            _upgrade_schema(connection)
            _upgrade_queue(connection)
            renew_rights(connection)
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
            connection.commit()
        return True


def prepare(url: str) -> None:
    """Give an empty database its tables; one that is in use is upgraded by `medlive db upgrade` alone.

    Raises:
        SchemaUnsuitable: where the schema is older than this program, or newer.
        DatabaseUnavailable: without the database.
    """
    with connect(url) as connection:
        if _is_newest(connection):
            return
        revision = read_revision(connection)
        # Procrastinate's come last: without them nothing is in use yet, and others may be at it.
        if _queue_revision(connection) is not None:
            check_known(revision)
            raise SchemaUnsuitable(
                f"the database's schema is at {revision}, this medlive wants {head()}",
                hint="medlive db upgrade, which keeps a copy; --dry-run shows what it does",
            )
    upgrade(url)


def head() -> str:
    """The newest revision that this program knows."""
    return max(_known_revisions())


def check(url: str) -> list[str]:
    """Return what differs between the database and what this program expects; empty if nothing does.

    Tables, columns, types, defaults, comments, keys, CHECKs, indexes, triggers, and Procrastinate's version.
    """
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with connect(url) as connection:
        revision = read_revision(connection)
        if revision != head():
            return [_compare_versions(revision)]
        context = MigrationContext.configure(
            connection,
            opts={
                "include_name": include_name,
                "compare_type": True,
                "compare_server_default": True,
            },
        )
        differing = [
            _describe(difference)
            for difference in compare_metadata(context, Base.metadata)
        ]
        differing += _compare_definitions(connection) + _missing_triggers(connection)
        if _queue_revision(connection) != max(_queue_migrations()):
            differing.append("Procrastinate's tables are not at the installed version")
        return differing


def _compare_versions(revision: str | None) -> str:
    """What is wrong with a revision that is not this program's, in a sentence."""
    if revision is None:
        return f"the database has no tables of medlive, which is at {head()}"
    known = revision in _known_revisions()
    compared = "older" if known else "newer"
    return f"the schema is at {revision}, {compared} than this medlive ({head()})"


def include_name(name: str | None, type_: str, parent_names: Any) -> bool:
    """Whether alembic should look at an object: all but Procrastinate's tables."""
    return type_ != "table" or not (name or "").startswith("procrastinate_")


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    """A connection outside the pool. Raises DatabaseUnavailable, also for a lock that was not to be had."""
    parsed = connection_url(url)
    engine = create_engine(parsed, poolclass=NullPool, connect_args=CONNECT_ARGUMENTS)
    try:
        with translated_errors(parsed), engine.connect() as connection:
            yield connection
    except exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == "55P03":
            raise DatabaseUnavailable(
                "another process holds a lock that the upgrade needs",
                hint="no migration was left half done; try again when it has finished",
            ) from error
        raise


def migrations_folder() -> Path:
    """`migrations/` beside the package in a checkout, or the copy inside an installed one."""
    package = Path(str(resources.files("medlive")))
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise ConfigError("the migrations are not installed with medlive")


def _known_revisions() -> set[str]:
    return {
        file.name.partition("_")[0]
        for file in (migrations_folder() / "versions").glob("[0-9]*_*.py")
    }


def _is_newest(connection: Connection) -> bool:
    return read_revision(connection) == head() and _queue_revision(connection) == max(
        _queue_migrations()
    )


def _scalar(connection: Connection, table: str, query: str) -> str | None:
    """The one value that a query gives, or None if its table does not exist yet."""
    value: str | None = None
    if (
        connection.scalar(text("SELECT to_regclass(:table)"), {"table": table})
        is not None
    ):
        value = connection.scalar(text(query))
    connection.rollback()
    return value


def read_revision(connection: Connection) -> str | None:
    """The database's revision; None where it has no tables of medlive."""
    return _scalar(
        connection, "alembic_version", "SELECT version_num FROM alembic_version"
    )


def check_known(revision: str | None) -> None:
    """Raise SchemaUnsuitable for a revision that this program does not know."""
    if revision is not None and revision not in _known_revisions():
        raise SchemaUnsuitable(
            f"the database is at revision {revision}, which this medlive does not know",
            hint="it was upgraded by a newer medlive: install that one",
        )


def _upgrade_schema(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    check_known(read_revision(connection))
    config = Config()
    config.set_main_option(
        "script_location", str(migrations_folder()).replace("%", "%%")
    )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _queue_sql() -> Path:
    """Procrastinate's scripts, found without importing it."""
    spec = find_spec("procrastinate")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "No module named 'procrastinate'", name="procrastinate"
        )
    return Path(spec.origin).parent / "sql"


def _queue_migrations() -> dict[str, Path]:
    return {
        path.name: path for path in sorted((_queue_sql() / "migrations").glob("*.sql"))
    }


def _queue_revision(connection: Connection) -> str | None:
    """The last of Procrastinate's migrations that was applied; None before the first."""
    return _scalar(
        connection,
        "components",
        "SELECT migration FROM components WHERE name = 'procrastinate'",
    )


def pending_queue_scripts(connection: Connection) -> dict[str, Path]:
    """Procrastinate's scripts that are still to be run, by the migration that each one reaches."""
    applied, scripts = _queue_revision(connection), _queue_migrations()
    if applied is None:
        return {max(scripts): _queue_sql() / "schema.sql"}
    return {name: script for name, script in scripts.items() if name > applied}


def _upgrade_queue(connection: Connection) -> None:
    """Apply the whole schema, or the migrations after the recorded one, each in a transaction of its own: a
    value that one adds to an enum can be used only after its commit."""
    for name, script in pending_queue_scripts(connection).items():
        # Many statements at once, in which a percent sign is one.
        raw = connection.execution_options(no_parameters=True)
        raw.exec_driver_sql(script.read_text(encoding="utf-8"))
        connection.execution_options(no_parameters=False)
        connection.execute(_RECORD, {"migration": name})
        connection.commit()


_CONSTRAINTS = text(
    "SELECT c.relname AS owner, o.conname AS name, pg_get_constraintdef(o.oid) AS definition "
    "FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid "
    "WHERE c.relnamespace = to_regnamespace(:schema) AND o.contype <> 'n' AND c.relname = ANY(:tables)"
)
_INDEXES = text(
    "SELECT tablename AS owner, indexname AS name, indexdef AS definition "
    "FROM pg_indexes WHERE schemaname = :schema AND tablename = ANY(:tables)"
)
_TRIGGERS_PRESENT = text(
    "SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
    "WHERE c.relnamespace = to_regnamespace(:schema) AND NOT t.tgisinternal AND t.tgenabled <> 'D'"
)
_ASIDE = "medlive_expected"


def _compare_definitions(connection: Connection) -> list[str]:
    """Constraints and indexes whose definition differs from what the model makes.

    Alembic does not compare CHECKs. The model's tables are made aside and PostgreSQL is asked for both, so
    that its own spelling is compared with its own spelling; then they are undone.
    """
    schema = connection.scalar(text("SELECT current_schema()"))
    try:
        connection.execute(text(f"CREATE SCHEMA {_ASIDE}"))
        Base.metadata.create_all(
            connection.execution_options(schema_translate_map={None: _ASIDE}),
            checkfirst=False,
        )
        differing = []
        for query in (_CONSTRAINTS, _INDEXES):
            actual, expected = (
                _definitions(connection, query, s) for s in (schema, _ASIDE)
            )
            for key in sorted(actual.keys() | expected.keys()):
                if actual.get(key) != expected.get(key):
                    differing.append(
                        f"{key[0]}: {key[1]} is {actual.get(key)}, the model says {expected.get(key)}"
                    )
        return differing
    finally:
        connection.rollback()


def _definitions(
    connection: Connection, query: Any, schema: str | None
) -> dict[tuple[str, str], str]:
    rows = connection.execute(
        query, {"schema": schema, "tables": list(Base.metadata.tables)}
    )
    return {(r.owner, r.name): re.sub(rf"\b{schema}\.", "", r.definition) for r in rows}


def _missing_triggers(connection: Connection) -> list[str]:
    schema = connection.scalar(text("SELECT current_schema()"))
    present = {
        tuple(row) for row in connection.execute(_TRIGGERS_PRESENT, {"schema": schema})
    }
    connection.rollback()
    expected = {
        (table, f"{table}_{kind}")
        for table, kinds in _TRIGGERS.items()
        for kind in kinds
    }
    return [
        f"{table}: trigger {name} is missing or off"
        for table, name in sorted(expected - present)
    ]


def _describe(difference: Any) -> str:
    """One of alembic's differences in one line."""
    if isinstance(difference, list):
        return "; ".join(_describe(part) for part in difference)
    return " ".join(
        str(getattr(part, "name", part)) for part in difference if part is not None
    )
