"""Accounts, one-time links, sessions and counts of attempts, in a real PostgreSQL."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from medlive.__main__ import run
from medlive.db import accounts
from medlive.db.accounts import Account
from medlive.db.session import Database, Session
from medlive.db.tables.accounts import GRANTS, Role
from medlive.errors import CheckFailed, UsageError

HASH = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA"


async def with_password(
    database: Database, name: str = "ada", role: Role = Role.ADMIN
) -> Account:
    async with database.begin() as session:
        account = await accounts.use_link(
            session, await accounts.invite(session, name, role), HASH
        )
    assert account is not None
    return account


async def pass_time(database: Database, table: str, column: str, by: timedelta) -> None:
    async with database.begin() as session:
        await session.execute(
            text(f"UPDATE {table} SET {column} = {column} - :by"), {"by": by}
        )


async def owner(database: Database, token: str) -> str | None:
    async with database.begin() as session:
        found = await accounts.find_session(session, token)
    return None if found is None else found.name


def test_roles_include_others_as_documented() -> None:
    assert {
        role: "".join(sorted(r.value[0] for r in granted))
        for role, granted in GRANTS.items()
    } == {
        Role.VIEWER: "v",
        Role.REVIEWER: "rv",
        Role.PUBLISHER: "pv",
        Role.ADMIN: "aprv",
    }


async def test_a_link_sets_one_password_once_and_expires(database: Database) -> None:
    async with database.begin() as session:
        token = await accounts.invite(session, " Ada ", Role.REVIEWER)
        assert await accounts.has_accounts(session)
        stored = (await session.execute(text("SELECT * FROM accounts"))).one()
        assert token not in str(stored)
        assert (await accounts.find_invited(session, token)).name == "ada"
        assert await accounts.find_with_password(session, "ada") is None
        assert await accounts.use_link(session, token + "x", HASH) is None
        assert (await accounts.use_link(session, token, HASH)).role is Role.REVIEWER
        assert await accounts.use_link(session, token, HASH) is None
        with pytest.raises(UsageError):
            await accounts.invite(session, "ADA", Role.ADMIN)
        late = await accounts.invite(session, "late", Role.VIEWER)
    await pass_time(database, "accounts", "link_expires_at", accounts.LINK_LASTS)
    async with database.begin() as session:
        assert await accounts.find_invited(session, late) is None
        assert await accounts.use_link(session, late, HASH) is None


async def test_two_who_use_a_link_at_once_do_not_both_set_it(
    database: Database,
) -> None:
    async with database.begin() as session:
        token = await accounts.invite(session, "ada", Role.VIEWER)

    async def use() -> bool:
        async with database.begin() as session:
            return await accounts.use_link(session, token, HASH) is not None

    assert sorted(await asyncio.gather(*(use() for _ in range(8)))) == [False] * 7 + [
        True
    ]


@pytest.mark.parametrize("name", ["", "-ada", "a b", "ada\x00", "阿达", "a" * 65])
async def test_a_name_that_cannot_be_one_is_refused(
    database: Database, name: str
) -> None:
    async with database.begin() as session:
        with pytest.raises(UsageError):
            await accounts.invite(session, name, Role.VIEWER)


async def test_sessions_end_by_idleness_by_age_and_by_what_is_done_to_the_account(
    database: Database,
) -> None:
    ada, bob = await with_password(database), await with_password(database, "bob")
    almost = timedelta(minutes=1)

    async def sign_in(account: Account = ada) -> str:
        async with database.begin() as session:
            return await accounts.start_session(session, account)

    async def change(work: Callable[[Session], Awaitable[object]]) -> None:
        async with database.begin() as session:
            await work(session)

    token, other = await sign_in(), await sign_in(bob)
    async with database.begin() as session:
        assert token not in str(
            (await session.execute(text("SELECT * FROM account_sessions"))).all()
        )
    await pass_time(
        database, "account_sessions", "used_at", accounts.SESSION_IDLE - almost
    )
    assert await owner(database, token) == "ada"  # and counts as used
    await pass_time(
        database, "account_sessions", "used_at", accounts.SESSION_IDLE - almost
    )
    assert await owner(database, token) == "ada"
    assert await owner(database, other) is None  # idle for twice as long
    await pass_time(database, "account_sessions", "created_at", accounts.SESSION_LASTS)
    assert await owner(database, token) is None

    for act in (
        lambda session: accounts.set_password(session, ada, HASH),
        lambda session: accounts.end_sessions(session, ada),
        lambda session: accounts.reset(session, "ada"),
        lambda session: accounts.disable(session, "ada"),
    ):
        mine, other = await sign_in(), await sign_in(bob)
        assert await owner(database, mine) == "ada"
        await change(act)
        assert await owner(database, mine) is None
        assert await owner(database, other) == "bob"

    first, second = await sign_in(bob), await sign_in(bob)
    await change(lambda session: accounts.end_session(session, first))
    assert (await owner(database, first), await owner(database, second)) == (
        None,
        "bob",
    )
    await change(lambda session: accounts.set_role(session, "bob", Role.VIEWER))
    async with database.begin() as session:
        assert (await accounts.find_session(session, second)).role is Role.VIEWER
        assert (
            await session.scalar(text("SELECT count(*) FROM account_sessions")) == 5
        )  # not the expired


async def test_a_disabled_account_is_let_in_by_no_way_until_reset(
    database: Database,
) -> None:
    ada = await with_password(database)
    async with database.begin() as session:
        open_link = await accounts.reset(session, "ada")
        await accounts.disable(session, "ada")
        assert await accounts.find_with_password(session, "ada") is None
        assert await accounts.use_link(session, open_link, HASH) is None
        assert not await accounts.has_accounts(session)
        token = await accounts.start_session(session, ada)
        assert await accounts.find_session(session, token) is None
        assert (
            await accounts.use_link(session, await accounts.reset(session, "ada"), HASH)
            is not None
        )
        assert await accounts.find_with_password(session, "ada") is not None
        with pytest.raises(UsageError):
            await accounts.disable(session, "eve")


async def test_attempts_that_come_at_once_are_all_counted_until_the_window_ends(
    database: Database,
) -> None:
    async def attempt(subject: str) -> int:
        async with database.begin() as session:
            return (await accounts.count_attempt(session, subject))[0]

    counted = await asyncio.gather(
        *(attempt(f"account:{name}") for name in ["ada"] * 20 + ["bob"] * 3)
    )
    assert sorted(counted[:20]) == list(range(1, 21))
    assert sorted(counted[20:]) == [1, 2, 3]
    ada = await with_password(database)
    async with database.begin() as session:
        await accounts.forget_attempts(session, ada)
    assert (await attempt("account:ada"), await attempt("account:bob")) == (1, 4)
    await pass_time(database, "sign_in_attempts", "until", accounts.ATTEMPTS_WINDOW)
    assert await attempt("account:bob") == 1
    async with database.begin() as session:
        await accounts.start_session(session, ada)
        assert list(
            await session.scalars(text("SELECT subject FROM sign_in_attempts"))
        ) == ["account:bob"]


async def test_an_account_of_the_identity_provider_keeps_its_name_and_gets_the_role_of_today(
    database: Database,
) -> None:
    await with_password(database, "ada")
    async with database.begin() as session:
        bob = await accounts.save_external(
            session, "https://id.example#1", "Bob@example.org", Role.VIEWER
        )
        assert (bob.name, bob.role) == ("bob@example.org", Role.VIEWER)
        again = await accounts.save_external(
            session, "https://id.example#1", "other", Role.ADMIN
        )
        assert (again.id, again.name, again.role) == (bob.id, bob.name, Role.ADMIN)
        for taken in ("ada", "bob@example.org", "a b"):
            with pytest.raises(CheckFailed):
                await accounts.save_external(
                    session, "https://id.example#2", taken, Role.ADMIN
                )
        await accounts.disable(session, bob.name)
        assert (
            await accounts.save_external(
                session, "https://id.example#1", "bob", Role.ADMIN
            )
            is None
        )
        # Let in again, by its provider.
        assert await accounts.reset(session, bob.name) is None
        assert await accounts.save_external(
            session, "https://id.example#1", "bob", Role.ADMIN
        )


def test_the_commands_make_change_and_list_accounts(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEDLIVE_DATABASE_URL", database_url)
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path))
    monkeypatch.setenv("MEDLIVE_WEB__BASE_URL", "https://medlive.example")

    def medlive(*arguments: str) -> tuple[int, str]:
        return run(["user", *arguments]), capsys.readouterr().out

    status, first = medlive("invite", "ada", "--role", "admin")
    assert (status, first.startswith("https://medlive.example/invitation/")) == (
        0,
        True,
    )
    assert medlive("invite", "Ada")[0] == 2
    assert medlive("invite", "bob", "--role", "owner")[0] == 2
    assert medlive("role", "ada", "publisher")[0] == 0
    status, second = medlive("reset", "ada")
    assert (status, second != first) == (0, True)
    assert medlive("disable", "ada")[0] == 0
    [ada] = json.loads(medlive("list", "--json")[1])
    assert (ada["name"], ada["role"], ada["disabled_at"] is None) == (
        "ada",
        "publisher",
        False,
    )
    assert "publisher" in medlive("list")[1]


async def test_who_signs_in_for_the_first_time_in_two_windows_has_one_account(
    database: Database,
) -> None:
    who = ("https://id.example#1", "bob", Role.VIEWER)
    both = await asyncio.gather(
        *(database.ask(accounts.save_external, *who) for _ in range(8))
    )
    assert len({account.id for account in both if account}) == 1
    assert None not in both
