"""The downloads over real HTTP, with a real database and real files."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from medlive.config import Settings
from medlive.db.release import snapshots
from medlive.db.session import Database
from medlive.web.app import build_app
from medlive.web.serving import serve_web
from medlive.web.site import Site

WEEK = "2026.W40"
BODY = b'{"case": "one"}\n' * 1000
ETAG = f'"{hashlib.sha256(BODY).hexdigest()}"'
FILE = f"/medlive-{WEEK}/data/cases.jsonl"


async def frozen(database: Database, version: str, folder: Path, why_not: list[str]) -> None:
    async with database.begin() as session:
        await snapshots.begin_snapshot(session, version)
        await snapshots.freeze_snapshot(
            session, version, manifest={"counts": {"cases": 0, "criteria": 0}},
            manifest_digest="sha256:" + "0" * 64, sums_digest="sha256:" + "1" * 64, signature=None,
            path=str(folder), publishable=not why_not, why_not=why_not,
        )  # fmt: skip


@pytest.fixture
async def http(database: Database, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A served snapshot; beside it one that is not publishable, one still being built, and files of nobody."""
    folders = {w: tmp_path / "snapshots" / f"medlive-{w}" for w in (WEEK, "2026.W41", "2026.W42")}
    for folder in folders.values():
        (folder / "data").mkdir(parents=True)
        (folder / "data/cases.jsonl").write_bytes(BODY)
    (tmp_path / "handle.key").write_text("secret")
    (folders[WEEK] / "link").symlink_to(tmp_path / "handle.key")
    await frozen(database, WEEK, folders[WEEK], [])
    await frozen(database, "2026.W41", folders["2026.W41"], ["made by rules"])
    async with database.begin() as session:
        await snapshots.begin_snapshot(session, "2026.W42")
    app = build_app(Site(database, Settings(home=tmp_path), tmp_path / "snapshots"))
    async with serve_web(app, "127.0.0.1", 0) as url, httpx2.AsyncClient(base_url=url) as client:
        yield client


async def test_a_file_is_served_whole_in_part_and_not_again(http: httpx2.AsyncClient) -> None:
    whole = await http.get(FILE)
    assert (whole.content, whole.headers["ETag"]) == (BODY, ETAG)
    assert "immutable" in whole.headers["Cache-Control"]
    part = await http.get(FILE, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content, part.headers["ETag"]) == (206, BODY[10:20], ETAG)
    known = await http.get(FILE, headers={"If-None-Match": ETAG})
    assert (known.status_code, known.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        f"{WEEK}/..%2F..%2Fhandle.key", f"{WEEK}/%2e%2e/%2e%2e/handle.key", f"{WEEK}/../../handle.key",
        f"{WEEK}/link", f"{WEEK}/missing", f"{WEEK}/%00", f"..%2Fmedlive-{WEEK}/data/cases.jsonl",
        "2026.W41/data/cases.jsonl", "2026.W42/data/cases.jsonl", "2026.W99/data/cases.jsonl",
        "nothing/data/cases.jsonl",
    ],
)  # fmt: skip
async def test_nothing_else_is_served(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.get(f"/medlive-{path}")
    assert answer.status_code == 404
    assert b"secret" not in answer.content


async def test_nothing_can_be_changed(http: httpx2.AsyncClient) -> None:
    for path in ("/", "/health", FILE):
        for method in ("POST", "PUT", "DELETE"):
            assert (await http.request(method, path)).status_code == 405


async def test_health_says_that_the_database_answers(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
