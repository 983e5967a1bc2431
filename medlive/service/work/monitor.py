"""What goes on beside a worker's jobs: it is reported, lost threads are found, and pauses end when they can."""

import logging
import os
import socket
import time
from asyncio import Event, sleep
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import procrastinate

from medlive.clock import now
from medlive.db.jobs import Queue
from medlive.db.session import check_room
from medlive.db.tables.work import WorkerState
from medlive.db.workers import add_worker, remove_worker, report_worker
from medlive.errors import (
    CircuitOpen,
    ConfigError,
    DatabaseForbidden,
    DatabaseFull,
    DatabaseUnavailable,
    EvidenceUnavailable,
    MedliveError,
)
from medlive.service.week_budget import WeekSpent
from medlive.service.wiring import Pipeline
from medlive.service.work.jobs import HEARTBEAT_S
from medlive.service.work.lost_threads import queue_lost
from medlive.service.work.taken import Jobs

SWEEP_S: Final = 60.0
"""How often threads are looked for that wait for nothing."""
MISSING_S: Final = 30.0
"""How often an evidence index or a key is looked for that was missing or damaged."""
LATE_S: Final = 60.0
"""A worker that has not looked for so long hangs."""

_log = logging.getLogger(__name__)


@dataclass
class Monitor:
    """Looks after one worker."""

    app: procrastinate.App
    queues: Sequence[Queue]
    jobs: Jobs
    # What curates; None where the queue is not served, or something is missing for it
    pipeline: Pipeline | None
    # Opens what curates; raises EvidenceUnavailable and ConfigError
    find_missing: Callable[[], Awaitable[None]]
    stop: Event  # Set when the worker is to end
    number: int | None = None
    """The worker's; None: it is not reported as yet."""
    looked_at: float = field(default_factory=time.monotonic)
    searched_at: float = field(default_factory=time.monotonic)
    swept_at: float = float("-inf")
    is_forbidden: bool = False

    async def keep_looking(self) -> None:
        """Look with every heartbeat, until cancelled. Raises DatabaseUnavailable."""
        try:
            while True:
                try:
                    await self.look()
                except DatabaseFull as error:
                    # Without room no jobs are taken either.
                    for queue in self.queues:
                        self.jobs.readiness.pause(queue, error)
                except DatabaseForbidden as error:
                    if not self.is_forbidden:
                        what = "this worker cannot be reported"
                        _log.warning("%s: %s (%s)", what, error.message, error.hint)
                    self.is_forbidden = True
                self.looked_at = time.monotonic()
                await sleep(HEARTBEAT_S)
        finally:
            with suppress(DatabaseUnavailable, DatabaseForbidden):
                if self.number is not None:
                    async with self.jobs.database.begin() as session:
                        await remove_worker(session, self.number)

    async def look(self) -> None:
        """Report the worker, end its pauses where they are over, and queue lost threads."""
        readiness = self.jobs.readiness
        for queue, pause in [*readiness.pauses.items()]:
            await self._end_pause(queue, pause.obstacle)
        reason = None if self.stop.is_set() else readiness.describe()
        state = WorkerState.STOPPING if self.stop.is_set() else WorkerState.WORKING
        async with self.jobs.database.begin() as session:
            if self.number is None:
                self.number = await add_worker(
                    session, socket.gethostname(), os.getpid(), self.queues
                )
            await report_worker(
                session,
                self.number,
                WorkerState.WAITING if reason else state,
                reason,
                sorted(readiness.pauses),
            )
        if time.monotonic() - self.swept_at >= SWEEP_S:
            self.swept_at = time.monotonic()
            await queue_lost(self.app, self.jobs.database)

    def find_problem(self) -> str | None:
        """Why the worker does not go on although nothing keeps it from that; None: it does."""
        if (late_s := time.monotonic() - self.looked_at) > LATE_S:
            return f"the worker has not reported for {late_s:.0f} s"
        return None

    async def _end_pause(self, queue: str, obstacle: MedliveError) -> None:
        """End a pause where it is certain that the obstacle is gone; else a job that is let through finds out."""
        readiness = self.jobs.readiness
        match obstacle:
            case DatabaseFull():
                with suppress(DatabaseFull):
                    await check_room(self.jobs.database)
                    readiness.resume(queue)
            case WeekSpent() if readiness.select([queue]):
                readiness.resume(queue)
            case CircuitOpen() if self.pipeline is not None:
                openings = await self.pipeline.openings()
                if not openings:
                    readiness.resume(queue)
                elif all(opening.is_due(now()) for opening in openings):
                    readiness.hasten(queue)  # as after another process moved its time
            case EvidenceUnavailable() | ConfigError():
                is_config = isinstance(obstacle, ConfigError)
                is_soon = time.monotonic() - self.searched_at < MISSING_S
                if is_soon or (is_config and self.pipeline is not None):
                    return
                self.searched_at = time.monotonic()
                with suppress(EvidenceUnavailable, ConfigError):
                    await self.find_missing()
                    self.jobs.stop()  # it begins anew
