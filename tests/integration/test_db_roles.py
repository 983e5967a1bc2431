"""The least-privilege roles, tried by real logins: what each may, and that neither alters what is frozen."""

import psycopg
import pytest
from pydantic import SecretStr

from medlive.config import Settings
from medlive.db.audit_log import record, verify_log
from medlive.db.schema.migrate import grant, upgrade
from medlive.db.schema.rights import IMMUTABLE, WEB, WORKER
from medlive.db.session import Database
from medlive.db.tables.people import Act
from medlive.errors import DatabaseForbidden
from medlive.service.database import open_database
from medlive.service.release.freeze import freeze
from tests.support.release import fill
from tests.support.server import plain


def refused(url: str, *statements: str) -> list[str]:
    """The statements that were carried out although they must not be."""
    done = []
    with psycopg.connect(plain(url), autocommit=True) as connection:
        for statement in statements:
            try:
                connection.execute(statement)
            except (
                psycopg.errors.InsufficientPrivilege,
                psycopg.errors.IntegrityConstraintViolation,
            ):
                continue
            done.append(statement)
    return done


FROZEN = (
    "snapshots",
    "snapshot_members",
    "snapshot_changes",
    "snapshot_kept_out",
    *IMMUTABLE,
)


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
    with psycopg.connect(plain(database_url), autocommit=True) as owner:
        fill(owner, 3)
    as_worker = settings.model_copy(update={"database_url": SecretStr(worker_url)})
    async with open_database(as_worker) as opened:
        await freeze(opened, as_worker)
    assert refused(worker_url, *alterations()) == []
    assert refused(web_url, *alterations()) == []
    with psycopg.connect(plain(database_url)) as owner:
        assert owner.execute("SELECT count(*) FROM snapshot_members").fetchone() != (0,)


def test_the_web_reads_everything_and_writes_what_people_do_alone(
    web_url: str, database_url: str
) -> None:
    with psycopg.connect(plain(database_url)) as owner:
        tables = [
            name
            for (name,) in owner.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            )
        ]
    with psycopg.connect(plain(web_url), autocommit=True) as web:
        for table in tables:
            web.execute(f"SELECT FROM {table} LIMIT 1")
    changed = [
        "DELETE FROM accounts",
        "UPDATE cases SET thread_id = 1",
        "UPDATE sources SET kind = 'file'",
        "UPDATE studies SET raters = '{}'",
        "UPDATE disputes SET reason = ''",
        "UPDATE audit_log SET reason = ''",
        "UPDATE procrastinate_jobs SET args = '{}'",
        "UPDATE study_ratings SET rating = 0",
        "INSERT INTO takedowns (source, thread_id, reason) VALUES ('a', 'b', 'c')",
        "SELECT nextval('threads_id_seq')",
    ]
    assert refused(web_url, *changed) == []


def test_the_worker_writes_nothing_that_people_write_alone(worker_url: str) -> None:
    study = [
        f"{act} study_ratings{more}"
        for act, more in (("UPDATE", " SET rating = 0"), ("DELETE FROM", ""))
    ]
    study += [
        "INSERT INTO study_ratings (study, item, rater, comment) VALUES ('s', 'i', 'r', '')"
    ]
    study += ["UPDATE studies SET closed_at = NULL", "DELETE FROM study_items"]
    takedown = [
        "INSERT INTO takedowns (source, thread_id, reason) VALUES ('a', 'b', 'c')"
    ]
    assert (
        refused(
            worker_url,
            *study,
            *takedown,
            "DELETE FROM threads",
        )
        == []
    )


