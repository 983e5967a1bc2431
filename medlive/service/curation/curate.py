"""Curate queued revisions and store every decision; scan ready cases again.

`run_curation` does all of it; `fill_queue`, `curate_queued` and `rescan_cases` are its steps, which the weekly step
uses too. A worker runs `curation_works`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from medlive.clock import now
from medlive.config import Settings
from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.chain import cited_until, curate
from medlive.curation.model import Curation, Outcome, Reason
from medlive.db.curation import cases, curations
from medlive.db.curation.funnel import FunnelRow, funnel
from medlive.db.curation.parking import list_due
from medlive.db.curation.proofs import save_proof
from medlive.db.curation.reviews import (
    find_veto_reason,
    in_force,
    overruled_revisions,
    overrules_of,
    save_scan,
    unscanned_cases,
)
from medlive.db.mapping import Record
from medlive.db.runs import CURATE, recorded_run
from medlive.db.session import Session, advisory_lock
from medlive.db.tables.release import CaseStatus
from medlive.db.threads.threads import load_thread
from medlive.errors import (
    CircuitOpen,
    ConfigError,
    DatabaseUnavailable,
    ServiceUnavailable,
    describe,
)
from medlive.filters.rules import FilterChain
from medlive.integrity.digest import digest_json
from medlive.llm.budget import BudgetSpent
from medlive.logs import bound
from medlive.service.database import open_database
from medlive.service.release.freeze import check_cases
from medlive.service.week_budget import WeekSpent
from medlive.service.wiring import Pipeline, Recording, build_filters, open_pipeline
from medlive.service.work.jobs import defer_revisions, open_app, run_until_drained
from medlive.service.work.taken import CURATE as CURATE_JOB
from medlive.service.work.taken import PROVE, Work, find_obstacle
from medlive.threads.model import Thread
from medlive.threads.prepare import prepared

from .complete import (
    CompletedCase,
    complete_case,
    prove_again,
    redact_case,
    save_case,
)
from .filtering import Tick, filter_pending
from .parking import reject_expired

_log = logging.getLogger(__name__)

_RAISE_BUDGET = "raise [budget] in config/medlive.toml, and start this again"


@dataclass
class CurationCounts:
    """The counts of a curation run."""

    outcomes: Counter[str] = field(default_factory=Counter)  # Outcome → threads
    failures: Counter[str] = field(default_factory=Counter)  # Reason → failed threads
    calls: int = 0
    replayed: int = 0  # Calls that a stored reply answered
    left: int = 0  # Threads that stay queued because of what `stopped` or `misconfigured` says, or a budget
    # What keeps threads from being curated for a while, as an open circuit
    stopped: str = ""
    # What is wrong with the configuration, and what to do about it
    misconfigured: str = ""
    # Internal errors, one line each; their threads stay queued
    faults: list[str] = field(default_factory=list)

    def add(self, curation: Curation) -> None:
        """Count a decision."""
        self.outcomes[curation.outcome.value] += 1
        if curation.outcome is Outcome.FAILED:
            self.failures[str(curation.reason)] += 1
        self.calls += len(curation.calls)
        self.replayed += sum(c.replayed for c in curation.calls)

    def add_fault(self, revision: int, error: Exception) -> None:
        """Note a thread's error: an internal one as a fault, a state of the surroundings as what stops the run."""
        obstacle = find_obstacle(error)
        if isinstance(obstacle, ConfigError):
            self.misconfigured = obstacle.whole
        elif isinstance(obstacle, ServiceUnavailable):
            self.stopped = obstacle.message
        elif obstacle is None and not isinstance(
            error, DatabaseUnavailable
        ):  # a lost database: it is given back
            self.faults.append(f"revision {revision}: {describe(error)}")

    def find_problem(self, failure_share: float) -> str | None:
        """Why the curation has failed: an internal error, an obstacle to all threads, or too many failed ones."""
        if self.faults:
            return f"{len(self.faults)} threads failed with an internal error, first {self.faults[0]}"
        if obstacle := self.misconfigured or self.stopped:
            return f"{obstacle}; {self.left} threads wait"
        failures = Counter(self.failures)
        del failures[Reason.BUDGET_SPENT]
        failed, decided = failures.total(), self.outcomes.total()
        if failed <= failure_share * decided:
            return None
        reason, _ = failures.most_common(1)[0]
        return f"{failed} of {decided} threads failed, most with {reason}"

    def as_json(self) -> dict[str, Any]:
        """The counts as stored with a run."""
        return dict(vars(self))


