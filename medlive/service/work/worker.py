"""A worker (`run_worker`): a process that does the jobs of some queues until it is stopped.

Meanwhile a `Monitor` reports it to the database, and ends pauses whose obstacle is gone.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from medlive.config import Settings
from medlive.db.jobs import Queue, add_worker, remove_worker, report_worker
from medlive.db.runs import recorded_run
from medlive.db.session import check_room
from medlive.db.tables.work import WorkerState
from medlive.errors import (
    CircuitOpen,
    ConfigError,
    DatabaseForbidden,
    DatabaseFull,
    DatabaseUnavailable,
    EvidenceUnavailable,
    MedliveError,
)
from medlive.llm.budget import Budget
from medlive.service.curation.curate import CurationCounts, curation_works
from medlive.service.database import open_database
from medlive.service.schedule.scheduler import step_work
from medlive.service.waiting import Liveness
from medlive.service.week_budget import WeekSpent
from medlive.service.wiring import (
    Pipeline,
    new_budget,
    open_pipeline,
)

from .jobs import (
    HEARTBEAT_S,
    open_app,
    run_until_stopped,
)
from .taken import (
    NEVER,
    STEP,
    Jobs,
    Readiness,
    Work,
    queue_errors,
)

MISSING_S = 30.0
"""Seconds between looks for an evidence index or a key that was missing or damaged."""

_log = logging.getLogger(__name__)


async def run_worker(
    settings: Settings,
    stop: asyncio.Event,
    queues: Sequence[Queue],
    *,
    concurrency: int | None = None,
    grace_s: float | None = None,
    ready: Callable[[], None] = lambda: None,
    tick: Callable[[int], None] = lambda _: None,
    health: Liveness | None = None,
    budget: Budget | None = None,
) -> CurationCounts:
    """Do the jobs of the queues until `stop` is set, finish those begun, and return the counts of curation.

    What keeps it from jobs of a queue is logged once and stored with the worker; it goes on by itself.

    Args:
        settings: The settings; `curate` needs its evidence index and engines, other queues do not.
        stop: Ends the worker when set.
        queues: What to serve.
        concurrency: Most jobs at once; None for as configured.
        grace_s: Seconds after `stop` in which jobs may end; then they wait for another worker. None: no limit.
        ready: Called when the worker has started.
        tick: Called with the number of threads decided so far.
        health: Gets what says why the worker waits.
        budget: Of the worker's life, where that goes on after a lost database; None: of this call.

    Raises:
        DatabaseUnavailable: also when the database is lost later.
    """
    total, readiness, health = CurationCounts(), Readiness(), health or Liveness()
    budget = budget or new_budget(settings)
    while not stop.is_set():
        inputs: dict[str, Any] = {"queues": queues}
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(open_database(settings))
            works: dict[str, Work] = {STEP: step_work(database, settings)}
            pipeline = None
            if Queue.CURATE in queues:
                try:
                    pipeline = await stack.enter_async_context(
                        open_pipeline(settings, database, budget=budget)
                    )
                except (EvidenceUnavailable, ConfigError) as error:
                    readiness.pause(Queue.CURATE, error, NEVER)
            if pipeline:
                readiness.resume(Queue.CURATE)
                works |= curation_works(pipeline, total, tick=tick, retry=True)
                inputs["pipeline"] = pipeline.digest
            run = await stack.enter_async_context(
                recorded_run(database, "worker", inputs)
            )
            stack.enter_context(queue_errors(database))
            app = await stack.enter_async_context(open_app(database).open_async())
            jobs = Jobs(app, database, works, readiness)
            monitor = Monitor(queues, jobs, pipeline, settings, stop)
            health.find_obstacle = readiness.describe
            ready()
            await run_until_stopped(
                jobs,
                queues,
                stop=stop,
                grace_s=grace_s,
                concurrency=concurrency or settings.curation.concurrency,
                beside=[monitor.keep_looking()],
            )
            run.counts, run.failed = total.as_json(), bool(total.faults)
    return total


@dataclass
class Monitor:
    """Reports one worker to the database, and ends the pauses of its queues."""

    queues: Sequence[Queue]
    jobs: Jobs
    # What curates; None where the queue is not served, or something is missing for it
    pipeline: Pipeline | None
    settings: Settings
    stop: asyncio.Event  # Set when the worker is to end
    number: int | None = None
    """The worker's number; None: it is not reported as yet."""
    # When a missing index or key was last looked for
    searched_at: float = field(default_factory=time.monotonic)
    is_forbidden: bool = False
    """Whether the log says already that a right to report the worker is missing."""

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
                        _log.warning("this worker cannot be reported: %s", error.whole)
                    self.is_forbidden = True
                await asyncio.sleep(HEARTBEAT_S)
        finally:
            with suppress(DatabaseUnavailable, DatabaseForbidden):
                if self.number is not None:
                    await self.jobs.database.ask(remove_worker, self.number)

    async def look(self) -> None:
        """Report the worker, and end its pauses where they are over."""
        readiness = self.jobs.readiness
        for queue, pause in [*readiness.pauses.items()]:
            await self._end_pause(queue, pause.obstacle)
        reason = readiness.describe()
        state: WorkerState = "waiting" if reason else "working"
        if self.stop.is_set():
            state, reason = "stopping", None
        async with self.jobs.database.begin() as session:
            if self.number is None:
                self.number = await add_worker(
                    session, socket.gethostname(), os.getpid(), self.queues
                )
            await report_worker(
                session,
                self.number,
                state,
                reason,
                sorted(readiness.pauses),
            )

    async def _end_pause(self, queue: str, obstacle: MedliveError) -> None:
        """End a pause where it is certain that the obstacle is gone; else a job that is let through finds out."""
        readiness = self.jobs.readiness
        match obstacle:
            case DatabaseFull():
                with suppress(DatabaseFull):
                    await check_room(self.jobs.database)
                    readiness.resume(queue)
            case WeekSpent() if readiness.is_open(queue):
                readiness.resume(queue)
            case CircuitOpen() if self.pipeline:
                if not await self.pipeline.openings():
                    readiness.resume(queue)
            case ConfigError() if self.pipeline:
                pass
            case EvidenceUnavailable() | ConfigError():
                if time.monotonic() - self.searched_at < MISSING_S:
                    return
                self.searched_at = time.monotonic()
                with suppress(EvidenceUnavailable, ConfigError):
                    async with open_pipeline(self.settings, self.jobs.database):
                        self.jobs.stop()  # `run_worker` begins again