async def test_a_temporary_table_does_not_stand_in_for_what_a_trigger_reads(
    settings: Settings, worker_url: str, database_url: str
) -> None:
    with psycopg.connect(plain(database_url), autocommit=True) as owner:
        fill(owner, 3)
    as_worker = settings.model_copy(update={"database_url": SecretStr(worker_url)})
    async with open_database(as_worker) as opened:
        await freeze(opened, as_worker)
    with psycopg.connect(plain(worker_url), autocommit=True) as worker:
        worker.execute("CREATE TEMPORARY TABLE snapshots (version text, state text)")
        worker.execute(
            "INSERT INTO snapshots SELECT version, 'building' FROM public.snapshots"
        )
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            worker.execute("DELETE FROM snapshot_members")


STORED_ASIDE = (
    "SELECT lo_create(0)",
    "SELECT lo_creat(-1)",
    "SELECT lo_from_bytea(0, 'a name')",
    "SELECT lo_put(1, 0, 'a name')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_get(1)",
    "SELECT lo_unlink(1)",
    "SELECT lo_open(1, 131072)",
)


def test_nobody_stores_what_no_table_shows(
    database_url: str, web_url: str, worker_url: str
) -> None:
    grant(database_url)
    temporary = "CREATE TEMPORARY TABLE aside (name text)"
    assert refused(web_url, *STORED_ASIDE, temporary) == []
    # A week is frozen by way of one.
    assert refused(worker_url, *STORED_ASIDE, temporary) == [temporary]


FORGED = (
    "(number, at, action, subject, details, digest)"
    " VALUES (2147483647, now(), 'disable', 'account:a', '{{}}', {0})",
    "(number, at, action, subject, details, digest) OVERRIDING SYSTEM VALUE"
    " VALUES (9, now(), 'disable', 'account:a', '{{}}', {0})",
    "(at, action, subject, details, digest) VALUES (now(), 'disable', 'account:a', '{{}}', {0})",
    "(at, action, subject, details, previous) VALUES (now(), 'disable', 'account:a', '{{}}', {0})",
    "(at, action, subject, details, salt) VALUES (now(), 'disable', 'account:a', '{{}}', repeat('0', 32))",
    "(at, action, subject, reason, reason_digest, details) VALUES (now(), 'edit', 'case:a', 'r', {0}, '{{}}')",
    "(at, action, subject, details) VALUES ('infinity', 'disable', 'account:a', '{{}}')",
    "(at, action, subject, details) VALUES (now(), 'disable', 'account:a', '[]')",
    "(at, action, subject, details) VALUES (now(), 'disable', 'account:a', '{{\"n\": 1e400}}')",
    "(at, action, subject, details) VALUES (now(), 'disable', 'account:a', '{{\"N\": 1}}')",
    "(at, action, subject, details) VALUES (now(), 'disable', 'account:' || chr(1114109) || '110000;', '{{}}')",
)


@pytest.mark.parametrize("role", [WEB, WORKER, "the owner"])
async def test_the_database_alone_numbers_the_log_and_makes_its_digests(
    role: str, web_url: str, worker_url: str, database: Database, database_url: str
) -> None:
    url = {WEB: web_url, WORKER: worker_url}.get(role, database_url)
    actor = Database.connect(url)
    zeros = "'sha256:' || repeat('0', 64)"
    for before in (0, 1):
        assert (
            refused(
                url,
                *(f"INSERT INTO audit_log {values.format(zeros)}" for values in FORGED),
            )
            == []
        )
        async with actor.begin() as session:
            entry = await record(
                session,
                Act.LIFT_QUARANTINE,
                "source:s",
                'Ä\x00\ud800\U0010fffd"',
                by=None,
                n=[1],
            )
        assert entry.number == before + 1
        assert entry.is_intact()
    await actor.aclose()
    async with database.begin() as session:
        assert (await verify_log(session)).faults == ()


