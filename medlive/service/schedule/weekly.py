"""The work of each weekly step, recorded as a run: harvest a source, queue and curate, freeze, apply retention."""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from medlive.config import Settings
from medlive.db.runs import PRUNE, finish_run, start_run
from medlive.db.session import Database
from medlive.errors import DatabaseUnavailable, MedliveError
from medlive.integrity.signing import load_signing_key
from medlive.logs import bound
from medlive.service.curation.curate import curate_queued, queue_again
from medlive.service.curation.filter import filter_pending
from medlive.service.harvest.harvest import harvest_source
from medlive.service.harvest.raw_files import apply_retention
from medlive.service.harvest.sources import select_sources
from medlive.service.jobs import open_app
from medlive.service.release.freeze import freeze
from medlive.service.schedule.steps import FREEZE, QUEUE, RETENTION, StepState, pending_jobs, summarize_counts
from medlive.service.wiring import build_filters, build_pipeline

_log = logging.getLogger(__name__)

GRACE_S = 3.0
"""How long threads under curation may take when the scheduler is stopped; then they are cancelled."""

Work = Callable[[Database, Settings, str], Awaitable[tuple[Mapping[str, Any], str | None]]]
"""Runs a step for an ISO week; returns its counts, and a problem or None."""


class StepOutcome(StrEnum):
    """The outcome of a step."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step that was run, or was due and blocked."""

    command: str
    iso_week: str
    state: StepOutcome
    detail: str


async def run_step(database: Database, settings: Settings, step: StepState) -> StepResult:
    """Run a step and record it; a problem is stored and returned.

    A cancelled step leaves its row "running", and is run again. Raises DatabaseUnavailable.
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
        problem = f"internal error: {type(error).__name__}: {error}"
    if problem is not None:
        counts = {**counts, "problem": problem}
    async with database.begin() as session:
        await finish_run(session, run, counts, failed=problem is not None)
    outcome = StepOutcome.FAILED if problem else StepOutcome.DONE
    return StepResult(step.command, step.week, outcome, problem or summarize_counts(counts))


async def prune_by_hand(database: Database, settings: Settings) -> Mapping[str, int]:
    """Apply retention and record the run, so that one by cron counts for the scheduler; its counts."""
    async with database.begin() as session:
        run = await start_run(session, PRUNE, {})
    counts = await apply_retention(database, settings)
    async with database.begin() as session:
        await finish_run(session, run, counts, failed=bool(counts["busy"] or counts["damaged"]))
    return counts


async def _harvest(database: Database, settings: Settings, source: str) -> tuple[Mapping[str, Any], str | None]:
    done = await harvest_source(database, settings, source, select_sources(settings, [source])[source])
    return dict(done.counts), done.failed or (f"quarantined: {done.quarantined}" if done.quarantined else None)


async def _queue(database: Database, settings: Settings, week: str) -> tuple[Mapping[str, Any], str | None]:
    """Filter new threads, queue them with earlier failures, and curate the queue unless workers do."""
    chain, attempts = build_filters(settings), settings.curation.max_attempts
    async with aclosing(build_pipeline(settings, database)) as pipeline, open_app(database).open_async() as app:
        passed, rejected = await filter_pending(database, app, chain)
        queued = await queue_again(database, app, pipeline, chain.digest, max_attempts=attempts)
    curated, problem, left = await _curate(database, settings)
    counts = {"passed": passed, "rejected": rejected, "queued_again": queued, "left_to_workers": left}
    return {**counts, **curated}, problem


async def _freeze(database: Database, settings: Settings, week: str) -> tuple[Mapping[str, Any], str | None]:
    """Freeze a week, curating the queue first unless workers do."""
    curated, problem, left = await _curate(database, settings)
    done = await freeze(database, settings, week, key=load_signing_key(os.environ))
    counts = {
        "cases": done.cases,
        "criteria": done.criteria,
        "held_out": done.held,
        "kept_out": len({hit.case_id for hit in done.kept_out}),
        # These threads enter the next week's snapshot.
        "still_with_workers": left,
    }
    return {**counts, **curated}, problem


async def _curate(database: Database, settings: Settings) -> tuple[Mapping[str, Any], str | None, int]:
    """Curate the queue unless workers do: the non-zero counts, a problem, and the jobs left to workers."""
    async with database.begin() as session:
        jobs, workers = await pending_jobs(session)
    if not jobs or workers:
        return {}, None, jobs
    async with aclosing(build_pipeline(settings, database)) as pipeline, open_app(database).open_async() as app:
        curated = await curate_queued(database, app, pipeline, settings, grace_s=GRACE_S)
    counts = {key: value for key, value in curated.as_json().items() if value}
    if not curated.faults:
        return counts, None, 0
    return counts, f"{len(curated.faults)} threads failed with an internal error, first {curated.faults[0]}", 0


async def _retention(database: Database, settings: Settings, week: str) -> tuple[Mapping[str, Any], str | None]:
    counts = await apply_retention(database, settings)
    if not counts["busy"] and not counts["damaged"]:
        return counts, None
    return counts, f"{counts['busy']} communities are being harvested, {counts['damaged']} files are damaged"


WORK: dict[str, Work] = {QUEUE: _queue, FREEZE: _freeze, RETENTION: _retention}
"""The steps other than harvests; each has its time in `weekly_times`."""
