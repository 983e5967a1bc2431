"""Processes of medlive that start in milliseconds: forked from one that has imported it, and killed at will."""

import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import SimpleNamespace

# What the commands import when they run: the server of forks has it once, for all.
import pyarrow.parquet  # noqa: F401

import medlive.__main__
import medlive.cli.curate
import medlive.cli.main
import medlive.cli.operations.schedule
import medlive.service.release.publish
import medlive.service.watch.status
import medlive.service.work.worker
import medlive.sources.registry
import medlive.web.app
from medlive import clock
from medlive.db import jobs as reported
from medlive.db import session
from medlive.service import database
from medlive.service.schedule import scheduler, steps
from medlive.service.watch import notify
from medlive.service.work import jobs, taken, worker

# As configured, a dead worker is known after 15 s. Fresh ones on a busy machine may be taken for dead, too.
WAKE_S, HEARTBEAT_S, STALLED_AFTER_S, RETRY_S = 0.1, 0.5, 4.0, 0.3
_HURRIED = (
    (jobs, "HEARTBEAT_S", HEARTBEAT_S),
    (worker, "HEARTBEAT_S", HEARTBEAT_S),
    (jobs, "STALLED_AFTER_S", STALLED_AFTER_S),
    (reported, "STALLED_AFTER_S", STALLED_AFTER_S),
    (database, "RETRY_S", RETRY_S),
    (database, "MOST_RETRY_S", 2.0),
    (taken, "RETRY_S", RETRY_S),
    (notify, "LOOK_S", 5.0),
    (taken, "FIRST_WAIT_S", 1.0),
    (taken, "MOST_WAIT_S", 3.0),
    (scheduler, "LOOK_AGAIN_MINUTES", 0.05),
    (steps, "RETRY_AFTER", timedelta(seconds=3)),
    (steps, "MOST_RETRY_AFTER", timedelta(seconds=6)),
)
"""What takes seconds instead of minutes or hours, so that a round is short."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


@dataclass
class Process:
    """A command that runs."""

    role: str
    arguments: tuple[str, ...]
    popen: ForkServerProcess
    log: Path

    @property
    def ended(self) -> bool:
        return not self.popen.is_alive()

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.popen.pid is not None and self.popen.is_alive():
            os.kill(self.popen.pid, signal.SIGKILL)
        self.popen.join()


def start(
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
    log: Path,
    clocks: Path,
    largest_file: int | None,
) -> Process:
    """Begin a command.

    Args:
        arguments: The command line.
        environment: All of its environment.
        log: What it writes to stdout and stderr is added to this file.
        clocks: The file of the seconds by which its own clock and the database's go ahead of the machine's, read
            at each look.
        largest_file: The most bytes that it may write into one file; None for no limit.
    """
    popen = _context.Process(
        target=_run, args=(arguments, dict(environment), log, clocks, largest_file)
    )
    popen.start()
    return Process(arguments[0], arguments, popen, log)


def _run(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    log: Path,
    clocks: Path,
    largest_file: int | None,
) -> None:
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.clear()
    os.environ.update(environment)
    _shift_clocks(clocks)
    for module, name, value in _HURRIED:
        assert hasattr(module, name), name
        setattr(module, name, value)
    if largest_file is not None:
        resource.setrlimit(
            resource.RLIMIT_FSIZE,
            (largest_file, resource.getrlimit(resource.RLIMIT_FSIZE)[1]),
        )
    sys.exit(medlive.__main__.run(list(arguments)))


def _shift_clocks(clocks: Path) -> None:
    """Let now() and, in every module that has imported it, the clock of the database go ahead."""
    real_read = session.read_clock

    def ahead() -> list[timedelta]:
        return [timedelta(seconds=float(part)) for part in clocks.read_text().split()]

    def shifted(zone: tzinfo | None = None) -> datetime:
        return datetime.now(zone) + ahead()[0]

    async def read_clock(transaction: session.Session) -> datetime:
        return await real_read(transaction) + ahead()[1]

    # Every module calls the one now(), which looks the name up each time.
    vars(clock)["datetime"] = SimpleNamespace(
        now=shifted,
        fromisoformat=datetime.fromisoformat,
        fromisocalendar=datetime.fromisocalendar,
    )
    for name, module in list(sys.modules.items()):
        read = getattr(module, "read_clock", None)
        if name.startswith("medlive.") and read is real_read:
            vars(module)["read_clock"] = read_clock
    defaults = scheduler.run_scheduler.__kwdefaults__
    assert defaults is not None
    defaults.update(wake_s=WAKE_S)
