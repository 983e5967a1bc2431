"""The scheduler: the stored rows and the clock say which steps are due, each recorded as a run.

Each step has a lane of its own, so that one which is slow or hangs delays no other. A lane reads the rows before
each step, so looking once too often changes nothing. The clock is read at every wake, and believed within bounds
of the database's. An advisory lock keeps one scheduler active.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from procrastinate import App

from medlive.clock import iso_week, now
from medlive.config import Settings
from medlive.curation.model import Reason
from medlive.db.audit_log import latest_act
from medlive.db.curation.literature import PostgresAnswers
from medlive.db.jobs import Queue, count_open, count_servers
from medlive.db.release.weeks import load_waits
from medlive.db.runs import (
    SCHEDULER_LOCK,
    Run,
    forget_ahead,
    recorded_run,
    runs_of_week,
)
from medlive.db.session import (
    Connection,
    Database,
    ask_lock,
    lock_connection,
    read_clock,
)
from medlive.db.tables.intake import RunOutcome
from medlive.db.tables.people import Act
from medlive.errors import (
    CheckFailed,
    DatabaseUnavailable,
    EvidenceUnavailable,
    MedliveError,
    describe,
)
from medlive.integrity.signing import load_signing_key
from medlive.logs import bound
from medlive.service.backup.make import back_up_week
from medlive.service.curation.curate import CurationCounts, curate_queued, queue_again
from medlive.service.curation.parking import reject_expired
from medlive.service.curation.pipeline import open_pipeline
from medlive.service.database import open_database
from medlive.service.harvest.harvest import harvest_source
from medlive.service.harvest.raw_files import apply_retention
from medlive.service.harvest.sources import select_sources
from medlive.service.liveness import Liveness
from medlive.service.release.freeze import PartialWord, WeekIncomplete, freeze
from medlive.service.release.weekly import announce_week, publish_week, verify_week
from medlive.service.schedule import steps
from medlive.service.schedule.clocks import BelievedClock
from medlive.service.schedule.steps import StepState, StepStatus
from medlive.service.watch.watcher import keep_looking, look_safely
from medlive.service.wiring import build_filters
from medlive.service.work.jobs import STEP, open_app, run_step_job
from medlive.service.work.lost_threads import queue_lost
from medlive.service.work.tasks import end_tasks

_log = logging.getLogger(__name__)

WAKE_S = 5.0
"""Seconds between checks of the advisory lock."""
LOOK_AGAIN_MINUTES = 10
"""How often blocked and failed steps are looked at between their times."""

_HAS_LOCK = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = :key AND pid = pg_backend_pid()"
GRACE_S = 3.0
"""How long threads under curation may take when the scheduler is stopped; then they are cancelled."""

Notify = Callable[[str], None]
Counts = dict[str, Any]
"""What a step did; "problem" is there if it failed."""
Work = Callable[[Database, Settings, str], Awaitable[Counts]]


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


async def run_scheduler(
    settings: Settings,
    stop: asyncio.Event,
    notify: Notify,
    *,
    once: bool = False,
    clock: Callable[[], datetime] | None = None,
    wake_s: float = WAKE_S,
    health: Liveness | None = None,
) -> list[StepResult]:
    """Run each step when it is due until `stop` is set, or with `once` run what is due now; the results.

    `clock` says what is due; None: this machine's, within bounds of the database's (`BelievedClock`). A step that
    is running when `stop` is set is cancelled; its row stays "running" and the next scheduler runs it again.
    `health` gets what it waits for.
    Raises CheckFailed with `once` while another scheduler is active, ConfigError, and DatabaseUnavailable.
    """
    async with (
        open_database(settings) as database,
        lock_connection(database) as connection,
        open_app(database).open_async() as app,
    ):
        runner = _Runner(
            app,
            database,
            settings,
            notify,
            clock,
            once,
            health or Liveness(),
        )
        working = asyncio.create_task(runner.work(connection, once=once, wake_s=wake_s))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
        finally:
            await end_tasks(working, stopping)
        return runner.results


@dataclass
class _Runner:
    """Runs due steps, each in its lane."""

    app: App
    database: Database
    settings: Settings
    notify: Notify
    clock: Callable[[], datetime] | None
    again: bool
    health: Liveness
    results: list[StepResult] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)
    lanes: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    # Steps under way that may be due again at their end
    looked_for: set[str] = field(default_factory=set)
    believed: BelievedClock = field(default_factory=BelievedClock)
    clock_problem: bool = False  # Whether a clock's problem was logged, and lasts

    async def work(self, connection: Connection, *, once: bool, wake_s: float) -> None:
        """Run due steps while this process has the lock of `connection`."""
        await self._take_lock(connection, once=once, wake_s=wake_s)
        if once:
            await self._run_due(None)
            await look_safely(self.database, self.settings, clock=self.clock or now)
            return
        times = steps.weekly_times(
            self.settings.schedule, select_sources(self.settings, [])
        )
        known: dict[str, datetime] = {}
        looked, cleared = datetime.min.replace(tzinfo=UTC), 0
        alive = asyncio.Event()
        watching = asyncio.create_task(
            keep_looking(self.database, self.settings, alive, self.clock or now)
        )
        try:
            while True:
                alive.set()
                if watching.done():
                    watching.result()
                # A lost connection loses the lock, and another scheduler may be active.
                if not await ask_lock(connection, _HAS_LOCK, SCHEDULER_LOCK):
                    raise DatabaseUnavailable("the scheduler's lock was lost")
                for lane in list(self.lanes.values()):
                    if lane.done():
                        lane.result()  # Raises what ended it
                moment = await self._moment()
                slots = {}
                for name, weekly in times.items():
                    slots[name] = steps.latest_slot(moment, weekly)
                async with self.database.read() as session:
                    clearing = await latest_act(session, Act.CLEAR_STEP)
                is_late = abs(moment - looked) > timedelta(minutes=LOOK_AGAIN_MINUTES)
                if is_late or (slots, clearing) != (known, cleared):
                    known, looked, cleared = slots, moment, clearing
                    self._look(times)
                    await queue_lost(self.app, self.database)
                await asyncio.sleep(wake_s)
        finally:
            await end_tasks(watching, *self.lanes.values())

    async def _take_lock(
        self, connection: Connection, *, once: bool, wake_s: float
    ) -> None:
        """Wait until no other scheduler is active. Raises CheckFailed at once where it is asked for `once`."""
        question = "SELECT pg_try_advisory_lock(:key)"
        while not await ask_lock(connection, question, SCHEDULER_LOCK):
            if once:
                raise CheckFailed(
                    "another scheduler is active",
                    hint="it runs the steps when they are due",
                )
            self._notify_once("another scheduler is active; waiting for it to end")
            self.health.waiting = "another scheduler is active"
            await asyncio.sleep(wake_s)
        self.health.waiting = None

    async def _moment(self) -> datetime:
        """The moment that decides what is due; a clock that is not believed is said once."""
        if self.clock is not None:
            return self.clock()
        async with self.database.read() as session:
            reading = self.believed.read(await read_clock(session))
        if reading.problem is not None and not self.clock_problem:
            _log.warning("%s", reading.problem)
        self.clock_problem = reading.problem is not None
        return reading.moment

    async def _forget_ahead(self, moment: datetime) -> None:
        """Undo what a clock that was ahead has recorded for weeks that have not come."""
        async with self.database.begin() as session:
            names = await forget_ahead(session, moment)
        if names:
            message = f"recorded before its week, by a clock that was ahead, and due again: {', '.join(names)}"
            _log.warning("%s", message)

    def _notify_once(self, message: str, key: str | None = None) -> bool:
        """Send a message unless it, or another of its `key`, was sent before; whether it was sent."""
        if (key or message) in self.sent:
            return False
        self.sent.add(key or message)
        self.notify(message)
        return True

    def _look(self, names: Iterable[str]) -> None:
        """Run those of the steps that are due; where one is under way, look again when it has ended."""
        for name in names:
            lane = self.lanes.get(name)
            if lane is None or lane.done():
                self.lanes[name] = asyncio.create_task(self._run_lane(name))
            else:
                self.looked_for.add(name)

    async def _run_lane(self, name: str) -> None:
        is_wanted = True
        while is_wanted:
            self.looked_for.discard(name)
            if await self._run_due(name):
                # Late threads are queued, and what waited continues.
                self._look([other for other in self.lanes if other != name])
            is_wanted = name in self.looked_for

    async def _run_due(self, name: str | None) -> bool:
        """Run a step (None: every one) as long as it is due, reading the rows before; whether it was."""
        tried: set[tuple[str, str]] = set()
        while True:
            moment = await self._moment()
            await self._forget_ahead(moment)
            states = await steps.read_states(
                self.database,
                self.settings,
                moment,
                again=self.again,
                keep=True,
            )
            states = [state for state in states if name in (None, state.name)]
            due = [s for s in steps.due_steps(states) if (s.name, s.week) not in tried]
            for state in states:
                if state.status is StepStatus.BLOCKED and not (due and state.waits):
                    self._report_blocked(state)
            if not due:
                return bool(tried)
            tried.add((due[0].name, due[0].week))
            done = await self._run_step(due[0])
            self.results.append(done)
            message = (
                f"{done.iso_week} {done.command}: {done.state.value}: {done.detail}"
            )
            if done.state is StepOutcome.FAILED:
                _log.error("%s", message)
            else:
                self.notify(message)

    async def _run_step(self, step: StepState) -> StepResult:
        works = {STEP: step_work(self.database, self.settings, step.week)}
        await run_step_job(
            self.app,
            self.database,
            works,
            step.queue,
            step.name,
            step.week,
        )
        async with self.database.begin() as session:
            _, steps = await runs_of_week(session, step.week)
        return _result(step, steps.get(step.command))

    def _report_blocked(self, state: StepState) -> None:
        skipped = StepResult(
            state.command, state.week, StepOutcome.SKIPPED, state.why or ""
        )
        step = f"{skipped.iso_week} {skipped.command}"
        # What is waited for changes with every thread, and is said once.
        if self._notify_once(
            f"{step}: {skipped.detail}", key=f"{step} waits" if state.waits else None
        ):
            self.results.append(skipped)


def step_work(
    database: Database, settings: Settings, latest: str = ""
) -> Callable[[str, str], Awaitable[None]]:
    """The work of a weekly step's job, for weeks up to the present one, or `latest`."""

    async def work(step: str, week: str) -> None:
        if week > max(latest, iso_week(now())):
            raise CheckFailed(f"refused: {week} has not come")
        if step in (steps.PUBLISH, steps.ANNOUNCE):
            await _check_release(database, settings, step, week)
        await run_step(database, settings, step, week)

    return work


