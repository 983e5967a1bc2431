"""How near the endpoint client comes to an endpoint's ideal throughput, and its limiter to what an endpoint can do.

First, with 256 calls in flight at an endpoint that answers each after 2 s (ideal: 128 a second), once the limit is
reached: the answers a second and the CPU ms a call of a bare aiohttp session (the peer), the official client as its
manual says, and OpenAIEngine. Then OpenAIEngine, with its limit fixed and adaptive, and 64 calls allowed, against
an endpoint that serves 8 at once and queues the others, and against one that answers 429 above 100 a second: the time
against the ideal, and what was learnt. Endpoints run in a process of their own, so the CPU is the client's alone.
Exits 1 when OpenAIEngine comes to less than 95 % of the ideal (of the peer, where a busy machine holds that below it)
or when the adaptive limit takes more than 1.5 times the ideal on the others.
Run: `python benchmarks/llm.py [--calls 256] [--latency-s 2] [--seconds 20]`.
"""

import argparse
import asyncio
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
from aiohttp import web
from openai import AsyncOpenAI

from medlive.errors import EndpointUnavailable
from medlive.grader.reply import GradeReply
from medlive.llm.engine import Request
from medlive.llm.limiter import Limiter, Limiters
from medlive.llm.openai import OpenAIEngine
from medlive.llm.prompts import load_prompt
from medlive.llm.registry import RoleEndpoint
from medlive.llm.wire import Ended

REQUEST = Request(
    "grader.criterion",
    load_prompt("medlive.grader", "grader.criterion"),
    {
        "language": "en",
        "question": "The patient has had a red, hot big toe for two days.\n\nWhat is it?",
        "answer": "This looks like gout. Rest the foot and drink enough water. See a physician this week. "
        * 8,
        "criterion": "States that the patient probably has gout.",
    },
    GradeReply.model_json_schema(),
)
Call = Callable[[], Awaitable[object]]
SLOTS: Final = 8
SLOT_S: Final = 0.1
"""The endpoint that queues: so many at once, each so long."""
RATE: Final = 100.0
RATE_S: Final = 0.05
"""The endpoint that limits its rate: so many a second, each so long."""
HARD_CALLS: Final = 600
TARGET: Final = 1.5
OF_IDEAL: Final = 0.95
RAMP: Final = 5
"""Round trips before calls are counted: the limit grows to the calls that are allowed."""


class Measured(NamedTuple):
    """One way of asking."""

    per_second: float
    cpu_ms: float  # A call
    waited: float  # Share of the time in which this process was ready and other work had the processors


class Fixed(Limiter):
    """A limiter that learns nothing: a semaphore, as a peer to the adaptive one."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.limit = float(most)

    def leave(self, began: float, ended: Ended) -> None:
        super().leave(began, ended)
        self.limit = float(self.most)


class Hard:
    """An endpoint that takes its time, and two that can be asked too much."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._slots = asyncio.Semaphore(SLOTS)
        self._tokens, self._at = RATE / 5, time.monotonic()

    async def takes_time(self, _: web.Request) -> web.Response:
        """Answers all after the same time."""
        await asyncio.sleep(self._latency_s)
        return _answer()

    async def queues(self, _: web.Request) -> web.Response:
        """Serves some at once; the others wait."""
        async with self._slots:
            await asyncio.sleep(SLOT_S)
        return _answer()

    async def limits(self, _: web.Request) -> web.Response:
        """Serves some a second; the others are turned away."""
        now = time.monotonic()
        self._tokens, self._at = (
            min(RATE / 5, self._tokens + (now - self._at) * RATE),
            now,
        )
        if self._tokens < 1:
            return web.json_response(
                {"error": {"message": "slow down", "type": "rate_limit"}}, status=429
            )
        self._tokens -= 1
        await asyncio.sleep(RATE_S)
        return _answer()


def _answer() -> web.Response:
    message = {"role": "assistant", "content": "{}"}
    return web.json_response(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        }
    )


def endpoints(latency_s: float, url: Connection) -> None:
    """Serve the three until the process is ended."""

    async def run() -> None:
        hard = Hard(latency_s)
        app = web.Application()
        app.router.add_post("/slow/v1/chat/completions", hard.takes_time)
        app.router.add_post("/queues/v1/chat/completions", hard.queues)
        app.router.add_post("/limits/v1/chat/completions", hard.limits)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        url.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await asyncio.Event().wait()

    asyncio.run(run())


def run_delay_s() -> float:
    """Seconds for which this process has been ready to run and was not running; Linux alone says so."""
    schedule = Path("/proc/self/schedstat")
    return int(schedule.read_text().split()[1]) / 1e9 if schedule.exists() else 0.0


