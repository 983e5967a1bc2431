"""Secrets: none that is known, named or carried by a URL gets into what is logged, raised or stored."""

import io
import logging
import os
import re
import string
from base64 import b64decode, b64encode, urlsafe_b64encode
from contextlib import redirect_stderr
from pathlib import Path
from unittest import mock
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url

from medlive import logs
from medlive.db.session import parse_url
from medlive.errors import ConfigError, MedliveError, describe
from medlive.guard import redaction
from medlive.guard.redaction import HIDDEN, hide_secrets
from medlive.instance.loading import describe as describe_settings
from medlive.instance.loading import load_settings, read_settings

# Without digits or letters of the sentences around them, so that what is found is the secret.
keys = st.text(
    string.ascii_letters + string.digits + "+/=-_.~", min_size=12, max_size=60
)
passwords = st.text(
    string.ascii_letters + string.digits + "@/:?#%&+ é", min_size=8, max_size=40
).filter(str.strip)


@given(
    key=keys,
    form=st.sampled_from(
        ["{}", "key {} is wrong", '{{"error": "bad {}"}}', "https://h/?k={}", "«{}»"]
    ),
)
def test_a_known_secret_is_hidden_wherever_it_stands(key: str, form: str) -> None:
    with mock.patch.dict(os.environ, {"SOME_API_KEY": key}):
        for written in (key, quote(key, safe=""), key.replace("/", "\\/")):
            assert key not in hide_secrets(form.format(written))
            assert written not in hide_secrets(form.format(written))


@given(key=keys, before=st.binary(max_size=4), after=st.binary(max_size=4))
def test_a_known_secret_is_hidden_as_base64_and_hexadecimal_digits_too(
    key: str, before: bytes, after: bytes
) -> None:
    data, whole = key.encode(), before + key.encode() + after
    forms = [encode(whole).decode() for encode in (b64encode, urlsafe_b64encode)]
    forms += [form.rstrip("=") for form in forms] + [
        quote(form, safe="") for form in forms
    ]
    forms += [whole.hex(), whole.hex().upper()]
    with mock.patch.dict(os.environ, {"SOME_API_KEY": key}):
        for form in forms:
            shown = hide_secrets(f"it said {form} and went on")
            assert HIDDEN in shown
            assert data.hex() not in shown.lower()
            for part in re.split(r"[^A-Za-z0-9+/_-]+", shown):
                assert _decoded(part) not in data or len(part) < 8


def _decoded(part: str) -> bytes:
    plain = part.replace("-", "+").replace("_", "/")
    return b64decode(plain[: len(plain) // 4 * 4]) or b"nothing"


@given(password=passwords.filter(lambda p: " " not in p))
def test_a_password_in_a_url_is_hidden_escaped_or_not(password: str) -> None:
    for written in (password, quote(password, safe="")):
        shown = hide_secrets(
            f"cannot reach postgresql://medlive:{written}@db:5432/medlive at all"
        )
        assert (
            shown
            == f"cannot reach postgresql://medlive:{HIDDEN}@db:5432/medlive at all"
        )


@given(key=keys.filter(lambda k: k[0].isalnum()))
def test_a_key_that_is_named_as_one_is_hidden_although_nobody_knows_it(
    key: str,
) -> None:
    for form in (
        "Authorization: Bearer {}",
        "Incorrect API key provided: {}",
        '{{"api_key": "{}"}}',
        "password={}",
    ):
        assert key not in hide_secrets(form.format(key))


@given(key=keys)
def test_errors_and_logs_lose_secrets_tracebacks_too(key: str) -> None:
    shown = io.StringIO()
    with mock.patch.dict(os.environ, {"MY_TOKEN": key}):
        error = MedliveError(f"said {key}", hint=f"try {key}")
        assert (
            key
            not in f"{error} {error.message} {error.hint} {describe(ValueError(key))}"
        )
        assert (
            describe(ValueError("a row is refused\nDETAIL: I have had a cough"))
            == "ValueError: a row is refused"
        )
        before = logging.getLogger().handlers, logging.getLogger().level
        with redirect_stderr(shown):
            for as_json in (False, True):
                logs.configure("debug", as_json=as_json)
                try:
                    raise ValueError(f"inner {key}")
                except ValueError:
                    logging.getLogger("medlive.x").exception("outer %s", key)
        logging.getLogger().handlers, level = before
        logging.getLogger().setLevel(level)
    assert "inner" in shown.getvalue()
    assert key not in shown.getvalue()


def test_ordinary_text_stays_as_it_is() -> None:
    text = "max_tokens = 500; the key in the variable MODEL_KEY; http://127.0.0.1:80/v1 said: 401, tokens: 12"
    assert hide_secrets(text) == text
    folder = "/srv/medlive/backups"
    with mock.patch.dict(
        os.environ, {"PWD": folder, "OLDPWD": folder, "MY_PWD": "a-secret"}
    ):
        assert (
            hide_secrets(f"{folder}/one exists, a-secret too")
            == f"{folder}/one exists, {HIDDEN} too"
        )


@settings(max_examples=8)
@given(password=passwords)
def test_a_database_given_by_parts_is_reached_whatever_its_password_holds(
    password: str,
) -> None:
    parts = {
        "HOST": "db",
        "PORT": "5433",
        "NAME": "cases",
        "USER": "a@b",
        "PASSWORD": password,
    }
    loaded = load_settings({f"MEDLIVE_DATABASE_{n}": v for n, v in parts.items()})
    url = loaded[0].database_url
    assert url is not None
    found = parse_url(url.get_secret_value())
    assert (found.host, found.port, found.database, found.username) == (
        "db",
        5433,
        "cases",
        "a@b",
    )
    assert found.password == password
    assert make_url(found.render_as_string(hide_password=False)).password == password
    [shown] = [
        value for key, value, _ in describe_settings(*loaded) if key == "database_url"
    ]
    assert shown == f"postgresql://a%40b:{HIDDEN}@db:5433/cases"


@given(password=st.text(string.ascii_letters + "@/:", min_size=8, max_size=20))
def test_a_broken_url_is_refused_without_any_part_of_its_password(
    password: str,
) -> None:
    parts = [
        p for p in password.replace("/", "@").replace(":", "@").split("@") if len(p) > 5
    ]
    url = f"postgresql://u:{password}@db/medlive"
    if "@" not in password:
        assert (parse_url(url).password, parse_url(url).host) == (password, "db")
        return
    with pytest.raises(ConfigError) as refused:
        parse_url(url)
    assert not any(
        part in f"{refused.value.message} {refused.value.hint}" for part in parts
    )


def test_a_password_file_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret/p@ss\n")
    file.chmod(0o644)
    environment = {
        "MEDLIVE_DATABASE_HOST": "db",
        "MEDLIVE_DATABASE_PASSWORD_FILE": str(file),
    }
    with pytest.raises(ConfigError):
        load_settings(environment)
    file.chmod(0o640)
    url = read_settings(environment).database_url
    assert url is not None
    assert make_url(url.get_secret_value()).password == "s3cret/p@ss"
    with pytest.raises(ConfigError):
        load_settings({**environment, "MEDLIVE_DATABASE_URL": "postgresql://x"})


def test_a_remembered_key_is_hidden_whatever_its_variable_is_called() -> None:
    with mock.patch.object(redaction, "_REMEMBERED", set()):
        assert hide_secrets("it is correct-horse") == "it is correct-horse"
        redaction.remember("correct-horse")
        assert hide_secrets("it is correct-horse") == f"it is {HIDDEN}"
