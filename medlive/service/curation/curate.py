"""Curate queued revisions: load a thread, call the stages, store every decision."""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import procrastinate

from medlive.clock import now
from medlive.config import Settings
from medlive.curation.chain import curate
from medlive.curation.model import Curation, Outcome
from medlive.db.curation.cases import hold_case_of_thread, save_case
from medlive.db.curation.curations import (
    failed_revisions,
    latest_outcome,
    lock_revision,
    save_curation,
    untried_revisions,
)
from medlive.db.review.reviews import save_scan
from medlive.db.session import Database
from medlive.db.threads.threads import StoredThread, load_thread
from medlive.errors import ConfigError
from medlive.logs import bound
from medlive.rubric.complete import complete_case
from medlive.rubric.model import Rubric
from medlive.service.database import handle_key
from medlive.service.jobs import Work, defer_revisions, run_until_drained
from medlive.service.wiring import Pipeline
from medlive.threads.prepare import deidentified, normalised, thread_language

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class CurationCounts:
    """The counts of a curation run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """Outcome → threads."""
    failures: Counter[str] = field(default_factory=Counter)
    """Reason → failed threads."""
    calls: int = 0
    replayed: int = 0
    left: int = 0
    """Threads not begun because the budget was spent; the next run begins them."""
    faults: list[str] = field(default_factory=list)
    """Internal errors, one line each; their threads stay queued."""

    @property
    def threads(self) -> int:
        """Threads decided or failed."""
        return sum(self.outcomes.values())

    def add(self, other: "CurationCounts") -> None:
        """Add the counts of another run."""
        self.outcomes += other.outcomes
        self.failures += other.failures
        self.calls += other.calls
        self.replayed += other.replayed
        self.left += other.left
        self.faults += other.faults

    def as_json(self) -> dict[str, Any]:
        """The counts as stored with a run."""
        return {
            "outcomes": dict(self.outcomes),
            "failures": dict(self.failures),
            "calls": self.calls,
            "replayed": self.replayed,
            "left": self.left,
            "faults": list(self.faults),
        }


async def queue_failed(
    database: Database, app: procrastinate.App, pipeline: Pipeline, *, max_attempts: int | None
) -> int:
    """Queue failed revisions again, except those that failed `max_attempts` times in this pipeline."""
    async with database.begin() as session:
        revisions = await failed_revisions(session, pipeline.digest, max_attempts=max_attempts)
        return await defer_revisions(app, session, revisions)


async def queue_missing(
    database: Database, app: procrastinate.App, chain_digest: str, pipeline: Pipeline | None
) -> int:
    """Queue revisions that passed the filters and were never curated by this pipeline (None: by any).

    Finds those whose job was lost, as every revision is queued when it passes.
    """
    async with database.begin() as session:
        digest = pipeline.digest if pipeline else None
        return await defer_revisions(app, session, await untried_revisions(session, chain_digest, digest))


async def curate_queued(
    database: Database,
    app: procrastinate.App,
    pipeline: Pipeline,
    settings: Settings,
    *,
    tick: Callable[[int], None] = lambda _: None,
    on_wait: Callable[[int], None] = lambda _: None,
    grace_s: float | None = None,
) -> CurationCounts:
    """Run the queue until it is empty, several threads at once.

    `grace_s` is how long running jobs may take when the call is cancelled; None for no limit.
    """
    done = CurationCounts()
    work = curation_work(database, pipeline, settings, done, tick=tick)
    await run_until_drained(app, work, concurrency=settings.curation.concurrency, on_wait=on_wait, grace_s=grace_s)
    return done


def curation_work(
    database: Database,
    pipeline: Pipeline,
    settings: Settings,
    done: CurationCounts,
    *,
    tick: Callable[[int], None] = lambda _: None,
) -> Work:
    """The work of a job: curate its revision and count it in `done`; nothing once the budget is spent."""
    key = handle_key(settings)

    async def work(revision: int) -> None:
        if pipeline.budget.stopped is not None:
            done.left += 1
            return
        try:
            curation = await curate_revision(database, pipeline, revision, key)
        except ConfigError as exc:
            # No other call would fare better: what is left waits for another configuration.
            pipeline.budget.stopped = pipeline.budget.stopped or f"{exc.message} ({exc.hint})"
            done.left += 1
            return
        except Exception as exc:
            done.faults.append(f"revision {revision}: {type(exc).__name__}: {exc}")
            raise
        if curation is not None:
            done.outcomes[curation.outcome.value] += 1
            if curation.outcome is Outcome.FAILED:
                done.failures[str(curation.reason)] += 1
            done.calls += len(curation.calls)
            done.replayed += sum(c.replayed for c in curation.calls)
            tick(done.threads)

    return work


async def curate_revision(database: Database, pipeline: Pipeline, revision: int, key: bytes) -> Curation | None:
    """Curate one revision and store the decision and its case; None if it was decided before."""
    async with database.begin() as session:
        if await latest_outcome(session, revision, pipeline.digest) not in (None, Outcome.FAILED):
            return None
        stored = await load_thread(session, revision)
    with bound(thread=f"{stored.thread.source}/{stored.thread.thread_id}"):
        curation = await _curate_stored(database, pipeline, revision, stored, key)
        _log.debug("curated: %s", curation.outcome.value if curation else "decided by another process")
    return curation


async def _curate_stored(
    database: Database, pipeline: Pipeline, revision: int, stored: StoredThread, key: bytes
) -> Curation | None:
    started = now()
    raw = normalised(stored.thread)
    language = thread_language(raw)
    thread = deidentified(raw, language)
    curation = await curate(
        thread, language, pipeline.respondents, pipeline.retriever, pipeline.curation, run_date=started.date()
    )
    rubric: Rubric | None = None
    if curation.outcome in (Outcome.KEPT, Outcome.HELD):
        done = await complete_case(curation, language, pipeline.respondents)
        curation, rubric = done.curation, done.rubric
    async with database.begin() as session:
        await lock_revision(session, revision)
        if await latest_outcome(session, revision, pipeline.digest) not in (None, Outcome.FAILED):
            return None  # another process has decided it meanwhile
        curation_id = await save_curation(
            session, revision, pipeline.digest, curation, started_at=started, finished_at=now()
        )
        if rubric is not None and curation.text is not None:
            saved = await save_case(
                session,
                thread_pk=stored.thread_pk,
                curation_id=curation_id,
                language=language,
                source=thread.source,
                posted_at=thread.posted_at,
                rubric=rubric,
                text=curation.text,
                key=key,
                publishable=curation.publishable,
                held=curation.detail if curation.outcome is Outcome.HELD else None,
            )
            await save_scan(session, saved.case_id, saved.revision, pipeline.scanner, found=0)
        elif curation.outcome is Outcome.REJECTED:
            # The thread or the engines changed: a person decides about the earlier case.
            reason = f"curated again: {curation.reason}: {curation.detail}"[:1000]
            await hold_case_of_thread(session, stored.thread_pk, reason)
    return curation
