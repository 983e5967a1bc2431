"""Instances whose real metrics Prometheus scrapes: one that is well, one in use, one for each fault."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import psycopg
from pydantic import SecretStr

from medlive.db import embedded
from medlive.db.schema.migrate import grant, upgrade
from medlive.db.session import Database
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.service.watch.checks import CHECKS
from medlive.service.watch.metrics import read_metrics
from medlive.service.watch.notify import look
from medlive.web.app import build_app, metrics_room, serve_web
from tests.support import faults
from tests.support.decisions import saved, thread
from tests.support.faults import FAULTS, Stage, healthy_instance
from tests.support.receivers import serve_webhook
from tests.support.server import PRISTINE, named, own_database, plain
from tests.support.web import site_of

ALONE = frozenset({"clock-is-ahead"})
"""Faults of this whole process: no other stage may be open beside them."""
_NUMBERS = count(1)


class Ground(NamedTuple):
    """What all stages share."""

    folder: Path
    server: str
    evidence: Path


class Usage(NamedTuple):
    """Of a disk, as `shutil.disk_usage` says it."""

    total: int
    free: int


@contextmanager
def prepare_ground(folder: Path) -> Iterator[Ground]:
    """A PostgreSQL with an empty schema to copy, and a small evidence index."""
    home = folder / "server"
    home.mkdir()
    home.chmod(0o755)  # root's server runs as another user, who must get in
    try:
        server = embedded.start(home)
        upgrade(server)
        grant(server)
        copy = f"CREATE DATABASE {PRISTINE} TEMPLATE medlive"
        _run_sql(named(server, "postgres"), copy)
        yield Ground(folder, server, _build_index(folder))
    finally:
        embedded.stop(home)


def _run_sql(url: str, statement: str) -> None:
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute(statement.encode())


def _build_index(folder: Path) -> Path:
    passage = {"id": "p1", "title": "Cough", "text": "Rest helps against a cough."}
    corpus = folder / "cough.jsonl"
    corpus.write_text(json.dumps(passage) + "\n", "utf-8")
    build_index([open_corpus(str(corpus))], folder / "index")
    return folder / "index"


@asynccontextmanager
async def open_stage(ground: Ground) -> AsyncIterator[Stage]:
    """An instance with four threads that is well; environment variables are put back at its end."""
    home = ground.folder / f"home-{next(_NUMBERS)}"
    home.mkdir()
    with own_database(ground.server) as url, patch.dict(os.environ):
        database = Database.connect(url)
        try:
            async with healthy_instance(
                database, home, ground.evidence, os.environ.__setitem__
            ) as stage:
                yield stage
        finally:
            await database.aclose()


@asynccontextmanager
async def serve_stage(stage: Stage, port: int) -> AsyncIterator[None]:
    """Serve the stage's metrics over HTTP, as `medlive serve --part metrics` does."""
    site = site_of(stage.database, stage.settings.home)
    room = metrics_room(partial(read_metrics, stage.database, stage.settings))
    async with serve_web(build_app(site, [room]), "127.0.0.1", port):
        yield


@asynccontextmanager
async def run_metrics(stage: Stage, port: int) -> AsyncIterator[None]:
    """Serve them by the command itself, in a process of its own."""
    home = stage.settings.home
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MEDLIVE_")
    }
    environment |= {
        "MEDLIVE_HOME": str(home),
        "MEDLIVE_CONFIG": str(home),
        "MEDLIVE_DATABASE_URL": stage_url(stage),
        "MEDLIVE_WATCH__DISK_FREE_GB": "0",
    }
    command = ["-m", "medlive", "serve", "--part", "metrics", "--port", str(port)]
    with (home / "metrics.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=environment, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.kill()
            await process.wait()


def stage_url(stage: Stage) -> str:
    """The URL of a stage's database."""
    return stage.database.engine.url.render_as_string(hide_password=False)


async def make_busy(stage: Stage) -> None:
    """Something of everything that the dashboard shows, and twelve threads that failed today."""
    await saved(stage.database, *(thread(number) for number in range(5, 13)))
    await faults.queue_threads(stage)
    await faults.serve_queue(stage)
    await faults.decide(stage, "true", "now()")
    await faults.scheduler_heard(stage, "1 minute")
    await faults.spent("0.5", week_usd=10.0)(stage)
    await faults.circuit_opened("no credit")(stage)
    await faults.step_ran("freeze", "failed")(stage)
    await faults.undelivered("webhook")(stage)
    await look(stage.database, stage.settings)


async def make_fault(stage: Stage, name: str) -> None:
    """Make a fault, and have a scheduler's look at it; its messages go to a webhook of the stage's own."""
    url, _ = stage.holding.enter_context(serve_webhook())
    await FAULTS[name].make(stage)
    stage.configure("notify", webhook=SecretStr(url))
    await look(stage.database, stage.settings)


@contextmanager
def filling_disk() -> Iterator[None]:
    """Each look at a disk of 1 TB finds a gigabyte less of the last 400."""
    free = count(400_000_000_000, -1_000_000_000)

    def measure(_: Path) -> Usage:
        return Usage(total=10**12, free=next(free))

    with patch("medlive.service.watch.facts.shutil.disk_usage", measure):
        yield


def one_fault_a_check() -> list[str]:
    """The first fault of each check, in the order of the checks."""
    names = []
    for check in CHECKS:
        for name, fault in FAULTS.items():
            if fault.code == check.__name__:
                names.append(name)
                break
    return names
