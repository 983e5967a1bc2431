"""Has the release gates read every case that a release decides about, each revision once for all releases."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from threading import Event
from typing import Any, Final, TypeVar

from medlive.db.release.gates import count_unchecked, save_verdicts, unchecked
from medlive.db.release.rows import Interrupted, SnapshotReader, read_snapshots
from medlive.db.release.snapshots import latest_frozen
from medlive.db.session import Database
from medlive.snapshot.gates import GateHit, check_many, gates_digest, row_hits
from medlive.snapshot.model import SnapshotCase

T = TypeVar("T")

_PAGE: Final = 1_000
_WORTH_PROCESSES: Final = 500
"""Fewer cases are read sooner here than processes are begun."""
_MOST_PROCESSES: Final = 8


async def check_ready(database: Database) -> int:
    """Check what the next release decides about; how many cases the gates had not read. Raises GateWorkerDied."""
    digest = await asyncio.to_thread(gates_digest)
    async with database.begin() as session:
        parent = await latest_frozen(session)
    return await check_cases(database, parent.version if parent else None, digest, lambda _done, _of: None)


async def check_cases(
    database: Database, parent: str | None, digest: str, tick: Callable[[int, int], None]
) -> int:
    """Check what a release after `parent` decides about and the gates of that digest have not read; how many.

    What was checked is kept at once, so that a kill loses little. Raises GateWorkerDied.
    """
    async with database.begin() as session:
        total = await count_unchecked(session, parent, digest)
    if not total:
        return 0
    loop, stop = asyncio.get_running_loop(), Event()

    def wait_for(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def page(after: str) -> list[tuple[str, int]]:
        async with database.begin() as session:
            return await unchecked(session, parent, digest, after=after, most=_PAGE)

    async def keep(verdicts: list[tuple[str, int, list[GateHit]]]) -> None:
        async with database.begin() as session:
            await save_verdicts(session, digest, verdicts)

    def cases(reader: SnapshotReader) -> Iterator[SnapshotCase]:
        after = ""
        while found := wait_for(page(after)):
            after = found[-1][0]
            yield from reader.revisions(found)

    def work() -> int:
        drawn: deque[tuple[str, int, list[GateHit]]] = deque()
        done: list[tuple[str, int, list[GateHit]]] = []
        number = 0

        def noted(source: Iterator[SnapshotCase]) -> Iterator[SnapshotCase]:
            for case in source:
                drawn.append((case.case_id, case.revision, list(row_hits(case))))
                yield case

        processes = min(os.cpu_count() or 1, _MOST_PROCESSES) if total >= _WORTH_PROCESSES else 1
        with read_snapshots(database.engine.url, stop) as reader:
            for _, hits in check_many(noted(cases(reader)), processes):
                if stop.is_set():
                    raise Interrupted
                case_id, revision, in_rows = drawn.popleft()
                done.append((case_id, revision, in_rows + hits))
                number += 1
                if len(done) >= _PAGE // 2:
                    wait_for(keep(done))
                    done = []
                    tick(number, total)
        wait_for(keep(done))
        tick(number, total)
        return number

    return await in_thread(work, stop)


async def in_thread(work: Callable[[], T], stop: Event) -> T:
    """Run work beside the event loop; when the call is broken off, `stop` is set and the work's end waited for, so
    that it leaves nothing behind."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # that it was interrupted is no news
        raise
