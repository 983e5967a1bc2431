"""The scheduler: the stored rows and the clock say which steps are due, each recorded as a run.

`run_scheduler` runs the due steps, each in an asyncio task of its own, so that one which is slow or hangs delays no
other; `step_work` is what a step's job does, here or in a worker. The rows are read when something has changed, and
before steps are begun, so looking once too often changes nothing. The database's clock is read at every wake. An
advisory lock keeps one scheduler active.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from procrastinate import App

from medlive.clock import iso_week
from medlive.config import Settings, WeeklyTime
from medlive.db.audit_log import latest_act
from medlive.db.curation.literature import PostgresAnswers
from medlive.db.jobs import Queue, count_servers
from medlive.db.release.weeks import load_waits
from medlive.db.runs import SCHEDULER_LOCK, forget_ahead, recorded_run, runs_of_week
from medlive.db.session import (
    Connection,
    Database,
    Session,
    ask_lock,
    lock_connection,
    read_clock,
)
from medlive.db.tables.intake import RunOutcome
from medlive.db.tables.people import Act
from medlive.errors import (
    CheckFailed,
    CircuitOpen,
    DatabaseUnavailable,
    EvidenceUnavailable,
    MedliveError,
    describe,
)
from medlive.integrity.signing import load_signing_key
from medlive.llm.budget import BudgetSpent
from medlive.logs import bound
from medlive.service.backup.make import back_up_week
from medlive.service.curation.curate import (
    curate_queued,
    fill_queue,
    rescan_cases,
)
from medlive.service.database import open_database
from medlive.service.harvest.harvest import harvest_source
from medlive.service.harvest.raw_files import apply_retention
from medlive.service.harvest.sources import select_sources
from medlive.service.release.freeze import WeekIncomplete, freeze
from medlive.service.release.publish import announce_week, publish_week, verify_week
from medlive.service.waiting import Liveness
from medlive.service.watch.facts import Clock
from medlive.service.watch.notify import keep_looking, look
from medlive.service.wiring import build_filters, open_pipeline
from medlive.service.work.jobs import end_tasks, open_app, queue_lost, run_step_job
from medlive.service.work.taken import STEP

from . import steps
from .steps import StepState

_log = logging.getLogger(__name__)

WAKE_S = 5.0
"""Seconds between looks at the advisory lock and the clock."""
LOOK_AGAIN_MINUTES = 10
"""How often blocked and failed steps are looked at between their times."""

_TAKE_LOCK = "SELECT pg_try_advisory_lock(:key)"
_HAS_LOCK = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = :key AND pid = pg_backend_pid()"
GRACE_S = 3.0
"""Seconds that threads under curation get when the scheduler is stopped; then they are cancelled."""

# Shows a message to whoever runs the scheduler
Notify = Callable[[str], None]
Counts = dict[str, Any]
"""What a step did; "problem" is there if it failed."""
# Does a step for an ISO week
Work = Callable[[Database, Settings, str], Awaitable[Counts]]


StepResult = dict[str, str]
"""A step that was run, or was due and blocked: "command", "iso_week", "state" (done, failed or skipped), "detail"."""


async def run_scheduler(
    settings: Settings,
    stop: asyncio.Event,
    notify: Notify,
    *,
    once: bool = False,
    clock: Clock = None,
    wake_s: float = WAKE_S,
    health: Liveness | None = None,
) -> list[StepResult]:
    """Run each step when it is due until `stop` is set, or with `once` run what is due now; the results.

    `clock` says what is due; None: the database's. A step that is running when `stop` is set is cancelled; its row
    stays "running" and the next scheduler runs it again. `health` gets what it waits for.
    Raises CheckFailed with `once` while another scheduler is active, ConfigError, and DatabaseUnavailable.
    """
    async with (
        open_database(settings) as database,
        lock_connection(database) as connection,
        open_app(database).open_async() as app,
    ):
        runner = _Runner(app, database, settings, notify, clock, once)
        health = health or Liveness()
        working = asyncio.create_task(runner.work(connection, health, wake_s))
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
    """Runs due steps, each in a task of its own."""

    app: App
    database: Database
    settings: Settings
    notify: Notify
    clock: Clock
    once: bool
    results: list[StepResult] = field(default_factory=list)
    sent: set[object] = field(default_factory=set)  # Blocked steps that were reported
    tried: set[tuple[str, str]] = field(default_factory=set)
    """Steps and weeks that were begun, and wait for a change before they are run again."""
    known: object = None
    """The steps' slots, the latest clearing and the ten-minute period at the last look; a change empties `tried`."""
    running: dict[str, asyncio.Task[bool]] = field(default_factory=dict)

    async def work(
        self, connection: Connection, health: Liveness, wake_s: float
    ) -> None:
        """Run due steps while this process has the lock of `connection`."""
        while not await ask_lock(connection, _TAKE_LOCK, SCHEDULER_LOCK):
            if self.once:
                raise CheckFailed(
                    "another scheduler is active",
                    hint="it runs the steps when they are due",
                )
            if health.waiting is None:
                health.waiting = "another scheduler is active"
                self.notify(f"{health.waiting}; waiting for it to end")
            await asyncio.sleep(wake_s)
        health.waiting = None
        if self.once:
            await queue_lost(self.database)
            while due := await self._find_due():
                await self._run_step(due[0])
            await look(self.database, self.settings, clock=self.clock)
            return
        times = steps.weekly_times(
            self.settings.schedule, select_sources(self.settings, [])
        )
        alive = asyncio.Event()
        looking = asyncio.create_task(
            keep_looking(self.database, self.settings, alive, self.clock)
        )
        try:
            while not looking.done():
                alive.set()
                # A lost connection loses the lock, and another scheduler may be active.
                if not await ask_lock(connection, _HAS_LOCK, SCHEDULER_LOCK):
                    raise DatabaseUnavailable("the scheduler's lock was lost")
                await self._begin_due(times.values())
                await asyncio.wait(
                    [looking, *self.running.values()],
                    timeout=wake_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            looking.result()
        finally:
            await end_tasks(looking, *self.running.values())

    async def _begin_due(self, times: Iterable[WeeklyTime]) -> None:
        """Begin the due steps that are not running, if a step may have become due since the last look."""
        async with self.database.read() as session:
            clearing = await latest_act(session, Act.CLEAR_STEP)
            moment = await self._moment(session)
        period = moment.timestamp() // (60 * LOOK_AGAIN_MINUTES)
        known = [steps.latest_slot(moment, time) for time in times], clearing, period
        if is_changed := known != self.known:
            self.known = known
            self.tried.clear()
            await queue_lost(self.database)
        for name in list(self.running):
            if self.running[name].done():
                is_changed = True
                # `result` raises what ended the step. A step that ended lets the others be tried again: late threads
                # are queued, and what waited goes on. One that is to be run again does not, since two such steps
                # would begin each other without a pause.
                if self.running.pop(name).result():
                    self.tried = {key for key in self.tried if key[0] == name}
        if not is_changed:
            return
        for step in await self._find_due():
            if step.name not in self.running:
                work = self._run_step(step)
                self.running[step.name] = asyncio.create_task(work)

    async def _moment(self, session: Session) -> datetime:
        """The present moment by `clock`, or else by the database's."""
        return self.clock() if self.clock else await read_clock(session)

    async def _find_due(self) -> list[StepState]:
        """The due steps that are not in `tried`, by the stored rows; each blocked step is reported once."""
        async with self.database.begin() as session:
            moment = await self._moment(session)
            for record in await forget_ahead(session, moment):
                _log.warning(
                    "%s: recorded before its week, by a clock that was ahead, and due again",
                    record,
                )
        states = await steps.read_states(
            self.database, self.settings, moment, again=self.once, keep=True
        )
        due = [s for s in steps.due_steps(states) if (s.name, s.week) not in self.tried]
        for state in states:
            # What a step waits for changes with every thread: its wait is reported once.
            key = (state.name, state.week, state.waits or state.why)
            is_new = state.status == "blocked" and key not in self.sent
            # With `once` the due steps run one by one, and may end the wait.
            if is_new and not (self.once and due and state.waits):
                self.sent.add(key)
                why = str(state.why)
                self.notify(f"{state.week} {state.command}: {why}")
                self._note(state, "skipped", why)
        return due

    def _note(self, step: StepState, state: str, detail: str) -> None:
        """Add the result of a step."""
        result = {"command": step.command, "iso_week": step.week}
        self.results.append(result | {"state": state, "detail": detail})

    async def _run_step(self, step: StepState) -> bool:
        """Run a step; False if it is to be run again, though it did not fail."""
        self.tried.add((step.name, step.week))
        works = {STEP: step_work(self.database, self.settings, step.week)}
        await run_step_job(
            self.app, self.database, works, step.queue, step.name, step.week
        )
        _, runs = await self.database.ask(runs_of_week, step.week)
        state, detail = "failed", "its job ended without a result"
        run = runs.get(step.command)
        if run and run.outcome is not RunOutcome.RUNNING:
            is_partial = run.outcome is RunOutcome.PARTIAL
            state = "skipped" if is_partial else run.outcome.value
            detail = steps.summarize_counts(run.counts)
        self._note(step, state, detail)
        message = f"{step.week} {step.command}: {state}: {detail}"
        if state == "failed":
            _log.error("%s", message)
        else:
            self.notify(message)
        return state != "skipped"


def step_work(
    database: Database, settings: Settings, latest: str = ""
) -> Callable[[str, str], Awaitable[None]]:
    """The work of a weekly step's job; it refuses weeks after the present one, or after `latest` if that is later."""

    async def work(step: str, week: str) -> None:
        """Run a step for a week, unless the week or the step before it is yet to come."""
        async with database.begin() as session:
            present = iso_week(await read_clock(session))
            _, runs = await runs_of_week(session, week)
        if week > max(latest, present):
            raise CheckFailed(f"refused: {week} has not come")
        if step in (steps.PUBLISH, steps.ANNOUNCE):
            if not settings.publish.weekly:
                raise CheckFailed(f"refused: {step} needs [publish] weekly = true")
            before = steps.AFTER[step]
            run = runs.get(steps.command_of(before))
            if run is None or run.outcome is not RunOutcome.DONE:
                raise CheckFailed(f"refused: {before} of {week} is not done")
        await run_step(database, settings, step, week)

    return work


async def run_step(
    database: Database, settings: Settings, step: str, week: str
) -> None:
    """Run a step for an ISO week and record it, with its problem if it fails.

    A cancelled step leaves its row "running", and is run again. Raises DatabaseUnavailable.
    """
    async with recorded_run(database, steps.command_of(step), {}, iso_week=week) as run:
        try:
            with bound(step=step, week=week):
                if source := steps.source_of(step):
                    run.counts = await _harvest(database, settings, source, week)
                else:
                    run.counts = await WORK[step](database, settings, week)
        except DatabaseUnavailable:
            raise
        except EvidenceUnavailable as error:
            # A check of its own reports missing evidence; the step is due again as soon as there is some.
            run.counts = {steps.AGAIN: describe(error)}
        except MedliveError as error:
            run.counts = {"problem": describe(error)}
        except Exception as error:
            _log.exception("step %s of %s failed", step, week)
            run.counts = {"problem": f"internal error: {describe(error)}"}
        run.failed, run.partial = "problem" in run.counts, steps.AGAIN in run.counts


async def _harvest(
    database: Database, settings: Settings, source: str, week: str
) -> Counts:
    """Harvest a source for the week."""
    done = await harvest_source(
        database, settings, select_sources(settings, [source])[source], week=week
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
    """Filter new threads, queue them with earlier failures and parked threads, and curate unless workers do.

    Ready cases that were edited, or that the present reader has not read, are read for identifiers.
    """
    async with open_pipeline(settings, database) as pipeline:
        counts: Counts = await fill_queue(
            pipeline,
            build_filters(settings),
            max_attempts=settings.curation.max_attempts,
            week=week,
        )
        if not await database.ask(count_servers, Queue.CURATE):
            curated = await curate_queued(pipeline, grace_s=GRACE_S)
            counts |= {key: value for key, value in curated.as_json().items() if value}
            if pipeline.budget.stopped is not None:
                counts["stopped"] = pipeline.budget.stopped
            if problem := curated.find_problem(settings.schedule.failure_share):
                counts["problem"] = problem
        with suppress(BudgetSpent, CircuitOpen):  # Then the next queueing reads them
            await pipeline.check_ready()
            for what, cases in (await rescan_cases(pipeline)).items():
                if cases:
                    counts[f"read_again_{what}"] = cases
    return counts


async def _freeze(database: Database, settings: Settings, week: str) -> Counts:
    """Freeze a week that is whole, or whose time limit has passed."""
    _, is_over = (await database.ask(load_waits)).get(
        (steps.FREEZE, week), (None, False)
    )
    why, key = None, load_signing_key(os.environ)
    if is_over:
        hours = settings.schedule.freeze_wait_hours
        why = f"the time limit of {hours:g} hours had passed"
    try:
        done = await freeze(database, settings, week, key=key, partial=why)
    except WeekIncomplete as error:
        return {steps.AGAIN: error.message}
    counts: Counts = {
        "cases": done.cases,
        "criteria": done.criteria,
        "held_out": done.held,
        "kept_out": len({hit.case_id for hit in done.kept_out}),
    }
    if done.audit_log:
        # In the scheduler's log too, where the database's owner may be unable to write.
        counts["audit_log_entries"] = done.audit_log.entries
        counts["audit_log_head"] = done.audit_log.head
    if done.partial:
        counts["partial"] = done.partial.in_short
    return counts


async def _retention(database: Database, settings: Settings, week: str) -> Counts:
    """Delete old raw pages, and old answers of literature services."""
    counts: Counts = dict(await apply_retention(database, settings))
    answers = PostgresAnswers(database, days=settings.evidence.online_days)
    counts["answers"] = await answers.delete_old()
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
