"""The downloads over real HTTP, with a real database and real snapshots."""

import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx2
import pytest
from pydantic import SecretStr
from sqlalchemy import text

from medlive.config import Settings
from medlive.db.session import Database
from medlive.errors import BadInput
from medlive.integrity.digest import digest_text
from medlive.integrity.folder import SUMS, sha256
from medlive.publishing.download import fetch_snapshot
from medlive.publishing.publish import prepare_release, publish
from medlive.publishing.target import FolderTarget
from medlive.service.release.withdraw import withdraw
from medlive.snapshot.errata import (
    ERRATA,
    PUBLIC_ERRATA,
    SIGNATURE,
    WithdrawalKind,
    read_errata,
)
from medlive.web.app import build_app, serve_web
from medlive.web.site import Site
from tests.support.decisions import make_case
from tests.support.releases import case, release
from tests.support.snapshots import Line, build_line
from tests.support.web import whole_site

OLD, MIDDLE, NEW = "2026.W43", "2026.W44", "2026.W45"
DRAFT, PREVIEW, FOREIGN = "2026.W46", "2026.W47", "2026.W48"
FILE = f"/medlive-{NEW}/data/cases.jsonl"
HOSTILE = '<script>alert("x")</script>'


@dataclass
class Served:
    """A site with a line of three snapshots; beside them a draft, a preview and one of other bytes."""

    database: Database
    settings: Settings
    line: Line
    http: httpx2.AsyncClient

    @property
    def url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    def body(self, version: str = NEW, name: str = "data/cases.jsonl") -> bytes:
        return (self.line.root / f"medlive-{version}" / name).read_bytes()


async def register(
    database: Database, version: str, folder: Path | None, why_not: list[str]
) -> None:
    """Record a snapshot with every ready case as its member: frozen as the folder is, or a draft."""
    frozen = (
        "UPDATE snapshots SET state = 'frozen', frozen_at = now(), manifest = '{}', manifest_digest = :digest,"
        " sums_digest = :sums, cases = 0, criteria = 0, publishable = :publishable, path = 'x',"
        " why_not = CAST(:why_not AS jsonb) WHERE version = :version"
    )
    values: dict[str, Any] = {
        "version": version,
        "digest": digest_text(version),
        "why_not": json.dumps(why_not),
    }
    values |= {
        "publishable": not why_not,
        "sums": f"sha256:{sha256(folder / SUMS)}" if folder else "",
    }
    async with database.begin() as session:
        for statement in (
            "INSERT INTO snapshots (version, state) VALUES (:version, 'building')",
            "INSERT INTO snapshot_members (version, case_id, revision, first_release)"
            " SELECT :version, id, 1, :version FROM cases WHERE status = 'ready'",
            *([frozen] if folder else []),
        ):
            await session.execute(
                text(statement),
                {k: v for k, v in values.items() if f":{k}" in statement},
            )


@pytest.fixture
async def served(
    database: Database, web_database: Database, database_url: str, tmp_path: Path
) -> AsyncIterator[Served]:
    settings = Settings(home=tmp_path / "home", database_url=SecretStr(database_url))
    line = build_line(settings.home / "snapshots")
    for made in line.releases:
        await register(database, made.manifest.version, made.path, [])
    for version in (DRAFT, PREVIEW, FOREIGN):
        why_not = ("made by rules",) if version == PREVIEW else ()
        folder = release(
            line.root, version, [case("a1", first_release=version)], why_not=why_not
        ).path
        await register(
            database, version, None if version == DRAFT else folder, list(why_not)
        )
    with (line.root / f"medlive-{FOREIGN}" / SUMS).open("ab") as file:
        file.write(b"\n")
    async with serving(whole_site(web_database, settings, line.root)) as http:
        yield Served(database, settings, line, http)


def serving(site: Site) -> Any:
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def serve() -> AsyncIterator[httpx2.AsyncClient]:
        async with (
            serve_web(build_app(site), "127.0.0.1", 0) as url,
            httpx2.AsyncClient(base_url=url, timeout=60) as client,
        ):
            yield client

    return serve()


@pytest.mark.thorough
async def test_the_site_is_what_a_published_folder_is(
    served: Served, tmp_path: Path
) -> None:
    """Every file that `publish` writes into a folder is served with the same bytes, but for the page."""
    target = FolderTarget(tmp_path / "published")
    for made in served.line.releases:
        publish(prepare_release(made.path), target, None)
    names = [
        p.relative_to(target.root).as_posix()
        for p in target.root.rglob("*")
        if p.is_file()
    ]
    assert len(names) > 60
    for name in set(names) - {"index.html", ".publish.lock"}:
        answer = await served.http.get(f"/{name}")
        assert (answer.status_code, answer.content) == (
            200,
            (target.root / name).read_bytes(),
        ), name
        assert answer.headers["Content-Length"] == str(len(answer.content))


