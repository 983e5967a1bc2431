"""An instance as medlive 0.1.0 left it (`tests/data/release_0_1_0`), and what a worker of 0.1.0 does in it."""

import lzma
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Composable, Identifier, Literal

from medlive.db.schema import migrate

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "release_0_1_0"
FIRST = "0001"
OF_A_DECISION = (
    "agent_calls",
    "elements",
    "requirements",
    "claim_verdicts",
    "claim_evidence",
    "controller_checks",
    "cross_examinations",
    "cross_questions",
    "second_readings",
)
"""Tables with a curation's id, each after those that it refers to."""
OF_A_CASE = ("case_revisions", "criteria", "identifier_scans")
CASE = "ml-00000000000000ff"
NOTE_AN_ACT = "note an act in the audit log"

Columns = Mapping[str, Sequence[str]]


def load_tables(connection: psycopg.Connection[Any]) -> None:
    """Make the tables of 0.1.0 with their rows in an empty database."""
    text = lzma.decompress((DATA / "database.sql.xz").read_bytes())
    connection.execute(text)
    # The dump leaves names without a schema nowhere to be found.
    connection.execute("RESET ALL")


def unpack_folders(home: Path) -> None:
    """Put the folders of 0.1.0 into a home."""
    with tarfile.open(DATA / "home.tar.xz") as folders:
        folders.extractall(home, filter="data")


def migrate_to(url: str, revision: str) -> None:
    """Run the migrations up to a revision."""
    with migrate.connect(url) as connection:
        migrate.upgrade_own_tables(connection, revision)


def read_columns(connection: psycopg.Connection[Any]) -> dict[str, list[str]]:
    """Table → the columns that a program names when it writes; those that the database makes are left out."""
    query = (
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND is_identity = 'NO'"
        " AND is_generated = 'NEVER' AND table_name IN"
        " (SELECT tablename FROM pg_tables WHERE schemaname = 'public')"
        " ORDER BY table_name, ordinal_position"
    )
    columns: dict[str, list[str]] = {}
    for table, column in connection.execute(query):
        columns.setdefault(table, []).append(column)
    return columns


RENAMED = {("claim_verdicts", "second_goes_against"): "second_false_by_passage"}
"""(table, column of 0.1.0) → its name in a later version."""
GONE = frozenset({"downloads", "import_problems", "saved_views", "thread_counts"})
"""Tables of 0.1.0 that a later version does not have."""
DROPPED = {("band_schemes", "filled_to")}
"""(table, column) of 0.1.0 that a later version does not have."""


def digest_rows(
    connection: psycopg.Connection[Any], columns: Columns
) -> dict[str, str]:
    """Table → number and digest of its rows, by these columns alone, or what they are called by now."""
    digests = {}
    known = connection.execute(
        "SELECT table_name, column_name FROM information_schema.columns"
    ).fetchall()
    tables = {table for table, _ in known}
    for table, names in columns.items():
        if table in GONE and table not in tables:
            continue
        present = [
            name if (table, name) in known else RENAMED[table, name]
            for name in names
            if (table, name) not in DROPPED
        ]
        listed = SQL(", ").join(map(Identifier, present))
        query = SQL(
            "SELECT count(*) || ' ' || coalesce(md5(string_agg(row::text, '|'"
            " ORDER BY row::text)), '') FROM (SELECT {} FROM {}) AS row"
        ).format(listed, Identifier(table))
        (digests[table],) = connection.execute(query).fetchone() or ("",)
    return digests


def work(connection: psycopg.Connection[Any], columns: Columns) -> Iterator[str]:
    """Do what a worker and a release of 0.1.0 do, by its columns; yields what is about to be done."""
    yield "take a job"
    (worker,) = _row(connection, "SELECT procrastinate_register_worker_v1()")
    fetch = (
        f"SELECT id, args FROM procrastinate_fetch_job_v2(ARRAY['curate'], {worker})"
    )
    job, arguments = _row(connection, fetch)
    revision = arguments["revision"]
    yield "write a reply"
    _copy(
        connection,
        columns,
        "replies",
        {"request_digest": Literal("sha256:" + "e" * 64)},
    )
    yield "write a curation"
    (curation,) = _row(
        connection,
        "SELECT curation_id FROM case_revisions ORDER BY curation_id LIMIT 1",
    )
    new = _copy(
        connection,
        columns,
        "curations",
        {"revision_id": Literal(revision)},
        where=("id", curation),
        returning="id",
    )
    for table in OF_A_DECISION:
        yield f"write {table} of a curation"
        _copy(
            connection,
            columns,
            table,
            {"curation_id": Literal(new)},
            where=("curation_id", curation),
        )
    yield "write a case"
    (case,) = _row(
        connection, f"SELECT case_id FROM case_revisions WHERE curation_id = {curation}"
    )
    (thread,) = _row(
        connection, f"SELECT thread_id FROM thread_revisions WHERE id = {revision}"
    )
    _copy(
        connection,
        columns,
        "cases",
        {"id": Literal(CASE), "thread_id": Literal(thread)},
        where=("id", case),
    )
    for table in OF_A_CASE:
        yield f"write {table} of a case"
        changed: dict[str, Composable] = {"case_id": Literal(CASE)}
        if table == "case_revisions":
            changed["curation_id"] = Literal(new)
        if table == "criteria":
            changed["id"] = SQL("replace(id, {}, {})").format(
                Literal(case), Literal(CASE)
            )
        _copy(connection, columns, table, changed, where=("case_id", case))
    yield "finish a job"
    finish = f"SELECT procrastinate_finish_job_v1({job}, 'succeeded', false)"
    _row(connection, finish)
    yield "read every column that there was"
    digest_rows(connection, columns)
    yield NOTE_AN_ACT
    entry = {
        "number": SQL("number + 1"),
        "previous": Identifier("digest"),
        "digest": Literal("sha256:" + "f" * 64),
    }
    _copy(connection, columns, "audit_log", entry)


def _row(connection: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None, query
    return tuple(row)


def _copy(
    connection: psycopg.Connection[Any],
    columns: Columns,
    table: str,
    changed: Mapping[str, Composable],
    *,
    where: tuple[str, object] | None = None,
    returning: str | None = None,
) -> Any:
    """Insert copies of rows with some columns changed, naming the old version's columns alone."""
    names = columns[table]
    values = [changed.get(name, Identifier(name)) for name in names]
    query = SQL("INSERT INTO {table} ({names}) SELECT {values} FROM {table}").format(
        table=Identifier(table),
        names=SQL(", ").join(map(Identifier, names)),
        values=SQL(", ").join(values),
    )
    if where is None:
        query += SQL(" ORDER BY ctid DESC LIMIT 1")
    else:
        query += SQL(" WHERE {} = {}").format(Identifier(where[0]), Literal(where[1]))
    query += SQL(" RETURNING {}").format(Identifier(returning or names[0]))
    row = connection.execute(query).fetchone()
    assert row is not None, f"nothing to copy in {table}"
    return row[0]
