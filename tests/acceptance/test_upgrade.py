"""An upgrade of a database that is in use: shown first, done by one command alone, and its copy restored."""

from collections.abc import Callable

import pytest

from medlive.db.schema import migrate
from tests.support.instance import Instance

NewInstance = Callable[..., Instance]
OLD = "0004"


@pytest.fixture
def old(new_instance: NewInstance) -> Instance:
    """An instance as an earlier version left it, with a study in it."""
    instance = new_instance()
    assert instance.url is not None
    instance.change("DROP SCHEMA public CASCADE")
    instance.change("CREATE SCHEMA public")
    with migrate.connect(instance.url) as connection:
        migrate.upgrade_own_tables(connection, OLD)
        migrate.upgrade_queue(connection)
    instance.change("INSERT INTO sources (name, kind) VALUES ('sdn', 'site')")
    add_takedown(instance, "1")
    return instance


def add_takedown(instance: Instance, thread: str) -> None:
    instance.change(
        "INSERT INTO takedowns (source, thread_id, reason) VALUES ('sdn', %s, 'asked')",
        [thread],
    )


def contents(instance: Instance) -> list[object]:
    """Columns and rows of every table, but what Procrastinate's sequences and clocks say."""
    tables = instance.rows(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
    )
    columns = instance.rows(
        "SELECT table_name, column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'public' ORDER BY 1, 2"
    )
    found: list[object] = [*columns]
    for (table,) in tables:
        query = f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {table} t"
        found.append((table, instance.rows(query)))
    return found


@pytest.mark.thorough
def test_an_upgrade_is_shown_then_done_and_its_copy_restored(old: Instance) -> None:
    before = contents(old)
    plan = old.here("db", "upgrade", "--dry-run", "--json").json
    shown = old.here("db", "upgrade", "--dry-run").out
    refused = old.here("status", status=3)
    assert contents(old) == before

    assert plan["revision"] == OLD
    later = []
    for number in sorted(migrate.known_revisions()):
        if number > OLD:
            later.append(number)
    assert [number for number, _ in plan["migrations"]] == later
    assert all(what for _, what in plan["migrations"])
    assert all(number in shown for number in later)
    assert "medlive db upgrade" in refused.err

    assert "upgraded to" in old.here("db", "upgrade").err
    (copy,) = (old.home / "upgrades").iterdir()
    assert copy.stat().st_mode & 0o077 == 0
    assert old.here("db", "check").status == 0
    add_takedown(old, "2")

    for name in ("public", "procrastinate"):
        old.change(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    old.change("CREATE SCHEMA public")
    old.here("restore", str(copy))
    assert old.rows("SELECT thread_id FROM takedowns") == [("1",)]

    old.here("db", "upgrade", "--no-backup")
    assert old.here("db", "check").status == 0
    assert len([*(old.home / "upgrades").iterdir()]) == 1
