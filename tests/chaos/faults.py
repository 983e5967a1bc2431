"""The faults: what runs in a round, and what befalls it."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import psycopg

from medlive.clock import iso_week
from medlive.db import embedded
from medlive.errors import DatabaseUnavailable
from tests.chaos.checks import Outcome
from tests.chaos.endpoint import KINDS, OTHER
from tests.chaos.stage import (
    AT_FREEZE,
    ONCE,
    SERVICE,
    SLOW_WORKER,
    WEB,
    WORKER,
    Stage,
    Week,
)
from tests.support.disks import fill_disk

Roles = tuple[tuple[str, ...], ...]
_ALONE, _WITH_WORKER, _WITH_WORKERS = (ONCE,), (ONCE, WORKER), (ONCE, WORKER, WORKER)
_SERVICES = (SERVICE, WORKER)
_SERVICE_WITH_WORKERS = (SERVICE, WORKER, WORKER)
_WITH_SLOW_WORKER = ((ONCE, SLOW_WORKER), (SERVICE, SLOW_WORKER))


async def kill_server(home: Path) -> None:
    """kill -9 the server of the database; it is started again."""
    if (server := embedded.status(home)) is not None:
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
    await asyncio.to_thread(embedded.start, home)


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
                return (
                    settled_at is not None
                    or self.week.events >= part * self.calm.events
                )
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
        await kill_server(self.stage.home)

    async def begin_with_workers(self) -> None:
        """Let the scheduler begin when the workers serve the queue, so that it leaves the threads to them."""
        all_roles = self.week.roles
        workers = tuple(role for role in all_roles if role[0] == "worker")
        self.week.roles = workers
        known = f"SELECT count(*) >= {len(workers)} FROM workers"
        while not self.week.query(known):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        self.week.roles = all_roles

    async def calls(self, least: int, most: int) -> None:
        """Wait until the endpoint has been asked so often, or every thread is decided."""
        wanted = self.random.randint(least, most)
        while self.week.settled_at is None and self.week.endpoint.asked < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def change(self, statement: str) -> None:
        """Change the database, if it is there and has room."""
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
    may_fail: bool = False
    """Whether threads may fail with a reason, and the week be whole without them."""


class NotPossibleError(Exception):
    """This machine does not let the fault be made."""


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
    paths = (
        "/",
        "/snapshots",
        f"/medlive-{one.week.name}/SHA256SUMS",
        "/healthz",
    )
    sums = (
        one.week.instance.home / "snapshots" / f"medlive-{one.week.name}" / "SHA256SUMS"
    )
    async with httpx2.AsyncClient() as client:
        while True:
            await asyncio.sleep(0.05)
            with suppress(httpx2.TransportError):
                answer = await client.get(address + one.random.choice(paths))
                status = answer.status_code
                assert status in (200, 404), f"{answer.url}: {status}"
                if status == 200 and answer.url.path.endswith(f"/{sums.name}"):
                    assert answer.content == await asyncio.to_thread(sums.read_bytes)


async def _kills_database(one: Round) -> None:
    one.week.time_flies = True
    for _ in range(one.random.randint(1, 2)):
        await one.kill_database()


async def _resets(one: Round) -> None:
    one.week.time_flies = True
    one.week.forum.cuts = _cuts(one.random, 0.1)
    one.week.endpoint.fault = lambda: "reset" if one.random.random() < 0.1 else None
    for _ in range(one.random.randint(2, 5)):
        await one.moment()
        one.change(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 2) AS some"
        )


def _cuts(chance: random.Random, share: float) -> Callable[[], bool]:
    """Cut connections by chance, never three in a row: a page that is lost so often waits for the next harvest."""
    in_a_row = 0

    def cut() -> bool:
        nonlocal in_a_row
        in_a_row = in_a_row + 1 if in_a_row < 2 and chance.random() < share else 0
        return in_a_row > 0

    return cut


async def _bad_endpoint(one: Round) -> None:
    one.week.time_flies = True
    one.week.endpoint.fault = lambda: (
        one.random.choice(KINDS) if one.random.random() < 0.3 else None
    )


async def _full_disk(one: Round) -> None:
    one.week.time_flies = True
    home, room = one.week.instance.home, one.random.randint(0, 200_000)
    if await asyncio.to_thread(os.path.ismount, home):
        await one.moment()
        await _fill_for_a_while(one, home, room)
    else:
        one.week.largest_file = room
        await asyncio.sleep(one.random.uniform(1, 3))
        one.week.largest_file = None
        one.week.kill_all()  # the limit is theirs for life


async def _fill_for_a_while(one: Round, disk: Path, room: int) -> None:
    try:
        with suppress(OSError):  # others write at the same time
            await asyncio.to_thread(fill_disk, disk / "filler", room)
        await asyncio.sleep(one.random.uniform(0.5, 2))
    finally:
        (disk / "filler").unlink(missing_ok=True)


async def _full_database_disk(one: Round) -> None:
    """PostgreSQL's data have no room; it may end, and is started again when there is some."""
    disk = one.stage.home
    if not await asyncio.to_thread(os.path.ismount, disk):
        raise NotPossibleError(
            "no disk may be mounted for the database (root and `mount` are needed)"
        )
    await one.moment()
    await _fill_for_a_while(one, disk, one.random.randint(0, 200_000))
    for _ in range(50):
        try:
            await asyncio.to_thread(embedded.start, disk)
            break
        except DatabaseUnavailable:
            await asyncio.sleep(0.2)


