"""The audit log: every act in its transaction, a chain that names what its owner did to it."""

import asyncio
import json
from pathlib import Path

import psycopg
import pytest

from medlive.db import accounts
from medlive.db.audit_log import list_entries, record, verify_log
from medlive.db.session import Database
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Act
from medlive.guard.bounds import LOG_CHARS_SHOWN
from tests.support.instance import Instance
from tests.support.release import fill
from tests.support.server import plain

ROW = "(number, at, action, subject, details, previous, digest)"


async def faults(database: Database, head: str | None = None) -> tuple[str, ...]:
    async with database.begin() as session:
        return (await verify_log(session, head=head)).faults


@pytest.fixture
async def four(database: Database) -> str:
    """Four entries; the last one's digest."""
    for number in range(4):
        async with database.begin() as session:
            entry = await record(
                session,
                Act.APPROVE,
                f"case:c{number}",
                "Zwölf\x00 \ud800",
                by="bo",
                revision=number,
                names=["é"],
            )
    assert await faults(database, entry.digest) == ()
    return entry.digest


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            "UPDATE audit_log SET reason = 'Another.' WHERE number = 2",
            ["entry 2 (", "case:c1) was changed"],
        ),
        ("UPDATE audit_log SET by = NULL WHERE number = 4", ["entry 4 ("]),
        (
            "UPDATE audit_log SET at = at + interval '1 us' WHERE number = 1",
            ["entry 1 ("],
        ),
        (
            "UPDATE audit_log SET details = details || '{\"revision\": 9}' WHERE number = 3",
            ["entry 3 ("],
        ),
        (
            "UPDATE audit_log SET reason = NULL WHERE number = 2",
            ["reason of entry 2 was erased without"],
        ),
        ("DELETE FROM audit_log WHERE number = 2", ["entry 2 to 2 was removed"]),
        ("DELETE FROM audit_log WHERE number IN (1, 2)", ["entry 1 to 2 was removed"]),
        ("DELETE FROM audit_log WHERE number = 4", ["removed at the end"]),
        (
            "DELETE FROM audit_log WHERE number = 3; UPDATE audit_log SET number = 3 WHERE number = 4",
            ["entry 3 (", "was changed", "does not follow"],
        ),
        (
            "UPDATE audit_log SET number = number + 1 WHERE number = 4; "
            f"INSERT INTO audit_log {ROW} SELECT 4, at, action, subject, details, digest, "
            "'sha256:' || repeat('0', 64) FROM audit_log WHERE number = 3",
            ["entry 4 (", "entry 5 ("],
        ),
    ],
)
async def test_what_the_owner_did_to_the_log_is_named(
    database: Database, database_url: str, four: str, change: str, named: list[str]
) -> None:
    with psycopg.connect(plain(database_url), autocommit=True) as owner:
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            owner.execute(change)
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            owner.execute("TRUNCATE audit_log")
        assert await faults(database, four) == ()
        owner.execute("ALTER TABLE audit_log DISABLE TRIGGER ALL")
        for statement in change.split("; "):
            owner.execute(statement)
        owner.execute("ALTER TABLE audit_log ENABLE TRIGGER ALL")
    found = " / ".join(await faults(database, four))
    assert all(words in found for words in named), found


async def test_an_entry_is_of_its_act_s_transaction_and_those_of_many_are_one_chain(
    database: Database,
) -> None:
    async def act(number: int) -> None:
        async with database.begin() as session:
            await record(session, Act.EDIT, f"case:{number}", by=None)
            if number % 3 == 0:
                raise ZeroDivisionError

    await asyncio.gather(*(act(number) for number in range(12)), return_exceptions=True)
    async with database.begin() as session:
        check, entries = await verify_log(session), await list_entries(session)
    assert (check.entries, check.faults, len(entries)) == (8, (), 8)
    assert {entry.subject for entry in entries} == {
        f"case:{n}" for n in range(12) if n % 3
    }


@pytest.fixture
async def anchored(
    database: Database, database_url: str, tmp_path: Path, four: str
) -> Instance:
    """An instance with four entries in its log, a frozen snapshot, and two entries since."""
    with psycopg.connect(plain(database_url), autocommit=True) as owner:
        fill(owner, 1)
    instance = Instance(tmp_path, database_url)
    frozen = await asyncio.to_thread(
        instance.here, "snapshot", "freeze", "--week", "2026.W45"
    )
    assert "2026.W45" in frozen.out + frozen.err
    manifest = json.loads(
        (tmp_path / "snapshots" / "medlive-2026.W45" / "manifest.json").read_text()
    )
    assert manifest["audit_log"] == {"entries": 4, "head": four}
    for number in (5, 6):
        async with database.begin() as session:
            await record(session, Act.DISABLE, f"account:a{number}", by="ada")
    return instance


