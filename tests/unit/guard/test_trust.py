"""Every client checks who it speaks to: only a certificate of a believed authority for the host gets a word."""

import ast
import asyncio
import re
import smtplib
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import httpx2
import pytest
from pydantic import SecretStr, ValidationError

from medlive.config import NotifySection, OidcSection
from medlive.db.session import Database, connection_url, ping
from medlive.errors import ConfigError, MedliveError, ServiceUnavailable
from medlive.evidence import client as evidence
from medlive.evidence.client import Client
from medlive.guard.trust import authorities_file, use_authority
from medlive.instance.loading import load_settings
from medlive.llm.engine import Prompt, Request
from medlive.publishing import reading, s3
from medlive.publishing.download import fetch_snapshot
from medlive.service.watch import notify
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.fetching.policy import (
    FetchError,
    FetchReason,
    FetchSettings,
)
from tests.support.communities import site_at
from tests.support.engines import engine_at
from tests.support.instance import REPOSITORY
from tests.support.tls import Authority, serve_https, serve_postgresql, serve_smtp

SECRET = "a-password-of-ours"
REFUSED = (
    ServiceUnavailable,
    FetchError,
    httpx2.ConnectError,
    ssl.SSLCertVerificationError,
)
DECIDING = frozenset(
    {
        "CERT_NONE",
        "SSLContext",
        "_create_unverified_context",
        "create_default_context",
        "create_ssl_context",
        "wrap_socket",
    }
)
"""What makes a context of its own, or one that checks nothing."""
UNCHECKED = frozenset(
    {
        "ssl=False",
        "ssl=True",
        "verify=False",
        "verify_ssl=False",
        "check_hostname=False",
    }
)
NO_RETRIES = dict.fromkeys(get_args(FetchReason), 0)
REQUEST = Request(
    "grader.criterion",
    Prompt("grader.criterion", "p"),
    {},
    {"type": "object", "properties": {}},
)


class Authorities(NamedTuple):
    """The authority that is configured, and another."""

    ours: Authority
    strangers: Authority


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    folder = tmp_path_factory.mktemp("authorities")
    return Authorities(Authority(folder, "ours"), Authority(folder, "strangers"))


@pytest.fixture
def believed(authorities: Authorities) -> Iterator[None]:
    use_authority(authorities.ours.file)
    yield
    use_authority(None)


async def mail(port: int, _: Path) -> None:
    section = NotifySection(
        email_to=("ops@example.org",),
        smtp_host="localhost",
        smtp_port=port,
        smtp_starttls=True,
        smtp_user="medlive",
        smtp_password=SecretStr(SECRET),
    )
    await asyncio.to_thread(notify._mail, section, SECRET)


async def webhook(port: int, _: Path) -> None:
    await notify._post(f"https://localhost:{port}/hook", SECRET.encode(), "text/plain")


async def model(port: int, _: Path) -> None:
    engine = engine_at(
        "m", f"https://localhost:{port}/v1", SECRET, max_retries=0, timeout_s=20
    )
    try:
        await engine.answer(REQUEST)
    finally:
        await engine.aclose()


async def page(port: int, _: Path) -> None:
    settings = FetchSettings(
        contact="ops@example.org", allow_loopback=True, retries=NO_RETRIES
    )
    site = site_at(f"https://localhost:{port}")
    async with Fetcher(settings) as fetcher:
        await fetcher.fetch(f"https://localhost:{port}/thread/1", site)


async def publisher(port: int, _: Path) -> None:
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(evidence, "ATTEMPTS", 1)
    hosts = frozenset({f"localhost:{port}"})
    async with Client("ops@example.org", hosts) as client:
        try:
            await client.page(f"https://localhost:{port}/list")
        except evidence.FetchFailed as exc:
            raise ServiceUnavailable(exc.message) from exc
        finally:
            monkeypatch.undo()


async def literature(port: int, _: Path) -> None:
    client = Client("ops@example.org", named=True)
    try:
        await client.post(f"https://localhost:{port}/search", {"q": SECRET})
    except OSError as exc:
        raise ServiceUnavailable(str(exc)) from exc
    finally:
        await client.aclose()


