"""`find_differences`: where a database's schema differs from the table classes, both as PostgreSQL describes them."""

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

_SNAPSHOT_PARTS = ("snapshot_members", "snapshot_changes", "snapshot_kept_out")
_TRIGGERS = {
    **dict.fromkeys(IMMUTABLE, ("immutable", "not_truncated")),
    **dict.fromkeys(_SNAPSHOT_PARTS, ("frozen", "not_truncated", "added")),
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
"""Table → the triggers that it must have, named without the prefix `TABLE_`."""
_DEFINITIONS = text("""
    WITH tables AS (
        SELECT oid, relname FROM pg_class WHERE relnamespace = to_regnamespace(:schema) AND relkind = 'r'
            AND relname <> 'alembic_version' AND NOT starts_with(relname, 'procrastinate_')
    )
    SELECT owner, kind, name, replace(definition, concat(CAST(:schema AS text), '.'), '') FROM (
        SELECT relname AS owner, 'table' AS kind, relname AS name,
            coalesce(obj_description(oid, 'pg_class'), '') AS definition
        FROM tables
        UNION ALL SELECT relname, 'column', attname, concat_ws(
            ' ', format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'NOT NULL' END,
            'DEFAULT ' || pg_get_expr(adbin, adrelid), 'IDENTITY ' || nullif(attidentity::text, ''),
            'COMMENT ' || col_description(attrelid, attnum)
        ) FROM tables JOIN pg_attribute ON attrelid = tables.oid AND attnum > 0 AND NOT attisdropped
            LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        UNION ALL SELECT relname, 'constraint', conname, pg_get_constraintdef(pg_constraint.oid)
        FROM tables JOIN pg_constraint ON conrelid = tables.oid AND contype <> 'n'
        UNION ALL SELECT relname, 'index', indexname, indexdef
        FROM tables JOIN pg_indexes ON schemaname = :schema AND tablename = relname
    ) AS made
""")
"""The tables, columns, constraints and indexes of a schema, each with its definition without the schema's name."""
_TRIGGERS_PRESENT = text("""
    SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = to_regnamespace(current_schema()) AND NOT t.tgisinternal AND t.tgenabled <> 'D'
""")
_ASIDE = "medlive_expected"  # The schema for the model's tables


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
        differences = _differing_definitions(connection)
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


def _differing_definitions(connection: Connection) -> list[str]:
    """Tables, columns, constraints and indexes that differ from the model's, a line each.

    The model's tables are made in a schema of their own, PostgreSQL is asked for the definitions in both schemas, so
    that both are in its spelling, and the new schema is rolled back.
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
        table, kind, name = key
        is_, should_be = actual.get(key), expected.get(key)
        if is_ != should_be:
            what = f"{table}: {kind} {name}"
            differing.append(f"{what} is {is_}, the model says {should_be}")
    return differing


def _definitions(
    connection: Connection, schema: str
) -> dict[tuple[str, str, str], str]:
    """(Table, kind, name) → definition, of everything in a schema."""
    rows = connection.execute(_DEFINITIONS, {"schema": schema})
    return {tuple(key): definition for *key, definition in rows}
