"""Cost curves over the number of threads: import, filter, near duplicates, audit pages, freeze.

For each size a PostgreSQL of its own is filled by the stages themselves, each in a process of its own: time by the
clock, processor time of the process and of PostgreSQL, greatest resident memory, and what it leaves on disk. The
audit pages and the freeze are asked of databases filled in SQL with as many threads, one in ten of them a case.
Writes the curves under docs/builders/measurements/pictures and the table of docs/builders/measurements/growth.md.

    python benchmarks/growth.py [--sizes 1000 3000 10000 30000] [--out docs/builders/measurements/pictures]
"""

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import psycopg  # noqa: E402
from audit_tables import fill as fill_decided  # noqa: E402
from audit_tables import measure as ask_pages  # noqa: E402
from drawing import svg  # noqa: E402
from duplicates import drawn  # noqa: E402
from filter_run import repeated, server_cpu  # noqa: E402
from filters import made_threads  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from snapshot_freeze import CRITERIA, SENTENCES, freeze_week  # noqa: E402
from throwaway import throwaway_home  # noqa: E402

from medlive.db import embedded  # noqa: E402
from medlive.db.schema.migrate import upgrade  # noqa: E402
from medlive.db.session import Database  # noqa: E402
from medlive.db.threads.bands import find_candidates  # noqa: E402
from medlive.db.threads.threads import load_threads  # noqa: E402
from medlive.filters.codebooks import load_codebook  # noqa: E402
from medlive.filters.model import FilterSettings  # noqa: E402
from medlive.filters.rules import FilterChain  # noqa: E402
from medlive.service.curation.filtering import filter_pending  # noqa: E402
from medlive.service.harvest.harvest import import_file  # noqa: E402
from medlive.snapshot.gates import gates_digest  # noqa: E402
from medlive.threads.model import Thread  # noqa: E402
from tests.support.release import fill as fill_cases  # noqa: E402

DISTINCT = 5_000
"""Made threads; more are these in other words."""
ASKED = 1_000
"""Threads whose near duplicates are looked for."""
PAGES, READERS = 400, 4
THREADS_A_CASE = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stage took for a number of threads."""

    stage: str
    threads: int
    items: int
    """What its costs are shared by: threads, threads asked for, pages, or cases."""
    wall_s: float
    cpu_s: float
    """Of the stage's own process."""
    server_s: float
    """Of PostgreSQL."""
    mb: float
    """Greatest resident memory of the stage's own process."""
    disk: int
    """Bytes that it left: in the database, or in the snapshot's folder."""
    p95_ms: float = 0.0

    @property
    def busy_ms(self) -> float:
        """Milliseconds of processor for one item, PostgreSQL's included."""
        return 1000 * (self.cpu_s + self.server_s) / self.items


async def _import(url: str, home: Path, size: int) -> int:
    database = Database.connect(url)
    counts, _ = await import_file(
        database, home / "threads.jsonl", assume_posted_at=None, handle_key=b"benchmark"
    )
    await database.aclose()
    assert counts["new"] == size, counts
    return size


async def _filter(url: str, home: Path, size: int) -> int:
    database = Database.connect(url)
    counts = await filter_pending(
        database, FilterChain(FilterSettings(), load_codebook())
    )
    await database.aclose()
    assert sum(counts) == size, counts
    return size


async def _duplicates(url: str, home: Path, size: int) -> int:
    """What a filter run does for new threads before it compares: candidates found and loaded."""
    database, chain = (
        Database.connect(url),
        FilterChain(FilterSettings(), load_codebook()),
    )
    asked = drawn(repeated(made_threads(DISTINCT), size, ASKED))
    for start in range(0, ASKED, 100):
        async with database.begin() as session:
            found = await find_candidates(
                session, chain.digest, [s.bands for s in asked[start : start + 100]]
            )
            await load_threads(session, [c.revision_pk for c in found])
    await database.aclose()
    return ASKED


async def _pages(url: str, home: Path, size: int) -> int:
    taken = await ask_pages(url, READERS, PAGES)
    every = sorted(ms for times in taken.values() for ms in times)
    (home / "p95").write_text(str(every[int(0.95 * len(every))]), encoding="utf-8")
    return len(every)


async def _freeze(url: str, home: Path, size: int) -> int:
    return await asyncio.to_thread(freeze_week, home)


STAGES: Mapping[str, Callable[[str, Path, int], Coroutine[None, None, int]]] = {
    "import": _import,
    "filter": _filter,
    "near duplicates": _duplicates,
    "audit page": _pages,
    "freeze": _freeze,
}


def apart(stage: str, home: Path, size: int) -> None:
    """Do one stage in this process, and print what it took."""
    url = embedded.start(home)
    server = embedded.status(home)
    assert server is not None
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, began, there = (
        used.ru_utime + used.ru_stime,
        time.perf_counter(),
        server_cpu(server.pid),
    )
    with redirect_stdout(sys.stderr):
        items = asyncio.run(STAGES[stage](url, home, size))
    wall, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(1)  # the server counts what its processes used when they have ended
    print(
        json.dumps(
            {
                "items": items,
                "wall_s": wall,
                "cpu_s": used.ru_utime + used.ru_stime - cpu,
                "server_s": server_cpu(server.pid) - there,
                "mb": used.ru_maxrss / 1024,
            }
        )
    )


