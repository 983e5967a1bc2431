"""One week of a small instance: its server, forum, endpoint and processes, brought to its end whatever befalls."""

import asyncio
import contextlib
import shutil
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg

from medlive.clock import iso_week
from medlive.config import Settings
from medlive.db import embedded
from medlive.db.schema.migrate import upgrade
from medlive.demo.samples import load_sample_threads, sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.instance.paths import index_path
from medlive.service.database import handle_key
from tests.chaos import processes
from tests.chaos.endpoint import MODEL, Endpoint, serve_endpoint
from tests.chaos.processes import Process
from tests.support.disks import mount_small_disk, unmount
from tests.support.forum import BOARD, Forum, serve_forum
from tests.support.instance import Instance, write_models

LIMIT_S = 300.0
"""A week that takes longer to its freeze, or from there, is stuck."""
SETTLE_S = 30.0
"""How long `status --check` may still name what has ended."""
THREADS = ("1402038", "1402075", "1402112", "1402149", "1402223", "1402371")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


ONCE, SERVICE = ("scheduler", "--once"), ("scheduler",)
WORKER = ("worker", "--queues", "all", "--concurrency", "4")
SLOW_WORKER = (*WORKER[:-1], "1")
"""One thread after the other."""
WEB = ("serve", "--port", str(_free_port()), "--part", "public")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FREEZE_AFTER = timedelta(minutes=30)
AT_FREEZE = _FREEZE_AFTER + timedelta(minutes=5)
_TMPFS_BYTES = 32 << 20
SERVER_BYTES = 600 << 20
"""The database's own disk, where one may be mounted."""

_SETTLED = """
SELECT (SELECT count(*) FROM thread_standings WHERE outcome IN ('kept', 'rejected', 'held')) = {threads}
   AND (SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')) = 0
   AND (SELECT count(DISTINCT command) FROM pipeline_runs WHERE iso_week = '{week}' AND outcome = 'done'
        AND command IN ('scheduler harvest sdn', 'scheduler queue')) = 2
"""
_STUCK = """
SELECT (SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')) = 0
   AND EXISTS (SELECT FROM pipeline_runs WHERE command = 'scheduler queue' AND outcome = 'done'
               AND iso_week = '{week}')
"""
_FROZEN = "SELECT count(*) FROM snapshots WHERE state = 'frozen' AND version = '{week}'"
_PARTIAL = "SELECT meta->>'partial' FROM snapshots WHERE version = '{week}'"
_RELEASED = """
SELECT (SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')) = 0
   AND EXISTS (SELECT FROM pipeline_runs WHERE iso_week = '{week}' AND command = 'scheduler announce'
               AND outcome = 'done')
"""
# The function is found before pg_catalog's, also by the defaults and functions that migrations create.
_SIMULATED_CLOCK = """
CREATE TABLE public.simulated_clock (ahead interval NOT NULL);
INSERT INTO public.simulated_clock VALUES ('0');
CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_catalog.now() + ahead FROM public.simulated_clock';
"""
# Whoever works when the clock moves on has worked until then.
_MOVE_CLOCK = """
WITH moved AS (UPDATE public.simulated_clock SET ahead = interval '{seconds} s' RETURNING ahead)
UPDATE procrastinate_workers SET last_heartbeat = pg_catalog.now() + (SELECT ahead FROM moved) RETURNING 1
"""
_TIME_PASSES = (
    "UPDATE circuits SET retry_at = now() WHERE retry_at > now() RETURNING 1",
    "UPDATE procrastinate_jobs SET scheduled_at = NULL WHERE status = 'todo' AND scheduled_at > now() RETURNING 1",
)
FROZEN = {
    "snapshots": "version = %s AND state = 'frozen'",
    "snapshot_members": "version = %s",
    "snapshot_changes": "version = %s",
    "snapshot_kept_out": "version = %s",
    "case_revisions": "case_id IN (SELECT case_id FROM snapshot_members WHERE version = %s)",
    "criteria": "case_id IN (SELECT case_id FROM snapshot_members WHERE version = %s)",
}
"""Table → which of its rows are frozen with a week."""


class StuckError(Exception):
    """A week that does not come to its end."""