@dataclass(frozen=True)
class CurationRun:
    """What a run of the filters and the agents did, and the funnel of all threads after it."""

    queued: Mapping[str, int]  # The counts of `fill_queue`
    counts: CurationCounts
    rescanned: Mapping[str, int]  # The counts of `rescan_cases`
    spent: Mapping[str, Any]  # As `Budget.as_json` has it
    funnel: Sequence[FunnelRow] = ()

    def as_json(self) -> dict[str, Any]:
        """What is stored with the run: all but the funnel."""
        return {
            **self.queued,
            **self.counts.as_json(),
            "rescanned": dict(self.rescanned),
            "spent": self.spent,
        }


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
) -> CurationRun:
    """Filter new threads, queue earlier failures, curate the queue, and scan ready cases for identifiers.

    Judges at most `limit` new threads; `retry_failed` includes those with `max_attempts` failures, `again` those
    that another pipeline has decided. Parked threads are searched again where the library has changed, and rejected
    where they are parked for too long. `record` collects the agents' replies. Returns the run's counts and costs, and
    the funnel over all threads.
    """
    chain = build_filters(settings)
    async with (
        open_database(settings) as database,
        open_pipeline(
            settings, database, exhaustive=exhaustive, record=record
        ) as pipeline,
    ):
        inputs = {"pipeline": pipeline.digest, "filters": chain.digest}
        async with recorded_run(database, CURATE, inputs) as run:
            queued = await fill_queue(
                pipeline,
                chain,
                max_attempts=None if retry_failed else settings.curation.max_attempts,
                limit=limit,
                include_decided=again,
                tick=on_filtered,
            )
            done = await curate_queued(pipeline, tick=on_curated)
            curated = CurationRun(
                queued=queued,
                counts=done,
                rescanned=await rescan_cases(pipeline),
                spent=pipeline.budget.as_json(),
                funnel=await database.ask(funnel),
            )
            run.failed = bool(done.faults)
            run.counts = curated.as_json()
        # The gates are the slowest part of a freeze, so their verdicts are computed here.
        await check_cases(database)
    return curated


async def fill_queue(
    pipeline: Pipeline,
    chain: FilterChain,
    *,
    max_attempts: int | None,
    limit: int | None = None,
    include_decided: bool = False,
    week: str | None = None,
    tick: Tick = lambda _: None,
) -> dict[str, Any]:
    """Filter new threads, at most `limit`; queue those that passed and those to be tried again; return the counts.

    "passed" and "rejected" by the filters; "parked_too_long" and rejected for it; "queued_again" by `queue_again`,
    which says what the other arguments mean.
    """
    database, park_weeks = pipeline.database, pipeline.settings.evidence.park_weeks
    passed, rejected = await filter_pending(
        database, chain, limit=limit, week=week, tick=tick
    )
    return {
        "passed": passed,
        "rejected": rejected,
        "parked_too_long": await reject_expired(database, park_weeks),
        "queued_again": await queue_again(
            pipeline,
            chain.digest,
            max_attempts=max_attempts,
            include_decided=include_decided,
            week=week,
        ),
    }


async def queue_again(
    pipeline: Pipeline,
    chain_digest: str,
    *,
    max_attempts: int | None,
    include_decided: bool = False,
    week: str | None = None,
) -> int:
    """Queue revisions that failed, were overruled, or passed the filters and were never curated; how many.

    It also queues parked revisions that were not searched in this library yet and, if `include_decided`, those that
    other pipelines have decided; not those that failed `max_attempts` times in this pipeline (None: no limit). The
    freeze of the ISO week `week` waits for what is queued; None: the next freeze.
    """
    async with pipeline.database.begin() as session:
        failed = await curations.failed_revisions(
            session, pipeline.digest, max_attempts=max_attempts
        )
        untried = await curations.untried_revisions(
            session, chain_digest, pipeline.digest if include_decided else None
        )
        overruled = []
        for revision in await overruled_revisions(session):
            _, digest = await _overruled(session, pipeline, revision)
            failures = await curations.count_failures(session, revision, digest)
            if max_attempts is None or failures < max_attempts:
                overruled.append(revision)
        revisions = [*failed, *overruled, *untried]
        revisions += await list_due(
            session,
            library=pipeline.retriever.identity.index_digest,
            pipeline_digest=pipeline.digest,
        )
        return await defer_revisions(session, revisions, week=week)


