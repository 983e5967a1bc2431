"""The schema's way: upgrades under an advisory lock, and a check that schema and model agree.

Alembic's migrations lie in `migrations/`, in files that begin with their revision; alembic itself is imported only
where something is to be upgraded or checked. Procrastinate keeps tables of its own: its whole schema is applied
once, and from then on each of its packaged migrations that the recorded one does not include, so that a newer
release of it needs no migration of ours. APScheduler keeps one table, which it has no migrations for: it is made
anew when the library's major version changes, since the scheduler fills it again at its start.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, exc, text
from sqlalchemy.pool import NullPool

from medlive.db.session import connect_arguments, is_unavailable, parse_url, unavailable
from medlive.db.tables import Base
from medlive.errors import ConfigError, DatabaseUnavailable

_LOCK = 0x6D65646C  # "medl"
_LOCK_WAIT = "5min"
_QUEUE = "procrastinate"
_CLOCK = "apscheduler"

JOBS_TABLE = f"{_CLOCK}_jobs"
"""APScheduler's table."""

IMMUTABLE = (
    "thread_revisions",
    "prompts",
    "replies",
    "curations",
    "agent_calls",
    "elements",
    "requirements",
    "passages",
    "claim_verdicts",
    "claim_evidence",
    "controller_checks",
    "cross_examinations",
    "cross_questions",
    "second_readings",
    "holds",
    "case_revisions",
    "criteria",
    "withdrawals",
    "reviews",
    "identifier_scans",
)
"""Tables whose rows are only ever added; triggers refuse the rest."""

FIXED = ("snapshot_members", "snapshot_changes", "snapshot_kept_out")
"""Tables of what snapshots hold; triggers refuse changes of a frozen one's rows."""

TRIGGERS = frozenset(
    {(table, f"{table}_{what}") for table in IMMUTABLE for what in ("immutable", "not_truncated")}
    | {(t, f"{t}_{w}") for t in ("snapshots", *FIXED) for w in ("frozen", "not_truncated")}
    | {(t, f"{t}_added") for t in FIXED}
    | {("takedowns", f"takedowns_{what}") for what in ("noted", "kept", "not_truncated")}
    | {("disputes", f"disputes_{what}") for what in ("closed", "kept", "not_truncated")}
)
"""(table, trigger) of every trigger that must be there."""


def upgrade(url: str) -> bool:
    """Whether anything had to be done to bring the schema to its newest state.

    One process at a time does it; another waits up to five minutes for it. Raises DatabaseUnavailable, and
    ConfigError when the database is newer than this program.
    """
    with _connected(url) as connection:
        if _is_newest(connection):
            return False
        connection.execute(text(f"SET lock_timeout = '{_LOCK_WAIT}'"))
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.commit()
        try:
            if _is_newest(connection):
                return False
            _refuse_newer(connection)
            _upgrade_schema(connection)
            _upgrade_queue(connection)
            _upgrade_clock(connection)
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
            connection.commit()
        return True


def current(url: str) -> str | None:
    """The revision of the database's schema; None when it has none yet."""
    with _connected(url) as connection:
        return _revision(connection)


def head() -> str:
    """The newest revision that this program knows."""
    return max(_known())


def check(url: str) -> list[str]:
    """What differs between the database and what this program expects; empty when all is well.

    Tables, columns, types, defaults, comments, keys, CHECKs, indexes, triggers, and how far the tables of
    Procrastinate and of APScheduler are.
    """
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with _connected(url) as connection:
        revision = _revision(connection)
        if revision != head():
            return [f"the schema is at revision {revision}, the program at {head()}"]
        context = MigrationContext.configure(
            connection, opts={"include_name": include_name, "compare_type": True, "compare_server_default": True}
        )
        found = [_told(difference) for difference in compare_metadata(context, Base.metadata)]
        found += _differing_definitions(connection)
        found += _missing_triggers(connection)
        if _applied(connection, _QUEUE) != _newest_queue_migration():
            found.append("Procrastinate's tables are not at the installed version")
        if not _is_clock_newest(connection):
            found.append("APScheduler's table is not at the installed version")
        return found


def include_name(name: str | None, type_: str, parent_names: Any) -> bool:
    """Whether alembic should look at an object: all but Procrastinate's and APScheduler's own."""
    return type_ != "table" or not (name or "").startswith((f"{_QUEUE}_", f"{_CLOCK}_"))


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    parsed = parse_url(url)
    engine = create_engine(parsed, poolclass=NullPool, connect_args=connect_arguments())
    try:
        with engine.connect() as connection:
            yield connection
    except exc.DBAPIError as error:
        if is_unavailable(error):
            raise unavailable(parsed, error) from error
        if getattr(error.orig, "sqlstate", None) == "55P03":
            raise DatabaseUnavailable(
                "another process holds a lock that the upgrade needs", hint="try again when it has finished"
            ) from error
        raise
    finally:
        engine.dispose()


def _folder() -> Path:
    """`migrations/` beside the package in a checkout, or the copy inside an installed one."""
    package = Path(str(resources.files("medlive")))
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise ConfigError("the migrations are not installed with medlive")


def _known() -> set[str]:
    return {file.name.partition("_")[0] for file in (_folder() / "versions").glob("[0-9]*_*.py")}


