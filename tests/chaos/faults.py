"""The faults: what runs in a round, and what befalls it."""

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import aiohttp
import psycopg

from medlive.db import embedded
from tests.chaos.checks import Outcome
from tests.chaos.endpoint import KINDS
from tests.chaos.stage import AT_FREEZE, ONCE, SERVICE, WEB, WORKER, Stage, Week

Roles = tuple[tuple[str, ...], ...]
_ALONE, _WITH_WORKER, _WITH_WORKERS = (ONCE,), (ONCE, WORKER), (ONCE, WORKER, WORKER)
_SERVICES = (SERVICE, WORKER)


@dataclass(frozen=True)
class Round:
    """A disturbed week."""

    stage: Stage
    week: Week
    random: random.Random
    calm: Outcome

    async def moment(self) -> None:
        """Wait for a moment anywhere in the week: two of three before the freeze, the others after it."""
        part = self.random.uniform(0, 1.5)
        wait_s = (part - 1) * 2 * self.calm.release_s

        def has_come() -> bool:
            settled_at = self.week.settled_at
            if part < 1:
                return settled_at is not None or self.week.events >= part * self.calm.events
            return settled_at is not None and time.monotonic() >= settled_at + wait_s

        while not has_come():  # noqa: ASYNC110 - what other processes do is no event here
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.random.uniform(0, 0.1))

    async def kill(self, *roles: str) -> None:
        """kill -9 a process of one of these roles, or whichever runs, at some moment."""
        await self.moment()
        victims = [one for one in self.week.running if one.role in roles or not roles]
        if victims:
            self.random.choice(victims).kill()

    async def kill_database(self) -> None:
        """kill -9 the server or one of its backends, at some moment; the server is started again."""
        await self.moment()
        if self.random.random() < 0.3:
            self.change("SELECT pg_backend_pid()")  # so that there is one
            # It may have ended meanwhile, or the server still recover from the kill before.
            with suppress(ProcessLookupError, psycopg.OperationalError):
                pids = self.week.instance.rows(
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                )
                os.kill(self.random.choice(pids)[0], signal.SIGKILL)
            return
        if (server := embedded.status(self.stage.home)) is not None:
            os.kill(server.pid, signal.SIGKILL)
        await asyncio.to_thread(embedded.start, self.stage.home)

    def change(self, statement: str) -> None:
        """Change the database, if it is there."""
        with suppress(psycopg.Error):
            self.week.instance.change(statement)


Disturb = Callable[[Round], Coroutine[None, None, None]]


@dataclass(frozen=True)
class Fault:
    """A kind of round."""

    name: str
    roles: tuple[Roles, ...]
    """What may run; one of them does."""
    disturb: Disturb
    small_disk: bool = False


def _kills(role: str) -> Disturb:
    async def disturb(one: Round) -> None:
        for _ in range(one.random.randint(1, 3)):
            await one.kill(role)

    return disturb


async def _kills_web(one: Round) -> None:
    await asyncio.gather(_kills("serve")(one), _read(one))


async def _read(one: Round) -> None:
    """Read pages and files all the time; nothing is answered but what is right."""
    address = f"http://127.0.0.1:{WEB[WEB.index('--port') + 1]}"
    paths = ("/", "/api/snapshots", f"/medlive-{one.week.name}/SHA256SUMS", "/errata", "/healthz")
    sums = one.week.instance.home / "snapshots" / f"medlive-{one.week.name}" / "SHA256SUMS"
    async with aiohttp.ClientSession() as session:
        while True:
            await asyncio.sleep(0.05)
            with suppress(aiohttp.ClientError):
                async with session.get(address + one.random.choice(paths)) as answer:
                    assert answer.status in (200, 404), f"{answer.url}: {answer.status}"
                    body = await answer.read()
                if answer.status == 200 and answer.url.name == sums.name:
                    assert body == await asyncio.to_thread(sums.read_bytes)


async def _kills_database(one: Round) -> None:
    one.week.time_flies = True
    for _ in range(one.random.randint(1, 2)):
        await one.kill_database()


