"""A worker: a process that serves some of the queues until it is stopped."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from medlive.config import Settings
from medlive.db.jobs import Queue
from medlive.db.runs import recorded_run
from medlive.errors import CheckFailed
from medlive.evidence.encoder import Encoder, open_encoder
from medlive.service.curation.curate import CurationCounts, curation_work
from medlive.service.curation.pipeline import open_pipeline
from medlive.service.database import open_database
from medlive.service.jobs import CURATE, EMBED, STEP, open_app, run_until_stopped
from medlive.service.paths import encoder_settings
from medlive.service.schedule.scheduler import step_work

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
        if Queue.EMBED in queues:
            works[EMBED] = embed_work(settings.home, partial(open_encoder, settings=encoder_settings(settings)))
        if Queue.CURATE in queues:
            pipeline = await stack.enter_async_context(open_pipeline(settings, database))
            works[CURATE] = curation_work(pipeline, total, tick=tick, retry=True)
            inputs["pipeline"] = pipeline.digest
        run = await stack.enter_async_context(recorded_run(database, "worker", inputs))
        app = await stack.enter_async_context(open_app(database).open_async())
        ready()
        await run_until_stopped(
            app, database, works, queues, stop=stop, grace_s=grace_s,
            # A shard takes the whole GPU: the next one is for another machine.
            concurrency=concurrency or (1 if queues == [Queue.EMBED] else settings.curation.concurrency),
        )  # fmt: skip
        run.counts, run.failed = total.as_json(), bool(total.faults)
    return total.as_json()


def embed_work(home: Path, opening: Callable[[str], Encoder]) -> Callable[..., Awaitable[None]]:
    """The work of the queue `embed`: one shard at a time, by encoders that stay open."""
    from medlive.evidence.build import embed_shard  # imports NumPy

    opened: dict[str, Encoder] = {}
    turn = asyncio.Lock()

    async def work(index: str, data: str, encoder: str, first: int, end: int) -> None:
        folder, stopped = home / index, threading.Event()

        def go_on(_: int) -> None:
            if stopped.is_set():
                raise CheckFailed("stopped")

        def embed() -> None:
            if encoder not in opened:
                opened[encoder] = opening(encoder)
            done = embed_shard(folder, folder / data, opened[encoder], first, end, go_on)
            _log.info("embedded %d passages from number %d on", done, first)

        async with turn:
            # The build that wanted it may have ended.
            if not (folder / data).is_dir():
                return
            try:
                await asyncio.to_thread(embed)
            except asyncio.CancelledError:
                stopped.set()
                raise

    return work