def _upgrade_schema(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _revision(connection: Connection) -> str | None:
    if connection.scalar(text("SELECT to_regclass('alembic_version')")) is None:
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    connection.rollback()
    return found


def _is_newest(connection: Connection) -> bool:
    return (
        _revision(connection) == head()
        and _applied(connection, _QUEUE) == _newest_queue_migration()
        and _is_clock_newest(connection)
    )


def _refuse_newer(connection: Connection) -> None:
    revision = _revision(connection)
    if revision is not None and revision not in _known():
        raise ConfigError(
            f"the database is at revision {revision}, which this medlive does not know",
            hint="it was upgraded by a newer medlive: install that one",
        )


# --- the tables of Procrastinate and of APScheduler --------------------------------------------------------


def _queue_sql() -> Path:
    """Procrastinate's scripts, found without importing it."""
    found = find_spec("procrastinate")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'procrastinate'", name="procrastinate")
    return Path(found.origin).parent / "sql"


def _newest_queue_migration() -> str:
    return max(script.name for script in (_queue_sql() / "migrations").glob("*.sql"))


def _applied(connection: Connection, component: str) -> str | None:
    if connection.scalar(text("SELECT to_regclass('components')")) is None:
        return None
    query = text("SELECT migration FROM components WHERE name = :name")
    found: str | None = connection.scalar(query, {"name": component})
    connection.rollback()
    return found


def _upgrade_queue(connection: Connection) -> None:
    """Apply the whole schema, or the migrations after the recorded one, each in a transaction of its own: a
    value that one adds to an enum can be used only after its commit."""
    applied = _applied(connection, _QUEUE)
    if applied is None:
        _apply_queue(connection, _queue_sql() / "schema.sql", _newest_queue_migration())
        return
    for script in sorted((_queue_sql() / "migrations").glob("*.sql")):
        if script.name > applied:
            _apply_queue(connection, script, script.name)


def _apply_queue(connection: Connection, script: Path, migration: str) -> None:
    # Many statements at once, in which a percent sign is one.
    connection.execution_options(no_parameters=True).exec_driver_sql(script.read_text(encoding="utf-8"))
    connection.execution_options(no_parameters=False)
    _record(connection, _QUEUE, migration)


def _clock_version() -> str:
    return metadata.version(_CLOCK).partition(".")[0]


def _is_clock_newest(connection: Connection) -> bool:
    there = connection.scalar(text("SELECT to_regclass(:table)"), {"table": JOBS_TABLE})
    return there is not None and _applied(connection, _CLOCK) == _clock_version()


def _upgrade_clock(connection: Connection) -> None:
    if _is_clock_newest(connection):
        return
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore

    connection.execute(text(f"DROP TABLE IF EXISTS {JOBS_TABLE}"))
    SQLAlchemyJobStore(engine=connection.engine, tablename=JOBS_TABLE).jobs_t.create(connection)
    _record(connection, _CLOCK, _clock_version())


def _record(connection: Connection, component: str, migration: str) -> None:
    connection.execute(
        text(
            "INSERT INTO components (name, migration) VALUES (:name, :migration) "
            "ON CONFLICT (name) DO UPDATE SET migration = excluded.migration"
        ),
        {"name": component, "migration": migration},
    )
    connection.commit()


# --- the check -------------------------------------------------------------------------------------------

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


def _differing_definitions(connection: Connection) -> list[str]:
    """Constraints and indexes whose definition differs from what the model makes.

    Alembic does not compare CHECKs. The model's tables are made aside and PostgreSQL is asked for both, so
    that its own spelling is compared with its own spelling; then they are undone.
    """
    schema = connection.scalar(text("SELECT current_schema()"))
    try:
        connection.execute(text(f"CREATE SCHEMA {_ASIDE}"))
        Base.metadata.create_all(
            connection.execution_options(schema_translate_map={None: _ASIDE}), checkfirst=False
        )
        found = []
        for query in (_CONSTRAINTS, _INDEXES):
            actual, expected = (_definitions(connection, query, s) for s in (schema, _ASIDE))
            for key in sorted(actual.keys() | expected.keys()):
                if actual.get(key) != expected.get(key):
                    found.append(f"{key[0]}: {key[1]} is {actual.get(key)}, the model says {expected.get(key)}")
        return found
    finally:
        connection.rollback()


def _definitions(connection: Connection, query: Any, schema: str | None) -> dict[tuple[str, str], str]:
    rows = connection.execute(query, {"schema": schema, "tables": list(Base.metadata.tables)})
    return {(r.owner, r.name): re.sub(rf"\b{schema}\.", "", r.definition) for r in rows}


def _missing_triggers(connection: Connection) -> list[str]:
    schema = connection.scalar(text("SELECT current_schema()"))
    present = {tuple(row) for row in connection.execute(_TRIGGERS_PRESENT, {"schema": schema})}
    connection.rollback()
    return [f"{table}: trigger {name} is missing or off" for table, name in sorted(TRIGGERS - present)]


def _told(difference: Any) -> str:
    """Alembic's account of a difference in one line."""
    if isinstance(difference, list):
        return "; ".join(_told(part) for part in difference)
    return " ".join(str(getattr(part, "name", part)) for part in difference if part is not None)