async def curate_queued(
    pipeline: Pipeline,
    *,
    tick: Tick = lambda _: None,
    grace_s: float | None = None,
) -> CurationCounts:
    """Run the queue until it is empty, several threads at once.

    `grace_s` is how long running jobs may take when the call is cancelled; None for no limit.
    """
    done = CurationCounts()
    works = curation_works(pipeline, done, tick=tick)
    database, most = pipeline.database, pipeline.settings.curation.concurrency
    async with open_app(database).open_async() as app:
        done.left = await run_until_drained(
            app, database, works, concurrency=most, grace_s=grace_s
        )
    return done


def curation_works(
    pipeline: Pipeline,
    done: CurationCounts,
    *,
    tick: Tick = lambda _: None,
    retry: bool = False,
) -> dict[str, Work]:
    """The work of the queue's jobs: to curate a revision and count it in `done`, and to prove a rubric again.

    Work raises what keeps it from being done: an open circuit, a spent budget, a wrong configuration. The thread is
    left as it was, and the job is given back. With `retry` it returns why a thread failed, whose job then waits for
    another try.
    """

    async def prove(case_id: str, revision: int) -> str | None:
        """Prove a rubric again; an obstacle is noted in `done`."""
        try:
            return await prove_again(pipeline, case_id, revision)
        except Exception as exc:
            if find_obstacle(exc):  # it keeps the threads behind it waiting too
                done.add_fault(revision, exc)
            raise

    async def work(revision: int) -> str | None:
        """Curate a revision, unless a budget is spent or an endpoint's circuit is open."""
        try:
            if pipeline.budget.stopped is not None:
                raise BudgetSpent(pipeline.budget.stopped, hint=_RAISE_BUDGET)
            await pipeline.check_ready()
            curation = await curate_revision(pipeline, revision)
        except WeekSpent as exc:
            if not retry:  # a worker may see the next week
                pipeline.budget.stopped = exc.message
            raise
        except Exception as exc:
            done.add_fault(revision, exc)
            raise
        if curation is None:
            return None
        done.add(curation)
        tick(done.outcomes.total())
        has_failed = curation.outcome is Outcome.FAILED
        return str(curation.reason) if retry and has_failed else None

    return {CURATE_JOB: work, PROVE: prove}


async def _overruled(
    session: Session, pipeline: Pipeline, revision: int
) -> tuple[set[str], str]:
    """The reasons that people overruled for a revision, and the pipeline's digest with them."""
    overruled = {o.overruled for o in in_force(await overrules_of(session, revision))}
    digest = pipeline.digest
    if overruled:
        digest = digest_json([digest, "overruled", *sorted(overruled)])
    return overruled, digest


async def curate_revision(pipeline: Pipeline, revision: int) -> Curation | None:
    """Curate one revision and store the decision and its case; None if it was decided before, or is superseded."""
    async with pipeline.database.read() as session:
        stored = await load_thread(session, revision)
        name = f"{stored.thread.source}/{stored.thread.thread_id}"
        overruled, digest = await _overruled(session, pipeline, revision)
        if await curations.is_decided(session, revision, digest):
            return None
    with bound(thread=name):
        limit_s = pipeline.settings.curation.thread_timeout_s
        reading = read_thread(stored)
        try:
            async with pipeline.settled(), asyncio.timeout(limit_s):
                curation = await curate(
                    reading.thread,
                    reading.language,
                    pipeline.respondents,
                    pipeline.retriever,
                    pipeline.curation,
                    run_date=reading.started.date(),
                    overruled=[reason for reason in Reason if reason in overruled],
                )
                completed = await complete_in(pipeline, curation, reading)
        except TimeoutError:
            curation = Curation(
                reason=Reason.ENDPOINT_UNAVAILABLE,
                detail=f"not decided within {limit_s:g} s",
            )
            completed = curation, None, None
        async with pipeline.database.begin() as session:
            await curations.lock_revision(session, revision)
            if await curations.is_decided(session, revision, digest):
                _log.debug("decided by another process, or superseded")
                return None
            await save_decision(session, pipeline, reading, completed, digest)
        _log.debug("curated: %s", completed[0].outcome.value)
    return completed[0]


class Reading(NamedTuple):
    """A thread that is being decided."""

    stored: Record  # As `load_thread` returns it
    thread: Thread  # As the agents get it
    language: str
    started: datetime  # Evidence published later is not cited