def test_a_closed_study_stays_closed_and_its_ratings_as_they_were(
    web_url: str, database_url: str
) -> None:
    study = (
        "(name, kind, stratum, seed, raters, created_by, blinding)"
        " VALUES ('s', 'case_quality', 'none', 1, '{a,b}', 'c', 'blind')"
    )
    item = "(study, item, position, case_id, revision, aspect) VALUES ('s', 'i{0}', {0}, 'c', 1, 'advice')"
    rating = "INSERT INTO study_ratings (study, item, rater, rating, comment) VALUES ('s', 'i1', 'a', {0}, '')"
    with psycopg.connect(plain(web_url), autocommit=True) as web:
        web.execute(f"INSERT INTO studies {study}")
        web.execute(f"INSERT INTO study_items {item.format(1)}")
        web.execute(rating.format(1))
        web.execute(rating.format(2))  # Corrected while the study is open
        web.execute("UPDATE studies SET closed_at = now()")
    changes = [
        "UPDATE studies SET closed_at = NULL",
        "UPDATE studies SET closed_at = now()",
        "DELETE FROM studies",
        f"INSERT INTO study_items {item.format(2)}",
        "UPDATE study_items SET position = 9",
        rating.format(0),
        "UPDATE study_ratings SET rating = 0",
    ]
    assert refused(web_url, *changes) == []
    assert refused(database_url, *changes) == []
    with psycopg.connect(plain(database_url)) as owner:
        assert owner.execute(
            "SELECT rating FROM study_ratings ORDER BY id"
        ).fetchall() == [(1,), (2,)]


def test_the_worker_reads_no_accounts_and_rewrites_no_log(worker_url: str) -> None:
    read = [
        f"SELECT FROM {table}"
        for table in ("accounts", "account_sessions", "sign_in_attempts")
    ]
    assert (
        refused(
            worker_url,
            *read,
            "UPDATE audit_log SET reason = NULL",
            "DELETE FROM audit_log",
        )
        == []
    )


def test_rights_are_given_anew_after_an_upgrade(
    database_url: str, web_url: str
) -> None:
    with psycopg.connect(plain(database_url), autocommit=True) as owner:
        owner.execute("CREATE TABLE added_later (id int)")
        owner.execute(f"GRANT ALL ON threads TO {WEB}")
    assert refused(web_url, "DELETE FROM threads") == ["DELETE FROM threads"]
    grant(database_url)
    assert refused(web_url, "DELETE FROM threads", "SELECT FROM added_later") == [
        "SELECT FROM added_later"
    ]


def test_an_upgrade_makes_wider_rights_narrow(
    database_url: str, worker_url: str
) -> None:
    with psycopg.connect(plain(database_url), autocommit=True) as owner:
        owner.execute(f"GRANT ALL ON study_ratings TO {WORKER}")
        owner.execute(f"GRANT INSERT ON audit_log TO {WORKER}")
        owner.execute("GRANT EXECUTE ON FUNCTION medlive_waiting_threads TO PUBLIC")
        owner.execute(
            f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {WEB}"
        )  # Another database's role
        owner.execute(f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {WEB}")
        owner.execute(
            "UPDATE components SET migration = '03.04.00_01_pre_add_retry_failed_job_procedure.sql'"
        )
        owner.execute(
            "DROP TRIGGER procrastinate_trigger_status_events_update_v1 ON procrastinate_jobs"
        )
        assert upgrade(database_url)
        given = "SELECT table_name FROM information_schema.column_privileges WHERE grantee = %s AND column_name = %s"
        assert owner.execute(given, [WORKER, "rating"]).fetchall() == [
            ("study_ratings",)
        ]  # SELECT
        assert ("audit_log",) not in owner.execute(
            f"{given} AND privilege_type = 'INSERT'", [WORKER, "number"]
        )
        assert owner.execute(given, [WEB, "rating"]).fetchall() == []
    assert refused(worker_url, "DELETE FROM study_ratings") == []


async def test_a_user_without_the_right_is_told_so_in_one_line(worker_url: str) -> None:
    database = Database.connect(worker_url)
    with pytest.raises(DatabaseForbidden):
        async with database.begin() as session:
            await (await session.connection()).exec_driver_sql("SELECT FROM accounts")
    await database.aclose()