async def test_a_snapshot_is_fetched_and_verified(
    served: Served, tmp_path: Path
) -> None:
    key = served.line.key.public
    done = await fetch_snapshot(served.url, "latest", tmp_path / "here", key)
    assert (done["version"], done["digest"]) == (NEW, served.line.releases[-1].digest)
    with pytest.raises(BadInput):
        await fetch_snapshot(served.url, DRAFT, tmp_path / "here")


async def test_nothing_else_is_served(served: Served) -> None:
    key = served.settings.home / "handle.key"
    key.write_text("secret")
    (served.line.last / "link").symlink_to(key)
    names = (
        "..%2F..%2Fhandle.key",
        "%2e%2e/%2e%2e/handle.key",
        "../../handle.key",
        "link",
        "missing",
        "%00",
        "data",
    )
    versions = (
        DRAFT,
        PREVIEW,
        FOREIGN,
        "2026.W99",
        "latest",
        "nothing",
        f"{NEW}%2Fdata",
    )
    paths = [f"{NEW}/{name}" for name in names] + [
        f"{v}/{name}" for v in versions for name in ("", SUMS)
    ]
    for path in (*paths, f"..%2Fmedlive-{NEW}/{SUMS}"):
        answer = await served.http.get(f"/medlive-{path}")
        assert (answer.status_code, b"secret" in answer.content) == (404, False), path


async def test_the_front_shows_the_site_of_what_is_given_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medlive.site.pages.CASES_A_PAGE", 1)
    front = await served.http.get("/")
    assert NEW in front.text
    assert 'href="assets/site.css"' in front.text
    assert (await served.http.get("/lists/cases-2.html")).status_code == 200
    listed = (await served.http.get("/cases.html")).text
    page = re.search(r'href="(cases/[^"]+)"', listed)
    assert page is not None
    assert "Rubric" in (await served.http.get(f"/{page[1]}")).text
    style = await served.http.get("/assets/site.css")
    assert style.headers["Content-Type"].startswith("text/css")
    assert style.headers["Content-Encoding"] == "gzip"
    plain = await served.http.get(
        "/assets/site.css", headers={"Accept-Encoding": "identity"}
    )
    assert "Content-Encoding" not in plain.headers
    assert plain.content == style.content
    assert (await served.http.get("/cases/other.html")).status_code == 404


async def test_a_site_that_cannot_be_made_is_no_empty_one(served: Served) -> None:
    before = await served.http.get("/")
    (served.line.root / PUBLIC_ERRATA).write_text("damaged")
    after = await served.http.get("/")
    assert (before.status_code, after.status_code) == (200, 503)
    assert "Nothing has been published" not in after.text


async def test_the_feed_is_empty_while_nothing_is_released(
    web_database: Database, tmp_path: Path
) -> None:
    nothing = whole_site(web_database, Settings(home=tmp_path), tmp_path / "empty")
    async with serving(nothing) as http:
        answer = await http.get("/feed.xml")
        assert (await http.get("/latest.json")).status_code == 404
    feed = ElementTree.fromstring(answer.content)
    atom = "{http://www.w3.org/2005/Atom}"
    assert feed.findtext(f"{atom}updated") == "1970-01-01T00:00:00Z"
    assert feed.findall(f"{atom}entry") == []


async def test_drafts_and_previews_stand_on_no_page(served: Served) -> None:
    pages = (
        "/",
        "/weeks.html",
        "/cases.html",
        "/downloads.html",
        "/snapshots",
        "/latest.json",
        "/feed.xml",
        "/leaderboard.html",
    )
    for path in pages:
        shown = (await served.http.get(path)).text
        assert not [v for v in (DRAFT, PREVIEW, FOREIGN) if v in shown], path
    assert (await served.http.get("/latest/")).headers["Location"] == f"/medlive-{NEW}/"
    async with serving(
        whole_site(served.database, served.settings, served.line.root, preview=True)
    ) as http:
        assert (await http.get("/latest/")).headers[
            "Location"
        ] == f"/medlive-{PREVIEW}/"
        assert (
            "not publishable: made by rules"
            in (await http.get(f"/medlive-{PREVIEW}/")).text
        )
        assert DRAFT not in (await http.get("/snapshots")).text


async def test_a_page_shows_the_card_that_was_frozen_alone(served: Served) -> None:
    card, page = served.line.last / "README.md", f"/medlive-{NEW}/"
    frozen, key = card.read_bytes(), served.settings.home / "handle.key"
    key.write_text("# secret")
    for put in (
        lambda: card.write_text("# secret"),
        lambda: card.symlink_to(key),
        lambda: os.mkfifo(card),
        lambda: None,
    ):
        shown = await served.http.get(page)
        assert (shown.status_code, f"<pre># medlive {NEW}" in shown.text) == (200, True)
        assert "pretty_name" not in shown.text
        card.unlink()
        put()
        answer = await served.http.get(page)
        assert (
            answer.status_code,
            "is damaged here" in answer.text,
            "secret" in answer.text,
        ) == (503, True, False)
        card.unlink(missing_ok=True)
        card.write_bytes(frozen)


