"""The pipeline of a process while it curates, with its share of each endpoint that others use too."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from medlive.config import Settings
from medlive.db.session import Database, lock_connection
from medlive.db.slots import Slots
from medlive.llm.limiter import Limiter, Limiters
from medlive.service.wiring import Pipeline, Recording, build_pipeline
from medlive.service.work.tasks import end_tasks

SETTLE_S = 1.0
"""Seconds between looks at who else uses an endpoint; five times as long while nothing is asked of it."""


@asynccontextmanager
async def open_pipeline(
    settings: Settings,
    database: Database,
    *,
    exhaustive: bool = False,
    record: Recording | None = None,
) -> AsyncIterator[Pipeline]:
    """Build the pipeline for the block, as `build_pipeline` does; its calls keep to this process's share."""
    async with (
        aclosing(
            build_pipeline(settings, database, exhaustive=exhaustive, record=record)
        ) as pipeline,
        share_endpoints(database, pipeline.endpoints),
    ):
        yield pipeline


@asynccontextmanager
async def share_endpoints(
    database: Database, endpoints: Limiters
) -> AsyncIterator[None]:
    """Divide each endpoint's calls at once among all processes that do the same, evenly, while the block runs.

    Together they never have more under way than `concurrency` allows, also while one joins. Raises
    DatabaseUnavailable, also when the database is lost later: then no call is begun, and the block is cancelled.
    """
    limiters = endpoints.by_place
    if not limiters:
        yield
        return
    async with lock_connection(database) as connection:
        shares = [
            (limiter, Slots(connection, f"endpoint:{place}"))
            for place, limiter in limiters.items()
        ]
        for _, slots in shares:
            await slots.join()
        await _settle(shares)
        async with _beside(_keep_settling(shares), [limiter for limiter, _ in shares]):
            yield


@asynccontextmanager
async def _beside(
    work: Coroutine[Any, Any, None], limiters: Sequence[Limiter]
) -> AsyncIterator[None]:
    """Run `work` as long as the block; when it fails, close the limiters, cancel the block and raise its error."""
    owner, running, failed = asyncio.current_task(), True, False
    assert owner is not None
    task = asyncio.create_task(work)

    def end(done: asyncio.Task[None]) -> None:
        nonlocal failed
        error = None if done.cancelled() else done.exception()
        if running and isinstance(error, Exception):
            # Without it nobody shares out the calls, and who waits for a turn would wait for ever.
            for limiter in limiters:
                limiter.close(error)
            failed = owner.cancel()

    task.add_done_callback(end)
    try:
        yield
    except BaseException as error:
        cancelled = isinstance(error, asyncio.CancelledError)
        if failed and owner.uncancel() == 0 and cancelled:
            task.result()
        raise
    finally:
        running = False
        await end_tasks(task)


async def _keep_settling(shares: list[tuple[Limiter, Slots]]) -> None:
    while True:
        states = [limiter.state() for limiter, _ in shares]
        await asyncio.sleep(
            SETTLE_S if any(s.under_way or s.waiting for s in states) else 5 * SETTLE_S
        )
        await _settle(shares)


async def _settle(shares: list[tuple[Limiter, Slots]]) -> None:
    for limiter, slots in shares:
        state = limiter.state()
        limiter.allot(await slots.settle(state.most, state.under_way, state.waiting))
