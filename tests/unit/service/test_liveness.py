"""The probe of workers and schedulers: answered by the loop that works, and by none that hangs."""

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from medlive.db.jobs import Queue
from medlive.errors import ServiceUnavailable
from medlive.service.liveness import Liveness, answer_probes
from medlive.service.work.monitor import LATE_S, Monitor
from medlive.service.work.readiness import Readiness
from medlive.service.work.taken import Jobs
from tests.support.waiting import until


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def test_it_answers_while_the_block_runs_alone() -> None:
    port = free_port()
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        async with answer_probes(port):
            assert (await client.get("/healthz")).json() == {"status": "ok"}
        with pytest.raises(httpx2.ConnectError):
            await client.get("/healthz")


async def test_a_loop_that_hangs_answers_nothing() -> None:
    port = free_port()

    def probe() -> bool:
        try:
            return httpx2.get(
                f"http://127.0.0.1:{port}/healthz", timeout=0.2
            ).is_success
        except httpx2.TimeoutException:
            return False

    async with answer_probes(port):
        await until(probe)
        with ThreadPoolExecutor() as other:
            assert not other.submit(probe).result()  # the loop hangs in this line
        await asyncio.sleep(0.2)  # what has come meanwhile is served and closed


async def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        with pytest.raises(ServiceUnavailable):
            async with answer_probes(other.getsockname()[1]):
                pass


async def test_what_only_a_restart_helps_is_a_failure_and_what_is_waited_for_is_none() -> (
    None
):
    port, health = free_port(), Liveness()
    problem: list[str | None] = [None]
    health.find_problem = lambda: problem[0]
    async with (
        answer_probes(port, health),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        health.waiting = "no database"
        answer = await client.get("/healthz")
        assert (answer.status_code, answer.json()) == (
            200,
            {"status": "waiting", "reason": "no database"},
        )
        problem[0] = "2 threads have not moved"
        answer = await client.get("/healthz")
        assert (answer.status_code, answer.json()) == (
            503,
            {"status": "failing", "reason": problem[0]},
        )


async def test_a_worker_that_does_not_report_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app: Any = SimpleNamespace(connector=None)
    jobs = Jobs(app, app, {}, Readiness())
    monitor = Monitor(app, [Queue.CURATE], jobs, None, app, asyncio.Event())
    assert monitor.find_problem() is None
    passed = time.monotonic() + 2 * LATE_S
    monkeypatch.setattr(time, "monotonic", lambda: passed)
    assert "has not reported" in str(monitor.find_problem())
