"""Filter new revisions: judge them batch by batch, store every verdict, and queue what passed."""

import sys
from collections.abc import Callable, Sequence

from medlive.clock import now
from medlive.config import Settings
from medlive.db.curation.cases import hold_filtered_cases
from medlive.db.curation.funnel import save_chain_results
from medlive.db.mapping import Record
from medlive.db.runs import FILTER, recorded_run
from medlive.db.session import Database, Session
from medlive.db.threads import bands
from medlive.db.threads.threads import load_threads, pending_revisions
from medlive.filters.rules import FilterChain, first_failure
from medlive.service.wiring import build_filters
from medlive.service.work.jobs import defer_revisions
from medlive.threads.model import Thread
from medlive.threads.near_duplicates import (
    DuplicateIndex,
    Sketch,
    patient_text,
    scheme,
    sketches,
)
from medlive.threads.prepare import normalised

Tick = Callable[[int], None]
"""Called with the number of threads done so far."""
BATCH = 500
"""Threads filtered in one transaction."""
_DANGEROUS = ("unsafe_content", "reidentification_risk")
"""Reasons for which an earlier case of the thread is held too; for any other the thread alone is rejected."""


async def run_filters(
    database: Database,
    settings: Settings,
    *,
    limit: int | None = None,
    tick: Tick = lambda _: None,
) -> dict[str, int]:
    """Filter what waits, at most `limit` threads, and queue what passed; how many passed and were rejected."""
    chain = build_filters(settings)
    async with recorded_run(database, FILTER, {"filters": chain.digest}) as run:
        passed, rejected = await filter_pending(database, chain, limit=limit, tick=tick)
        counts = run.counts = {"passed": passed, "rejected": rejected}
    return counts


async def filter_pending(
    database: Database,
    chain: FilterChain,
    *,
    limit: int | None = None,
    week: str | None = None,
    tick: Tick = lambda _: None,
) -> tuple[int, int]:
    """Judge every latest revision that this chain has not judged, in order of arrival; (passed, rejected).

    What passed is queued for the freeze of the ISO week `week`; None: for the next freeze.

    Each batch commits results, MinHash bands (by which duplicates are found) and jobs together, so that a kill loses no
    thread and repeats none.
    Concurrent runs alternate batch by batch.
    """
    await fill_bands(database)
    passed = rejected = after = 0
    left = sys.maxsize if limit is None else limit
    while left:
        queue: list[int] = []
        async with database.begin() as session:
            await bands.take_turn(session)
            batch = await pending_revisions(
                session,
                chain_digest=chain.digest,
                after=after,
                limit=min(BATCH, left),
            )
            if batch:
                queue = await _judge(session, chain, batch)
                await defer_revisions(session, queue, week=week)
        if batch:
            left -= len(batch)
            after = batch[-1].revision_pk
            passed += len(queue)
            rejected += len(batch) - len(queue)
            tick(passed + rejected)
        elif after:
            after = 0  # Once more: a slower transaction may have added revisions of lower numbers
        else:
            break
    return passed, rejected


async def _judge(
    session: Session, chain: FilterChain, batch: Sequence[Record]
) -> list[int]:
    """Judge threads and save the results and bands; the revisions that passed."""
    threads, own = await _load_sketches(session, batch)
    index = DuplicateIndex(chain.settings.duplicate_similarity)
    own_bands = [sketch.bands for sketch in own]
    earlier = await bands.find_candidates(session, chain.digest, own_bands)
    _, earlier_sketches = await _load_sketches(session, earlier)
    for candidate, sketch in zip(earlier, earlier_sketches, strict=True):
        index.add(str(candidate.thread_pk), sketch)
    results, accepted, queue = [], [], []
    dangerous: dict[int, str] = {}
    for waiting, thread, sketch in zip(batch, threads, own, strict=True):
        key = str(waiting.thread_pk)
        verdicts = chain.judge(
            thread, duplicate_of=index.find(sketch, ignore=key), now=now()
        )
        results.append((waiting.revision_pk, verdicts))
        for verdict in verdicts:
            if verdict.reason in _DANGEROUS:
                dangerous[waiting.revision_pk] = str(verdict.reason)
        if first_failure(verdicts) is None:
            index.add(key, sketch)
            accepted.append((waiting.thread_pk, sketch.bands))
            queue.append(waiting.revision_pk)
    # Cases first, as those who decide about one lock it first.
    await hold_filtered_cases(session, dangerous)
    await save_chain_results(session, chain.digest, results)
    await bands.save_bands(session, accepted)
    return queue


async def fill_bands(database: Database) -> None:
    """Compute the bands of accepted revisions again where another scheme made them, in one transaction."""
    async with database.begin() as session:
        await bands.take_turn(session)
        if not await bands.begin_scheme(session, scheme()):
            return
        after = 0
        while accepted := await bands.accepted_revisions(
            session, after=after, limit=BATCH
        ):
            _, new_sketches = await _load_sketches(session, accepted)
            rows = []
            for thread, sketch in zip(accepted, new_sketches, strict=True):
                rows.append((thread.thread_pk, sketch.bands))
            await bands.save_bands(session, rows)
            after = accepted[-1].revision_pk


async def _load_sketches(
    session: Session, revisions: Sequence[Record]
) -> tuple[list[Thread], list[Sketch]]:
    """Load the revisions' threads, normalised, and the sketches that identify near-duplicates."""
    loaded = await load_threads(session, [r.revision_pk for r in revisions])
    threads = [normalised(loaded[r.revision_pk]) for r in revisions]
    return threads, sketches(list(map(patient_text, threads)))