async def measure(call: Call, calls: int, ramp_s: float, seconds: float) -> Measured:
    """Keep so many calls under way; count those that are answered after the ramp."""
    answered = 0

    async def worker() -> None:
        nonlocal answered
        while True:
            await call()
            answered += 1

    workers = [asyncio.create_task(worker()) for _ in range(calls)]
    await asyncio.sleep(ramp_s)
    before, started, cpu = answered, time.perf_counter(), time.process_time()
    waited_s = run_delay_s()
    await asyncio.sleep(seconds)
    count, elapsed = answered - before, time.perf_counter() - started
    measured = Measured(
        per_second=count / elapsed,
        cpu_ms=(time.process_time() - cpu) * 1000 / count,
        waited=(run_delay_s() - waited_s) / elapsed,
    )
    for task in workers:
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return measured


async def compare(
    url: str, calls: int, ramp_s: float, seconds: float
) -> dict[str, Measured]:
    """The three ways, one after the other, against the same endpoint."""
    engine = OpenAIEngine(RoleEndpoint(model="m", base_url=url, concurrency=calls))
    body = engine.body(REQUEST)
    measured: dict[str, Measured] = {}

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0)
    ) as session:

        async def bare() -> object:
            async with session.post(f"{url}/chat/completions", json=body) as response:
                return await response.json()

        measured["bare aiohttp"] = await measure(bare, calls, ramp_s, seconds)

    async with AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:

        async def official() -> object:
            return await client.chat.completions.create(**body)

        measured["official client"] = await measure(official, calls, ramp_s, seconds)

    async def ours() -> object:
        return await engine.answer(REQUEST)

    measured["OpenAIEngine"] = await measure(ours, calls, ramp_s, seconds)
    await engine.aclose()
    return measured


class OneLimiter(Limiters):
    """One limiter, whatever endpoint is asked."""

    def __init__(self, limiter: Limiter) -> None:
        super().__init__()
        self.only = limiter

    def limiter(self, base_url: str, key: str, most: int) -> Limiter:
        """The same for every endpoint."""
        return self.only


async def press(url: str, limiter: Limiter) -> tuple[float, int, int]:
    """All calls at one endpoint at once: the seconds, the calls that were given up, the limit at the end."""
    endpoint = RoleEndpoint(model="m", base_url=url, concurrency=64)
    engine = OpenAIEngine(endpoint, limiters=OneLimiter(limiter))
    started = time.perf_counter()
    calls = (engine.answer(REQUEST) for _ in range(HARD_CALLS))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    seconds = time.perf_counter() - started
    await engine.aclose()
    lost = sum(isinstance(answer, EndpointUnavailable) for answer in answers)
    return seconds, lost, int(limiter.limit)


async def under_pressure(url: str) -> bool:
    """Print how the fixed and the adaptive limit do; whether the adaptive one reaches the target."""
    reached = True
    for path, what, ideal in (
        (
            "queues",
            f"serves {SLOTS} at once, {SLOT_S * 1000:g} ms each",
            HARD_CALLS * SLOT_S / SLOTS,
        ),
        (
            "limits",
            f"429 above {RATE:g} a second, {RATE_S * 1000:g} ms each",
            HARD_CALLS / RATE,
        ),
    ):
        print(
            f"endpoint that {what}: {HARD_CALLS} calls, 64 allowed at once, ideal {ideal:.1f} s"
        )
        for name, limiter in (
            ("fixed", Fixed(64)),
            ("adaptive", Limiter(64)),
        ):
            seconds, lost, limit = await press(f"{url}/{path}/v1", limiter)
            print(
                f"  {name:9} {seconds:5.1f} s, {seconds / ideal:4.2f} of ideal; {lost} given up; limit at the end "
                f"{limit}"
            )
            reached = reached and (
                name == "fixed" or (seconds / ideal <= TARGET and not lost)
            )
    return reached


def main() -> int:
    """Print the tables; the exit status says whether every target was reached."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=256)
    parser.add_argument("--latency-s", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    calls, latency_s = arguments.calls, arguments.latency_s
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=endpoints, args=(latency_s, there), daemon=True
    )
    server.start()
    url = here.recv()
    try:
        ideal = calls / latency_s
        print(
            f"{calls} calls in flight, {latency_s:g} s each: ideal {ideal:.0f}/s; "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )
        ramp_s = RAMP * latency_s
        measured = asyncio.run(
            compare(f"{url}/slow/v1", calls, ramp_s, arguments.seconds)
        )
        for name, way in measured.items():
            print(
                f"  {name:16} {way.per_second:6.1f}/s  {way.per_second / ideal:.3f} of ideal  "
                f"{way.cpu_ms:.2f} CPU ms a call  waited for a processor {way.waited:.0%} of the time"
            )
        reachable = min(ideal, measured["bare aiohttp"].per_second)
        reached = measured["OpenAIEngine"].per_second >= OF_IDEAL * reachable
        reached = asyncio.run(under_pressure(url)) and reached
    finally:
        server.terminate()
        server.join()
    return 0 if reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
