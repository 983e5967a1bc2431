"""A worker: curates what is queued, here or by another process, until it is told to stop."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from medlive.config import Settings
from medlive.db.runs import finish_run, start_run
from medlive.logs import bound
from medlive.service.curation.curate import Curated, curation_work
from medlive.service.database import open_database
from medlive.service.jobs import open_app, run_until_stopped
from medlive.service.wiring import build_pipeline

REPORT_S = 60.0


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Event]:
    """An event that the first SIGTERM or SIGINT sets; a second one ends the process as it would any other."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def ask() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, ask)
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
    report: Callable[[Curated], None] = lambda _: None,
    every_s: float = REPORT_S,
) -> dict[str, Any]:
    """Curate what is queued until `stop` is set, then finish what has begun; the counts of the whole run.

    `report` is told what was done since its last call, every `every_s` seconds in which anything was. The run's
    budget holds for the worker's life. Raises DatabaseUnavailable, IndexMissing and what the roles' settings
    raise.
    """
    total, told = Curated(), Curated()

    def tell() -> None:
        recent = _difference(total, told)
        if recent.threads or recent.faults:
            told.add(recent)
            report(recent)

    async def keep_telling() -> None:
        while True:
            await asyncio.sleep(every_s)
            tell()

    async with open_database(settings) as database:
        pipeline = build_pipeline(settings, database)
        try:
            async with database.begin() as session:
                run = await start_run(session, "worker", {"pipeline": pipeline.digest})
            with bound(run=run):
                telling = asyncio.create_task(keep_telling())
                lost = True
                try:
                    async with open_app(database).open_async() as app:
                        ready()
                        work = curation_work(database, pipeline, settings, total)
                        await run_until_stopped(app, work, concurrency=settings.curation.concurrency, stop=stop)
                    lost = False
                finally:
                    telling.cancel()
                    tell()
                    if not lost:
                        async with database.begin() as session:
                            await finish_run(session, run, total.as_json(), failed=bool(total.faults))
        finally:
            await pipeline.aclose()
    return total.as_json()


def _difference(total: Curated, told: Curated) -> Curated:
    return Curated(
        total.outcomes - told.outcomes,
        total.failures - told.failures,
        total.calls - told.calls,
        total.replayed - told.replayed,
        total.left - told.left,
        total.faults[len(told.faults) :],
    )
