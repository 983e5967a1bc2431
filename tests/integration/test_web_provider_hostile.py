"""A real provider whose answers are spoilt one by one: nobody is signed in, and no answer is an internal error."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from medlive.db.session import Database
from tests.integration.test_web_provider import START, Provider, with_provider
from tests.support.web import served

DISCOVERY, JWKS = "/.well-known/openid-configuration", "/jwks"
TOKEN, USERINFO = "/oauth2/token", "/userinfo"
KEY = RSAKey.generate_key(2048, parameters={"kid": "theirs"})
PUBLIC = json.dumps({"keys": [KEY.as_dict(private=False)]})

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Spoil = Callable[[str], tuple[int, str]]


@pytest.fixture(scope="module")
def spoilt() -> Iterator[tuple[Provider, dict[str, Spoil]]]:
    """The provider, and what becomes of its answers by their path."""
    import flask
    from oidc_provider_mock import run_server_in_thread

    spoils: dict[str, Spoil] = {}
    with run_server_in_thread(require_nonce=True) as server:

        def change(response: Any) -> Any:
            spoil = spoils.get(flask.request.path)
            if spoil is not None:
                status, text = spoil(response.get_data(as_text=True))
                response = flask.Response(text, status, mimetype="application/json")
            return response

        server.app.after_request(change)
        yield Provider(server.server_port), spoils


def says(text: str, status: int = 200) -> Spoil:
    """Another answer."""
    return lambda _: (status, text)


def changed(**values: object) -> Spoil:
    """The answer with other values."""
    return lambda text: (200, json.dumps(json.loads(text) | values))


def signed(key: Any, alg: str, **claims: object) -> Spoil:
    """The token with other claims, signed by another key."""

    def spoil(text: str) -> tuple[int, str]:
        answer = json.loads(text)
        body = answer["id_token"].split(".")[1]
        old = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        new = {name: v for name, v in (old | claims).items() if v is not None}
        if alg == "none":
            parts = [{"alg": "none"}, new]
            coded = [
                base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
                for part in parts
            ]
            answer["id_token"] = ".".join([*coded, ""])
        else:
            answer["id_token"] = jwt.encode({"alg": alg, "kid": "theirs"}, new, key)
        return 200, json.dumps(answer)

    return spoil


OTHER_TEXTS = ("", "{", "[]", "null", '"x"', "7", "[" * 5_000, "\x00")
BROKEN: dict[str, dict[str, Spoil]] = {}
for _path in (DISCOVERY, JWKS, TOKEN, USERINFO):
    for _number, _text in enumerate(OTHER_TEXTS):
        BROKEN[f"{_path} says {_number}"] = {_path: says(_text)}
    BROKEN[f"{_path} fails"] = {_path: says('{"error": "x"}', 500)}
    BROKEN[f"{_path} is refused"] = {_path: says('{"error": 7}', 401)}
BROKEN |= {
    "no endpoints": {DISCOVERY: says("{}")},
    "an endpoint is a number": {DISCOVERY: changed(authorization_endpoint=7)},
    "the keys are elsewhere": {DISCOVERY: changed(jwks_uri="http://127.0.0.1:1/")},
    "the token endpoint is a list": {DISCOVERY: changed(token_endpoint=[])},
    "no keys": {JWKS: says('{"keys": []}')},
    "keys of another kind": {JWKS: says('{"keys": [{"kty": "x"}, 7]}')},
    "no token": {TOKEN: says("{}")},
    "no identity": {TOKEN: changed(id_token=None)},
    "an identity that is a number": {TOKEN: changed(id_token=7)},
    "an identity of one part": {TOKEN: changed(id_token="x")},
    "not signed": {TOKEN: signed(None, "none")},
    "signed by a key that is not listed": {TOKEN: signed(KEY, "RS256")},
    "signed by the public key as a secret": {
        TOKEN: signed(OctKey.import_key(PUBLIC), "HS256"),
        JWKS: says(PUBLIC),
    },
    "no subject": {USERINFO: says('{"realm": {"groups": ["medlive-admins"]}}')},
    "another subject": {USERINFO: changed(sub="9")},
    "a subject that is a list": {USERINFO: changed(sub=[])},
}
IDENTITIES: dict[str, dict[str, Any]] = {
    "for another client": {"aud": "other"},
    "for nobody": {"aud": None},
    "of another issuer": {"iss": "https://other.example"},
    "of no issuer": {"iss": None},
    "that is over": {"exp": int(time.time()) - 10_000},
    "without an end": {"exp": None},
    "without a nonce": {"nonce": None},
    "with another nonce": {"nonce": "other"},
    "without a subject": {"sub": None},
    "from a day to come": {"iat": int(time.time()) + 100_000},
    "with an end that is a word": {"exp": "x"},
    "for a client among others, authorised for another": {
        "aud": ["other", "medlive"],
        "azp": "other",
    },
}
for _name, _claims in IDENTITIES.items():
    BROKEN[f"an identity {_name}"] = {
        TOKEN: signed(KEY, "RS256", **_claims),
        JWKS: says(PUBLIC),
    }
BROKEN["names that are no texts"] = {
    TOKEN: signed(KEY, "RS256", preferred_username=["ada"], realm={"groups": [{}, 7]}),
    JWKS: says(PUBLIC),
}


@pytest.mark.thorough
async def test_a_spoilt_answer_signs_nobody_in(
    spoilt: tuple[Provider, dict[str, Spoil]],
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ID_SECRET", "the client's secret")
    provider, spoils = spoilt
    site = with_provider(database, tmp_path, provider.issuer)
    faults = {}
    for name, broken in BROKEN.items():
        spoils.clear()
        # The provider is asked for more where the token does not say enough.
        await provider.know("8", "gus", "medlive-admins")
        if USERINFO in broken:
            async with httpx2.AsyncClient(base_url=provider.issuer) as http:
                await http.put("/users/8", json={"preferred_username": "gus"})
        spoils.update(broken)
        async with served(site) as browser:
            answer = await browser.get(START)
            if answer.status_code == 302 and answer.has_redirect_location:
                place = answer.headers["Location"]
                if place.startswith(provider.issuer):
                    back = await provider.consent(place, "8")
                    answer = await browser.get(back)
            entered = (await browser.get("/account")).status_code != 303
        if entered or answer.status_code not in (403, 503):
            faults[name] = (answer.status_code, entered)
    assert len(BROKEN) == 69
    assert faults == {}
