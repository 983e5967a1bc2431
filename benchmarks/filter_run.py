"""Threads a second through a whole filter run in PostgreSQL, at 10,000 and at 100,000 waiting threads.

Run: `python benchmarks/filter_run.py [--sizes N...] [--data FOLDER]`. Uses a database of its own. Real threads, or
made ones where there are none, each repeated under other ids with words of its own, wait in the database; the run
normalises, sketches and judges them, and stores verdicts, bands and jobs. Exit status 1 below the target.

On a busy machine the clock says little. Therefore the CPU seconds of this process and those of PostgreSQL are
counted apart: they work at the same time, so that with a core for each the slower of the two sets the pace.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from filters import REAL_DATA, made_threads, real_threads
from throwaway import throwaway_home

from medlive.__main__ import collect_less
from medlive.db import embedded
from medlive.db.schema.migrate import upgrade
from medlive.db.session import Database
from medlive.db.threads.threads import save_threads
from medlive.filters.codebooks import load_codebook
from medlive.filters.model import FilterSettings
from medlive.filters.rules import FilterChain
from medlive.service.curation.filtering import filter_pending
from medlive.threads.model import Thread

TARGET = 1_500
"""Threads a second at any size."""


def repeated(threads: Sequence[Thread], start: int, count: int) -> list[Thread]:
    """`count` threads under ids from `start` on; each round of the given ones changes every seventh word, so that
    rounds are not each other's duplicates."""

    def reworded(text: str, number: int) -> str:
        words = text.split(" ") if " " in text else list(text)
        return (" " if " " in text else "").join(
            f"{w}{number}" if i % 7 == 3 else w for i, w in enumerate(words)
        )

    made = []
    for number in range(start, start + count):
        thread = threads[number % len(threads)]
        messages = tuple(
            replace(m, text=reworded(m.text, number // len(threads)))
            for m in thread.messages
        )
        made.append(replace(thread, thread_id=str(number), messages=messages))
    return made


def server_cpu(pid: int) -> float:
    """CPU seconds of a PostgreSQL server and all its processes so far, ended ones included."""
    server = psutil.Process(pid)
    own = server.cpu_times()
    used = own.user + own.system + own.children_user + own.children_system
    for process in server.children():
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system
    return float(used)


async def measure(
    url: str, pid: int, threads: Sequence[Thread], sizes: Sequence[int]
) -> bool:
    """Fill the database up to each size and filter what waits; whether every run reached the target."""
    chain, database, stored, fast = (
        FilterChain(FilterSettings(), load_codebook()),
        Database.connect(url),
        0,
        True,
    )
    try:
        for size in sizes:
            for start in range(stored, stored + size, 1_000):
                async with database.begin() as session:
                    await save_threads(
                        session,
                        repeated(threads, start, min(1_000, stored + size - start)),
                    )
            begun, cpu, server = (
                time.perf_counter(),
                time.process_time(),
                server_cpu(pid),
            )
            passed, _ = await filter_pending(database, chain)
            taken, cpu = time.perf_counter() - begun, time.process_time() - cpu
            server = server_cpu(pid) - server
            print(
                f"{size:7} waiting, {stored:7} judged before: {size / taken:6.0f} threads/s by the clock, "
                f"{size / cpu:6.0f} a second of own CPU, {size / server:6.0f} of PostgreSQL's; {passed} pass",
                flush=True,
            )
            stored, fast = stored + size, fast and size / max(cpu, server) >= TARGET
    finally:
        await database.aclose()
    return fast


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rates; 0 where each reaches the target."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--data", type=Path, default=REAL_DATA)
    options = parser.parse_args(arguments)
    threads = (
        real_threads(options.data) if options.data.is_dir() else []
    ) or made_threads(5_000)
    collect_less()  # as the program does
    with throwaway_home() as home:
        upgrade(url := embedded.start(home))
        server = embedded.status(home)
        assert server is not None
        return 0 if asyncio.run(measure(url, server.pid, threads, options.sizes)) else 1


if __name__ == "__main__":
    sys.exit(main())
