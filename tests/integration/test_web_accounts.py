"""Signing in and out, invitations and passwords over real HTTP, with a real database."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
from argon2 import PasswordHasher
from sqlalchemy import text

from medlive.db import accounts
from medlive.db.session import Database
from medlive.db.tables.accounts import Role
from medlive.errors import AccountMissing, ConfigError
from medlive.web.accounts import passwords, room
from medlive.web.accounts.access import check_exposure
from medlive.web.accounts.room import ADDRESS_ATTEMPTS
from medlive.web.site import Site
from tests.integration.conftest import HASHER
from tests.support.web import (
    PASSWORD,
    Browser,
    add_account,
    hidden_fields,
    served,
    site_of,
)

NEW = "staple correct horse"
FEW = 3
"""Attempts where so many are enough to try a limit."""


@pytest.fixture
async def browser(web_database: Database, tmp_path: Path) -> AsyncIterator[Browser]:
    async with served(site_of(web_database, tmp_path)) as browser:
        yield browser


async def is_signed_in(browser: Browser) -> bool:
    answer = await browser.get("/account")
    assert answer.status_code in (200, 303)
    return answer.status_code == 200


async def test_a_link_from_the_command_line_leads_to_a_session(
    browser: Browser, database: Database
) -> None:
    page = await browser.get("/sign-in")
    assert "medlive user invite NAME --role admin" in page.text
    async with database.begin() as session:
        link = f"/invitation/{await accounts.invite(session, 'ada', Role.REVIEWER)}"
    assert "There is no account yet" not in (await browser.get("/sign-in")).text
    short = await browser.fill(link, password="short", again="short")
    assert (short.status_code, "A password has 12 to 256" in short.text) == (422, True)
    other = await browser.fill(link, password=PASSWORD, again=NEW)
    assert (other.status_code, "The two passwords differ" in other.text) == (422, True)
    assert PASSWORD not in other.text
    assert not await is_signed_in(browser)
    done = await browser.fill(link, password=PASSWORD, again=PASSWORD)
    assert (done.status_code, done.headers["Location"]) == (303, "/account")
    page = await browser.get("/account")
    assert "<h1>ada</h1>" in page.text
    assert "Role: reviewer" in page.text
    assert (await browser.get(link)).status_code == 410
    assert (await browser.get("/invitation/" + "x" * 43)).status_code == 410


async def test_signing_in_is_refused_alike_for_unknown_names_and_wrong_passwords(
    browser: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_account(database, "ada")
    await add_account(database, "gone")
    async with database.begin() as session:
        await accounts.disable(session, "gone")
        await accounts.invite(session, "invited", Role.VIEWER)
    tried: list[str] = []

    class Counting(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
            tried.append(str(hash))
            return super().verify(hash, password)

    assert (HASHER.memory_cost, HASHER.time_cost, HASHER.parallelism) == (1 << 16, 3, 4)
    monkeypatch.setattr(passwords, "_HASHER", Counting(1, 8, 1))
    pages = set()
    for name in ("ada", "gone", "invited", "nobody", "阿达"):
        answer = await browser.sign_in(name, "wrong password")
        assert answer.status_code == 422
        pages.add(re.sub(r'value="[^"]*"', "", answer.text))
    # As much work for each, and one page.
    assert len(tried) == 5
    assert len({re.sub(r"\$[^$]+\$[^$]+$", "", stored) for stored in tried}) == 1
    assert len(pages) == 1
    assert "The name or the password is wrong." in pages.pop()
    assert not await is_signed_in(browser)


async def test_an_old_password_opens_nothing_once_the_account_is_reset(
    browser: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_account(database, "ada")
    verify = passwords.verify

    async def reset_meanwhile(stored: str | None, password: str) -> bool:
        is_right = await verify(stored, password)
        await database.ask(accounts.reset, "ada")
        return is_right

    monkeypatch.setattr(passwords, "verify", reset_meanwhile)
    assert (await browser.sign_in("ada")).status_code == 403
    assert not await is_signed_in(browser)


async def test_a_session_is_a_cookie_that_scripts_and_other_sites_cannot_use(
    browser: Browser, database: Database, tmp_path: Path
) -> None:
    await add_account(database, "ada")
    before = (await browser.get("/sign-in")).headers["Set-Cookie"]
    answer = await browser.sign_in(" ADA ")
    assert answer.status_code == 303
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("medlive=")
    assert {"httponly", "samesite=lax", "path=/"} <= set(cookie.split("; "))
    assert "secure" not in cookie
    assert await is_signed_in(browser)
    # What a visitor had before is not what the session has after.
    assert before.partition(";")[0] != cookie.partition(";")[0]
    async with database.begin() as session:
        stored = (await session.execute(text("SELECT * FROM account_sessions"))).all()
    assert len(stored) == 1
    async with served(
        site_of(database, tmp_path, base_url="https://medlive.example")
    ) as behind:
        cookie = (await behind.get("/sign-in")).headers["Set-Cookie"]
        assert cookie.startswith("__Host-medlive=")
        assert "secure" in cookie.split("; ")
        # Another process has another key: the cookie of the first says nothing to it.
        behind.cookies.set("__Host-medlive", browser.cookies["medlive"])
        assert not await is_signed_in(behind)


async def test_signing_out_ends_this_session_or_all(
    browser: Browser, database: Database
) -> None:
    await add_account(database, "ada")
    async with browser.another() as phone:
        for one in (browser, phone):
            await one.sign_in("ada")
        stolen = dict(browser.cookies)
        assert (await browser.fill("/account", "/sign-out")).status_code == 303
        assert not await is_signed_in(browser)
        assert await is_signed_in(phone)
        browser.cookies.update(stolen)
        assert not await is_signed_in(browser)
        await browser.sign_in("ada")
        assert (
            await phone.fill("/account", "/sign-out", everywhere="1")
        ).status_code == 303
        assert not await is_signed_in(phone)
        assert not await is_signed_in(browser)


async def test_a_changed_password_ends_every_other_session(
    browser: Browser, database: Database
) -> None:
    await add_account(database, "ada")
    async with browser.another() as phone:
        await phone.sign_in("ada")
        await browser.sign_in("ada")
        for fields, field in (
            ({"current": NEW, "password": NEW, "again": NEW}, "current"),
            ({"current": PASSWORD, "password": "short", "again": "short"}, "password"),
        ):
            wrong = await browser.fill("/account", "/account/password", **fields)
            assert wrong.status_code == 422
            assert f'id="{field}-error"' in wrong.text
            assert re.search(
                rf'<input id="{field}"[^>]*aria-describedby="[^"]*{field}-error',
                wrong.text,
            )
        assert await is_signed_in(phone)
        done = await browser.fill(
            "/account", "/account/password", current=PASSWORD, password=NEW, again=NEW
        )
        assert (
            "Your password was changed"
            in (await browser.get(done.headers["Location"])).text
        )
        assert not await is_signed_in(phone)
        assert (await phone.sign_in("ada")).status_code == 422
        assert (await phone.sign_in("ada", NEW)).status_code == 303


async def test_attempts_are_limited_by_account_and_by_address(
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Hashing is not what is tested here.
    async def quick(stored: str | None, password: str) -> bool:
        return stored is not None and password == PASSWORD

    for name in ("ada", "bob"):
        await add_account(database, name)
    monkeypatch.setattr(passwords, "verify", quick)
    monkeypatch.setattr(room, "ACCOUNT_ATTEMPTS", FEW)
    site = site_of(database, tmp_path, trusted_proxies=["127.0.0.1"])
    # Two processes: what they count together is in the database.
    async with served(site) as browser, served(site) as other:
        for one, address in ((browser, "192.0.2.1"), (other, "192.0.2.2")):
            one.headers["X-Forwarded-For"] = address
        for _ in range(FEW):
            assert (await other.sign_in("ada", "wrong")).status_code == 422
        refused = await other.sign_in("ada")
        assert (refused.status_code, "Try again in 15 min" in refused.text) == (
            429,
            True,
        )
        assert 0 < int(refused.headers["Retry-After"]) <= 900
        assert (await other.sign_in("bob")).status_code == 303
        # The owner at another address gets in; so many attempts from anywhere only slow everybody down.
        monkeypatch.setattr(room, "SLOW_ATTEMPTS", FEW)
        monkeypatch.setattr(room, "SLOW_S", 0.0)
        with caplog.at_level("WARNING"):
            assert (await browser.sign_in("ada")).status_code == 303
        assert "each takes longer" in caplog.text
        assert (await other.sign_in("ada")).status_code == 429
        async with database.begin() as session:
            await session.execute(
                text(
                    "UPDATE sign_in_attempts SET until = until - interval '15 minutes'"
                )
            )
        assert (await other.sign_in("ada")).status_code == 303
        async with database.begin() as session:
            await session.execute(
                text(
                    "UPDATE sign_in_attempts SET attempts = :most WHERE subject = 'address:192.0.2.2'"
                ),
                {"most": ADDRESS_ATTEMPTS},
            )
        assert (await other.sign_in("bob")).status_code == 429
        assert (await browser.sign_in("bob")).status_code == 303
        # All addresses of an IPv6 network count as one.
        for last in range(FEW + 1):
            other.headers["X-Forwarded-For"] = f"2001:db8::{last + 1:x}"
            await other.sign_in(f"name{last}")
        async with database.begin() as session:
            query = text(
                "SELECT attempts FROM sign_in_attempts WHERE subject = 'address:2001:db8::/64'"
            )
            assert await session.scalar(query) == FEW + 1


async def test_a_proxys_word_is_taken_only_from_those_that_are_named(
    database: Database, tmp_path: Path
) -> None:
    for web, subject in (
        ({}, "address:127.0.0.1"),
        ({"trusted_proxies": ["192.0.2.0/24"]}, "address:127.0.0.1"),
        ({"trusted_proxies": ["127.0.0.0/8"]}, "address:198.51.100.7"),
    ):
        async with served(site_of(database, tmp_path, **web)) as browser:
            # The sender may write what it likes before the address that the proxy adds.
            browser.headers["X-Forwarded-For"] = "203.0.113.9, 198.51.100.7"
            await browser.sign_in("nobody")
        async with database.begin() as session:
            found = await session.scalars(
                text("DELETE FROM sign_in_attempts RETURNING subject")
            )
            network = subject.removeprefix("address:")
            assert set(found) == {
                subject,
                "account:nobody",
                f"account:nobody from {network}",
            }


@pytest.mark.thorough
async def test_an_address_that_is_mapped_into_ipv6_is_the_one_that_it_is(
    database: Database, tmp_path: Path
) -> None:
    mapped = "::ffff:127.0.0.0/104"
    for host in ("127.0.0.1", "::"):
        for proxies, forwarded, subject in (
            ([], "", "127.0.0.1"),
            (["127.0.0.0/8"], "198.51.100.7", "198.51.100.7"),
            ([mapped], "::ffff:198.51.100.7", "198.51.100.7"),
            (["127.0.0.1/32"], "198.51.100.7, ::ffff:127.0.0.1", "198.51.100.7"),
            (["::ffff:7f00:0/104"], "::ffff:c633:6407", "198.51.100.7"),
            (["127.0.0.0/8", "::1"], "2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
            (["192.0.2.0/24"], "198.51.100.7", "127.0.0.1"),
            (["::ffff:192.0.2.0/120"], "198.51.100.7", "127.0.0.1"),
        ):
            site = site_of(database, tmp_path, trusted_proxies=proxies)
            async with served(site, host=host) as browser:
                browser.headers["X-Forwarded-For"] = forwarded
                await browser.sign_in("nobody")
            async with database.begin() as session:
                query = text("DELETE FROM sign_in_attempts RETURNING subject")
                subjects = set(await session.scalars(query))
            assert f"address:{subject}" in subjects, (host, proxies, forwarded)


async def test_signing_in_leads_back_to_this_site_alone(
    browser: Browser, database: Database
) -> None:
    await add_account(database, "ada")
    sent = await browser.get("/account?changed=1")
    assert (sent.status_code, sent.headers["Location"]) == (
        303,
        "/sign-in?next=/account%3Fchanged%3D1",
    )
    answer = await browser.fill(
        sent.headers["Location"], "/sign-in", name="ada", password=PASSWORD
    )
    assert answer.headers["Location"] == "/account?changed=1"
    for place in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
    ):
        form = hidden_fields(
            (await browser.get("/sign-in", params={"next": place})).text
        )
        assert form["next"] == "/"
        answer = await browser.post(
            "/sign-in",
            data={**form, "next": place, "name": "ada", "password": PASSWORD},
        )
        assert (answer.status_code, answer.headers["Location"]) == (303, "/")


async def test_a_form_is_taken_only_with_the_token_of_its_visitor(
    browser: Browser, database: Database
) -> None:
    await add_account(database, "ada")
    form = {"name": "ada", "password": PASSWORD}
    assert (await browser.post("/sign-in", data=form)).status_code == 403
    async with browser.another() as attacker:
        theirs = hidden_fields((await attacker.get("/sign-in")).text)["csrf"]
    mine = hidden_fields((await browser.get("/sign-in")).text)["csrf"]
    for wrong in (theirs, "", "é", mine + "x"):
        assert (
            await browser.post("/sign-in", data={**form, "csrf": wrong})
        ).status_code == 403
    assert (
        await browser.post("/sign-in", data={**form, "csrf": mine})
    ).status_code == 303
    # The token of before does not serve the session.
    assert (await browser.post("/sign-out", data={"csrf": mine})).status_code == 403
    mine = hidden_fields((await browser.get("/account")).text)["csrf"]
    assert (
        await browser.post("/sign-out", headers={"X-CSRF-Token": mine})
    ).status_code == 303


async def test_a_disabled_account_and_a_new_role_count_at_once(
    browser: Browser, database: Database
) -> None:
    await add_account(database, "ada")
    await browser.sign_in("ada")
    async with database.begin() as session:
        await accounts.set_role(session, "ada", Role.VIEWER)
    assert "Role: viewer" in (await browser.get("/account")).text
    async with database.begin() as session:
        await accounts.disable(session, "ada")
    assert not await is_signed_in(browser)
    assert (await browser.get("/account", headers={"HX-Request": "true"})).headers[
        "HX-Redirect"
    ] == "/sign-in"


async def test_forms_have_limits(browser: Browser) -> None:
    too_large = b"a" * (1 << 20) + b"="

    async def without_length() -> AsyncIterator[bytes]:
        for start in range(0, len(too_large), 65536):
            yield too_large[start : start + 65536]

    for content in (too_large, without_length()):
        answer = await browser.post(
            "/sign-in",
            content=content,
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        assert answer.status_code == 413
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    body = b"name=%ff%fe&password=%ff&csrf=%ff"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (
        await browser.post("/sign-in", content=body, headers=headers)
    ).status_code == 403


async def test_the_private_rooms_are_served_to_others_only_with_accounts(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ("0.0.0.0", "::", "192.0.2.1", "medlive.example", "")

    async def are_refused(site: Site, error: type[Exception]) -> None:
        for host in others:
            with pytest.raises(error):
                await check_exposure(site, host)

    async def are_served(site: Site) -> None:
        for host in others:
            await check_exposure(site, host)

    site = site_of(database, tmp_path)
    await are_refused(site, AccountMissing)
    for loopback in ("127.0.0.1", "::1", "localhost"):
        await check_exposure(site, loopback)
    await add_account(database, "ada")
    await are_served(site)
    async with database.begin() as session:
        await accounts.disable(session, "ada")
    await are_refused(site, AccountMissing)
    provider = {
        "issuer": "https://id.example",
        "client_id": "medlive",
        "client_secret_env": "ID_SECRET",
    }
    await are_refused(site_of(database, tmp_path, oidc=provider), ConfigError)
    monkeypatch.setenv("ID_SECRET", "s")
    await are_served(site_of(database, tmp_path, oidc=provider))