def measure(stage: str, home: Path, url: str, size: int, empty: int) -> Cost:
    """Do one stage in a process of its own; `empty`: the bytes of a database without threads."""
    before = _database_bytes(url)
    command = [
        sys.executable,
        __file__,
        "--stage",
        stage,
        "--home",
        str(home),
        "--sizes",
        str(size),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    told = json.loads(done.stdout.splitlines()[-1])
    left = _database_bytes(url) - before
    p95 = 0.0
    if stage == "audit page":
        left, p95 = before - empty, float((home / "p95").read_text(encoding="utf-8"))
    if stage == "freeze":
        left = sum(
            f.stat().st_size for f in (home / "snapshots").rglob("*") if f.is_file()
        )
    cost = Cost(stage, size, **told, disk=left, p95_ms=p95)
    print(
        f"{size:>9,} threads  {stage:16} {cost.wall_s:8.1f} s by the clock {cost.cpu_s:8.1f} s own "
        f"{cost.server_s:8.1f} s PostgreSQL {cost.mb:6.0f} MB  {left / 1e6:9.1f} MB on disk"
        + (f"  p95 {p95:.0f} ms" if p95 else ""),
        flush=True,
    )
    return cost


def _database_bytes(url: str) -> int:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute(
            "SELECT pg_database_size(current_database())"
        ).fetchone()
    return int(row[0]) if row else 0


def measure_size(size: int) -> list[Cost]:
    """Every stage at one size, in three databases."""
    costs = []
    for prepare, stages in (
        (_write_threads, ("import", "filter", "near duplicates")),
        (_fill_decided, ("audit page",)),
        (_fill_cases, ("freeze",)),
    ):
        with throwaway_home() as home:
            url = embedded.start(home)
            upgrade(url)
            empty = _database_bytes(url)
            prepare(url, home, size)
            costs += [measure(stage, home, url, size, empty) for stage in stages]
    return costs


def _write_threads(url: str, home: Path, size: int) -> None:
    made = made_threads(min(size, DISTINCT))
    with (home / "threads.jsonl").open("w", encoding="utf-8") as file:
        for start in range(0, size, 1_000):
            for thread in repeated(made, start, min(1_000, size - start)):
                file.write(_line(thread) + "\n")


def _line(thread: Thread) -> str:
    identity = {
        "source": thread.source,
        "thread_id": thread.thread_id,
        "url": "https://example.org/t",
    }
    return json.dumps(
        identity | {"language": thread.language} | thread.content(),
        ensure_ascii=False,
        default=str,
    )


def _fill_decided(url: str, home: Path, size: int) -> None:
    with redirect_stdout(sys.stderr):
        fill_decided(url, size)


def _fill_cases(url: str, home: Path, size: int) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        fill_cases(
            connection,
            size // THREADS_A_CASE,
            criteria=CRITERIA,
            length=SENTENCES,
            gates=gates_digest(),
        )


def draw(costs: Sequence[Cost], out: Path) -> None:
    """Write the curves of time, memory and disk."""
    out.mkdir(parents=True, exist_ok=True)
    curves: dict[str, tuple[str, Callable[[Cost], float], Sequence[str]]] = {
        "scale-time": (
            "Milliseconds of processor for one thread, page or case",
            lambda c: c.busy_ms,
            [*STAGES],
        ),
        "scale-memory": ("Megabytes of memory at most", lambda c: c.mb, [*STAGES]),
        "scale-disk": (
            "Kilobytes on disk for one thread",
            lambda c: c.disk / c.threads / 1000,
            ["import", "filter", "audit page", "freeze"],
        ),
    }
    for name, (title, value, stages) in curves.items():

        def draw(
            axes: Axes,
            title: str = title,
            value: Callable[[Cost], float] = value,
            stages: Sequence[str] = stages,
        ) -> None:
            for stage in stages:
                own = sorted((c.threads, value(c)) for c in costs if c.stage == stage)
                all_tables = title.startswith("Kilobytes") and stage == "audit page"
                label = "all tables of a decided thread" if all_tables else stage
                axes.plot(*zip(*own, strict=True), "o-", label=label)
            axes.set_xscale("log")
            axes.set_xlabel("threads in the database")
            axes.set_title(title)
            axes.legend()

        (out / f"{name}.svg").write_text(svg(draw), encoding="utf-8")


def table(costs: Sequence[Cost]) -> str:
    """The costs as a table in Markdown."""
    rows = [
        "| stage | threads | clock, s | own processor, s | PostgreSQL, s | ms an item | memory, MB | disk, MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    order = [*STAGES]
    for c in sorted(costs, key=lambda c: (order.index(c.stage), c.threads)):
        rows.append(
            f"| {c.stage} | {c.threads:,} | {c.wall_s:.1f} | {c.cpu_s:.1f} | {c.server_s:.1f} | {c.busy_ms:.2f} "
            f"| {c.mb:.0f} | {c.disk / 1e6:.1f} |"
        )
    return "\n".join(rows)


def main() -> int:
    """Measure, print the table, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1_000, 3_000, 10_000, 30_000, 100_000]
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "docs" / "builders" / "measurements" / "pictures",
    )
    parser.add_argument("--stage", choices=list(STAGES), help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage is not None:
        apart(options.stage, options.home, options.sizes[0])
        return 0
    random.seed(1)
    costs: list[Cost] = []
    for size in options.sizes:
        costs += measure_size(size)
        draw(costs, options.out)
    print(table(costs))
    print(
        f"load of the machine at the end: {os.getloadavg()[2]:.1f} over 15 minutes, {os.cpu_count()} processors"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
