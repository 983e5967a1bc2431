"""A worker: curates queued threads until it is stopped."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from medlive.config import Settings
from medlive.db.runs import recorded_run
from medlive.service.curation.curate import CurationCounts, curation_work
from medlive.service.database import open_database
from medlive.service.jobs import open_app, run_until_stopped
from medlive.service.wiring import build_pipeline


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Event]:
    """An event set by the first SIGTERM or SIGINT; the second has its default effect."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def request_stop() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, request_stop)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def run_worker(
    settings: Settings,
    stop: asyncio.Event,
    *,
    ready: Callable[[], None] = lambda: None,
    tick: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Curate queued threads until `stop` is set, finish those begun, and return the counts.

    `ready` is called when the worker has started, `tick` with the number of threads decided so far. Raises
    DatabaseUnavailable, IndexMissing, and ConfigError.
    """
    total = CurationCounts()
    async with (
        open_database(settings) as database,
        aclosing(build_pipeline(settings, database)) as pipeline,
        recorded_run(database, "worker", {"pipeline": pipeline.digest}) as run,
    ):
        async with open_app(database).open_async() as app:
            ready()
            work = curation_work(pipeline, total, tick=tick)
            await run_until_stopped(app, work, concurrency=pipeline.concurrency, stop=stop)
        run.counts, run.failed = total.as_json(), bool(total.faults)
    return total.as_json()