async def _resets(one: Round) -> None:
    one.week.time_flies = True
    one.week.forum.cuts = lambda: one.random.random() < 0.1
    one.week.endpoint.fault = lambda: "reset" if one.random.random() < 0.1 else None
    for _ in range(one.random.randint(2, 5)):
        await one.moment()
        one.change(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 2) AS some"
        )


async def _bad_endpoint(one: Round) -> None:
    one.week.time_flies = True
    one.week.endpoint.fault = lambda: one.random.choice(KINDS) if one.random.random() < 0.3 else None


async def _full_disk(one: Round) -> None:
    one.week.time_flies = True
    home, room = one.week.instance.home, one.random.randint(0, 200_000)
    if await asyncio.to_thread(os.path.ismount, home):
        await one.moment()
        await asyncio.to_thread(_fill, home, room)
        await asyncio.sleep(one.random.uniform(0.5, 2))
        (home / "filler").unlink()
    else:
        one.week.largest_file = room
        await asyncio.sleep(one.random.uniform(1, 3))
        one.week.largest_file = None
        one.week.kill_all()  # the limit is theirs for life


def _fill(home: Path, room: int) -> None:
    with (home / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(home).free - room))


async def _clock_jumps(one: Round) -> None:
    for _ in range(one.random.randint(1, 3)):
        await one.moment()
        settled = one.week.settled_at is not None
        # Before the freeze an earlier week would be frozen, as its clock says; so would the week, unfinished, six
        # hours after its time.
        days = one.random.uniform(-21, 0) if settled and one.week.frozen_rows else 0
        if not days and one.random.random() < 0.5:
            one.week.set_clock(timedelta(hours=one.random.uniform(0, 5)))
        else:
            one.week.set_clock(timedelta(days=days, hours=one.random.uniform(-1, 0)))
        await asyncio.sleep(one.random.uniform(0.2, 1))
        one.week.set_clock(timedelta() if one.week.settled_at is None else AT_FREEZE)


async def _two_schedulers(one: Round) -> None:
    for _ in range(one.random.randint(1, 2)):
        await one.kill("scheduler")


async def _deliveries(one: Round) -> None:
    columns = "queue_name, task_name, priority, lock, args"
    for _ in range(one.random.randint(5, 30)):
        await asyncio.sleep(one.random.uniform(0, 0.2))
        one.change(
            f"INSERT INTO procrastinate_jobs ({columns}) SELECT {columns} FROM procrastinate_jobs "
            "WHERE status IN ('todo', 'doing') ORDER BY random() LIMIT 1"
        )
        if one.random.random() < 0.3:
            one.change(
                "UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL WHERE id = "
                "(SELECT id FROM procrastinate_jobs WHERE status = 'doing' ORDER BY random() LIMIT 1)"
            )


async def _everything(one: Round) -> None:
    one.week.time_flies = True
    one.week.forum.cuts = lambda: one.random.random() < 0.05
    one.week.endpoint.fault = lambda: one.random.choice(KINDS) if one.random.random() < 0.1 else None
    await asyncio.gather(one.kill(), one.kill(), one.kill_database())


FAULTS = (
    Fault("kill -9 of a worker", (_WITH_WORKER, _WITH_WORKERS, _SERVICES), _kills("worker")),
    Fault("kill -9 of the scheduler", (_ALONE, _WITH_WORKER, _SERVICES), _kills("scheduler")),
    Fault("kill -9 of the web server", ((ONCE, WEB),), _kills_web),
    Fault("kill -9 of PostgreSQL", (_ALONE, _WITH_WORKER), _kills_database),
    Fault("connections reset", (_ALONE, _WITH_WORKER), _resets),
    Fault("30 % of replies fail", (_ALONE, _WITH_WORKER), _bad_endpoint),
    Fault("full disk", (_ALONE, _WITH_WORKER), _full_disk, small_disk=True),
    Fault("clock jumps", ((SERVICE,), _SERVICES), _clock_jumps),
    Fault("two schedulers", ((SERVICE, SERVICE), (SERVICE, SERVICE, WORKER)), _two_schedulers),
    Fault("jobs delivered twice", (_WITH_WORKER, _WITH_WORKERS), _deliveries),
    Fault("several at once", (_WITH_WORKER, _WITH_WORKERS), _everything),
)
"""Every kind of round, in turn."""
