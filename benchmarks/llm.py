"""How near the endpoint client comes to a bare aiohttp session, against one endpoint of 50 ms, in one run.

Prints, for 16 and 64 calls at once, the requests a second and the CPU milliseconds a call of: a bare aiohttp
session (the limit), the official client's typed call on its default transport (the peer), and OpenAIEngine. The
endpoint runs in a process of its own, so the CPU is the client's alone. Exits 1 when OpenAIEngine is slower
than the peer. Run: `python benchmarks/llm.py [--calls 960] [--latency-ms 50]`.
"""

import argparse
import asyncio
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

import aiohttp
from openai import AsyncOpenAI

from medlive.evaluation.tasks import GradeReply
from medlive.llm.engine import Request
from medlive.llm.fence import render
from medlive.llm.openai import OpenAIEngine
from medlive.llm.prompts import load_prompt
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.server import serve

REQUEST = Request(
    "grader.criterion",
    load_prompt("medlive.evaluation", "grader.criterion"),
    {
        "language": "en",
        "question": "The patient has had a red, hot big toe for two days.\n\nWhat is it?",
        "answer": "This looks like gout. Rest the foot and drink enough water. See a physician this week. " * 8,
        "criterion": "States that the patient probably has gout.",
    },
    GradeReply.model_json_schema(),
)
Call = Callable[[], Awaitable[object]]


class Measured(NamedTuple):
    """One way of asking, at one concurrency."""

    per_second: float
    cpu_ms: float


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
    return Measured(calls / (time.perf_counter() - started), (time.process_time() - cpu) * 1000 / calls)


async def compare(url: str, concurrency: int, calls: int) -> dict[str, Measured]:
    """The three ways, one after the other, against the same endpoint."""
    messages = render(REQUEST)
    shape = {"name": "grader_criterion", "strict": True, "schema": dict(REQUEST.schema)}
    body = {
        "model": "rules",
        "messages": messages,
        "response_format": {"type": "json_schema", "json_schema": shape},
    }
    found: dict[str, Measured] = {}

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:

        async def bare() -> object:
            async with session.post(f"{url}/chat/completions", json=body) as response:
                return await response.json()

        found["bare aiohttp"] = await measure(bare, concurrency, calls)

    async with AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:

        async def peer() -> object:
            return await client.chat.completions.create(**body)  # type: ignore[call-overload]

        found["openai client"] = await measure(peer, concurrency, calls)

    engine = OpenAIEngine("rules", url, concurrency=concurrency)
    found["OpenAIEngine"] = await measure(lambda: engine.answer(REQUEST), concurrency, calls)
    await engine.aclose()
    return found


def main() -> int:
    """Print the table; the exit status says whether the engine keeps up with the peer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=960)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    arguments = parser.parse_args()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=endpoint, args=(arguments.latency_ms, there), daemon=True
    )
    server.start()
    slower = False
    try:
        url = here.recv()
        print(f"endpoint of {arguments.latency_ms:g} ms, {os.cpu_count()} cores, {arguments.calls} calls each")
        for concurrency in (16, 64):
            found = asyncio.run(compare(url, concurrency, arguments.calls))
            bare, ours = found["bare aiohttp"], found["OpenAIEngine"]
            for name, one in found.items():
                print(
                    f"{concurrency:3} at once  {name:14} {one.per_second:6.0f} requests/s  "
                    f"{one.cpu_ms:5.2f} CPU ms a call  {one.per_second / bare.per_second:5.2f} of bare"
                )
            slower = slower or ours.per_second < found["openai client"].per_second
            ceiling = concurrency / arguments.latency_ms * 1000
            print(f"{concurrency:3} at once  the latency allows {ceiling:.0f} requests/s")
    finally:
        server.terminate()
        server.join()
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
