"""What a request may hold: hosts, addresses, headers and cursors beyond measure are refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from medlive.config import Settings
from medlive.db.session import Database
from medlive.db.tables.accounts import Role
from medlive.db.threads.threads import save_threads
from medlive.guard import bounds, serving
from medlive.web.site import Site
from tests.support.scripted import THREAD
from tests.support.waiting import LIMIT_S
from tests.support.web import Browser, add_account, served, session_of, site_of


@pytest.fixture
async def viewer(
    database: Database, settings: Settings, tmp_path: Path
) -> AsyncIterator[Browser]:
    """A viewer's browser."""
    site = Site(database, settings, tmp_path)
    async with served(site) as browser:
        browser.headers.update(
            await session_of(site, await add_account(database, "vera", Role.VIEWER))
        )
        yield browser


SLOW = [
    (b"", b""),
    (b"G", b""),
    (b"GET /api HTTP/1.1\r\n", b""),
    (b"GET /api HTTP/1.1\r\nHost: localhost\r\n", b"X: y\r\n"),
    (b"GET /api HTTP/1.1\r\nHost: localhost\r\nX: ", b"y"),
    (b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\n", b"A"),
    (
        b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n",
        b"n",
    ),
    (
        b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\na\r\n",
    ),
    (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /api HTTP/1.1\r\n",
        b"X: y\r\n",
    ),
]
"""What arrives of a request at once, and what follows again and again."""


async def test_a_request_that_does_not_arrive_is_given_up(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.5)
    async with served(site_of(database, tmp_path)) as browser:

        async def send_slowly(sent: bytes, drip: bytes) -> None:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", browser.base_url.port
            )
            writer.write(sent)
            reading = asyncio.create_task(reader.read())
            with suppress(ConnectionError):
                while not reading.done():
                    writer.write(drip)
                    await asyncio.sleep(0.05)
                await reading
            writer.close()

        async with asyncio.timeout(LIMIT_S):
            slow = [asyncio.create_task(send_slowly(*one)) for one in SLOW * 6]
            assert (await browser.get("/healthz")).status_code == 200
            await asyncio.gather(*slow)


async def test_a_strangers_host_is_refused_and_never_repeated(
    database: Database, tmp_path: Path
) -> None:
    site = site_of(
        database,
        tmp_path,
        base_url="https://rooms.example",
        hosts=["medlive.example", "10.1.2.3:81"],
    )
    async with served(site) as browser:
        for host in (
            "evil.example",
            "evil.example:80",
            "medlive.example.evil",
            "@127.0.0.1",
            "127.0.0.1:80:80",
            "",
        ):
            for path in ("/", "/snapshots", "/sign-in", "/static/x"):
                answer = await browser.get(path, headers={"Host": host})
                assert answer.status_code == 421, (host, path)
                assert "evil" not in answer.text + str(answer.headers)
            assert (
                await browser.get("/healthz", headers={"Host": host})
            ).status_code == 200  # A probe's, by address
        for host in (
            "medlive.example",
            "MEDLIVE.example",
            "rooms.example",
            "localhost",
            "localhost:6666",
            "10.1.2.3:81",
        ):
            answer = await browser.get("/snapshots", headers={"Host": host})
            assert "--from https://rooms.example<" in answer.text
        for host in ("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::FFFF:10.1.2.3]:81"):
            assert (await browser.get("/snapshots", headers={"Host": host})).is_success
        for host in ("[::ffff:10.1.2.4]", "[::1.2.3.4]", "::ffff:127.0.0.1"):
            answer = await browser.get("/snapshots", headers={"Host": host})
            assert answer.status_code == 421, host
        for path in ("/snapshots/", "/assets", "/latest/", "/audit/"):
            moved = await browser.get(path, headers={"Host": "localhost:6666"})
            place = moved.headers.get("location", "/")
            assert place.startswith("/"), (path, place)
            assert not place.startswith("//")


async def test_an_address_or_header_beyond_measure_is_refused(viewer: Browser) -> None:
    longest = "x" * (bounds.QUERY_BYTES - len("text="))
    assert (await viewer.get(f"/audit/threads?text={longest}")).status_code == 200
    assert (await viewer.get(f"/audit/threads?text={longest}x")).status_code == 414
    async with viewer.another() as stranger:
        away = await stranger.get(f"/audit/threads?text={longest}")
        assert (await stranger.get(away.headers["Location"])).status_code == 200
    answer = await viewer.get("/audit", headers={"X-Long": "x" * bounds.HEADER_BYTES})
    assert answer.status_code == 431


MOMENT = "2026-01-01T00:00:00+00:00"
CURSORS = [
    "[" * 2500,
    "[" * 90 + "]" * 90,
    '{"a":1}',
    "~",
    "~1",
    MOMENT,
    f"{MOMENT}~",
    f"{MOMENT}~1~1",
    f"{MOMENT}~1e999",
    f"{MOMENT}~NaN",
    f"{MOMENT}~true",
    f"{MOMENT}~١",
    f"{MOMENT}~99999999999999999999",
    f"{MOMENT}~9223372036854775807",
    "9999-99-99~1",
    "a\x00~1",
    "x" * 1000 + "~1",
]


@pytest.mark.thorough
async def test_a_cursor_of_strangers_making_is_a_wrong_value_and_no_fault(
    viewer: Browser, database: Database
) -> None:
    async with database.begin() as session:
        await save_threads(session, [THREAD])
    thread = f"/audit/threads/{THREAD.source}/{THREAD.thread_id}"
    assert (await viewer.get(thread)).status_code == 200
    for path, name in (
        ("/audit/threads", "before"),
        ("/audit/threads", "after"),
        (thread, "at"),
    ):
        for cursor in CURSORS:
            answer = await viewer.get(path, params={name: cursor})
            assert answer.status_code == 422, (path, name, cursor[:80])
