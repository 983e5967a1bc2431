"""A worker: a process that serves some of the queues until it is stopped."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from medlive.config import Settings
from medlive.db.jobs import Queue
from medlive.db.runs import recorded_run
from medlive.service.curation.curate import CurationCounts, curation_work
from medlive.service.curation.pipeline import open_pipeline
from medlive.service.database import open_database
from medlive.service.jobs import CURATE, STEP, open_app, run_until_stopped
from medlive.service.schedule.scheduler import step_work


async def run_worker(
    settings: Settings,
    stop: asyncio.Event,
    queues: Sequence[Queue],
    *,
    concurrency: int | None = None,
    grace_s: float | None = None,
    ready: Callable[[], None] = lambda: None,
    tick: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Do the jobs of the queues until `stop` is set, finish those begun, and return the counts of curation.

    Args:
        settings: The settings; `curate` needs its evidence index and engines, other queues do not.
        stop: Ends the worker when set.
        queues: What to serve.
        concurrency: Most jobs at once; None for as configured.
        grace_s: Seconds after `stop` in which jobs may end; then they wait for another worker. None: no limit.
        ready: Called when the worker has started.
        tick: Called with the number of threads decided so far.

    Raises:
        DatabaseUnavailable: also when the database is lost later.
        IndexMissing, ConfigError: if threads cannot be curated here.
    """
    total = CurationCounts()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(settings))
        works: dict[str, Callable[..., Awaitable[None]]] = {STEP: step_work(database, settings)}
        inputs: dict[str, Any] = {"queues": [queue.value for queue in queues]}
        if Queue.CURATE in queues:
            pipeline = await stack.enter_async_context(open_pipeline(settings, database))
            works[CURATE] = curation_work(pipeline, total, tick=tick, retry=True)
            inputs["pipeline"] = pipeline.digest
        run = await stack.enter_async_context(recorded_run(database, "worker", inputs))
        app = await stack.enter_async_context(open_app(database).open_async())
        ready()
        await run_until_stopped(
            app, database, works, queues, concurrency=concurrency or settings.curation.concurrency,
            stop=stop, grace_s=grace_s,
        )  # fmt: skip
        run.counts, run.failed = total.as_json(), bool(total.faults)
    return total.as_json()