async def _check_release(
    database: Database, settings: Settings, step: str, week: str
) -> None:
    """Raise CheckFailed where nothing is published by itself, or what must come before the step is not done."""
    if not settings.publish.weekly:
        raise CheckFailed(f"refused: {step} needs [publish] weekly = true")
    before = steps.AFTER[step]
    async with database.begin() as session:
        _, runs = await runs_of_week(session, week)
    run = runs.get(steps.command_of(before))
    if run is None or run.outcome is not RunOutcome.DONE:
        raise CheckFailed(f"refused: {before} of {week} is not done")


async def run_step(
    database: Database, settings: Settings, step: str, week: str
) -> None:
    """Run a step for an ISO week and record it, with its problem if it fails.

    A cancelled step leaves its row "running", and is run again. Raises DatabaseUnavailable.
    """
    async with recorded_run(database, steps.command_of(step), {}, iso_week=week) as run:
        try:
            with bound(step=step, week=week):
                if (source := steps.source_of(step)) is not None:
                    run.counts = await _harvest(database, settings, source, week)
                else:
                    run.counts = await WORK[step](database, settings, week)
        except DatabaseUnavailable:
            raise
        except EvidenceUnavailable as error:
            # It is missed, and named by a check of its own: the step is due as soon as it is there.
            run.counts = {steps.AGAIN: describe(error)}
        except MedliveError as error:
            run.counts = {"problem": describe(error)}
        except Exception as error:
            _log.exception("step %s of %s failed", step, week)
            run.counts = {"problem": f"internal error: {describe(error)}"}
        run.failed, run.partial = "problem" in run.counts, steps.AGAIN in run.counts


