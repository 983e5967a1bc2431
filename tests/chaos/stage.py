"""One week of a small instance: its server, forum, endpoint and processes, brought to its end whatever befalls."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from medlive.clock import iso_week
from medlive.config import Settings
from medlive.db import embedded
from medlive.db.migrate import upgrade
from medlive.demo.samples import load_sample_threads, sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.service.database import handle_key
from medlive.service.paths import index_path
from tests.chaos import processes
from tests.chaos.endpoint import MODEL, Endpoint, serve_endpoint
from tests.chaos.processes import Process
from tests.support.forum import BOARD, Forum, serve_forum
from tests.support.instance import Instance, write_models

LIMIT_S = 300.0
"""A week that takes longer to its freeze, or from there, is stuck."""
THREADS = ("1402038", "1402075", "1402112", "1402149", "1402223", "1402371")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


ONCE, SERVICE = ("scheduler", "--once"), ("scheduler",)
WORKER = ("worker", "--queues", "all", "--concurrency", "4")
WEB = ("serve", "--port", str(_free_port()), "--part", "public")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FREEZE_AFTER = timedelta(minutes=30)
AT_FREEZE = _FREEZE_AFTER + timedelta(minutes=5)
_TMPFS_BYTES = 32 << 20

_SETTLED = """
SELECT (SELECT count(*) FROM thread_standings WHERE outcome IN ('kept', 'rejected', 'held')) = {threads}
   AND (SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')) = 0
   AND (SELECT count(DISTINCT command) FROM pipeline_runs WHERE iso_week = '{week}' AND outcome = 'done'
        AND command IN ('scheduler harvest sdn', 'scheduler queue')) = 2
"""
_STUCK = """
SELECT (SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')) = 0
   AND EXISTS (SELECT FROM pipeline_runs WHERE command = 'scheduler queue' AND outcome = 'done')
"""
_RELEASED = """
SELECT (SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')) = 0
   AND EXISTS (SELECT FROM pipeline_runs WHERE iso_week = '{week}' AND command = 'scheduler announce'
               AND outcome = 'done')
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
    settled_at: float | None = None
    """When every thread was decided and the clock went on to the freeze, by time.monotonic()."""
    time_flies: bool = False
    """Whether what waits after a failure is tried again at once."""
    largest_file: int | None = None
    frozen_rows: dict[str, str] = field(default_factory=dict)
    starts: int = 0
    connection: psycopg.Connection[Any] | None = None

    @property
    def events(self) -> int:
        """Pages and replies asked for so far: how far the week has come before its release."""
        return len(self.forum.asked) + self.endpoint.asked

    def set_clock(self, ahead: timedelta) -> None:
        """Let the processes' clocks go ahead of the week's own time."""
        new = self.shift.with_name("new")
        new.write_text(repr((self.offset + ahead).total_seconds()))
        new.replace(self.shift)

    def query(self, statement: str) -> Any:
        """A statement's single value; None while the database is away."""
        try:
            if self.connection is None or self.connection.broken:
                self.connection = psycopg.connect(_plain(str(self.instance.url)), autocommit=True)
            row = self.connection.execute(statement.encode()).fetchone()
        except psycopg.Error:
            return None
        return row and row[0]

    def start(self, arguments: tuple[str, ...]) -> Process:
        """Begin a command, which is begun again whenever it ends."""
        self.starts += 1
        log = self.shift.with_name("log")
        process = processes.start(arguments, self.instance.environment(), log, self.shift, self.largest_file)
        self.running.append(process)
        return process

    def kill_all(self) -> None:
        """kill -9 whatever runs."""
        for process in self.running:
            process.kill()
        self.running.clear()

    async def live(self) -> None:
        """Bring the week to its end: settled before the freeze, then released. Raises StuckError."""
        threads = len(self.forum.threads)
        await self._until(_SETTLED.format(threads=threads, week=self.name))
        self.settled_at = time.monotonic()
        self.set_clock(AT_FREEZE)
        await self._until(_RELEASED.format(week=self.name))

    async def _until(self, reached: str) -> None:
        limit = time.monotonic() + LIMIT_S
        while not self.query(reached):
            if time.monotonic() > limit:
                raise StuckError(f"not reached in {LIMIT_S:.0f} s: {' '.join(reached.split())}: {self._state()}")
            if self.time_flies:
                for statement in _TIME_PASSES:
                    self.query(statement)
            self._restart_ended()
            if self.settled_at and not self.frozen_rows:
                self.note_frozen()
            await asyncio.sleep(0.05)

    def _state(self) -> str:
        jobs = (
            "SELECT queue_name, task_name, args::text, status::text, worker_id, attempts FROM procrastinate_jobs"
        )
        runs = "SELECT command, iso_week, outcome, counts::text FROM pipeline_runs ORDER BY id"
        return "\n".join(str(row) for query in (jobs, runs) for row in self.instance.rows(query))

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
            and self.query(_STUCK)
        ):
            self.start(again)

    def note_frozen(self) -> None:
        """Keep the digests of the frozen rows as soon as there are any."""
        with suppress(psycopg.Error):
            if self.query(f"SELECT count(*) FROM snapshots WHERE state = 'frozen' AND version = '{self.name}'"):
                self.frozen_rows = self.digest_frozen()

    def digest_frozen(self) -> dict[str, str]:
        """Table → the digest of its rows that are frozen with the week."""
        return {
            table: self.instance.rows(
                f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {table} t WHERE {which}", [self.name]
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
        monday = datetime.fromisocalendar(*self.started.isocalendar()[:2], 1).replace(tzinfo=UTC)
        hours = timedelta(hours=2)
        return min(max(datetime.now(UTC), monday + hours), monday + timedelta(days=7) - hours)

    @asynccontextmanager
    async def new_week(self, *, small_disk: bool = False) -> AsyncIterator[Week]:
        """An instance that has seen nothing yet, its processes killed at the end."""
        name, base = f"week_{next(self.numbers)}", self._base()
        place = self.folder / name
        place.mkdir()
        home = place / "home"
        with self._database(name), _disk(home, small_disk):
            shutil.copytree(self.folder / "pristine", home, dirs_exist_ok=True)
            url = self.url.replace("/medlive?", f"/{name}?")
            week = Week(
                Instance(home, url, self._settings(base, place / "public")), iso_week(base), self.forum,
                self.endpoint, base - datetime.now(UTC), place / "public", place / "shift",
            )  # fmt: skip
            self.forum.begin()
            self.endpoint.begin()
            week.set_clock(timedelta())
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
            return {f"{name}WEEKDAY": _DAYS[moment.weekday()], f"{name}HOUR": str(moment.hour),
                    f"{name}MINUTE": str(moment.minute)}  # fmt: skip

        begin = base - timedelta(minutes=2)
        others = {f"MEDLIVE_SOURCES__{name}__ENABLED": "false" for name in ("ICLINIQ", "DXY", "MEDLIVE")}
        return {
            "MEDLIVE_CONFIG": str(self.folder / "config"),
            "MEDLIVE_HARVEST__ALLOW_LOOPBACK": "true", "MEDLIVE_HARVEST__BACKOFF_S": "0.01",
            "MEDLIVE_SOURCES__SDN__BASE_URL": self.forum.url, "MEDLIVE_SOURCES__SDN__BOARDS": f'["{BOARD}"]',
            "MEDLIVE_SOURCES__SDN__MIN_INTERVAL_S": "0", "MEDLIVE_CURATION__MAX_ATTEMPTS": "100",
            "MEDLIVE_CURATION__CONCURRENCY": "4", "MEDLIVE_PUBLISH__WEEKLY": "true",
            "MEDLIVE_PUBLISH__AT": str(public), **others, **at("HARVEST_SOURCES__SDN", begin),
            **at("HARVEST", begin), **at("QUEUE", begin), **at("FREEZE", base + _FREEZE_AFTER),
            **at("RETENTION", base + _FREEZE_AFTER),
        }  # fmt: skip

    @contextmanager
    def _database(self, name: str) -> Iterator[None]:
        def admin(statement: str) -> None:
            embedded.start(self.home)
            with psycopg.connect(_plain(self.url).replace("/medlive?", "/postgres?"), autocommit=True) as found:
                found.execute(statement.encode())

        admin(f"CREATE DATABASE {name} TEMPLATE medlive STRATEGY FILE_COPY")
        try:
            yield
        finally:
            admin(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _disk(home: Path, small: bool) -> Iterator[None]:
    """The home's folder, on a small disk of its own where that is wanted and can be had."""
    home.mkdir()
    if not small or not _mounted(home):
        yield
        return
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def _mounted(home: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={_TMPFS_BYTES}", "tmpfs", str(home)]
    return shutil.which("mount") is not None and not subprocess.run(command, capture_output=True).returncode


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def _prepare(folder: Path) -> str:
    """Start the server with a migrated database, and make the home that every week's is copied from; its URL."""
    folder.chmod(0o755)  # root's server runs as another user, who must get in
    (folder / "server").mkdir()
    url = embedded.start(folder / "server")
    with psycopg.connect(_plain(url), autocommit=True) as connection:
        # Nothing here outlives the machine; a kill of the server loses nothing that it had written.
        for setting in ("fsync", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off".encode())
        connection.execute("SELECT pg_reload_conf()")
    upgrade(url)
    pristine = Settings(home=folder / "pristine")
    build_index([open_corpus(sample_evidence_path(), name="demo")], index_path(pristine))
    handle_key(pristine)
    return url


@asynccontextmanager
async def open_stage(folder: Path) -> AsyncIterator[Stage]:
    """Everything that rounds share, under an empty folder."""
    url = await asyncio.to_thread(_prepare, folder)
    try:
        async with contextlib.AsyncExitStack() as stack:
            forum = await stack.enter_async_context(serve_forum(Forum()))
            forum.add(*(t for t in load_sample_threads() if t.thread_id in THREADS))
            endpoint = await stack.enter_async_context(serve_endpoint())
            write_models(folder / "config", endpoint.url, model=MODEL, max_retries=1, timeout_s=2.0)
            yield Stage(folder, url, forum, endpoint, datetime.now(UTC))
    finally:
        embedded.stop(folder / "server")