def read_thread(stored: Record) -> Reading:
    """Prepare a stored thread for the agents, and note when its curation began."""
    thread, language = prepared(stored.thread)
    if stored.posted_at_assumed:
        # A date that somebody assumed says nothing of the medicine of its time.
        thread = replace(thread, posted_at=None)
    return Reading(stored, thread, language, now())


async def complete_in(
    pipeline: Pipeline, curation: Curation, reading: Reading
) -> CompletedCase:
    """Complete a kept or held curation by the pipeline (`complete_case`); return any other unchanged."""
    if curation.outcome not in (Outcome.KEPT, Outcome.HELD):
        return curation, None, None
    today = cited_until(curation, reading.thread, reading.started.date())
    return await complete_case(
        curation,
        reading.language,
        pipeline.respondents,
        library=pipeline.library(today),
    )


async def save_decision(
    session: Session,
    pipeline: Pipeline,
    reading: Reading,
    completed: CompletedCase,
    digest: str,
) -> None:
    """Store the decision about a thread, with its case; `digest` is of the pipeline and what people changed."""
    curation, rubric, proof = completed
    stored, started = reading.stored, reading.started
    curation_id = await curations.save_curation(
        session,
        stored.revision_pk,
        digest,
        curation,
        started_at=started,
        finished_at=max(started, now()),  # the clock may have been set back meanwhile
    )
    if proof:
        await save_proof(session, curation_id, proof)
    if rubric and curation.text:
        assert stored.thread.posted_at  # the filters require a date
        content = cases.CaseContent(
            curation_id=curation_id,
            language=reading.language,
            source=stored.thread.source,
            posted_at=stored.thread.posted_at,
            rubric=rubric,
            text=curation.text,
            publishable=curation.publishable,
            overruled=await find_veto_reason(session, stored.revision_pk),
        )
        saved = await save_case(
            session,
            content,
            thread_pk=stored.thread_pk,
            key=pipeline.key,
            held=curation.detail if curation.outcome is Outcome.HELD else None,
        )
        if saved.status != "left":  # The revision that stays was not scanned.
            await save_scan(
                session, saved.case_id, saved.revision, pipeline.scanner, found=0
            )
    elif curation.outcome in (Outcome.REJECTED, Outcome.PARKED):
        # The thread or the engines changed: a person decides about the earlier case.
        reason = f"curated again: {curation.reason}: {curation.detail}"[:1000]
        await cases.hold_case_of_thread(session, stored.thread_pk, reason)


async def rescan_cases(pipeline: Pipeline) -> Counter[str]:
    """Scan every ready case that the current scanner has not, and redact the identifiers it finds.

    Returns counts of cases: "cases" scanned; "redacted" (a new revision without identifiers); "failed" (no usable
    reply, scanned again by the next run). All are 0 while another process scans them.
    """
    done = Counter({"cases": 0, "redacted": 0, "failed": 0})
    slots = asyncio.Semaphore(pipeline.settings.curation.concurrency)

    async def scan(case_id: str) -> None:
        """Scan the latest revision of a case, and save it without the identifiers that were found."""
        async with slots:
            case = await pipeline.database.ask(cases.latest_case, case_id)
            if case is None or pipeline.budget.stopped is not None:
                return
            reader = Agent(pipeline.respondents["reader"], [], case.language)
            try:
                text, rubric, redacted = await redact_case(
                    case.text, case.rubric, reader
                )
            except (AgentFailure, CircuitOpen):
                done["failed"] += 1
                return
            async with pipeline.database.begin() as session:
                status = await cases.lock_case(session, case_id)
                latest = await cases.latest_case(session, case_id)
                if status is not CaseStatus.READY or latest != case:
                    return  # decided or edited meanwhile, and scanned by the next run
                saved = await cases.add_revision(
                    session, case_id, replace(case, text=text, rubric=rubric)
                )
                n = len(redacted.found)
                for revision in {case.revision, saved.revision}:
                    await save_scan(
                        session, case_id, revision, pipeline.scanner, found=n
                    )
                if redacted.remaining:
                    names = "; ".join(redacted.remaining)[:2000]
                    reason = f"{Reason.IDENTIFIER.value}: {names}"
                    await cases.set_status(session, case_id, CaseStatus.HELD, reason)
            done["cases"] += 1
            done["redacted"] += saved.revision != case.revision

    async with (
        advisory_lock(pipeline.database, "rescan cases") as is_alone,
        pipeline.settled(),
    ):
        if is_alone:
            waiting = await pipeline.database.ask(unscanned_cases, pipeline.scanner)
            await asyncio.gather(*map(scan, waiting))
    return done
