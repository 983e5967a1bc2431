"""What the job queue costs: a second worker's gain, the overhead of a thread, a claim from a long queue.

Two workers, each a process of its own, against an endpoint of a fixed latency must do at least 1.9 times the
threads per second of one: the queue and the endpoint's shared slots serialise nothing. Both are measured in turns
and compared by their medians, each while threads wait in the queue, so that the last ones count nothing; with few
threads at once and a latency of a second the processors do not matter. The overhead is what deferring and running
a job costs whose work is nothing. A claim is timed with few and with 100,000 jobs queued, and must not take twice
as long. Exits 1 when a figure is missed.
Run: `python benchmarks/jobs.py [--threads 24] [--concurrency 2] [--latency-ms 1000] [--rounds 3] [--queued 1000]`.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import psycopg
from curation import endpoint, sample_threads
from procrastinate import App
from pydantic import SecretStr
from sqlalchemy import text
from throwaway import throwaway_home

from medlive.config import Roles, RoleSettings, Settings
from medlive.db import embedded
from medlive.db.jobs import Queue
from medlive.db.session import Database
from medlive.db.threads.threads import ensure_sources, save_threads
from medlive.demo.samples import sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.instance.paths import index_path
from medlive.service.database import open_database
from medlive.service.work.jobs import defer_revisions, open_app, run_until_drained
from medlive.service.work.taken import CURATE
from medlive.service.work.worker import run_worker

GAIN = 1.9
SLOWER = 2.0
CLAIMS = 200
BATCH = 5_000
SPAWN = multiprocessing.get_context("spawn")


def work(settings: Settings, concurrency: int, ready: Connection) -> None:
    """Be a worker until the process is ended."""
    asyncio.run(
        run_worker(
            settings,
            asyncio.Event(),
            [Queue.CURATE],
            concurrency=concurrency,
            ready=lambda: ready.send(None),
        )
    )


async def threads_per_second(
    settings: Settings, arguments: argparse.Namespace, workers: int
) -> float:
    """Queue the sample threads before so many idle workers, and wait until the last one has begun."""
    processes: list[BaseProcess] = []
    try:
        async with open_database(settings) as database:
            for _ in range(workers):
                here, there = SPAWN.Pipe()
                processes.append(
                    SPAWN.Process(
                        target=work,
                        args=(settings, arguments.concurrency, there),
                        daemon=True,
                    )
                )
                processes[-1].start()
                await asyncio.to_thread(here.recv)
            await asyncio.sleep(7)  # until the endpoint's slots are divided
            async with database.begin() as session:
                await ensure_sources(session, ["sample"], "file")
                saved = await save_threads(session, sample_threads(arguments.threads))
                await defer_revisions(session, [s.revision_pk for s in saved])
            began = time.perf_counter()
            while await waiting_jobs(database):  # noqa: ASYNC110 - the queue tells nobody that it is empty
                await asyncio.sleep(0.05)
            # Those that are under way are half done on average.
            done = len(saved) - workers * float(arguments.concurrency) / 2
            return done / (time.perf_counter() - began)
    finally:
        for process in processes:
            process.terminate()
            process.join()


async def waiting_jobs(database: Database) -> int:
    """Jobs that nobody has begun."""
    query = text("SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'")
    async with database.begin() as session:
        return int(await session.scalar(query) or 0)


async def defer(app: App, database: Database, first: int, count: int) -> float:
    """Seconds to defer so many jobs, in transactions of some thousands."""
    began = time.perf_counter()
    for start in range(first, first + count, BATCH):
        async with database.begin() as session:
            await defer_revisions(
                session, range(start, min(start + BATCH, first + count))
            )
    return time.perf_counter() - began


async def claim_ms(app: App) -> float:
    """The median time of a claim, each of another job."""
    worker = await app.job_manager.register_worker()
    times = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        job = await app.job_manager.fetch_job(queues=[Queue.CURATE], worker_id=worker)
        times.append(time.perf_counter() - began)
        assert job is not None
    return statistics.median(times) * 1000


async def nothing(revision: int) -> None:
    """Work that costs nothing."""


async def overhead(settings: Settings, queued: int) -> bool:
    """Print what a job costs, and a claim from short and long queues; whether the long one is not slower."""
    async with (
        open_database(settings) as database,
        open_app(database).open_async() as app,
    ):
        count = 2_000
        deferring = await defer(app, database, 1, count)
        began = time.perf_counter()
        await run_until_drained(app, database, {CURATE: nothing}, concurrency=16)
        running = time.perf_counter() - began
        each = [seconds / count * 1000 for seconds in (deferring, running)]
        print(f"overhead a thread: {each[0]:.2f} ms to defer, {each[1]:.2f} ms to run")
        await defer(app, database, count + 1, 1_000)
        short = await claim_ms(app)
        took = await defer(app, database, 2 * count, queued)
        long = await claim_ms(app)
        print(f"{queued} more threads deferred in {took:.1f} s")
        print(
            f"a claim: {short:.2f} ms with 1,000 queued, {long:.2f} ms with {queued:,} more"
        )
        return long <= SLOWER * short


async def measure(
    base: str, url: str, home: Path, arguments: argparse.Namespace
) -> bool:
    """Print every figure; whether none is missed."""
    role = RoleSettings(engine="openai", base_url=url, model="rules", concurrency=256)
    settings = Settings(
        home=home,
        roles=Roles(
            screener=role, validator=role, controller=role, rubric=role, reader=role
        ),
    )
    build_index(
        [open_corpus(sample_evidence_path(), name="demo")], index_path(settings)
    )

    async def in_database(
        name: str, run: Callable[[Settings], Awaitable[float]]
    ) -> float:
        with psycopg.connect(
            base.replace("/medlive?", "/postgres?"), autocommit=True
        ) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        own = SecretStr(base.replace("/medlive?", f"/{name}?"))
        return await run(settings.model_copy(update={"database_url": own}))

    ok = await in_database("queue", lambda own: overhead(own, arguments.queued))
    await in_database("warm", lambda own: threads_per_second(own, arguments, 2))
    rates: dict[int, list[float]] = {1: [], 2: []}
    for number in range(arguments.rounds):
        for workers in (1, 2) if number % 2 == 0 else (2, 1):
            run = partial(threads_per_second, arguments=arguments, workers=workers)
            rates[workers].append(await in_database(f"round_{number}_{workers}", run))
            print(
                f"round {number + 1}, {workers} at work: {rates[workers][-1]:.3f} threads/s",
                flush=True,
            )
    one, two = (statistics.median(rates[workers]) for workers in (1, 2))
    print(
        f"one worker {one:.3f} threads/s, two {two:.3f}: {two / one:.2f} times "
        f"(target {GAIN}: {'reached' if two >= GAIN * one else 'missed'})"
    )
    return bool(ok) and two >= GAIN * one


def main() -> int:
    """Start the endpoint and the server, measure, and stop both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=24)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--latency-ms", type=float, default=1000.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queued", type=int, default=100_000)
    arguments = parser.parse_args()
    here, there = SPAWN.Pipe()
    server = SPAWN.Process(
        target=endpoint, args=(arguments.latency_ms, there), daemon=True
    )
    server.start()
    print(f"endpoint of {arguments.latency_ms:g} ms, {os.cpu_count()} cores")
    try:
        with throwaway_home() as home:
            base = embedded.start(home).replace(
                "postgresql+psycopg://", "postgresql://"
            )
            return 0 if asyncio.run(measure(base, here.recv(), home, arguments)) else 1
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    raise SystemExit(main())