async def _clock_jumps(one: Round) -> None:
    for _ in range(one.random.randint(1, 3)):
        await one.moment()
        days = one.random.choice((22, one.random.uniform(-21, 0), 0))
        one.week.set_clocks(jump=timedelta(days=days, hours=one.random.uniform(-1, 5)))
        await asyncio.sleep(one.random.uniform(0.2, 1))
        one.week.set_clocks(jump=timedelta())


async def _freeze_with_queue(one: Round) -> None:
    """Weeks were missed: harvest, queue and freeze are due at once."""
    before = (
        datetime.now(UTC)
        + one.week.offset
        - timedelta(days=7 * one.random.randint(2, 5))
    )
    for step in (
        "harvest sdn",
        "queue",
        "freeze",
        "verify",
        "publish",
        "announce",
        "retention",
    ):
        one.week.instance.change(
            "INSERT INTO pipeline_runs (command, code_version, settings, counts, outcome, iso_week, started_at,"
            " finished_at) VALUES (%s, 'chaos', '{}', '{}', 'done', %s, %s, %s)",
            [f"scheduler {step}", iso_week(before), before, before],
        )
    one.week.set_clocks(world=AT_FREEZE)
    if one.random.random() < 0.5:
        await one.kill()


async def _late_workers(one: Round) -> None:
    """Workers that had the queue are gone when the freeze is due, and come back late."""
    await one.begin_with_workers()
    await one.calls(1, 20)
    all_roles = one.week.roles
    one.week.roles = tuple(role for role in all_roles if role[0] != "worker")
    for process in one.week.running:
        if process.role == "worker" or one.random.random() < 0.5:
            process.kill()
    one.week.set_clocks(world=AT_FREEZE)
    await asyncio.sleep(one.random.uniform(2, 8))
    one.week.roles = all_roles


async def _delayed_jobs(one: Round) -> None:
    """What waits, waits for the time of its next attempt when the freeze is due."""
    await one.begin_with_workers()
    await one.calls(0, 20)
    one.week.set_clocks(world=AT_FREEZE)
    until = time.monotonic() + one.random.uniform(2, 6)
    which = "WHERE status = 'todo' AND queue_name = 'curate'"
    while time.monotonic() < until:
        one.change(
            f"UPDATE procrastinate_jobs SET scheduled_at = now() + interval '1 hour' {which}"
        )
        await asyncio.sleep(0.1)
    one.change(f"UPDATE procrastinate_jobs SET scheduled_at = NULL {which}")


