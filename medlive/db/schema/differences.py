"""Whether a database's schema is what this program expects: tables by Alembic, the rest by PostgreSQL's own words."""

from typing import Any

from sqlalchemy import Connection, text

from medlive.db.tables import Base

from .migrate import (
    connect,
    head,
    queue_head,
    read_queue_revision,
    read_revision,
)
from .rights import IMMUTABLE

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
_DEFINITIONS = text("""
    SELECT owner, name, is_index, replace(definition, concat(CAST(:schema AS text), '.'), '') FROM (
        SELECT c.relname AS owner, o.conname AS name, false AS is_index, pg_get_constraintdef(o.oid) AS definition
        FROM pg_constraint AS o JOIN pg_class AS c ON c.oid = o.conrelid
        WHERE c.relnamespace = to_regnamespace(:schema) AND o.contype <> 'n'
        UNION ALL SELECT tablename, indexname, true, indexdef FROM pg_indexes WHERE schemaname = :schema
    ) AS made WHERE owner = ANY (:tables)
""")
"""The constraints and indexes of a schema, without its name. A key and its index have one name."""
_TRIGGERS_PRESENT = text("""
    SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = to_regnamespace(current_schema()) AND NOT t.tgisinternal AND t.tgenabled <> 'D'
""")
_ASIDE = "medlive_expected"


def find_differences(url: str) -> list[str]:
    """What differs between the database and what this program expects, a line each; empty if nothing does.

    Tables, columns, types, defaults, comments, keys, CHECKs, indexes, triggers, and Procrastinate's version.
    """
    with connect(url) as connection:
        revision = read_revision(connection)
        if revision is None:
            return [f"the database has no tables of medlive, which is at {head()}"]
        if revision != head():
            return [f"the schema is at {revision}, this medlive wants {head()}"]
        from alembic.autogenerate import compare_metadata
        from alembic.migration import MigrationContext

        # Tables, columns, types, defaults and comments
        options = {"include_name": include_name, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        differences = list(map(_describe, compare_metadata(context, Base.metadata)))
        differences += _differing_definitions(connection)
        # Triggers: one that is off is missing
        present = set(map(tuple, connection.execute(_TRIGGERS_PRESENT)))
        connection.rollback()
        for table, kinds in sorted(_TRIGGERS.items()):
            for name in sorted(f"{table}_{kind}" for kind in kinds):
                if (table, name) not in present:
                    differences.append(f"{table}: trigger {name} is missing or off")
        if read_queue_revision(connection) != queue_head():
            differences.append(
                "Procrastinate's tables are not at the installed version"
            )
        return differences


def include_name(name: str | None, type_: str, parent_names: Any) -> bool:
    """Whether Alembic should look at an object: all but Procrastinate's tables."""
    return type_ != "table" or not (name or "").startswith("procrastinate_")


def _describe(difference: Any) -> str:
    """One of Alembic's differences in one line."""
    if isinstance(difference, list):
        return "; ".join(_describe(part) for part in difference)
    parts = [part for part in difference if part is not None]
    return " ".join(str(getattr(part, "name", part)) for part in parts)


def _differing_definitions(connection: Connection) -> list[str]:
    """Constraints and indexes whose definition differs from what the model makes.

    Alembic does not compare CHECKs. The model's tables are made aside and PostgreSQL is asked for both, so that its own
    spelling is compared with its own spelling; then they are undone.
    """
    own = str(connection.scalar(text("SELECT current_schema()")))
    try:
        connection.exec_driver_sql(f"CREATE SCHEMA {_ASIDE}")
        aside = connection.execution_options(schema_translate_map={None: _ASIDE})
        Base.metadata.create_all(aside, checkfirst=False)
        actual = _definitions(connection, own)
        expected = _definitions(connection, _ASIDE)
    finally:
        connection.rollback()
    differing = []
    for key in sorted(actual.keys() | expected.keys()):
        table, name, _ = key
        is_, should_be = actual.get(key), expected.get(key)
        if is_ != should_be:
            differing.append(f"{table}: {name} is {is_}, the model says {should_be}")
    return differing


def _definitions(
    connection: Connection, schema: str
) -> dict[tuple[str, str, bool], str]:
    """(Table, name, whether it is an index) → what it is."""
    values = {"schema": schema, "tables": list(Base.metadata.tables)}
    rows = connection.execute(_DEFINITIONS, values)
    return {tuple(key): definition for *key, definition in rows}