async def snapshot(port: int, folder: Path) -> None:
    await fetch_snapshot(f"https://localhost:{port}/medlive", "latest", folder)


async def provider(port: int, _: Path) -> None:
    from medlive.web.accounts import oidc

    section = OidcSection(
        issuer=f"https://localhost:{port}", client_id="m", client_secret_env="ID_SECRET"
    )
    request: Any = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace()))
    site: Any = SimpleNamespace(
        settings=SimpleNamespace(web=SimpleNamespace(oidc=section))
    )
    await oidc._client(request, site).load_server_metadata()


async def bucket(port: int, _: Path) -> None:
    from medlive.publishing.s3 import S3Target

    target = S3Target("s3://bucket/medlive", endpoint_url=f"https://localhost:{port}")
    target.folders()


async def hub(port: int, _: Path) -> None:
    from medlive.publishing.huggingface import HubRepository

    repository = HubRepository("a/b", endpoint_url=f"https://localhost:{port}")
    with repository._clear_errors():
        repository._api.repo_info("a/b", repo_type="dataset")


async def database(port: int, _: Path) -> None:
    url = f"postgresql://medlive:{SECRET}@localhost:{port}/medlive"
    pool = Database.connect(
        url.replace("@localhost", "@db.test") + "?hostaddr=127.0.0.1"
    )
    try:
        async with pool.begin() as session:
            await ping(session)
    finally:
        await pool.aclose()


