"""The probe of workers and schedulers: answered by the loop that works, and by none that hangs."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from medlive.errors import ServiceUnavailable
from medlive.service.waiting import Liveness, answer_probes
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


async def test_what_is_waited_for_is_no_failure() -> None:
    port, health = free_port(), Liveness()
    async with (
        answer_probes(port, health),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        health.waiting = "no database"
        answer = await client.get("/healthz")
        assert answer.status_code == 200
        assert answer.json() == {"status": "waiting", "reason": "no database"}
