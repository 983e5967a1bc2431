"""Run the filter chain over pending revisions, and defer a job for each that passes."""

from collections.abc import Callable, Sequence

import procrastinate

from medlive.clock import now
from medlive.db.curation.funnel import save_chain_results
from medlive.db.session import Database, Session
from medlive.db.threads import bands
from medlive.db.threads.threads import PendingRevision, load_threads, pending_revisions
from medlive.filters.chain import FilterChain
from medlive.service.jobs import defer_revisions
from medlive.threads.model import Thread
from medlive.threads.near_duplicates import DuplicateIndex, Sketch, patient_text, scheme, sketches
from medlive.threads.prepare import normalised

BATCH = 200


async def filter_pending(
    database: Database,
    app: procrastinate.App,
    chain: FilterChain,
    *,
    limit: int | None = None,
    tick: Callable[[int], None] = lambda _: None,
) -> tuple[int, int]:
    """Judge every latest revision that this chain has not judged, in order of arrival; (passed, rejected).

    Each batch commits results, bands and jobs together, so that a kill loses no thread and repeats none.
    Concurrent runs alternate batch by batch.
    """
    await fill_bands(database)
    passed = rejected = 0
    while limit is None or passed + rejected < limit:
        size = BATCH if limit is None else min(BATCH, limit - passed - rejected)
        async with database.begin() as session:
            await bands.take_turn(session)
            pending = await pending_revisions(session, chain_digest=chain.digest, limit=size)
            if not pending:
                break
            threads, new_sketches = await _load_sketches(session, pending)
            index = await _earlier_index(session, chain, new_sketches)
            results, accepted, queue = [], [], []
            for waiting, thread, sketch in zip(pending, threads, new_sketches, strict=True):
                key = str(waiting.thread_pk)
                result = chain.judge(thread, duplicate_of=index.find(sketch, ignore=key), now=now())
                results.append((waiting.revision_pk, result))
                if result.rejected_by is None:
                    index.add(key, sketch)
                    accepted.append((waiting.thread_pk, sketch.bands))
                    queue.append(waiting.revision_pk)
            await save_chain_results(session, chain.digest, results)
            await bands.save_bands(session, accepted)
            await defer_revisions(app, session, queue)
        passed += len(queue)
        rejected += len(results) - len(queue)
        tick(passed + rejected)
    return passed, rejected


async def fill_bands(database: Database) -> None:
    """Compute missing bands of accepted revisions, or those of another scheme, batch by batch."""
    while True:
        async with database.begin() as session:
            await bands.take_turn(session)
            after = await bands.unfilled_after(session, scheme())
            if after is None:
                return
            accepted = await bands.accepted_revisions(session, after=after, limit=BATCH)
            if accepted:
                _, new_sketches = await _load_sketches(session, accepted)
                rows = [(a.thread_pk, sketch.bands) for a, sketch in zip(accepted, new_sketches, strict=True)]
                await bands.save_bands(session, rows)
            await bands.note_filled(session, scheme(), to=accepted[-1].revision_pk if accepted else None)


async def _load_sketches(
    session: Session, revisions: Sequence[PendingRevision]
) -> tuple[list[Thread], list[Sketch]]:
    """Load the revisions' threads, normalised, and the sketches that identify near-duplicates."""
    loaded = await load_threads(session, [r.revision_pk for r in revisions])
    threads = [normalised(loaded[r.revision_pk]) for r in revisions]
    return threads, sketches([patient_text(t) for t in threads])


async def _earlier_index(session: Session, chain: FilterChain, new_sketches: Sequence[Sketch]) -> DuplicateIndex:
    """Index the accepted threads that these sketches may duplicate."""
    index = DuplicateIndex(chain.settings.duplicate_similarity)
    candidates = await bands.find_candidates(session, chain.digest, [sketch.bands for sketch in new_sketches])
    _, found = await _load_sketches(session, candidates)
    for candidate, sketch in zip(candidates, found, strict=True):
        index.add(str(candidate.thread_pk), sketch)
    return index
