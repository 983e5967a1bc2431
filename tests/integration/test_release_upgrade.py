"""What medlive 0.1.0 left is brought to this version: every row stays, and a worker of 0.1.0 works meanwhile."""

import re
from pathlib import Path

import psycopg
import pytest
from alembic.script import ScriptDirectory

from medlive.db.schema import migrate
from medlive.db.schema.differences import find_differences
from medlive.db.schema.migrate import grant
from tests.support.instance import Instance
from tests.support.release_0_1_0 import (
    FIRST,
    GONE,
    NOTE_AN_ACT,
    ROOT,
    Columns,
    digest_rows,
    load_tables,
    migrate_to,
    read_columns,
    unpack_folders,
    work,
)
from tests.support.server import plain

CHANGED = frozenset({"alembic_version", "thread_standings"})
"""Tables whose rows of 0.1.0 a migration changes on purpose: 0018 lets approved cases stand as kept."""
STOPS = {
    NOTE_AN_ACT: "0002",
    "write claim_verdicts of a curation": "0008",
    "list and filter threads": "0017",
    "import a file with a bad line": "0020",
}
"""What 0.1.0 can no longer do → from which migration on; deploy/README.md has a row for each."""
DEPLOYMENT = ROOT / "deploy" / "README.md"


@pytest.fixture
def old_url(database_url: str) -> str:
    """A database as 0.1.0 left it."""
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        load_tables(connection)
    return database_url


def later_revisions() -> list[str]:
    """The migrations after the first, in their order."""
    revisions = []
    for script in ScriptDirectory(str(ROOT / "migrations")).walk_revisions():
        if script.revision != FIRST:
            revisions.append(script.revision)
    return revisions[::-1]


def try_work(url: str, columns: Columns) -> tuple[str, str]:
    """Do the old version's work and take it back; the step that failed and why, or nothing."""
    with psycopg.connect(plain(url)) as connection:
        steps: list[str] = []
        try:
            steps.extend(work(connection, columns))
        except psycopg.Error as error:
            return steps[-1], str(error)
        finally:
            connection.rollback()
    return "", ""


@pytest.mark.thorough
def test_each_migration_keeps_every_row_and_a_worker_of_0_1_0_at_work(
    old_url: str,
) -> None:
    with psycopg.connect(plain(old_url), autocommit=True) as connection:
        columns = read_columns(connection)
        before = digest_rows(connection, columns)
        assert try_work(old_url, columns) == ("", "")
        for revision in later_revisions():
            migrate_to(old_url, revision)
            step, why = try_work(old_url, columns)
            assert not step or STOPS.get(step, "9") <= revision, f"{revision}: {why}"
            after = digest_rows(connection, columns)
            for table in before.keys() - CHANGED - GONE:
                assert after[table] == before[table], (revision, table)
    migrate.upgrade(old_url)
    grant(old_url)
    assert find_differences(old_url) == []


def test_what_a_migration_stops_is_in_the_operators_table() -> None:
    table = re.findall(
        r"^\| `(\d{4})` \| ([^|]+) \|", DEPLOYMENT.read_text("utf-8"), re.MULTILINE
    )
    assert {step.strip(): revision for revision, step in table} == STOPS


def test_an_instance_of_0_1_0_goes_on_with_this_version(
    old_url: str, tmp_path: Path
) -> None:
    unpack_folders(tmp_path)
    instance = Instance(tmp_path, old_url)
    refused = instance.here("db", "check", status=1)
    assert f"this medlive wants {migrate.head()}" in refused.out
    assert "medlive db upgrade" in refused.err
    instance.here("db", "upgrade")
    assert "schema and model agree" in instance.here("db", "check").err
    version = instance.one("SELECT version FROM snapshots")
    verified = instance.here("snapshot", "verify", version, status=None)
    assert f"medlive-{version} verifies" in verified.err
    case = instance.one("SELECT min(id) FROM cases WHERE status = 'ready'")
    assert instance.here("case", "show", case, "--json").json
    waiting = instance.rows("SELECT waits_for FROM medlive_waiting_threads()")
    assert waiting == [("a worker",)] * 2
    assert instance.here("audit", "verify").status == 0


def test_a_schema_of_a_newer_version_is_named(
    database_url: str, tmp_path: Path
) -> None:
    instance = Instance(tmp_path, database_url)
    instance.change("UPDATE alembic_version SET version_num = '9999'")
    refused = instance.here("db", "check", status=1)
    assert f"9999, this medlive wants {migrate.head()}" in refused.out
    assert "install the medlive" in refused.err