CLIENTS: tuple[Callable[[int, Path], Awaitable[None]], ...] = (
    mail,
    webhook,
    model,
    page,
    publisher,
    literature,
    snapshot,
    provider,
    bucket,
    hub,
    database,
)
SERVERS: dict[Any, Any] = {mail: serve_smtp, database: serve_postgresql}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAUSE_S", 0.0)
    monkeypatch.setattr(s3, "_ATTEMPTS", 1)
    for name, value in {
        "HF_TOKEN": "hf_not_a_real_token",
        "ID_SECRET": "not-a-real-secret",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    # libraries' own variables come first
    bundles = "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        *bundles,
        "PGSSLMODE",
        "PGSSLROOTCERT",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def contexts(authorities: Authorities, host: str) -> dict[str, ssl.SSLContext]:
    return {
        "stranger": authorities.strangers.context(host),
        "elsewhere": authorities.ours.context("elsewhere.test"),
        "expired": authorities.ours.context(host, days=-1),
        "ours": authorities.ours.context(host),
    }


@pytest.mark.matrix
@pytest.mark.usefixtures("believed")
@pytest.mark.parametrize("kind", ["stranger", "elsewhere", "expired", "ours"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
async def test_only_a_believed_certificate_for_the_host_gets_a_word(
    client: Callable[[int, Path], Awaitable[None]],
    kind: str,
    authorities: Authorities,
    tmp_path: Path,
) -> None:
    host = "db.test" if client is database else "localhost"
    serve: Any = SERVERS.get(client, serve_https)
    with serve(contexts(authorities, host)[kind]) as received:
        if kind == "ours":
            with suppress(
                MedliveError, KeyError, httpx2.HTTPError
            ):  # the server speaks no more than TLS needs
                await client(received.port, tmp_path)
            assert received.lines
        else:
            with pytest.raises(
                (
                    ServiceUnavailable,
                    FetchError,
                    httpx2.ConnectError,
                    ssl.SSLCertVerificationError,
                )
            ):
                await client(received.port, tmp_path)
            assert received.lines == []


def test_no_other_place_decides_whom_to_believe() -> None:
    """So that a new client cannot forget the one context."""
    unchecked = "|".join(keyword.replace("=", r"\s*=\s*") for keyword in UNCHECKED)
    words = re.compile(rf"\b(?:{'|'.join(DECIDING)}|{unchecked})\b")
    deciding = []
    for path in sorted((REPOSITORY / "medlive").rglob("*.py")):
        text = path.read_text("utf-8")
        if path.name == "trust.py" or words.search(text) is None:
            continue
        for node in ast.walk(ast.parse(text)):
            name = getattr(node, "attr", getattr(node, "id", None))
            if name in DECIDING:
                deciding.append(f"{path.name}: {name}")
            if isinstance(node, ast.keyword) and ast.unparse(node) in UNCHECKED:
                deciding.append(f"{path.name}: {ast.unparse(node)}")
    assert deciding == []


@pytest.mark.usefixtures("believed")
async def test_mail_is_delivered_behind_tls(
    authorities: Authorities, tmp_path: Path
) -> None:
    with serve_smtp(authorities.ours.context("localhost")) as received:
        await mail(received.port, tmp_path)
    assert f"{SECRET}\r\n".encode() in received.lines


async def test_without_starttls_no_password_is_sent(tmp_path: Path) -> None:
    with serve_smtp(None) as received, pytest.raises(smtplib.SMTPNotSupportedError):
        await mail(received.port, tmp_path)
    assert [line[:4] for line in received.lines] == [b"ehlo", b"QUIT"]


def test_a_password_for_another_machine_needs_starttls() -> None:
    with pytest.raises(ValidationError):
        NotifySection(smtp_host="mail.example.org", smtp_user="medlive")
    for options in (
        {"smtp_starttls": True},
        {"smtp_host": "127.0.0.1"},
        {"smtp_user": None},
    ):
        NotifySection(
            **{"smtp_host": "mail.example.org", "smtp_user": "medlive"} | options
        )


def test_an_identity_provider_elsewhere_must_prove_who_it_is() -> None:
    named: Any = {"client_id": "m", "client_secret_env": "ID_SECRET"}
    with pytest.raises(ValidationError):
        OidcSection(issuer="http://id.example.org", **named)
    for issuer in ("https://id.example.org", "http://localhost:8080"):
        OidcSection(issuer=issuer, **named)


def _load_and_use() -> None:
    load_settings()
    authorities_file()


@pytest.mark.parametrize("content", [None, b"", b"no certificate", "folder"])
@pytest.mark.parametrize("variable", ["MEDLIVE_TLS__AUTHORITY", "SSL_CERT_FILE"])
def test_a_file_without_an_authority_is_a_wrong_setting(
    variable: str, content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "authority.pem"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    monkeypatch.setenv(variable, str(path))
    with pytest.raises(ConfigError, match=str(path)):
        _load_and_use()


def test_every_folder_of_authorities_is_read_and_a_dead_link_in_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "a folder's").file
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, target in ((first, tmp_path / "removed.pem"), (second, authority)):
        folder.mkdir()
        (folder / "0123abcd.0").symlink_to(target)
    monkeypatch.setenv("SSL_CERT_DIR", f"{first}:{tmp_path / 'none'}:{second}")
    assert authority.read_text() in authorities_file().read_text()


def test_a_remote_database_is_checked_or_said_to_be_in_the_clear(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = [
        "postgresql:///x",
        "postgresql://u@/x?host=/run/pg",
        "postgresql://u@127.0.0.1/x",
        "postgresql://[::1]/x",
    ]
    for url in here:
        assert "sslmode" not in connection_url(url).query
    there = [
        "postgresql://db.example/x",
        "postgresql:///x?host=db.example",
        "postgresql://u@/x?host=/run/pg,10.0.0.1",
    ]
    for url in there:
        query = connection_url(url).query
        assert (query["sslmode"], query["sslrootcert"]) == (
            "verify-full",
            str(authorities_file()),
        )
    for mode in ("allow", "prefer", "require"):
        with pytest.raises(ConfigError):
            connection_url(f"postgresql://db.example/x?sslmode={mode}")
        monkeypatch.setenv("PGSSLMODE", mode)
        with pytest.raises(ConfigError):
            connection_url("postgresql://db.example/x")
    assert not caplog.messages
    query = connection_url("postgresql://db.plain/x?sslmode=disable").query
    assert query["sslmode"] == "disable"
    assert caplog.messages == [
        "the connection to the database at db.plain is not encrypted (sslmode=disable)"
    ]
    query = connection_url(
        "postgresql://db.example/x?sslmode=verify-ca&sslrootcert=/own.pem"
    ).query
    assert (query["sslmode"], query["sslrootcert"]) == ("verify-ca", "/own.pem")
