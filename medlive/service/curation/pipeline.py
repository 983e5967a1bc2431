"""The pipeline of a process while it curates, with its share of each endpoint that others use too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from medlive.config import Settings
from medlive.db.session import Database, lock_connection
from medlive.db.slots import Slots
from medlive.llm.limiter import Limiter, Limiters
from medlive.service.wiring import Pipeline, Recording, build_pipeline

SETTLE_S = 1.0
"""Seconds between looks at who else uses an endpoint; five times as long while nothing is asked of it."""


@asynccontextmanager
async def open_pipeline(
    settings: Settings, database: Database, *, exhaustive: bool = False, record: Recording | None = None
) -> AsyncIterator[Pipeline]:
    """Build the pipeline for the block, as `build_pipeline` does; its calls keep to this process's share."""
    async with (
        aclosing(build_pipeline(settings, database, exhaustive=exhaustive, record=record)) as pipeline,
        share_endpoints(database, pipeline.endpoints),
    ):
        yield pipeline


@asynccontextmanager
async def share_endpoints(database: Database, endpoints: Limiters) -> AsyncIterator[None]:
    """Divide each endpoint's calls at once among all processes that do the same, evenly, while the block runs.

    Together they never have more under way than `concurrency` allows, also while one joins. Raises
    DatabaseUnavailable.
    """
    limiters = endpoints.by_place()
    if not limiters:
        yield
        return
    async with lock_connection(database) as connection:
        shares = [(limiter, Slots(connection, f"endpoint:{place}")) for place, limiter in limiters.items()]
        for _, slots in shares:
            await slots.join()
        await _settle(shares)
        settling = asyncio.create_task(_keep_settling(shares))
        try:
            yield
        finally:
            settling.cancel()
            await asyncio.gather(settling, return_exceptions=True)


async def _keep_settling(shares: list[tuple[Limiter, Slots]]) -> None:
    while True:
        states = [limiter.state() for limiter, _ in shares]
        await asyncio.sleep(SETTLE_S if any(s.under_way or s.waiting for s in states) else 5 * SETTLE_S)
        await _settle(shares)


async def _settle(shares: list[tuple[Limiter, Slots]]) -> None:
    for limiter, slots in shares:
        state = limiter.state()
        limiter.allot(await slots.settle(state.most, state.under_way))