def _result(step: StepState, run: Run | None) -> StepResult:
    if run is None or run.week != step.week or run.outcome is RunOutcome.RUNNING:
        return StepResult(
            step.command,
            step.week,
            StepOutcome.FAILED,
            "its job ended without a result",
        )
    outcome = (
        StepOutcome.SKIPPED
        if run.outcome is RunOutcome.PARTIAL
        else StepOutcome(run.outcome.value)
    )
    return StepResult(
        step.command, step.week, outcome, steps.summarize_counts(run.counts)
    )


async def _harvest(
    database: Database, settings: Settings, source: str, week: str
) -> Counts:
    done = await harvest_source(
        database,
        settings,
        source,
        select_sources(settings, [source])[source],
        week=week,
    )
    if done.busy:
        return {steps.AGAIN: done.failed}
    counts: Counts = dict(done.counts)
    if done.failed:
        counts["problem"] = done.failed
    elif done.quarantined:
        counts["problem"] = f"quarantined: {done.quarantined}"
    return counts


async def _queue(database: Database, settings: Settings, week: str) -> Counts:
    """Filter new threads, queue them with earlier failures and parked threads, and curate unless workers do."""
    from medlive.service.curation.filtering import filter_pending  # imports NumPy

    chain, attempts = build_filters(settings), settings.curation.max_attempts
    async with (
        open_pipeline(settings, database) as pipeline,
        open_app(database).open_async() as app,
    ):
        passed, rejected = await filter_pending(database, app, chain, week=week)
        expired = await reject_expired(database, settings.evidence.park_weeks)
        queued = await queue_again(
            app,
            pipeline,
            chain.digest,
            max_attempts=attempts,
            parked=True,
            week=week,
        )
    curated, left = await _curate(database, settings)
    return {
        "passed": passed,
        "rejected": rejected,
        "parked_too_long": expired,
        "queued_again": queued,
        "left_to_workers": left,
        **curated,
    }


