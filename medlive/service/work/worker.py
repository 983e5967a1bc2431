"""A worker: a process that serves some of the queues until it is stopped."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any

from medlive.config import Settings
from medlive.db.jobs import Queue
from medlive.db.runs import recorded_run
from medlive.db.session import Database
from medlive.errors import ConfigError, EvidenceUnavailable
from medlive.service.curation.curate import CurationCounts, curation_work
from medlive.service.curation.pipeline import open_pipeline
from medlive.service.curation.prove import prove_again
from medlive.service.database import open_database
from medlive.service.liveness import Liveness
from medlive.service.schedule.scheduler import step_work
from medlive.service.wiring import build_pipeline, check_local_evidence
from medlive.service.work.jobs import CURATE, PROVE, STEP, open_app, run_until_stopped
from medlive.service.work.monitor import Monitor
from medlive.service.work.readiness import NEVER, Readiness
from medlive.service.work.taken import Jobs, queue_errors


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
        health: Gets what finds out whether the worker still moves.

    Raises:
        DatabaseUnavailable: also when the database is lost later.
    """
    total, readiness, health = CurationCounts(), Readiness(), health or Liveness()
    while not stop.is_set():
        works: dict[str, Callable[..., Awaitable[None]]] = {}
        inputs: dict[str, Any] = {"queues": [queue.value for queue in queues]}
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(open_database(settings))
            works[STEP] = step_work(database, settings)
            pipeline = None
            if Queue.CURATE in queues:
                try:
                    pipeline = await stack.enter_async_context(
                        open_pipeline(settings, database)
                    )
                except (EvidenceUnavailable, ConfigError) as error:
                    readiness.pause(Queue.CURATE, error, NEVER)
            if pipeline is not None:
                known = readiness.pauses.get(Queue.CURATE)
                if known and isinstance(
                    known.obstacle, EvidenceUnavailable | ConfigError
                ):
                    readiness.resume(Queue.CURATE)
                works[CURATE] = curation_work(pipeline, total, tick=tick, retry=True)
                works[PROVE] = partial(prove_again, pipeline)
                inputs["pipeline"] = pipeline.digest
            run = await stack.enter_async_context(
                recorded_run(database, "worker", inputs)
            )
            stack.enter_context(queue_errors(database))
            app = await stack.enter_async_context(open_app(database).open_async())
            jobs = Jobs(app, database, works, readiness)
            find_missing = partial(_find_missing, settings, database)
            monitor = Monitor(app, queues, jobs, pipeline, find_missing, stop)
            health.find_problem = monitor.find_problem
            health.find_obstacle = readiness.describe
            for probe in ("find_problem", "find_obstacle"):
                stack.callback(setattr, health, probe, lambda: None)
            ready()
            await run_until_stopped(
                app,
                database,
                works,
                queues,
                stop=stop,
                grace_s=grace_s,
                concurrency=concurrency or settings.curation.concurrency,
                jobs=jobs,
                beside=[monitor.keep_looking()],
            )
            run.counts, run.failed = total.as_json(), bool(total.faults)
    return total


async def _find_missing(settings: Settings, database: Database) -> None:
    """Open what curates, and close it. Raises EvidenceUnavailable and ConfigError."""
    await asyncio.to_thread(check_local_evidence, settings)
    async with aclosing(build_pipeline(settings, database)):
        pass
