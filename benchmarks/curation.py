"""How near curating 200 threads comes to what the endpoint's latency alone allows.

An endpoint of a fixed latency, in a process of its own, answers every role. A first, unmeasured run against
another database has it compute each answer, so that in the measured runs it only waits. Each measured run starts
from a database without replies. Prints the wall time, the calls, the limit, the ratio, the program's own CPU a
call, and the same number of calls by a bare aiohttp session. The limit is what a client without any cost of its
own would take: calls × latency / threads at once, but no less than the longest chain of calls of a thread. Exits 1
when a thread is not kept or meets a fault.
Run: `python benchmarks/curation.py [--threads 200] [--concurrency 64] [--latency-ms 50] [--runs 3]`.
"""

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import time
from collections.abc import Sequence
from itertools import cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import aiohttp
import psycopg
from pydantic import SecretStr
from sqlalchemy import select
from throwaway import throwaway_home

from medlive.__main__ import collect_less
from medlive.config import CurationSection, Roles, RoleSettings, Settings
from medlive.db import embedded
from medlive.db.curation.curations import load_curation
from medlive.db.tables.decisions import CurationRow, PromptRow, ReplyRow
from medlive.db.threads.threads import ensure_sources, save_threads
from medlive.demo.samples import load_sample_threads, sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.guard.serving import serve_app
from medlive.instance.paths import index_path
from medlive.integrity.digest import canonical_json
from medlive.llm.engine import EngineIdentity, Prompt, Reply, Request
from medlive.llm.prompts import render
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.rules.server import build_app
from medlive.service.curation.curate import CurationCounts, curate_queued
from medlive.service.database import open_database
from medlive.service.wiring import open_pipeline
from medlive.service.work.jobs import defer_revisions
from medlive.threads.model import Message, Thread

TARGET = 4.0
"""Times the limit."""
TARGET_CPU_MS = 4.0
"""Own processor time for a call."""
ROLE_CONCURRENCY = 256
"""Calls at once of a role: a thread's claims are judged together, so 64 threads have more than 64 under way."""

_DAYS = {
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
    "zh": "一二三四五六",
}
_PLACES = {
    "en": (
        "kitchen",
        "garden",
        "train",
        "library",
        "office",
        "hallway",
        "workshop",
        "park",
    ),
    "zh": ("厨房", "花园", "火车", "图书馆", "办公室", "走廊", "车间", "公园"),
}
_SENTENCE = {
    "en": " I write this on a {day}, sitting in the {place}.",
    "zh": "我星期{day}在{place}写下这些。",
}


class Measured(NamedTuple):
    """One run."""

    wall_s: float
    cpu_s: float
    done: CurationCounts


class _Remembering:
    """The rules engine with a latency, and a memory, so that an answer asked for again takes no time of its own."""

    def __init__(self, latency_ms: float) -> None:
        self._latency_s = latency_ms / 1000
        self._engine = RulesEngine()
        self._known: dict[str, Reply] = {}

    @property
    def identity(self) -> EngineIdentity:
        return self._engine.identity

    async def answer(self, request: Request) -> Reply:
        await asyncio.sleep(self._latency_s)
        key = request.task + canonical_json([request.inputs, request.repair])
        if key not in self._known:
            self._known[key] = await self._engine.answer(request)
        return self._known[key]

    async def aclose(self) -> None:
        await self._engine.aclose()


def endpoint(latency_ms: float, url: Connection) -> None:
    """Serve until the process is ended."""

    async def run() -> None:
        app = build_app(_Remembering(latency_ms))
        async with serve_app(app, "127.0.0.1", 0) as address:
            url.send(f"{address}/v1")
            await asyncio.Event().wait()

    asyncio.run(run())