@dataclass
class Week:
    """A fresh instance in the week of the stage, and what runs of it."""

    instance: Instance
    name: str
    forum: Forum
    endpoint: Endpoint
    offset: timedelta
    public: Path
    shift: Path
    running: list[Process] = field(default_factory=list)
    roles: Sequence[tuple[str, ...]] = (ONCE,)
    frozen_after: float = float("inf")
    """So many pages and replies, if not all threads are decided before; then the clock goes on to the freeze."""
    settled_at: float | None = None
    """When every thread was decided, by time.monotonic()."""
    world: timedelta = timedelta()
    """How far the week's own time has been moved on."""
    jump: timedelta = timedelta()
    """How far the processes' clocks are ahead of it, the database's is not."""
    limit_passes: bool = False
    """Whether the freeze's time limit is let pass, so that the week may be partial."""
    rest_in: str | None = None
    """The week that a partial freeze has left the rest to; None: it was not partial."""
    time_flies: bool = False
    """Whether what waits after a failure is tried again at once."""
    largest_file: int | None = None
    frozen_rows: dict[str, str] = field(default_factory=dict)
    starts: int = 0
    connection: psycopg.Connection[Any] | None = None
    own_clock: bool = False
    """Whether its database keeps the week's own time, too, instead of being told it at each look."""

    @property
    def events(self) -> int:
        """Pages and replies asked for so far: how far the week has come before its release."""
        return len(self.forum.asked) + self.endpoint.asked

    def set_clocks(
        self, *, world: timedelta | None = None, jump: timedelta | None = None
    ) -> None:
        """Move the week's own time on, or the clocks of its processes alone."""
        self.world = self.world if world is None else world
        self.jump = self.jump if jump is None else jump
        true = (self.offset + self.world).total_seconds()
        if self.own_clock:
            self.instance.change(_MOVE_CLOCK.format(seconds=true))
        told = 0.0 if self.own_clock else true
        new = self.shift.with_name("new")
        new.write_text(f"{true + self.jump.total_seconds()!r} {told!r}")
        new.replace(self.shift)

    def query(self, statement: str) -> Any:
        """A statement's single value; None while the database is away."""
        try:
            if self.connection is None or self.connection.broken:
                self.connection = psycopg.connect(
                    _plain(str(self.instance.url)), autocommit=True
                )
            row = self.connection.execute(statement.encode()).fetchone()
        except psycopg.Error:
            return None
        return row and row[0]

    def start(self, arguments: tuple[str, ...]) -> Process:
        """Begin a command, which is begun again whenever it ends."""
        self.starts += 1
        log = self.shift.with_name("log")
        process = processes.start(
            arguments, self.instance.environment(), log, self.shift, self.largest_file
        )
        self.running.append(process)
        return process

    def kill_all(self) -> None:
        """kill -9 whatever runs."""
        for process in self.running:
            process.kill()
        self.running.clear()

    @property
    def is_frozen(self) -> bool:
        return bool(self.query(_FROZEN.format(week=self.name)))

    async def live(self) -> None:
        """Bring the week to its end: released, and every thread decided. Raises StuckError."""
        await self._until("the freeze is due", self._is_to_freeze)
        if self.world < AT_FREEZE:
            self.set_clocks(world=AT_FREEZE)
        await self.finish()
        if self.limit_passes and self.query(_PARTIAL.format(week=self.name)):
            self.rest_in = iso_week(datetime.now(UTC) + self.offset + timedelta(days=7))
            self.set_clocks(world=AT_FREEZE + timedelta(days=7))
            await self._until(
                "the rest is released",
                lambda: self.query(_RELEASED.format(week=self.rest_in)),
            )

    async def finish(self) -> None:
        """Bring the week to its release, and every thread to its decision. Raises StuckError."""
        await self._until(
            "released", lambda: self.query(_RELEASED.format(week=self.name))
        )
        await self._until("decided", lambda: self.settled_at)

    def begin_next(self, moment: datetime) -> None:
        """Go on to the week of a moment, whose harvest, queue and freeze are due together."""
        self.name = iso_week(moment)
        self.settled_at, self.frozen_rows = None, {}
        self.set_clocks(world=moment - datetime.now(UTC) - self.offset)

    def _is_to_freeze(self) -> bool:
        return (
            self.settled_at is not None
            or self.world >= AT_FREEZE
            or self.events >= self.frozen_after
        )

    async def _until(self, name: str, is_reached: Callable[[], object]) -> None:
        limit = time.monotonic() + LIMIT_S
        settled = _SETTLED.format(threads=len(self.forum.threads), week=self.name)
        while not is_reached():
            if time.monotonic() > limit:
                raise StuckError(f"not {name} in {LIMIT_S:.0f} s: {self._state()}")
            if self.settled_at is None and self.query(settled):
                self.settled_at = time.monotonic()
            if self.time_flies:
                for statement in _TIME_PASSES:
                    self.query(statement)
            self._restart_ended()
            if not self.frozen_rows:
                self.note_frozen()
            await asyncio.sleep(0.05)

    async def find_problems(self, *, but: str = "") -> list[str]:
        """What `medlive status --check` names and goes on naming, while the week's processes run.

        Args:
            but: The code that it may name.
        """
        limit, named = time.monotonic() + SETTLE_S, [""]
        while named and time.monotonic() < limit:
            # `status`, whose clock is the machine's, rightly says so.
            known = but if self.rest_in is None else "recorded_ahead"
            named = []
            for line in await self.check():
                if not known or not line.startswith(f"{known}:"):
                    named.append(line)
            self._restart_ended()
        return named

    async def check(self) -> list[str]:
        """What `medlive status --check` names now; by the machine's clock unless the database has its own."""
        clocks = self.shift
        if not self.own_clock:
            clocks = self.shift.with_name("plain")
            clocks.write_text("0 0")
        found = self.shift.with_name("check")
        found.unlink(missing_ok=True)
        environment = {**self.instance.environment(), "COLUMNS": "500"}
        process = processes.start(
            ("status", "--check"), environment, found, clocks, None
        )
        await asyncio.to_thread(process.popen.join)
        return found.read_text(errors="replace").splitlines()

    def _state(self) -> str:
        jobs = "SELECT queue_name, task_name, args::text, status::text, worker_id, attempts FROM procrastinate_jobs"
        runs = "SELECT command, iso_week, outcome, counts::text FROM pipeline_runs ORDER BY id"
        try:
            return "\n".join(
                str(row) for query in (jobs, runs) for row in self.instance.rows(query)
            )
        except psycopg.Error as error:
            return str(error)

    def _restart_ended(self) -> None:
        for process in [one for one in self.running if one.ended]:
            process.popen.join()
            self.running.remove(process)
        present = [one.arguments for one in self.running]
        for arguments in self.roles:
            if present.count(arguments) < self.roles.count(arguments):
                present.append(arguments)
                self.start(arguments)
        # What a week leaves failed is a person's to try again.
        again = ("curate", "--retry-failed")
        if (
            self.settled_at is None
            and again not in present
            and self.starts > len(self.roles)
            and self.query(_STUCK.format(week=self.name))
        ):
            self.start(again)

    def note_frozen(self) -> None:
        """Keep the digests of the frozen rows as soon as there are any."""
        with suppress(psycopg.Error):
            if self.is_frozen:
                self.frozen_rows = self.digest_frozen(self.name)

    def digest_frozen(self, name: str) -> dict[str, str]:
        """Table → the digest of its rows that are frozen with a week."""
        return {
            table: self.instance.rows(
                f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {table} t WHERE {which}",
                [name],
            )[0][0]
            for table, which in FROZEN.items()
        }