async def _freeze(database: Database, settings: Settings, week: str) -> Counts:
    """Freeze a week that is whole, or whose time limit has passed."""
    async with database.begin() as session:
        wait = (await load_waits(session)).get((steps.FREEZE, week))
    word = None
    if wait is not None and wait.is_over:
        word = PartialWord(
            f"the time limit of {settings.schedule.freeze_wait_hours:g} hours had passed"
        )
    try:
        done = await freeze(
            database,
            settings,
            week,
            key=load_signing_key(os.environ),
            partial=word,
        )
    except WeekIncomplete as error:
        return {steps.AGAIN: error.message}
    kept_out = len({hit.case_id for hit in done.kept_out})
    counts: Counts = {
        "cases": done.cases,
        "criteria": done.criteria,
        "held_out": done.held,
        "kept_out": kept_out,
    }
    if done.audit_log is not None:
        # In the scheduler's log too, where the database's owner may be unable to write.
        counts |= {
            "audit_log_entries": done.audit_log.entries,
            "audit_log_head": done.audit_log.head,
        }
    return (
        counts if done.partial is None else counts | {"partial": done.partial.in_short}
    )


async def _curate(database: Database, settings: Settings) -> tuple[Counts, int]:
    """Curate the queue unless workers do: the non-zero counts, and the jobs left to workers."""
    async with database.begin() as session:
        jobs = await count_open(session, Queue.CURATE)
        workers = await count_servers(session, Queue.CURATE)
    if not jobs or workers:
        return {}, jobs
    async with (
        open_pipeline(settings, database) as pipeline,
        open_app(database).open_async() as app,
    ):
        curated = await curate_queued(app, pipeline, grace_s=GRACE_S)
    counts = {key: value for key, value in curated.as_json().items() if value}
    if pipeline.budget.stopped is not None:
        counts["stopped"] = pipeline.budget.stopped
    if problem := _curation_problem(curated, settings.schedule.failure_share):
        counts["problem"] = problem
    return counts, 0


def _curation_problem(done: CurationCounts, share: float) -> str | None:
    """Why a curation has failed: an internal error, an obstacle to all threads, or too many failed ones."""
    if done.faults:
        return f"{len(done.faults)} threads failed with an internal error, first {done.faults[0]}"
    if obstacle := done.misconfigured or done.stopped:
        return f"{obstacle}; {done.left} threads wait"
    failures = Counter(done.failures)
    del failures[Reason.BUDGET_SPENT]
    failed, decided = failures.total(), done.outcomes.total()
    if failed <= share * decided:
        return None
    return f"{failed} of {decided} threads failed, most with {failures.most_common(1)[0][0]}"


async def _retention(database: Database, settings: Settings, week: str) -> Counts:
    counts: Counts = dict(await apply_retention(database, settings))
    counts["answers"] = await PostgresAnswers(
        database, days=settings.evidence.online_days
    ).delete_old()
    if counts["damaged"]:
        counts["problem"] = f"{counts['damaged']} files are damaged"
    elif counts["busy"]:
        counts[steps.AGAIN] = f"{counts['busy']} communities are being harvested"
    return counts


WORK: dict[str, Work] = {
    steps.QUEUE: _queue,
    steps.FREEZE: _freeze,
    steps.RETENTION: _retention,
    steps.BACKUP: back_up_week,
    steps.VERIFY: verify_week,
    steps.PUBLISH: publish_week,
    steps.ANNOUNCE: announce_week,
}
"""The steps other than harvests: each does its work for an ISO week."""
