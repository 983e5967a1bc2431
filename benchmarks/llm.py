"""How near the endpoint client comes to a bare aiohttp session, and its limiter to what an endpoint can do.

First, against one endpoint of 50 ms and for 16 and 64 calls at once, the requests a second and the CPU ms a
call of: a bare aiohttp session (the limit), the official client's typed call on its default transport (the
peer), OpenAIEngine held to a fixed number of calls, and OpenAIEngine with its adaptive limit. Then
OpenAIEngine, fixed and adaptive, with 64 calls allowed, against an endpoint that serves 8 at once and queues
the others, and against one that answers 429 above 100 a second: the time against the ideal, and what was
learnt. Endpoints run in a process of their own, so the CPU is the client's alone. Exits 1 when OpenAIEngine is
slower than the peer, when the adaptive limit is cut on the healthy endpoint and costs more than a tenth there,
or when it takes more than 1.5 times the ideal on the others.
Run: `python benchmarks/llm.py [--calls 960] [--latency-ms 50]`.
"""

import argparse
import asyncio
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final, NamedTuple

import aiohttp
from aiohttp import web
from openai import AsyncOpenAI

from medlive.errors import EndpointUnavailable
from medlive.grader.reply import GradeReply
from medlive.llm.engine import Request
from medlive.llm.fence import render
from medlive.llm.limiter import Ended, EndpointState, Limiter
from medlive.llm.openai import OpenAIEngine
from medlive.llm.prompts import load_prompt
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.rules.server import serve

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
HEALTHY: Final = 0.9


class Measured(NamedTuple):
    """One way of asking, at one concurrency."""

    per_second: float
    cpu_ms: float


class Fixed(Limiter):
    """A limiter that learns nothing: a semaphore, as a peer to the adaptive one."""

    def __init__(self, endpoint: str, most: int) -> None:
        super().__init__(endpoint, most)
        self._limit = float(most)

    def leave(self, began: float, ended: Ended) -> None:
        super().leave(began, ended)
        self._limit = float(self._most)


class Hard:
    """Two endpoints that can be asked too much."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(SLOTS)
        self._tokens, self._at = RATE / 5, time.monotonic()

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


def hard_endpoint(url: Connection) -> None:
    """Serve both until the process is ended."""

    async def run() -> None:
        hard = Hard()
        app = web.Application()
        app.router.add_post("/queues/v1/chat/completions", hard.queues)
        app.router.add_post("/limits/v1/chat/completions", hard.limits)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await asyncio.Event().wait()

    asyncio.run(run())


def endpoint(latency_ms: float, url: Connection) -> None:
    """Serve the rules engine until the process is ended."""

    async def run() -> None:
        async with serve(RulesEngine, latency_ms=latency_ms) as base_url:
            url.send(base_url)
            await asyncio.Event().wait()

    asyncio.run(run())


async def measure(call: Call, concurrency: int, calls: int) -> Measured:
    """Make the calls, no more than `concurrency` at once; connections are opened before the clock starts."""
    await asyncio.gather(*(call() for _ in range(concurrency)))
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await call()

    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return Measured(
        calls / (time.perf_counter() - started),
        (time.process_time() - cpu) * 1000 / calls,
    )


async def compare(
    url: str, concurrency: int, calls: int
) -> tuple[dict[str, Measured], int]:
    """The four ways, one after the other, against the same endpoint; the lowest that a limit was cut to."""
    messages = render(REQUEST)
    shape = {"name": "grader_criterion", "strict": True, "schema": dict(REQUEST.schema)}
    body = {
        "model": "rules",
        "messages": messages,
        "response_format": {"type": "json_schema", "json_schema": shape},
    }
    found: dict[str, Measured] = {}

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=concurrency)
    ) as session:

        async def bare() -> object:
            async with session.post(f"{url}/chat/completions", json=body) as response:
                return await response.json()

        found["bare aiohttp"] = await measure(bare, concurrency, calls)

    async with AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:

        async def peer() -> object:
            return await client.chat.completions.create(**body)  # type: ignore[call-overload]

        found["openai client"] = await measure(peer, concurrency, calls)

    # In turn and twice, the better counted: on a machine that others use, one round says little about a tenth.
    lowest = concurrency
    for name in ("OpenAIEngine, fixed", "OpenAIEngine") * 2:
        limiter = (
            Fixed("e", concurrency)
            if name.endswith("fixed")
            else Limiter("e", concurrency)
        )
        engine = OpenAIEngine("rules", url, concurrency=concurrency, limiter=limiter)
        one = await measure(lambda: engine.answer(REQUEST), concurrency, calls)  # noqa: B023
        found[name] = max(one, found.get(name, one))
        lowest = min(lowest, limiter.state().lowest)
        await engine.aclose()
    return found, lowest


async def press(url: str, limiter: Limiter) -> tuple[float, int, EndpointState]:
    """All calls at one endpoint at once: the seconds, the calls that were given up, what was learnt."""
    engine = OpenAIEngine("m", url, concurrency=64, limiter=limiter)
    started = time.perf_counter()
    calls = (engine.answer(REQUEST) for _ in range(HARD_CALLS))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    seconds = time.perf_counter() - started
    await engine.aclose()
    lost = sum(isinstance(answer, EndpointUnavailable) for answer in answers)
    return seconds, lost, limiter.state()


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
            ("fixed", Fixed("e", 64)),
            ("adaptive", Limiter("e", 64)),
        ):
            seconds, lost, state = await press(f"{url}/{path}/v1", limiter)
            print(
                f"  {name:9} {seconds:5.1f} s, {seconds / ideal:4.2f} of ideal; {lost} given up; limit at the end "
                f"{state.limit}; {state.limited} times 429"
            )
            reached = reached and (
                name == "fixed" or (seconds / ideal <= TARGET and not lost)
            )
    return reached


def started(
    serve_it: Callable[..., None], *arguments: object
) -> tuple[str, BaseProcess]:
    """An endpoint in a process of its own: its address, and the process."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve_it, args=(*arguments, there), daemon=True
    )
    process.start()
    return here.recv(), process


def main() -> int:
    """Print the tables; the exit status says whether every target was reached."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=960)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    arguments = parser.parse_args()
    url, server = started(endpoint, arguments.latency_ms)
    missed = False
    try:
        print(
            f"endpoint of {arguments.latency_ms:g} ms, {os.cpu_count()} cores, {arguments.calls} calls each"
        )
        for concurrency in (16, 64):
            found, lowest = asyncio.run(compare(url, concurrency, arguments.calls))
            bare, ours, fixed = (
                found[name]
                for name in ("bare aiohttp", "OpenAIEngine", "OpenAIEngine, fixed")
            )
            for name, one in found.items():
                print(
                    f"{concurrency:3} at once  {name:19} {one.per_second:6.0f} requests/s  "
                    f"{one.cpu_ms:5.2f} CPU ms a call  {one.per_second / bare.per_second:5.2f} of bare"
                )
            kept = ours.per_second / fixed.per_second
            missed = (
                missed
                or ours.per_second < found["openai client"].per_second
                or (lowest < concurrency and kept < HEALTHY)
            )
            ceiling = concurrency / arguments.latency_ms * 1000
            print(
                f"{concurrency:3} at once  adaptive against fixed {kept:.2f}; the latency allows {ceiling:.0f}/s"
            )
    finally:
        server.terminate()
        server.join()
    url, server = started(hard_endpoint)
    try:
        missed = not asyncio.run(under_pressure(url)) or missed
    finally:
        server.terminate()
        server.join()
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
