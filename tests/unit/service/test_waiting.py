"""A server that misses something answers probes while it waits, says so once, and goes on."""

import asyncio
import logging

import httpx2
import pytest

from medlive.errors import AccountMissing, DatabaseUnavailable, MedliveError
from medlive.service.waiting import wait_until_ready
from tests.support.waiting import until
from tests.unit.service.test_liveness import free_port


async def test_what_is_missing_is_on_the_health_page_and_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port, stop, tries = free_port(), asyncio.Event(), 0
    missing: MedliveError | None = DatabaseUnavailable("no server at db.internal")

    async def prepare() -> str:
        nonlocal tries
        tries += 1
        if missing is not None:
            raise missing
        return "ready"

    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        waiting = asyncio.create_task(
            wait_until_ready(prepare, stop, "127.0.0.1", port, look_s=0.01)
        )
        await until(lambda: tries > 3)
        alive, page = await client.get("/healthz"), await client.get("/any/page")
        missing = AccountMissing("no account for the rooms")
        seen = tries
        await until(lambda: tries > seen + 2)
        assert "account" in (await client.get("/healthz")).json()["reason"]
        missing = None
        assert await waiting == "ready"
        with pytest.raises(httpx2.ConnectError):
            await client.get("/healthz")
    # Strangers are not told the database's address.
    reason = "The database cannot be reached."
    assert (alive.status_code, alive.json()) == (
        200,
        {"status": "waiting", "reason": reason},
    )
    assert (page.status_code, page.headers["Retry-After"]) == (503, "10")
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(";")[0] for line in said] == [
        "no server at db.internal",
        "no account for the rooms",
        "nothing is missing any more",
    ]


async def test_a_stop_ends_the_waiting() -> None:
    stop = asyncio.Event()

    async def prepare() -> str:
        raise DatabaseUnavailable

    waiting = asyncio.create_task(
        wait_until_ready(prepare, stop, "127.0.0.1", free_port())
    )
    await asyncio.sleep(0)
    stop.set()
    assert await waiting is None


async def test_a_fault_that_waiting_does_not_mend_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def prepare() -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await wait_until_ready(prepare, asyncio.Event(), "127.0.0.1", free_port())