CUT = "DELETE FROM audit_log WHERE number > 2"
UNANCHORED = (
    "UPDATE snapshots SET meta = meta - 'audit_log', manifest = manifest - 'audit_log'"
)
ANEW = "INSERT INTO audit_log (at, action, subject, details) SELECT now(), 'edit', 'case:' || n, '{}' FROM"


TAMPERING = (
    (
        CUT,
        "entry 3 to 4 was removed at the end: medlive-2026.W45/manifest.json",
        "W45 in the database",
    ),
    (UNANCHORED, "entry 3 to 4 was removed at the end: medlive-2026.W45/manifest.json"),
    # Filled up to the same number.
    (
        f"{ANEW} generate_series(3, 7) AS n",
        "entry 4 or one before was replaced: medlive-2026.W45",
    ),
    # Written anew as a whole: the chain itself is sound.
    (
        f"DELETE FROM audit_log; {ANEW} generate_series(1, 6) AS n",
        "entry 4 or one before was replaced",
    ),
)
"""One after another → what is named then."""


async def test_entries_that_were_cut_off_are_missed_by_the_snapshot_s_manifest(
    database_url: str, anchored: Instance
) -> None:
    def work() -> None:
        shown = anchored.here("audit", "verify", "--json").json
        assert (shown["entries"], shown["anchors"], shown["faults"]) == (6, 2, [])
        snapshots, mirror = anchored.home / "snapshots", anchored.home / "mirror"
        with psycopg.connect(plain(database_url), autocommit=True) as owner:
            for trigger in ("audit_log_immutable", "audit_log_not_truncated"):
                owner.execute(f"ALTER TABLE audit_log DISABLE TRIGGER {trigger}")
            owner.execute("ALTER TABLE snapshots DISABLE TRIGGER ALL")
            for statements, *named in TAMPERING:
                owner.execute(statements)
                lost = anchored.here("audit", "verify", status=1)
                assert all(words in lost.err for words in named), lost.err
        # A copy elsewhere says so too.
        snapshots.rename(mirror)
        lost = anchored.here("audit", "verify", "--snapshots", mirror, status=1)
        assert named[0] in lost.err, lost.err

    await asyncio.to_thread(work)


async def test_a_long_entry_is_listed_in_short_and_verified_whole(
    database: Database, four: str
) -> None:
    long = "x" * (LOG_CHARS_SHOWN + 1)
    async with database.begin() as session:
        await record(session, Act.APPROVE, long, long, by=long, note=long)
        latest, before, *_ = await list_entries(session)
    shown = long[:LOG_CHARS_SHOWN]
    assert (latest.by, latest.subject, latest.reason, latest.details) == (
        shown,
        shown,
        shown,
        {},
    )
    assert (before.reason, before.details) == (
        "Zwölf\x00 \ud800",
        {"revision": 3, "names": ["é"]},
    )
    assert before.is_intact()
    assert await faults(database, four) == ()


async def test_what_becomes_of_accounts_is_logged_without_secrets(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    async with database.begin() as session:
        token = await accounts.invite(session, "Ada", Role.VIEWER)
        account = await accounts.use_link(session, token, "$argon2id$x")
        assert account is not None
        await accounts.set_role(session, "ada", Role.ADMIN)
        await accounts.disable(session, "ada")
        await accounts.reset(session, "ada")
        for role in (Role.VIEWER, Role.VIEWER, Role.ADMIN):
            await accounts.save_external(session, "https://id#7", "bo", role)
        log = [
            (e.by, e.action.value, e.subject, e.details)
            for e in reversed(await list_entries(session))
        ]
    assert log == [
        (None, "invite", "account:ada", {"role": "viewer"}),
        ("ada", "set_password", "account:ada", {}),
        (None, "set_role", "account:ada", {"role": "admin"}),
        (None, "disable", "account:ada", {}),
        (None, "reset", "account:ada", {}),
        ("the identity provider", "invite", "account:bo", {"role": "viewer"}),
        ("the identity provider", "set_role", "account:bo", {"role": "admin"}),
    ]
    instance = Instance(tmp_path, database_url)

    def work() -> None:
        shown = instance.here("audit", "log", "--json").json
        assert [row["number"] for row in shown] == [7, 6, 5, 4, 3, 2, 1]
        assert token not in str(shown)
        checked = instance.here(
            "audit", "verify", "--head", shown[3]["digest"], "--json"
        ).json
        assert (checked["entries"], checked["head"]) == (7, shown[0]["digest"])
        lost = instance.here(
            "audit", "verify", "--head", "sha256:" + "0" * 64, status=1
        )
        assert "removed at the end" in lost.err

    await asyncio.to_thread(work)
