"""Run the release gates on every candidate case, each revision once for all releases."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from medlive.db.release.fixing import count_unchecked, save_verdicts, unchecked
from medlive.db.release.rows import read_snapshots
from medlive.db.release.snapshots import latest_frozen
from medlive.db.session import Database
from medlive.snapshot.gates import GateHit, check_many, gates_digest, row_hits

T = TypeVar("T")

_PAGE: Final = 5_000
_MIN_FOR_PROCESSES: Final = 500
"""Below this many cases, starting processes takes longer than checking."""
_MAX_PROCESSES: Final = 8


async def check_ready(database: Database) -> int:
    """Check the candidates of the next release; the number newly checked. Raises GateWorkerDied."""
    digest = await asyncio.to_thread(gates_digest)
    async with database.begin() as session:
        parent = await latest_frozen(session)
    return await check_cases(database, parent.version if parent else None, digest, lambda _done, _of: None)


async def check_cases(
    database: Database, parent: str | None, digest: str, tick: Callable[[int, int], None]
) -> int:
    """Check the candidates of a release after `parent` that gates of this digest have not read; how many.

    Verdicts are stored page by page, so that a kill loses at most one. Raises GateWorkerDied.
    """
    async with database.begin() as session:
        total = await count_unchecked(session, parent, digest)
    if not total:
        return 0
    done, after = 0, ""
    while True:
        async with database.begin() as session:
            page = await unchecked(session, parent, digest, after=after, most=_PAGE)
        if not page:
            return done
        verdicts = await finish_in_thread(partial(_check_page, database, page))
        async with database.begin() as session:
            await save_verdicts(session, digest, verdicts)
        after, done = page[-1][0], done + len(verdicts)
        tick(done, total)


def _check_page(database: Database, page: Sequence[tuple[str, int]]) -> list[tuple[str, int, list[GateHit]]]:
    """Run the gates on these (case, revision) pairs; blocking."""
    with read_snapshots(database.engine.url) as reader:
        cases = list(reader.revisions(page))
    processes = min(os.cpu_count() or 1, _MAX_PROCESSES) if len(cases) >= _MIN_FOR_PROCESSES else 1
    checked = zip(cases, check_many(cases, processes), strict=True)
    return [(case.case_id, case.revision, [*row_hits(case), *hits]) for case, (_, hits) in checked]


async def finish_in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread; on cancellation, wait for the work to end."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise
