"""The schema: reached by migrations, equal to the model, upgraded once, and refusing what must not be."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sqlalchemy import make_url, text

from medlive.db.adapters import to_stored
from medlive.db.audit_log import record, verify_log
from medlive.db.mapping import as_dict
from medlive.db.schema import migrate
from medlive.db.schema.differences import find_differences
from medlive.db.session import Database
from medlive.db.studies import Rating, ratings_of, save_rating
from medlive.db.tables import Base
from medlive.db.tables.people import Act, AuditLogRow
from medlive.errors import ConfigError, DatabaseUnavailable, SchemaUnsuitable
from medlive.integrity.digest import digest_text


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def empty_url(database_url: str) -> str:
    execute(database_url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return database_url


def test_an_empty_database_is_brought_to_the_model_once(empty_url: str) -> None:
    assert find_differences(empty_url) == [
        f"the database has no tables of medlive, which is at {migrate.head()}"
    ]
    assert migrate.upgrade(empty_url) is True
    assert find_differences(empty_url) == []
    assert migrate.upgrade(empty_url) is False


def test_who_may_not_make_the_tables_hears_who_may(empty_url: str) -> None:
    execute(
        empty_url,
        "CREATE ROLE makes_nothing LOGIN",
        "GRANT USAGE ON SCHEMA public TO makes_nothing",
    )
    user = make_url(empty_url).set(username="makes_nothing")
    try:
        with pytest.raises(SchemaUnsuitable):
            migrate.upgrade(user.render_as_string(hide_password=False))
    finally:
        execute(empty_url, "DROP OWNED BY makes_nothing", "DROP ROLE makes_nothing")


@pytest.mark.thorough
def test_several_processes_may_upgrade_at_once(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(migrate.upgrade, [empty_url] * 4))
    assert sorted(done) == [False, False, False, True]


@pytest.mark.thorough
async def test_entries_and_ratings_of_the_first_schema_stay_and_continue(
    empty_url: str,
) -> None:
    with migrate.connect(empty_url) as connection:
        migrate.upgrade_own_tables(connection, "0001")
    old: AuditLogRow | None = None
    with psycopg.connect(empty_url.replace("+psycopg", ""), autocommit=True) as owner:
        for number in (1, 2):
            entry = AuditLogRow(
                number=number,
                at=datetime(2026, 3, 1, tzinfo=UTC),
                by="ä\x00",
                action=Act.EDIT,
                subject="case:c",
                reason="why",
                reason_digest=digest_text("why"),
                details={"n": [1, None]},
                previous=old.digest if old else None,
                digest="",
                salt=None,
            )
            entry.digest = entry.expected_digest()
            old, values = entry, as_dict(entry)
            del values["salt"]
            values |= {"by": to_stored("ä\x00"), "details": Jsonb(old.details)}
            names = ", ".join(f'"{name}"' for name in values)
            placed = ", ".join(f"%({name})s" for name in values)
            owner.execute(f"INSERT INTO audit_log ({names}) VALUES ({placed})", values)
        owner.execute(
            "INSERT INTO studies (name, kind, stratum, seed, raters, created_by)"
            " VALUES ('s', 'case_quality', 'none', 1, '{a,b}', 'c')"
        )
        owner.execute("INSERT INTO study_items VALUES ('s', 'i', 1, 'c', 1, 'advice')")
        owner.execute(
            "INSERT INTO study_ratings VALUES ('s', 'i', 'a', 2, 'first', now())"
        )
    assert migrate.upgrade(empty_url) is True
    assert find_differences(empty_url) == []
    database = Database.connect(empty_url)
    async with database.begin() as session:
        assert (await record(session, Act.EDIT, "case:c", by=None)).number == 3
        assert (await verify_log(session)).faults == ()
        second = Rating(item="i", rater="a", rating=1, comment="second")
        await save_rating(session, "s", second)
        assert await ratings_of(session, "s") == [second]
    await database.aclose()


DIFFERENCES = [
    (
        "ALTER TABLE criteria DROP CONSTRAINT ck_criteria_points_range",
        "ck_criteria_points_range",
    ),
    (
        "ALTER TABLE curations DROP CONSTRAINT ck_curations_s_inf_range, "
        "ADD CONSTRAINT ck_curations_s_inf_range CHECK (s_inf BETWEEN 0 AND 2)",
        "ck_curations_s_inf_range",
    ),
    ("ALTER TABLE threads ADD COLUMN extra int", "extra"),
    ("ALTER TABLE circuits DROP COLUMN cause", "circuits: column cause"),
    ("COMMENT ON TABLE circuits IS 'else'", "circuits: table"),
    ("ALTER TABLE threads ALTER COLUMN url DROP NOT NULL", "url"),
    ("ALTER TABLE replies ALTER COLUMN latency_ms TYPE int", "latency_ms"),
    ("COMMENT ON COLUMN threads.url IS 'else'", "url"),
    ("DROP TRIGGER replies_immutable ON replies", "replies_immutable"),
    ("ALTER TABLE snapshots DISABLE TRIGGER snapshots_frozen", "snapshots_frozen"),
    ("DROP INDEX uq_curations_decided", "uq_curations_decided"),
    # Its index stays as it is; nobody could insert ON CONFLICT any more.
    (
        "ALTER TABLE circuits DROP CONSTRAINT pk_circuits, ADD CONSTRAINT pk_circuits PRIMARY KEY (key) DEFERRABLE",
        "DEFERRABLE",
    ),
    ("UPDATE components SET migration = '00'", "Procrastinate"),
]


def test_the_check_tells_everything_that_differs(database_url: str) -> None:
    execute(database_url, *(change for change, _ in DIFFERENCES))
    found = find_differences(database_url)
    for _, told in DIFFERENCES:
        assert any(told in line for line in found), told


def test_a_newer_schema_is_not_touched(database_url: str) -> None:
    execute(database_url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaUnsuitable):
        migrate.upgrade(database_url)


@pytest.mark.thorough
def test_later_migrations_of_the_queue_are_applied(database_url: str) -> None:
    # As if the installed release were the next one: what its last migration made is not there yet.
    trigger = "procrastinate_trigger_status_events_update_v1"
    execute(
        database_url,
        f"DROP TRIGGER {trigger} ON procrastinate_jobs",
        "UPDATE components SET migration = '03.04.00_01_pre_add_retry_failed_job_procedure.sql'",
    )
    assert migrate.upgrade(database_url) is True
    assert find_differences(database_url) == []
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        query = "SELECT count(*) FROM pg_trigger WHERE tgname = %s"
        assert connection.execute(query, (trigger,)).fetchone() == (1,)


@pytest.mark.thorough
def test_an_upgrade_waits_briefly_for_who_uses_the_tables_and_changes_nothing(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "50ms")
    with psycopg.connect(empty_url.replace("+psycopg", "")) as other:
        tables = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        other.execute("CREATE TABLE threads ()")
        with pytest.raises(DatabaseUnavailable, match="lock"):
            migrate.upgrade(empty_url)
        other.rollback()
        assert set(other.execute(tables)) <= {("alembic_version",)}
        other.rollback()
        assert migrate.upgrade(empty_url) is True
        # The queue's tables beside a worker of the release before.
        before = "03.04.00_01_pre_add_retry_failed_job_procedure.sql"
        execute(
            empty_url,
            "DROP TRIGGER procrastinate_trigger_status_events_update_v1 ON procrastinate_jobs",
            f"UPDATE components SET migration = '{before}'",
        )
        other.execute("LOCK TABLE procrastinate_jobs IN ROW EXCLUSIVE MODE")
        with pytest.raises(DatabaseUnavailable):
            migrate.upgrade(empty_url)
        other.rollback()
    assert migrate.upgrade(empty_url) is True
    assert find_differences(empty_url) == []


def test_every_table_and_column_explains_itself() -> None:
    for table in Base.metadata.tables.values():
        assert table.comment, table.name
        for column in table.columns:
            assert column.comment, f"{table.name}.{column.name}"


def test_every_moment_has_a_zone() -> None:
    for table in Base.metadata.tables.values():
        for column in table.columns:
            if column.type.python_type.__name__ == "datetime":
                assert getattr(column.type, "timezone", False), (
                    f"{table.name}.{column.name}"
                )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@127.0.0.1:1/x",
        "postgresql+psycopg://u:hunter2@/x?host=/nowhere",
    ],
)
async def test_an_absent_database_is_told_without_its_password(url: str) -> None:
    database = Database.connect(url)
    with pytest.raises(DatabaseUnavailable) as caught:
        async with database.begin() as session:
            await session.execute(text("SELECT 1"))
    await database.aclose()
    assert "127.0.0.1" in caught.value.message or "/nowhere" in caught.value.message
    assert "hunter2" not in caught.value.message + (caught.value.hint or "")
    with pytest.raises(DatabaseUnavailable) as again:
        migrate.upgrade(url)
    assert "hunter2" not in again.value.message


@pytest.mark.parametrize(
    "url",
    ["", "sqlite:///x", "mysql://u:hunter2@h/x", "postgresql://u:hunter2@h:port/x"],
)
def test_a_url_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Database.connect(url)
    assert "hunter2" not in caught.value.message


async def test_sessions_commit_whole_or_not_at_all_and_wait_their_turn(
    database: Database,
) -> None:
    async def add(name: str) -> None:
        async with database.begin() as session:
            await session.execute(
                text("INSERT INTO sources (name, kind) VALUES (:name, 'file')"),
                {"name": name},
            )
            await asyncio.sleep(0.01)

    await asyncio.gather(*(add(f"s{i}") for i in range(64)))

    async def fail() -> None:
        async with database.begin() as session:
            await session.execute(text("DELETE FROM sources"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    async with database.begin() as session:
        assert await session.scalar(text("SELECT count(*) FROM sources")) == 64
        assert str(await session.scalar(text("SHOW timezone"))) == "UTC"
        assert (
            await session.scalar(
                text(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                )
            )
            <= 16
        )


async def test_a_server_that_lets_go_of_its_clients_is_met_again(
    database: Database,
) -> None:
    async with database.begin() as session:
        await session.execute(text("SELECT 1"))
    with pytest.raises(DatabaseUnavailable):
        async with database.begin() as session:
            await session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    async with database.begin() as session:
        assert await session.scalar(text("SELECT 1")) == 1


def test_migrations_are_found_beside_the_package() -> None:
    assert (Path(migrate.__file__).parents[3] / "migrations" / "env.py").is_file()