@pytest.mark.parametrize(
    "kind",
    [
        WithdrawalKind.TAKEDOWN,
        WithdrawalKind.ERRATUM,
        pytest.param(WithdrawalKind.PRIVACY, marks=pytest.mark.thorough),
    ],
)
async def test_what_was_taken_down_is_no_longer_given_out(
    database: Database, database_url: str, tmp_path: Path, kind: WithdrawalKind
) -> None:
    """A snapshot that shows it keeps its page and digests; a later one without it is whole."""
    settings = Settings(home=tmp_path / "home", database_url=SecretStr(database_url))
    case_id = (await make_case(database, 1)).case_id
    line = build_line(settings.home / "snapshots")
    await register(database, OLD, line.releases[0].path, [])
    await register(database, MIDDLE, line.releases[1].path, [])
    await withdraw(database, settings, case_id, kind, f"It is wrong {HOSTILE[:1]} so.")
    await register(database, NEW, line.releases[2].path, [])
    gone = kind is not WithdrawalKind.ERRATUM
    async with serving(whole_site(database, settings, line.root)) as http:
        for version, status in ((OLD, 410 if gone else 200), (NEW, 200)):
            root = f"/medlive-{version}"
            for path in (
                f"{root}/data/cases.jsonl",
                f"{root}/livemedbench.json",
                f"/report/{version}/cases.html",
            ):
                report = settings.home / "reports" / version
                report.mkdir(parents=True, exist_ok=True)
                (report / "cases.html").write_text("a case")
                assert (await http.get(path)).status_code == status, path
            assert (await http.get(f"{root}/{SUMS}")).status_code == 200
        if gone:
            with pytest.raises(BadInput, match="withdrawn"):
                await fetch_snapshot(str(http.base_url), OLD, tmp_path / "fetched")
        card = (await http.get(f"/medlive-{OLD}/")).text
        assert case_id in card
        assert "It is wrong &lt; so." in card
        listed = [
            row["version"]
            for row in (await http.get("/latest.json")).json()["versions"]
        ]
        assert listed == ([NEW] if gone else [NEW, MIDDLE, OLD])
        rows = (await http.get("/snapshots")).text.split('<tr id="')[1:]
        shown = {row.split('"')[0]: ">withdrawn<" in row for row in rows}
        assert shown == {NEW: False, MIDDLE: gone, OLD: gone}


async def test_errata_of_hidden_snapshots_are_not_given_out(
    database: Database,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings(home=tmp_path / "home", database_url=SecretStr(database_url))
    line = build_line(settings.home / "snapshots")
    monkeypatch.setattr(
        "medlive.service.release.withdraw.load_signing_key", lambda *_: line.key
    )
    shown, hidden = [(await make_case(database, n)).case_id for n in (1, 2)]
    await register(database, OLD, line.releases[0].path, ["made by rules"])
    await withdraw(
        database,
        settings,
        hidden,
        WithdrawalKind.ERRATUM,
        "It was in a hidden snapshot alone.",
    )
    await register(database, MIDDLE, line.releases[1].path, [])
    await withdraw(database, settings, shown, WithdrawalKind.ERRATUM, "It is in both.")
    async with serving(whole_site(database, settings, line.root)) as http:
        given, signature = [
            (await http.get(f"/{name}")).content for name in (ERRATA, SIGNATURE)
        ]
        errata = read_errata(given, signature, ERRATA, line.key.public)
        assert [(entry.case_id, entry.snapshots) for entry in errata.entries] == [
            (shown, (MIDDLE,))
        ]
        feed = (await http.get("/feed.xml")).text
        assert shown in feed
        assert not any(word in feed for word in (OLD, hidden, "hidden snapshot"))
    async with serving(whole_site(database, settings, line.root, preview=True)) as http:
        assert hidden in (await http.get(f"/{ERRATA}")).text
    assert (
        OLD.encode()
        not in prepare_release(line.releases[1].path, line.key.public).errata[ERRATA]
    )


async def test_the_front_changes_nothing_and_repeats_no_address(
    served: Served,
) -> None:
    page = (await served.http.get(f"/{HOSTILE}")).text
    assert "404" in page
    assert "<script>alert" not in page
    for path in ("/", "/readyz", FILE, "/snapshots"):
        for method in ("POST", "PUT", "DELETE"):
            assert (await served.http.request(method, path)).status_code == 405
    answer = await served.http.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
