"""Pages fetched, parsed, archived and stored per second, beside Scrapy writing the same.

A server of its own process serves a forum of 20-post pages. Both crawl it one after the other with 8 connections
and no politeness, parse it by the same adapter, find the identifiers of people, write the pages to a WARC file
(synced to disk) and the rows to PostgreSQL: Scrapy by a pipeline with one transaction an item (`scrapy_forum.py`),
medlive by its ledger. Then medlive alone crawls a small and a large forum, and its greatest resident memory is
compared.

    python benchmarks/harvest.py [--pages 2000] [--memory 1000 20000]
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from aiohttp import web

from medlive.demo import communities
from medlive.demo.samples import (
    Expectation,
    SampleMessage,
    SampleThread,
    load_sample_threads,
)

BOARD = "internal-medicine-and-im-subspecialties.41"
POSTS = 20
CONNECTIONS = 8
TARGET = 1.0


def forum(threads: int) -> dict[str, bytes]:
    """Path → page of a forum of that many threads, a page each."""
    communities.POSTS_PER_PAGE = POSTS
    communities.ROWS_PER_PAGE = 50
    words = [
        w
        for t in load_sample_threads()
        if t.language == "en"
        for m in t.messages
        for w in m.text.split()
    ]
    chance = random.Random(1)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    made = []
    site: dict[str, bytes] = {}
    for number in range(threads):
        opened = start + timedelta(minutes=number)
        first = SampleThread(
            site="sdn",
            source="sdn",
            thread_id=str(10_000 + number),
            board=BOARD,
            section="Medicine",
            url=f"https://forum.example/threads/question-{number}.{10_000 + number}/",
            title=f"Question {number}",
            language="en",
            tags=("Medicine",),
            posted_at=opened,
            messages=tuple(
                SampleMessage(
                    author=f"user{chance.randrange(5000)}",
                    role="other",
                    verified=False,
                    posted_at=opened + timedelta(minutes=place),
                    status="Attending Physician" if place % 3 else None,
                    text=" ".join(chance.choices(words, k=chance.randint(60, 140))),
                )
                for place in range(POSTS)
            ),
            expect=Expectation(outcome="kept", why="it is not curated"),
        )
        made.append(first)
        site[first.path] = communities.sdn_thread_page(first).encode()
    made.reverse()
    last = -(-threads // communities.ROWS_PER_PAGE)
    for page in range(1, last + 1):
        path = f"/forums/{BOARD}/" + (f"page-{page}" if page > 1 else "")
        site[path] = communities.sdn_list_page(BOARD, made, page, "").encode()
    return site


async def serve(threads: int) -> None:
    """Serve the forum until the process is ended; prints its address and its pages' mean size."""
    site = forum(threads)

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(text="User-agent: *\nAllow: /\n")
        body = site.get(request.path)
        return (
            web.Response(status=404)
            if body is None
            else web.Response(body=body, content_type="text/html")
        )

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sizes = [len(body) for path, body in site.items() if path.startswith("/threads/")]
    print(
        f"http://127.0.0.1:{runner.addresses[0][1]} {sum(sizes) // len(sizes)} {len(site)}",
        flush=True,
    )
    await asyncio.Event().wait()


