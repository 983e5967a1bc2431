"""A whole curation run, recorded with its counts."""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from medlive.config import Settings
from medlive.db.curation.funnel import funnel
from medlive.db.runs import finish_run, start_run
from medlive.logs import bound
from medlive.service.curation.curate import curate_queued, queue_failed, queue_missing
from medlive.service.curation.filter import filter_pending
from medlive.service.curation.rescan import rescan_cases
from medlive.service.database import open_database
from medlive.service.jobs import open_app
from medlive.service.release.check import check_ready
from medlive.service.wiring import Recording, build_filters, build_pipeline

Tick = Callable[[int], None]


async def run_curation(
    settings: Settings,
    *,
    limit: int | None = None,
    retry_failed: bool = False,
    again: bool = False,
    exhaustive: bool = False,
    record: Recording | None = None,
    on_filtered: Tick = lambda _: None,
    on_curated: Tick = lambda _: None,
    on_wait: Tick = lambda _: None,
) -> dict[str, Any]:
    """Filter new threads, queue earlier failures, curate the queue, and scan ready cases for identifiers.

    Args:
        limit: Most threads to filter; None for all.
        retry_failed: Also retry threads that failed `max_attempts` times.
        again: Also queue every thread that this pipeline has not decided.
        exhaustive: See `CurationSettings`.
        record: Collects the agents' replies.

    Returns:
        The run's counts and costs, the state of its endpoints, and the funnel over all threads.
    """
    chain = build_filters(settings)
    async with open_database(settings) as database:
        pipeline = build_pipeline(settings, database, exhaustive=exhaustive, record=record)
        async with aclosing(pipeline):
            async with database.begin() as session:
                run = await start_run(session, "curate", {"pipeline": pipeline.digest, "filters": chain.digest})
            with bound(run=run):
                async with open_app(database).open_async() as app:
                    filtered = await filter_pending(database, app, chain, limit=limit, tick=on_filtered)
                    attempts = None if retry_failed else settings.curation.max_attempts
                    await queue_failed(database, app, pipeline, max_attempts=attempts)
                    await queue_missing(database, app, chain.digest, pipeline if again else None)
                    done = await curate_queued(database, app, pipeline, settings, tick=on_curated, on_wait=on_wait)
                rescanned = await rescan_cases(database, pipeline, concurrency=settings.curation.concurrency)
            counts = {
                "passed": filtered.passed,
                "rejected": filtered.rejected,
                **done.as_json(),
                "rescanned": asdict(rescanned),
                "spent": pipeline.budget.as_json(),
                "endpoints": [asdict(state) for state in pipeline.endpoints.states()],
            }
            async with database.begin() as session:
                await finish_run(session, run, counts, failed=bool(done.faults))
                rows = await funnel(session)
            # The gates are the slowest part of a freeze, so their verdicts are computed here.
            await check_ready(database)
    return {**counts, "funnel": [[r.stage, r.outcome, r.reason, r.count] for r in rows]}
