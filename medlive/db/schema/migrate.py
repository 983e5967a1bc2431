"""Upgrades of the schema, by one process at a time.

Alembic's migrations are in `migrations/`; Alembic is imported only when there is something to upgrade. Of
Procrastinate's tables the whole schema is applied once, and then each of its packaged migrations.
"""

from sqlalchemy import Connection, text

from medlive.db.schema.revisions import (
    check_known,
    connect,
    head,
    is_newest,
    migrations_folder,
    pending_queue_scripts,
    read_queue_revision,
    read_revision,
)
from medlive.db.schema.rights import renew_rights
from medlive.db.session import connection_url
from medlive.errors import DatabaseForbidden, SchemaUnsuitable

_LOCK = {"key": 0x6D65646C}  # "medl"
_WAIT_FOR_OTHERS = "SET lock_timeout = '5min'"
LOCK_TIMEOUT = "5s"
"""How long a migration waits for a lock: meanwhile whoever wants the table waits behind it."""
_NOTE_QUEUE = text("""
    INSERT INTO components (name, migration) VALUES ('procrastinate', :migration)
    ON CONFLICT (name) DO UPDATE SET migration = excluded.migration
""")


def upgrade(url: str) -> bool:
    """Bring the schema to its newest state; return whether anything had to be done.

    One process at a time does it; another waits up to five minutes for it. Roles that have rights get those of
    this version.

    Raises:
        SchemaUnsuitable: if the schema is newer than this program, or older and this user may not upgrade it.
        DatabaseUnavailable: if the server cannot be used.
    """
    with connect(url) as connection:
        if is_newest(connection):
            return False
        revision = read_revision(connection)
    try:
        return _upgrade_alone(url)
    except DatabaseForbidden as error:
        user = connection_url(url).username or ""
        state = "has no tables" if revision is None else "has older tables"
        raise SchemaUnsuitable(
            f"the database {state}, and the user {user} may not make those of this version",
            hint="run `medlive db roles` as the owner",
        ) from error


def prepare(url: str) -> None:
    """Give an empty database its tables; one that is in use is upgraded by `medlive db upgrade` alone.

    Raises:
        SchemaUnsuitable: where the schema is older than this program, or newer.
        DatabaseUnavailable: without the database.
    """
    with connect(url) as connection:
        if is_newest(connection):
            return
        revision = read_revision(connection)
        # The queue's tables come last: without them nothing is in use yet, and others may be at it.
        is_in_use = read_queue_revision(connection) is not None
    if is_in_use:
        check_known(revision)
        raise SchemaUnsuitable(
            f"the database's schema is at {revision}, this medlive wants {head()}",
            hint="medlive db upgrade, which keeps a copy; --dry-run shows what it does",
        )
    upgrade(url)


def _upgrade_alone(url: str) -> bool:
    """Upgrade while no other process does; False where another one has done it meanwhile."""
    with connect(url) as connection:
        connection.execute(text(_WAIT_FOR_OTHERS))
        connection.execute(text("SELECT pg_advisory_lock(:key)"), _LOCK)
        connection.commit()
        try:
            if is_newest(connection):
                return False
            upgrade_own_tables(connection)
            upgrade_queue(connection)
            renew_rights(connection)
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), _LOCK)
            connection.commit()
        return True


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
        # Many statements at once, in which a percent sign is one
        raw = connection.execution_options(no_parameters=True)
        raw.exec_driver_sql(script.read_text(encoding="utf-8"))
        connection.execution_options(no_parameters=False)
        connection.execute(_NOTE_QUEUE, {"migration": name})
        connection.commit()