@contextmanager
def served(threads: int) -> Iterator[tuple[str, int, int]]:
    """The address of a forum in a process of its own, the mean size of its threads' pages, and how many pages."""
    with subprocess.Popen(
        [sys.executable, __file__, "--serve", str(threads)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            url, size, count = process.stdout.readline().split()
            yield url, int(size), int(count)
        finally:
            process.kill()


@contextmanager
def database(home: Path, **more: str) -> Iterator[tuple[dict[str, str], str]]:
    """An embedded database of its own: the environment of medlive's commands, and the database's URL."""
    environment = {**os.environ, "MEDLIVE_HOME": str(home), **more}
    medlive = [sys.executable, "-m", "medlive", "db"]

    def run(command: str) -> str:
        done = subprocess.run(
            [*medlive, command],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    run("upgrade")
    try:
        yield environment, run("url")
    finally:
        run("stop")


def scrapy(url: str, folder: Path) -> tuple[float, float, int]:
    """Seconds and processor seconds that Scrapy crawls, and the pages it stored."""
    with database(folder / "home") as (environment, address):
        program = [sys.executable, str(Path(__file__).with_name("scrapy_forum.py"))]
        done = subprocess.run(
            [
                *program,
                f"{url}/forums/{BOARD}/",
                address,
                str(folder),
                str(CONNECTIONS),
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or done.stderr:
            raise SystemExit(f"Scrapy failed: {done.stderr}")
        seconds, cpu, items = done.stdout.split()
        with psycopg.connect(address.replace("+psycopg", "")) as connection:
            assert connection.execute("SELECT count(*) FROM fetches").fetchone() == (
                int(items),
            )
    return float(seconds), float(cpu), int(items)


def harvest(url: str, home: Path) -> tuple[float, float, int, float]:
    """Seconds of medlive's run by its own row, its processor seconds, the pages it stored, and its greatest
    resident memory in MB.

    Start and import are left out, as Scrapy leaves out its own.
    """
    settings = {
        "MEDLIVE_HARVEST__ALLOW_LOOPBACK": "true",
        "MEDLIVE_HARVEST__CONCURRENCY_PER_HOST": str(CONNECTIONS),
        "MEDLIVE_SOURCES__SDN__BASE_URL": url,
        "MEDLIVE_SOURCES__SDN__BOARDS": json.dumps([BOARD]),
        "MEDLIVE_SOURCES__SDN__MIN_INTERVAL_S": "0",
    }
    code = (
        "import resource, sys, time; from medlive.__main__ import run; import medlive.service.harvest.harvest;"
        "started = time.process_time(); status = run(['harvest', 'sdn', '--json']);"
        "print(status, time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,"
        " file=sys.stderr)"
    )
    with database(home, **settings) as (environment, address):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        with psycopg.connect(address.replace("+psycopg", "")) as connection:
            row = connection.execute(
                "SELECT extract(epoch FROM finished_at - started_at) FROM harvest_runs"
            ).fetchone()
    (found,) = json.loads(done.stdout)
    status, cpu, memory = done.stderr.split()[-3:]
    if status != "0" or found["problems"]:
        raise SystemExit(f"the harvest failed: {done.stderr} {found['problems'][:3]}")
    assert row is not None
    return float(row[0]), float(cpu), found["counts"]["pages"], float(memory)


def main() -> None:
    """Print the ratio to Scrapy, and medlive's memory at two sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--memory", type=int, nargs="*", default=[1000, 20_000])
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        return
    if options.pages:
        with (
            served(options.pages) as (url, size, count),
            tempfile.TemporaryDirectory() as folder,
        ):
            Path(folder).chmod(0o755)
            (Path(folder) / "scrapy").mkdir(mode=0o755)
            theirs, their_cpu, items = scrapy(url, Path(folder) / "scrapy")
            ours, our_cpu, pages_stored, _ = harvest(url, Path(folder) / "home")
        assert items == pages_stored == count, (items, pages_stored, count)
        print(
            f"{options.pages} threads of {POSTS} posts ({size / 1024:.0f} KB each), {count} pages, "
            f"{CONNECTIONS} connections; the same WARC and rows"
        )
        for name, seconds, cpu in (
            ("Scrapy", theirs, their_cpu),
            ("medlive", ours, our_cpu),
        ):
            print(
                f"  {name:8} {count / seconds:6.0f} pages/s, {cpu / count * 1000:5.1f} ms of its processor a page"
            )
        print(
            f"  ratio {theirs / ours:.2f} (target above {TARGET}), by processor time {their_cpu / our_cpu:.2f}"
        )
    peaks = []
    for threads in options.memory:
        with (
            served(threads) as (url, _, count),
            tempfile.TemporaryDirectory() as folder,
        ):
            Path(folder).chmod(0o755)
            seconds, _, _, memory = harvest(url, Path(folder) / "home")
        peaks.append(memory)
        print(
            f"  {count:6} pages: greatest resident memory {memory:.0f} MB, {count / seconds:.0f} pages/s"
        )
    if len(peaks) > 1:
        print(f"  memory ratio {peaks[-1] / peaks[0]:.2f} (flat is 1)")


if __name__ == "__main__":
    main()