def sample_threads(count: int) -> list[Thread]:
    """Sample threads that are to be kept, over and over, each with a sentence and an id of its own."""
    kept = [
        t
        for t in load_sample_threads()
        if t.expect.outcome == "kept" and t.language in _DAYS
    ]
    threads = []
    for number, sample in enumerate(islice(cycle(kept), count)):
        language = sample.language or "en"
        day = _DAYS[language][number // len(kept) % 6]
        sentence = _SENTENCE[language].format(
            day=day, place=_PLACES[language][number // len(kept) // 6 % 8]
        )
        messages = tuple(
            Message(
                f"m{i}",
                m.author,
                m.role,
                m.verified,
                m.text + (sentence if i == 0 else ""),
                m.posted_at,
                m.media,
            )
            for i, m in enumerate(sample.messages)
        )
        assert messages[0].role == "patient"
        threads.append(
            Thread(
                "sample",
                f"{number}",
                sample.url,
                sample.title,
                sample.language,
                sample.tags,
                sample.posted_at,
                messages,
            )
        )
    return threads


async def curate(settings: Settings, threads: Sequence[Thread]) -> Measured:
    """Store and queue the threads, then curate them; only the curating is measured."""
    async with (
        open_database(settings) as database,
        open_pipeline(settings, database) as pipeline,
    ):
        async with database.begin() as session:
            await ensure_sources(session, ["sample"], "file")
            saved = await save_threads(session, threads)
            await defer_revisions(session, [s.revision_pk for s in saved])
        wall, cpu = time.perf_counter(), time.process_time()
        done = await curate_queued(pipeline)
        return Measured(time.perf_counter() - wall, time.process_time() - cpu, done)


async def longest_chain(settings: Settings) -> int:
    """The most calls of a thread that wait for each other: both texts of a cross-examination are asked at once."""
    async with open_database(settings) as database, database.begin() as session:
        found = list(await session.scalars(select(CurationRow.id)))
        asked = [
            [call.task for call in (await load_curation(session, one)).calls]
            for one in found
        ]
    paired = ("controller.questions", "controller.answers")
    return max(
        len(tasks) - sum(math.ceil(tasks.count(task) / 2) for task in paired)
        for tasks in asked
    )


async def bare(url: str, settings: Settings, calls: int, concurrency: int) -> Measured:
    """The same questions by a bare aiohttp session."""
    async with open_database(settings) as database, database.begin() as session:
        rows = await session.execute(
            select(ReplyRow.task, PromptRow.text, ReplyRow.inputs)
            .join(PromptRow, PromptRow.digest == ReplyRow.prompt_digest)
            .limit(calls)
        )
        bodies = [
            json.dumps(
                {
                    "model": "rules",
                    "messages": render(Request(task, Prompt(task, text), inputs, {})),
                }
            )
            for task, text, inputs in rows
        ]
    left = islice(cycle(bodies), calls)
    connector = aiohttp.TCPConnector(limit=concurrency)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as http:

        async def worker() -> None:
            for body in left:
                async with http.post(f"{url}/chat/completions", data=body) as response:
                    json.loads(await response.read())

        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(worker() for _ in range(concurrency)))
        return Measured(
            time.perf_counter() - wall, time.process_time() - cpu, CurationCounts()
        )


async def compare(url: str, home: Path, arguments: argparse.Namespace) -> bool:
    """Print what was measured; whether every thread was kept."""
    role = RoleSettings(
        engine="openai", base_url=url, model="rules", concurrency=ROLE_CONCURRENCY
    )
    settings = Settings(
        home=home,
        curation=CurationSection(concurrency=arguments.concurrency),
        roles=Roles(
            screener=role, validator=role, controller=role, rubric=role, grader=role
        ),
    )
    build_index(
        [open_corpus(sample_evidence_path(), name="demo")], index_path(settings)
    )
    threads = sample_threads(arguments.threads)
    base = embedded.start(home)
    runs: list[Measured] = []
    for number in range(arguments.runs + 1):
        name = f"run_{number}"
        admin = base.replace("postgresql+psycopg://", "postgresql://").replace(
            "/medlive?", "/postgres?"
        )
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        of_run = settings.model_copy(
            update={"database_url": SecretStr(base.replace("/medlive?", f"/{name}?"))}
        )
        measured = await curate(of_run, threads)
        if measured.done.faults:
            raise SystemExit("\n".join(measured.done.faults[:3]))
        if number:
            runs.append(measured)
            print(
                f"run {number}: {measured.wall_s:.2f} s wall, {measured.cpu_s:.2f} s own CPU"
            )
    best = min(runs)
    done = best.done
    # A claim that several threads share is asked for once: the others are handed its reply.
    asked = done.calls - done.replayed
    longest = await longest_chain(of_run)
    limit = max(longest, asked / arguments.concurrency) * arguments.latency_ms / 1000
    peer = await bare(url, of_run, asked, arguments.concurrency)
    ratio = best.wall_s / limit
    print(
        f"{len(threads)} threads ({dict(done.outcomes)}), {done.calls} calls, {asked} of them over HTTP"
    )
    print(f"longest chain of calls of a thread: {longest}")
    print(
        f"limit {limit:.2f} s; best of {len(runs)} runs {best.wall_s:.2f} s; ratio {ratio:.2f} "
        f"(target {TARGET}: {'reached' if ratio <= TARGET else 'missed'})"
    )
    print(
        f"own CPU {best.cpu_s * 1000 / done.calls:.2f} ms a call (target {TARGET_CPU_MS}), "
        f"{best.cpu_s * 1000 / asked:.2f} ms a call over HTTP"
    )
    print(
        f"bare aiohttp, the calls over HTTP, {arguments.concurrency} at once: {peer.wall_s:.2f} s, "
        f"{peer.cpu_s * 1000 / asked:.2f} CPU ms a call; curating takes {best.wall_s / peer.wall_s:.2f} of that"
    )
    return set(done.outcomes) == {"kept"}


def main() -> int:
    """Start the endpoint and the server, measure, and stop both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    collect_less()  # as the program does
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=endpoint, args=(arguments.latency_ms, there), daemon=True
    )
    server.start()
    print(f"endpoint of {arguments.latency_ms:g} ms, {os.cpu_count()} cores")
    try:
        with throwaway_home() as home:
            return 0 if asyncio.run(compare(here.recv(), home, arguments)) else 1
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    raise SystemExit(main())
