"""Runs the filter chain over the revisions that wait, and defers a job for each that passes."""

from collections.abc import Callable
from dataclasses import dataclass

import procrastinate

from medlive.clock import now
from medlive.db.filters import save_chain_results
from medlive.db.session import Database
from medlive.db.threads import iter_corpus_for_dedupe, load_threads, pending_revisions
from medlive.filters.chain import FilterChain
from medlive.service.jobs import defer_revisions
from medlive.threads.dedupe import DuplicateIndex, patient_text
from medlive.threads.prepare import normalised

BATCH = 200


@dataclass(frozen=True, slots=True)
class Filtered:
    """What the filters did in one run."""

    passed: int
    rejected: int


async def filter_pending(
    database: Database,
    app: procrastinate.App,
    chain: FilterChain,
    *,
    limit: int | None = None,
    tick: Callable[[int], None] = lambda _: None,
) -> Filtered:
    """Judge every latest revision that this chain has not judged, in the order of arrival.

    Results and the jobs of what passed are committed together, batch by batch: a kill loses no thread and
    doubles none.
    """
    index = DuplicateIndex()
    async with database.begin() as session:
        async for thread_pk, thread in iter_corpus_for_dedupe(session, chain.digest):
            index.add(str(thread_pk), patient_text(normalised(thread)))
    passed = rejected = 0
    while limit is None or passed + rejected < limit:
        size = BATCH if limit is None else min(BATCH, limit - passed - rejected)
        async with database.begin() as session:
            pending = await pending_revisions(session, chain_digest=chain.digest, limit=size)
            if not pending:
                break
            results = []
            queue = []
            threads = await load_threads(session, [p.revision_pk for p in pending])
            for waiting in pending:
                thread, key = normalised(threads[waiting.revision_pk]), str(waiting.thread_pk)
                text = patient_text(thread)
                result = chain.judge(thread, duplicate_of=index.find(text, ignore=key), now=now())
                results.append((waiting.revision_pk, result))
                if result.rejected_by is None:
                    index.add(key, text)
                    queue.append(waiting.revision_pk)
            await save_chain_results(session, chain.digest, results)
            await defer_revisions(app, session, queue)
        passed += len(queue)
        rejected += len(results) - len(queue)
        tick(passed + rejected)
    return Filtered(passed, rejected)