@dataclass
class Stage:
    """The server, the forum and the endpoint that all rounds share."""

    folder: Path
    url: str
    forum: Forum
    endpoint: Endpoint
    started: datetime
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def home(self) -> Path:
        """The home of the server."""
        return self.folder / "server"

    def _base(self) -> datetime:
        """Now, or the nearest moment of the stage's week that leaves room on both sides."""
        monday = datetime.fromisocalendar(*self.started.isocalendar()[:2], 1).replace(
            tzinfo=UTC
        )
        hours = timedelta(hours=2)
        return min(
            max(datetime.now(UTC), monday + hours), monday + timedelta(days=7) - hours
        )

    @asynccontextmanager
    async def new_week(
        self,
        *,
        small_disk: bool = False,
        begin: datetime | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator[Week]:
        """An instance that has seen nothing yet, its processes killed at the end.

        Args:
            small_disk: Whether its home is a small disk of its own.
            begin: When its first week begins, by a clock that its database keeps, too, so that many weeks may
                follow; None: now.
            settings: Further settings.
        """
        name, base = f"week_{next(self.numbers)}", begin or self._base()
        place = self.folder / name
        place.mkdir()
        home = place / "home"
        with (
            self._database(name, own_clock=begin is not None),
            _disk(home, _TMPFS_BYTES if small_disk else 0),
        ):
            shutil.copytree(self.folder / "pristine", home, dirs_exist_ok=True)
            own = {**self._settings(base, place / "public"), **settings}
            week = Week(
                Instance(home, self._url(name), own),
                iso_week(base),
                self.forum,
                self.endpoint,
                base - datetime.now(UTC),
                place / "public",
                place / "shift",
                own_clock=begin is not None,
            )
            self.forum.begin()
            self.endpoint.begin()
            week.set_clocks()
            try:
                yield week
            finally:
                week.kill_all()
                if week.connection is not None:
                    week.connection.close()
        shutil.rmtree(place)

    def _settings(self, base: datetime, public: Path) -> dict[str, str]:
        def at(step: str, moment: datetime) -> dict[str, str]:
            name = f"MEDLIVE_SCHEDULE__{step}__"
            return {
                f"{name}WEEKDAY": _DAYS[moment.weekday()],
                f"{name}HOUR": str(moment.hour),
                f"{name}MINUTE": str(moment.minute),
            }

        begin = base - timedelta(minutes=2)
        others = {
            f"MEDLIVE_SOURCES__{name}__ENABLED": "false"
            for name in ("ICLINIQ", "DXY", "MEDLIVE")
        }
        return {
            "MEDLIVE_CONFIG": str(self.folder / "config"),
            "MEDLIVE_HARVEST__ALLOW_LOOPBACK": "true",
            "MEDLIVE_HARVEST__BACKOFF_S": "0.01",
            "MEDLIVE_SOURCES__SDN__BASE_URL": self.forum.url,
            "MEDLIVE_SOURCES__SDN__BOARDS": f'["{BOARD}"]',
            "MEDLIVE_SOURCES__SDN__MIN_INTERVAL_S": "0",
            "MEDLIVE_CURATION__MAX_ATTEMPTS": "100",
            "MEDLIVE_CURATION__CONCURRENCY": "4",
            "MEDLIVE_PUBLISH__WEEKLY": "true",
            "MEDLIVE_PUBLISH__AT": str(public),
            "MEDLIVE_WATCH__DISK_FREE_GB": "0",
            **others,
            **at("HARVEST_SOURCES__SDN", begin),
            **at("HARVEST", begin),
            **at("QUEUE", begin),
            **at("FREEZE", base + _FREEZE_AFTER),
            **at("RETENTION", base + _FREEZE_AFTER),
        }

    def _url(self, name: str) -> str:
        return self.url.replace("/medlive?", f"/{name}?")

    @contextmanager
    def _database(self, name: str, *, own_clock: bool) -> Iterator[None]:
        def admin(statement: str) -> None:
            embedded.start(self.home)
            with psycopg.connect(
                _plain(self.url).replace("/medlive?", "/postgres?"), autocommit=True
            ) as found:
                found.execute(statement.encode())

        template = "template1" if own_clock else "medlive"
        admin(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        try:
            if own_clock:
                path = "SET search_path = public, pg_catalog"
                admin(f"ALTER DATABASE {name} {path}")
                with psycopg.connect(_plain(self._url(name))) as connection:
                    connection.execute(_SIMULATED_CLOCK.encode())
                upgrade(self._url(name))
            yield
        finally:
            admin(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _disk(home: Path, size: int) -> Iterator[None]:
    """A folder, on a small disk of its own where that is wanted (its bytes are given) and can be had."""
    home.mkdir()
    if not size or not mount_small_disk(home, size):
        yield
        return
    try:
        yield
    finally:
        unmount(home)


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def _prepare(folder: Path) -> str:
    """Start the server with a migrated database, and make the home that every week's is copied from; its URL."""
    url = embedded.start(folder / "server")
    with psycopg.connect(_plain(url), autocommit=True) as connection:
        # Nothing here outlives the machine; a kill of the server loses nothing that it had written.
        for setting in (
            "fsync = off",
            "full_page_writes = off",
            "max_wal_size = '64MB'",
        ):
            connection.execute(f"ALTER SYSTEM SET {setting}".encode())
        connection.execute("SELECT pg_reload_conf()")
    upgrade(url)
    pristine = Settings(home=folder / "pristine")
    build_index(
        [open_corpus(sample_evidence_path(), name="demo")], index_path(pristine)
    )
    handle_key(pristine)
    return url


@asynccontextmanager
async def open_stage(folder: Path) -> AsyncIterator[Stage]:
    """Everything that rounds share, under an empty folder."""
    await asyncio.to_thread(
        folder.chmod, 0o755
    )  # root's server runs as another user, who must get in
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_disk(folder / "server", SERVER_BYTES))
        stack.callback(embedded.stop, folder / "server")
        url = await asyncio.to_thread(_prepare, folder)
        forum = await stack.enter_async_context(serve_forum(Forum()))
        forum.add(*(t for t in load_sample_threads() if t.thread_id in THREADS))
        endpoint = await stack.enter_async_context(serve_endpoint())
        write_models(
            folder / "config", endpoint.url, model=MODEL, max_retries=1, timeout_s=8.0
        )
        with (folder / "config" / "models.toml").open("a") as file:
            file.write(f'\n[prices."{MODEL}"]\ninput = 0\noutput = 0\n')
        yield Stage(folder, url, forum, endpoint, datetime.now(UTC))
