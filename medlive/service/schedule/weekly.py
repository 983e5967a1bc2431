"""The work of each weekly step, under a row of its own: harvest a source, queue and drain, freeze, let go."""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from medlive.config import Settings
from medlive.db.runs import finish_run, start_run
from medlive.db.session import Database
from medlive.db.steps import PRUNE
from medlive.errors import DatabaseUnavailable, MedliveError
from medlive.integrity.signing import load_signing_key
from medlive.logs import bound
from medlive.service.curation.curate import Curated, curate_queued, queue_failed, queue_untried
from medlive.service.curation.filter import filter_pending
from medlive.service.harvest.harvest import harvest_source
from medlive.service.harvest.retention import apply_retention
from medlive.service.harvest.settings import chosen
from medlive.service.jobs import open_app
from medlive.service.release.freeze import freeze
from medlive.service.schedule.states import in_short, pending_jobs
from medlive.service.schedule.steps import FREEZE, QUEUE, RETENTION, StepState
from medlive.service.wiring import build_filters, build_pipeline

_log = logging.getLogger(__name__)

GRACE_S = 3.0
"""How long a thread that is being curated may take when the scheduler is stopped; then it is broken off."""

Work = Callable[[Database, Settings, str], Awaitable[tuple[Mapping[str, Any], str | None]]]
"""Does a step for an ISO week; its counts, and what went wrong."""


class State(StrEnum):
    """What became of a step."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was taken, or that was due and could not be."""

    command: str
    iso_week: str
    state: State
    detail: str


async def take(database: Database, settings: Settings, step: StepState) -> Taken:
    """Take a step under a row of its own; what goes wrong is in the row and is told.

    A step that is broken off leaves its row "running", and is taken again. Raises DatabaseUnavailable.
    """
    async with database.begin() as session:
        run = await start_run(session, step.command, {}, iso_week=step.week)
    counts: Mapping[str, Any] = {}
    problem: str | None = None
    try:
        with bound(step=step.name, week=step.week, run=run):
            if step.source is not None:
                counts, problem = await _harvest(database, settings, step.source)
            else:
                counts, problem = await WORK[step.name](database, settings, step.week)
    except DatabaseUnavailable:
        raise
    except MedliveError as error:
        problem = error.message
    except Exception as error:
        _log.exception("step %s of %s failed", step.name, step.week)
        problem = f"a fault of medlive itself: {type(error).__name__}: {error}"
    if problem is not None:
        counts = {**counts, "problem": problem}
    async with database.begin() as session:
        await finish_run(session, run, counts, failed=problem is not None)
    return Taken(step.command, step.week, State.FAILED if problem else State.DONE, problem or in_short(counts))


async def prune_by_hand(database: Database, settings: Settings) -> Mapping[str, int]:
    """What the retention step does, under a row of its own, so that cron's doing it counts; its counts."""
    async with database.begin() as session:
        run = await start_run(session, PRUNE, {})
    counts = await apply_retention(database, settings)
    async with database.begin() as session:
        await finish_run(session, run, counts, failed=bool(counts["busy"] or counts["damaged"]))
    return counts


async def _harvest(database: Database, settings: Settings, source: str) -> tuple[Mapping[str, Any], str | None]:
    done = await harvest_source(database, settings, source, chosen(settings, [source])[source])
    return dict(done.counts), done.failed or (f"quarantined: {done.quarantined}" if done.quarantined else None)


async def _queue(database: Database, settings: Settings, week: str) -> tuple[Mapping[str, Any], str | None]:
    """Filter what is new and queue it with what failed before; drain the queue unless workers are there to."""
    chain = build_filters(settings)
    pipeline = build_pipeline(settings, database)
    curated = Curated()
    try:
        async with open_app(database).open_async() as app:
            filtered = await filter_pending(database, app, chain)
            attempts = settings.curation.max_attempts
            failed = await queue_failed(database, app, pipeline, max_attempts=attempts)
            lost = await queue_untried(database, app, chain.digest, None)
            async with database.begin() as session:
                jobs, workers = await pending_jobs(session)
            if jobs and not workers:
                curated = await curate_queued(database, app, pipeline, settings, grace_s=GRACE_S)
    finally:
        await pipeline.aclose()
    counts = {"passed": filtered.passed, "rejected": filtered.rejected, "queued_again": failed + lost}
    counts["left_to_workers"] = jobs if workers else 0
    return {**counts, **_told(curated)}, _faults(curated)


async def _freeze(database: Database, settings: Settings, week: str) -> tuple[Mapping[str, Any], str | None]:
    """Freeze a week from what is decided; what is queued and has no worker is decided first."""
    curated = Curated()
    async with database.begin() as session:
        jobs, workers = await pending_jobs(session)
    if jobs and not workers:
        pipeline = build_pipeline(settings, database)
        try:
            async with open_app(database).open_async() as app:
                curated = await curate_queued(database, app, pipeline, settings, grace_s=GRACE_S)
        finally:
            await pipeline.aclose()
    done = await freeze(database, settings, week, key=load_signing_key(os.environ))
    counts = {
        "cases": done.cases,
        "criteria": done.criteria,
        "held_out": done.held,
        "kept_out": len({hit.case_id for hit in done.kept_out}),
    }
    # Their threads come with the next week's snapshot.
    counts["still_with_workers"] = jobs if workers else 0
    return {**counts, **_told(curated)}, _faults(curated)


async def _retention(database: Database, settings: Settings, week: str) -> tuple[Mapping[str, Any], str | None]:
    counts = await apply_retention(database, settings)
    if not counts["busy"] and not counts["damaged"]:
        return counts, None
    return counts, f"{counts['busy']} communities are being harvested, {counts['damaged']} files are damaged"


WORK: dict[str, Work] = {QUEUE: _queue, FREEZE: _freeze, RETENTION: _retention}
"""The steps that are no harvest; each has its time in `weekly_times`."""


def _told(curated: Curated) -> Mapping[str, Any]:
    return {k: v for k, v in curated.as_json().items() if v}


def _faults(curated: Curated) -> str | None:
    if not curated.faults:
        return None
    return f"{len(curated.faults)} threads met a fault of medlive itself, first {curated.faults[0]}"
