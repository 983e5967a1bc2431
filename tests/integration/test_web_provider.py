"""Signing in at an identity provider: the whole code flow with one that runs on this machine."""

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from itsdangerous import TimestampSigner

from medlive.config import OidcSection
from medlive.db import accounts
from medlive.db.session import Database
from medlive.db.tables.accounts import Role
from medlive.web.accounts.oidc import role_of
from medlive.web.site import Site
from tests.support.web import Browser, add_account, served, site_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
START = "/sign-in/provider?next=/account%3Fchanged%3D1"
CLIENT = {
    "client_id": "medlive",
    "client_secret_env": "ID_SECRET",
    "role_claim": "realm.groups",
    "roles": {"medlive-staff": "viewer", "medlive-admins": "admin"},
}


class Provider:
    """The identity provider: what it was asked for tokens with, and who is known there."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://localhost:{port}"
        self.asked: list[dict[str, str]] = []
        # What it answers when more is asked than the token holds
        self.userinfo: dict[str, Any] | None = None

    async def know(self, sub: str, name: str, *groups: str) -> None:
        claims = {"preferred_username": name, "realm": {"groups": groups}}
        async with httpx2.AsyncClient(base_url=self.issuer) as http:
            assert (await http.put(f"/users/{sub}", json=claims)).status_code == 204

    async def consent(self, place: str, sub: str, **form: str) -> str:
        """Sign in there; return the address that it sends back to, from its path on."""
        async with httpx2.AsyncClient() as http:
            answer = await http.post(place, data={"sub": sub} | form)
        assert answer.status_code == 302, answer.text
        return re.sub(r"^https?://[^/]+", "", answer.headers["Location"])


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    import flask
    from oidc_provider_mock import run_server_in_thread

    with run_server_in_thread(require_nonce=True) as server:
        running = Provider(server.server_port)

        def look() -> Any:
            if flask.request.path == "/oauth2/token":
                running.asked.append(flask.request.form.to_dict())
            answers = running.userinfo if flask.request.path == "/userinfo" else None
            return None if answers is None else flask.jsonify(answers)

        server.app.before_request(look)
        yield running


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ID_SECRET", "the client's secret")
    return "the client's secret"


@pytest.fixture
def site(provider: Provider, database: Database, tmp_path: Path) -> Site:
    return with_provider(database, tmp_path, provider.issuer)


@pytest.fixture
async def browser(site: Site) -> AsyncIterator[Browser]:
    async with served(site) as browser:
        yield browser


def with_provider(database: Database, folder: Path, issuer: str) -> Site:
    return site_of(database, folder, oidc=CLIENT | {"issuer": issuer})


async def come_back(
    browser: Browser, provider: Provider, sub: str, **form: str
) -> httpx2.Response:
    leaving = await browser.get(START)
    assert leaving.status_code == 302
    return await browser.get(
        await provider.consent(leaving.headers["Location"], sub, **form)
    )


async def test_who_has_a_role_there_is_signed_in_with_it(
    browser: Browser, provider: Provider, database: Database
) -> None:
    assert (
        'href="/sign-in/provider?next=/account"' in (await browser.get("/sign-in")).text
    )
    await provider.know(
        "1", "Ada@example.org", "everyone", "medlive-staff", "medlive-admins"
    )
    leaving = await browser.get(START)
    asked = {
        key: value[0]
        for key, value in parse_qs(urlsplit(leaving.headers["Location"]).query).items()
    }
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert {"state", "nonce"} <= asked.keys()
    assert asked["redirect_uri"] == "http://127.0.0.1:8080/sign-in/provider/back"
    back = await provider.consent(leaving.headers["Location"], "1")
    answer = await browser.get(back)
    assert (answer.status_code, answer.headers["Location"]) == (
        303,
        "/account?changed=1",
    )
    # RFC 7636, 4.6
    verifier = provider.asked[-1]["code_verifier"]
    digest = base64.urlsafe_b64encode(
        hashlib.sha256(verifier.encode()).digest()
    ).rstrip(b"=")
    assert digest.decode() == asked["code_challenge"]
    page = (await browser.get("/account")).text
    assert "ada@example.org" in page
    assert "Role: admin" in page
    assert "which keeps your password" in page
    assert 'name="current"' not in page
    # The address of before leads nobody in again.
    assert (await browser.get(back)).status_code == 403
    await provider.know("1", "Ada@example.org", "medlive-staff")
    assert (await come_back(browser, provider, "1")).status_code == 303
    assert "Role: viewer" in (await browser.get("/account")).text
    async with database.begin() as session:
        [account] = await accounts.list_accounts(session)
    assert account.subject == f"{provider.issuer}#1"
    # A password cannot be set for it.
    new = {"password": "a" * 12, "again": "a" * 12}
    assert (
        await browser.fill("/account", "/account/password", **new)
    ).status_code == 422


@pytest.mark.thorough
async def test_who_has_no_role_or_no_account_of_that_name_is_refused(
    browser: Browser, provider: Provider, database: Database
) -> None:
    await add_account(database, "bob")
    for sub, name, group, text in (
        ("2", "carol", "everyone", "has no role here"),
        ("3", "bob", "medlive-admins", "belongs to another account"),
        ("4", "<b>x</b>", "medlive-admins", "cannot be an account"),
    ):
        await provider.know(sub, name, group)
        answer = await come_back(browser, provider, sub)
        assert (answer.status_code, text in answer.text) == (403, True)
        assert "<b>x" not in answer.text
        assert (await browser.get("/account")).status_code == 303
    await provider.know("5", "dan", "medlive-staff")
    assert (await come_back(browser, provider, "5")).status_code == 303
    async with database.begin() as session:
        await accounts.disable(session, "dan")
    assert "disabled" in (await come_back(browser, provider, "5")).text
    denied = await come_back(browser, provider, "5", action="deny")
    assert (denied.status_code, "did not confirm" in denied.text) == (403, True)


async def test_claims_that_are_not_in_the_token_are_asked_for(
    browser: Browser, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with httpx2.AsyncClient(base_url=provider.issuer) as http:
        await http.put("/users/8", json={"preferred_username": "gus"})
    for sub, status in (("9", 403), ("8", 303)):
        monkeypatch.setattr(
            provider, "userinfo", {"sub": sub, "realm": {"groups": ["medlive-staff"]}}
        )
        assert (await come_back(browser, provider, "8")).status_code == status


async def test_an_answer_for_another_visitor_state_or_nonce_is_refused(
    browser: Browser, provider: Provider, site: Site
) -> None:
    await provider.know("6", "eve", "medlive-admins")
    leaving = (await browser.get(START)).headers["Location"]
    back = await provider.consent(leaving, "6")
    async with browser.another() as victim:
        assert (await victim.get(back)).status_code == 403
        await victim.get(START)
        assert (await victim.get(back)).status_code == 403
    assert (
        await browser.get(re.sub("state=[^&]+", "state=other", back))
    ).status_code == 403
    leaving = (await browser.get(START)).headers["Location"]
    back = await provider.consent(leaving, "6")
    signer = TimestampSigner(site.key.hex())
    held = json.loads(base64.b64decode(signer.unsign(browser.cookies["medlive"])))
    [state] = [value for key, value in held.items() if key.startswith("_state_")]
    state["data"]["nonce"] = "other"
    browser.cookies.clear()
    browser.cookies.set(
        "medlive", signer.sign(base64.b64encode(json.dumps(held).encode())).decode()
    )
    assert (await browser.get(back)).status_code == 403
    assert (await browser.get("/account")).status_code == 303


async def test_another_issuer_is_refused_and_one_that_is_away_is_said(
    provider: Provider, database: Database, tmp_path: Path
) -> None:
    await provider.know("7", "fay", "medlive-admins")
    other = provider.issuer.replace("localhost", "127.0.0.1") + "/"
    async with served(with_provider(database, tmp_path, other)) as browser:
        assert (await come_back(browser, provider, "7")).status_code == 403
    async with served(
        with_provider(database, tmp_path, "http://127.0.0.1:1")
    ) as browser:
        answer = await browser.get(START)
        assert (
            answer.status_code,
            "identity provider cannot be reached" in answer.text,
        ) == (503, True)
    async with served(site_of(database, tmp_path)) as browser:
        assert (await browser.get(START)).status_code == 404


@pytest.mark.parametrize(
    ("claim", "claims", "role"),
    [
        ("roles", {"roles": ["x", "medlive-staff"]}, Role.VIEWER),
        ("roles", {"roles": "medlive-admins"}, Role.ADMIN),
        ("roles", {"roles": ["medlive-admins", "medlive-staff"]}, Role.ADMIN),
        (
            "https://a.example/roles",
            {"https://a.example/roles": ["medlive-staff"]},
            Role.VIEWER,
        ),
        ("a.b", {"a": {"b": ["medlive-staff"]}}, Role.VIEWER),
        ("a.b", {"a": ["medlive-staff"]}, None),
        ("roles", {"roles": [{"medlive-admins": 1}, 7, None]}, None),
        ("roles", {}, None),
    ],
)
def test_a_role_is_read_from_a_claim(
    claim: str, claims: dict[str, Any], role: Role | None
) -> None:
    settings = OidcSection.model_validate(
        CLIENT | {"issuer": "https://id.example", "role_claim": claim}
    )
    assert role_of(settings, claims) is role