async def _other_model(one: Round) -> None:
    """The endpoint names another model for some replies."""
    one.week.time_flies = True  # its circuit may be open for minutes
    await one.calls(0, 40)
    left = one.random.randint(1, 12)

    def fault() -> str | None:
        nonlocal left
        left -= 1
        return OTHER if left >= 0 else None

    one.week.endpoint.fault = fault


async def _dying_database(one: Round) -> None:
    await one.calls(1, 68)
    await kill_server(one.stage.home)
    if one.random.random() < 0.5:
        await one.calls(30, 90)
        await kill_server(one.stage.home)


async def _limit_passes(one: Round) -> None:
    """Nobody does the rest of the threads until the freeze has waited for as long as it may."""
    week = one.week
    await one.begin_with_workers()
    some = f"SELECT count(*) >= {one.random.randint(1, 3)} FROM thread_standings WHERE outcome = 'kept'"
    while not week.query(some):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    all_roles = week.roles
    week.roles = tuple(role for role in all_roles if role[0] != "worker")
    for process in week.running:
        if process.role == "worker":
            process.kill()
    week.set_clocks(world=AT_FREEZE)
    waits = "SELECT count(*) FROM step_waits WHERE step = 'freeze'"
    while not week.query(waits) and not week.is_frozen:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    week.limit_passes = True
    week.set_clocks(world=AT_FREEZE + timedelta(hours=25))
    until = time.monotonic() + 8  # without a case there is nothing to freeze
    while not week.is_frozen and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    week.roles = all_roles


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
    one.week.forum.cuts = _cuts(one.random, 0.05)
    one.week.endpoint.fault = lambda: (
        one.random.choice(KINDS) if one.random.random() < 0.1 else None
    )
    await asyncio.gather(one.kill(), one.kill(), one.kill_database())


FAULTS = (
    Fault(
        "kill -9 of a worker",
        (_WITH_WORKER, _WITH_WORKERS, _SERVICES),
        _kills("worker"),
    ),
    Fault(
        "kill -9 of the scheduler",
        (_ALONE, _WITH_WORKER, _SERVICES),
        _kills("scheduler"),
    ),
    Fault("kill -9 of the web server", ((ONCE, WEB),), _kills_web),
    Fault("kill -9 of PostgreSQL", (_ALONE, _WITH_WORKER), _kills_database),
    Fault("connections reset", (_ALONE, _WITH_WORKER), _resets, may_fail=True),
    Fault("30 % of replies fail", (_ALONE, _WITH_WORKER), _bad_endpoint, may_fail=True),
    Fault("full disk", (_ALONE, _WITH_WORKER), _full_disk, small_disk=True),
    Fault("clock jumps", ((SERVICE,), _SERVICES, _WITH_WORKER), _clock_jumps),
    Fault(
        "two schedulers",
        ((SERVICE, SERVICE), (SERVICE, SERVICE, WORKER)),
        _two_schedulers,
    ),
    Fault("jobs delivered twice", (_WITH_WORKER, _WITH_WORKERS), _deliveries),
    Fault("several at once", (_WITH_WORKER, _WITH_WORKERS), _everything, may_fail=True),
    Fault(
        "freeze due with the queue",
        (_ALONE, _WITH_WORKER, _SERVICES),
        _freeze_with_queue,
    ),
    Fault(
        "late workers", (_WITH_WORKER, _SERVICES, _SERVICE_WITH_WORKERS), _late_workers
    ),
    Fault("delayed jobs", _WITH_SLOW_WORKER, _delayed_jobs),
    Fault("full database disk", (_WITH_WORKER, _SERVICES), _full_database_disk),
    Fault(
        "another model", (_ALONE, _WITH_WORKER, _SERVICES), _other_model, may_fail=True
    ),
    Fault(
        "two workers and a dying database",
        (_WITH_WORKERS, _SERVICE_WITH_WORKERS),
        _dying_database,
    ),
    Fault("the time limit passes", _WITH_SLOW_WORKER, _limit_passes),
)
"""Every kind of round, in turn."""
