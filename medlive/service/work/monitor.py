"""What goes on beside a worker's jobs: it is reported, lost threads are found, and pauses end when they can."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import procrastinate

from medlive.clock import now
from medlive.db.jobs import Queue
from medlive.db.session import Database, check_room
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
from medlive.llm.circuit import Opening
from medlive.service.week_budget import WeekSpent
from medlive.service.wiring import Pipeline
from medlive.service.work.jobs import HEARTBEAT_S
from medlive.service.work.lost_threads import queue_lost
from medlive.service.work.taken import TakenJobs

SWEEP_S: Final = 60.0
"""How often threads are looked for that wait for nothing."""
MISSING_S: Final = 30.0
"""How often an evidence index or a key is looked for that was missing or damaged."""
LATE_S: Final = 60.0
"""A worker that has not looked for so long hangs."""
STUCK_S: Final = 300.0
"""So does one that holds threads of which none has moved for so long, while nothing is asked of an endpoint."""

_log = logging.getLogger(__name__)


@dataclass
class Monitor:
    """Looks after one worker."""

    app: procrastinate.App
    database: Database
    queues: Sequence[Queue]
    taken: TakenJobs
    # What curates; None where the queue is not served, or something is missing for it
    pipeline: Pipeline | None
    # Opens what curates; raises EvidenceUnavailable and ConfigError
    find_missing: Callable[[], Awaitable[None]]
    stop: asyncio.Event  # Set when the worker is to end

    def __post_init__(self) -> None:
        """Begins with `reporting`."""
        self._readiness = self.taken.readiness
        self._number: int | None = None
        self._looked_at = self._searched_at = time.monotonic()
        self._swept_at = float("-inf")
        self._forbidden = False
        self.ended = asyncio.Event()
        """Set when the worker is to end, or to begin anew."""
        self.found_missing = False
        """Whether it is to begin anew: what was missing is there."""

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        """Enter the worker among the others while the block runs."""
        await self._guard(self._enter)
        relay = asyncio.create_task(self._end_with_stop())
        try:
            yield
        finally:
            relay.cancel()
            with suppress(DatabaseUnavailable, DatabaseForbidden):
                if self._number is not None:
                    async with self.database.begin() as session:
                        await remove_worker(session, self._number)

    async def keep_looking(self) -> None:
        """Look with every heartbeat. Raises DatabaseUnavailable."""
        while True:
            await self._guard(self._look)
            self._looked_at = time.monotonic()
            await asyncio.sleep(HEARTBEAT_S)

    def find_problem(self) -> str | None:
        """Why the worker does not go on although nothing keeps it from that; None: it does."""
        moment = time.monotonic()
        if (late_s := moment - self._looked_at) > LATE_S:
            return f"the worker has not reported for {late_s:.0f} s"
        endpoints = self.pipeline.endpoints.by_place if self.pipeline else {}
        limiters = list(endpoints.values())
        if any(limiter.state().under_way for limiter in limiters):
            return None
        idle_s = moment - self.taken.moved_at
        for limiter in limiters:
            idle_s = min(idle_s, limiter.idle_s)
        taken = self.taken.count(Queue.CURATE)
        if taken and idle_s > STUCK_S:
            return f"{taken} threads have not moved for {idle_s:.0f} s"
        return None

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what only reports: without room no jobs are taken either, without the right the worker goes on."""
        try:
            await work()
        except DatabaseFull as error:
            for queue in self.queues:
                self._readiness.pause(queue, error)
        except DatabaseForbidden as error:
            if not self._forbidden:
                _log.warning(
                    "this worker cannot be reported: %s (%s)", error.message, error.hint
                )
            self._forbidden = True

    async def _enter(self) -> None:
        async with self.database.begin() as session:
            self._number = await add_worker(
                session, socket.gethostname(), os.getpid(), self.queues
            )

    async def _end_with_stop(self) -> None:
        await self.stop.wait()
        self.ended.set()

    async def _look(self) -> None:
        for queue, pause in [*self._readiness.pauses.items()]:
            if await self._is_over(pause.obstacle):
                self._readiness.resume(queue)
            elif isinstance(pause.obstacle, CircuitOpen) and await self._is_due():
                self._readiness.hasten(queue)
        await self._report()
        if time.monotonic() - self._swept_at >= SWEEP_S:
            self._swept_at = time.monotonic()
            await queue_lost(self.app, self.database)

    async def _report(self) -> None:
        reason = None if self.stop.is_set() else self._readiness.describe()
        state = WorkerState.STOPPING if self.stop.is_set() else WorkerState.WORKING
        state = WorkerState.WAITING if reason else state
        if self._number is not None:
            async with self.database.begin() as session:
                await report_worker(
                    session,
                    self._number,
                    state,
                    reason,
                    sorted(self._readiness.pauses),
                )

    async def _is_over(self, obstacle: MedliveError) -> bool:
        """Whether it is certain that an obstacle is gone; else a job that is let through finds out."""
        if isinstance(obstacle, DatabaseFull):
            with suppress(DatabaseFull):
                await check_room(self.database)
                return True
            return False
        lacks_setting = self.pipeline is None and isinstance(obstacle, ConfigError)
        if isinstance(obstacle, EvidenceUnavailable) or lacks_setting:
            await self._look_for_missing()
            return False
        return isinstance(obstacle, CircuitOpen | WeekSpent) and await self._is_free()

    async def _is_free(self) -> bool:
        """Whether no circuit of the pipeline is open and the week's budget is not spent."""
        if self.pipeline is None or await self._openings():
            return False
        try:
            await self.pipeline.check_ready()
        except (CircuitOpen, WeekSpent):
            return False
        return True

    async def _is_due(self) -> bool:
        """Whether every open circuit lets a call through by now, as after another process moved its time."""
        openings = await self._openings()
        return all(opening.is_due(now()) for opening in openings)

    async def _openings(self) -> list[Opening]:
        openings = []
        for circuit in self.pipeline.circuits if self.pipeline else ():
            opening = await circuit.opening()
            if opening is not None:
                openings.append(opening)
        return openings

    async def _look_for_missing(self) -> None:
        if time.monotonic() - self._searched_at < MISSING_S:
            return
        self._searched_at = time.monotonic()
        with suppress(EvidenceUnavailable, ConfigError):
            await self.find_missing()
            self.found_missing = True
            self.ended.set()
