"""The read-only web over real HTTP, with a real database and real files."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession
from yarl import URL

from medlive.db.harvest import harvests
from medlive.db.release import snapshots
from medlive.db.session import Database
from medlive.web.app import serve_web

WEEK = "2026.W40"
BODY = b'{"case": "one"}\n' * 1000
HOSTILE = '<script>alert("x")</script>'


@pytest.fixture
async def address(database: Database, tmp_path: Path) -> AsyncIterator[str]:
    """A served snapshot, beside it a week that is still being built and files that belong to nobody."""
    folder = tmp_path / "snapshots" / f"medlive-{WEEK}"
    building = tmp_path / "snapshots" / "medlive-2026.W41"
    for place in (folder, building):
        (place / "data").mkdir(parents=True)
        (place / "data/cases.jsonl").write_bytes(BODY)
    (tmp_path / "handle.key").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "handle.key")
    async with database.begin() as session:
        await snapshots.begin_snapshot(session, WEEK)
        await snapshots.freeze_snapshot(
            session, WEEK, manifest={"counts": {"cases": 0, "criteria": 0}}, manifest_digest="sha256:" + "0" * 64,
            sums_digest="sha256:" + "1" * 64, signature=None, path=str(folder), publishable=False,
            why_not=[HOSTILE],
        )  # fmt: skip
        await snapshots.begin_snapshot(session, "2026.W41")
    async with serve_web(database, tmp_path / "snapshots", "127.0.0.1", 0) as url:
        yield url


async def test_the_page_escapes_what_it_shows(address: str) -> None:
    async with ClientSession() as http, http.get(address + "/") as answer:
        page = await answer.text()
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page
    assert f'href="/snapshots/{WEEK}/data/cases.jsonl"' in page
    assert "2026.W41" not in page
    assert "link" not in page
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


async def test_a_file_is_served_whole_in_part_and_not_again(address: str) -> None:
    url = f"{address}/snapshots/{WEEK}/data/cases.jsonl"
    async with ClientSession() as http:
        async with http.get(url) as whole:
            assert await whole.read() == BODY
            etag = f'"{hashlib.sha256(BODY).hexdigest()}"'
            assert whole.headers["ETag"] == etag
            assert "immutable" in whole.headers["Cache-Control"]
        async with http.get(url, headers={"Range": "bytes=10-19"}) as part:
            assert (part.status, await part.read()) == (206, BODY[10:20])
            assert part.headers["ETag"] == etag
        async with http.get(url, headers={"If-None-Match": etag}) as known:
            assert (known.status, await known.read()) == (304, b"")
        async with http.get(url, headers={"If-None-Match": '"another"'}) as other:
            assert other.status == 200


@pytest.mark.parametrize(
    "path",
    [
        f"{WEEK}/..%2F..%2Fhandle.key", f"{WEEK}/%2e%2e/%2e%2e/handle.key", f"{WEEK}/../../handle.key",
        f"{WEEK}/link", f"{WEEK}/", f"{WEEK}/missing", f"{WEEK}/%00", f"..%2Fmedlive-{WEEK}/data/cases.jsonl",
        "2026.W41/data/cases.jsonl", "2026.W99/data/cases.jsonl", "nothing/data/cases.jsonl",
    ],
)  # fmt: skip
async def test_nothing_else_is_served(address: str, path: str) -> None:
    async with ClientSession() as http, http.get(URL(f"{address}/snapshots/{path}", encoded=True)) as answer:
        assert answer.status == 404
        assert b"secret" not in await answer.read()


async def test_nothing_can_be_changed(address: str) -> None:
    async with ClientSession() as http:
        for path in ("/", "/health", f"/snapshots/{WEEK}/data/cases.jsonl"):
            for method in ("POST", "PUT", "DELETE"):
                async with http.request(method, address + path) as answer:
                    assert answer.status == 405


async def test_health_says_whether_the_database_answers(address: str, tmp_path: Path) -> None:
    async with ClientSession() as http, http.get(address + "/health") as answer:
        assert (answer.status, (await answer.json())["status"]) == (200, "ok")
    away = Database.connect("postgresql://nobody:verysecret@127.0.0.1:1/none")
    async with serve_web(away, tmp_path, "127.0.0.1", 0) as url, ClientSession() as http:
        for path in ("/health", "/"):
            async with http.get(url + path) as answer:
                assert answer.status == 503
                assert "verysecret" not in await answer.text()
    await away.aclose()


async def test_harvests_of_a_week_are_found_by_source(database: Database) -> None:
    async with database.begin() as session:
        one = await harvests.start_harvest(session, "icliniq", WEEK)
        await harvests.start_harvest(session, "sdn", WEEK)
        await harvests.start_harvest(session, "dxy", "2026.W39")
        await harvests.finish_harvest(session, one, {})
        found = await harvests.list_sources(session)
    assert [(s.name, s.last_run, s.last_outcome) for s in found] == [
        ("dxy", "2026.W39", "running"), ("icliniq", WEEK, "done"), ("sdn", WEEK, "running")
    ]  # fmt: skip
