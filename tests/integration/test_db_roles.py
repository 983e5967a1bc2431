"""The least-privilege roles, tried by real logins: what each may, and that neither alters what is frozen."""

import psycopg
import pytest
from pydantic import SecretStr

from medlive.config import Settings
from medlive.db.migrate import IMMUTABLE
from medlive.db.roles import WEB, WORKER, grant
from medlive.db.session import Database
from medlive.errors import DatabaseForbidden
from medlive.service.database import open_database
from medlive.service.release.freeze import freeze
from tests.support.release import fill


def refused(url: str, *statements: str) -> list[str]:
    """The statements that were carried out although they must not be."""
    done = []
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for statement in statements:
            try:
                connection.execute(statement)
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.IntegrityConstraintViolation):
                continue
            done.append(statement)
    return done


FROZEN = ("snapshots", "snapshot_members", "snapshot_changes", "snapshot_kept_out", *IMMUTABLE)


def alterations() -> list[str]:
    """Every way around the triggers that keep frozen rows."""
    return [
        *(f"TRUNCATE {table} CASCADE" for table in FROZEN),
        *(f"ALTER TABLE {table} DISABLE TRIGGER ALL" for table in FROZEN),
        *(f"DROP TABLE {table} CASCADE" for table in FROZEN),
        "UPDATE snapshots SET version = version",
        "DELETE FROM snapshots",
        "UPDATE snapshot_members SET version = version",
        "DELETE FROM snapshot_members",
        "UPDATE case_revisions SET narrative = ''",
        "DELETE FROM criteria",
        "SET session_replication_role = replica",
        "DROP FUNCTION medlive_refuse CASCADE",
        "CREATE OR REPLACE FUNCTION medlive_refuse_frozen() RETURNS trigger LANGUAGE sql AS 'SELECT NULL'",
        "CREATE TABLE aside (id int)",
        "UPDATE alembic_version SET version_num = '9999'",
        f"GRANT {WEB} TO {WORKER}",
        "CREATE ROLE another SUPERUSER",
    ]


async def test_the_worker_freezes_a_week_and_nobody_alters_it(
    settings: Settings, worker_url: str, web_url: str, database_url: str
) -> None:
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as owner:
        fill(owner, 3)
    as_worker = settings.model_copy(update={"database_url": SecretStr(worker_url)})
    async with open_database(as_worker) as opened:
        await freeze(opened, as_worker)
    assert refused(worker_url, *alterations()) == []
    assert refused(web_url, *alterations()) == []
    with psycopg.connect(database_url.replace("+psycopg", "")) as owner:
        assert owner.execute("SELECT count(*) FROM snapshot_members").fetchone() != (0,)


def test_the_web_reads_everything_and_writes_what_people_do_alone(web_url: str, database_url: str) -> None:
    with psycopg.connect(database_url.replace("+psycopg", "")) as owner:
        tables = [name for (name,) in owner.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    with psycopg.connect(web_url.replace("+psycopg", ""), autocommit=True) as web:
        for table in tables:
            web.execute(f"SELECT FROM {table} LIMIT 1")
    accounts = {"accounts", "account_sessions", "sign_in_attempts", "saved_views"}
    deleted = refused(web_url, *(f"DELETE FROM {table} WHERE false" for table in tables))
    assert {words.split()[2] for words in deleted} == accounts | {"step_waits"}
    with psycopg.connect(database_url.replace("+psycopg", "")) as owner:
        query = "SELECT name FROM unnest(%s::text[]) AS name WHERE has_table_privilege(%s, name, 'INSERT')"
        added = {name for (name,) in owner.execute(query, [tables, WEB])}
    # What acts write, by tests/integration/test_web_*.py: nothing of a harvest, a curation or a freeze.
    assert added == accounts | {
        "downloads", "audit_log", "reviews", "overrules", "withdrawals", "reinstatements", "case_revisions",
        "criteria", "disputes", "studies", "study_items", "study_ratings", "thread_standings", "thread_counts",
        "procrastinate_jobs", "procrastinate_events", "week_threads",
    }  # fmt: skip
    changed = [
        "UPDATE cases SET thread_id = 1", "UPDATE sources SET kind = 'file'", "UPDATE studies SET raters = '{}'",
        "UPDATE disputes SET reason = ''", "UPDATE audit_log SET reason = NULL",
        "UPDATE procrastinate_jobs SET args = '{}'",
        "INSERT INTO takedowns (source, thread_id, reason) VALUES ('a', 'b', 'c')",
    ]  # fmt: skip
    assert refused(web_url, *changed) == []


def test_the_worker_reads_no_accounts_and_rewrites_no_log(worker_url: str) -> None:
    read = [
        f"SELECT FROM {table}" for table in ("accounts", "account_sessions", "sign_in_attempts", "saved_views")
    ]
    assert refused(worker_url, *read, "UPDATE audit_log SET reason = NULL", "DELETE FROM audit_log") == []


def test_rights_are_given_anew_after_an_upgrade(database_url: str, web_url: str) -> None:
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as owner:
        owner.execute("CREATE TABLE added_later (id int)")
        owner.execute(f"GRANT ALL ON threads TO {WEB}")
    assert refused(web_url, "DELETE FROM threads") == ["DELETE FROM threads"]
    grant(database_url)
    assert refused(web_url, "DELETE FROM threads", "SELECT FROM added_later") == ["SELECT FROM added_later"]


async def test_a_user_without_the_right_is_told_so_in_one_line(worker_url: str) -> None:
    database = Database.connect(worker_url)
    with pytest.raises(DatabaseForbidden, match="permission denied for table accounts"):
        async with database.begin() as session:
            await (await session.connection()).exec_driver_sql("SELECT FROM accounts")
    await database.aclose()
