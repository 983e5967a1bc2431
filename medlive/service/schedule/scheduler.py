"""The scheduler: APScheduler says when to look, the stored rows which steps are run, each recorded as a run.

Steps run in lanes: one for each source's harvest, so that a slow community delays no other, and one for the steps
that depend on each other. A lane reads the rows before each step, so looking once too often changes nothing. An
advisory lock keeps one scheduler active.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger
from procrastinate import App

from medlive.clock import now
from medlive.config import Settings
from medlive.db.jobs import Queue, count_ready, count_servers
from medlive.db.runs import SCHEDULER_LOCK, Run, latest_run, recorded_run
from medlive.db.session import Connection, Database, ask_lock, lock_connection
from medlive.db.tables.intake import RunOutcome
from medlive.errors import CheckFailed, DatabaseUnavailable, MedliveError, ServiceUnavailable, describe
from medlive.integrity.signing import load_signing_key
from medlive.logs import bound
from medlive.service.curation.curate import curate_queued, queue_again
from medlive.service.curation.filtering import filter_pending
from medlive.service.curation.pipeline import open_pipeline
from medlive.service.database import open_database
from medlive.service.harvest.harvest import harvest_source
from medlive.service.harvest.raw_files import apply_retention
from medlive.service.harvest.sources import select_sources
from medlive.service.jobs import STEP, open_app, run_step_job
from medlive.service.notify import notify
from medlive.service.release.freeze import freeze
from medlive.service.release.weekly import announce_week, publish_week, verify_week
from medlive.service.schedule import steps
from medlive.service.schedule.steps import StepState, StepStatus
from medlive.service.wiring import build_filters

_log = logging.getLogger(__name__)

WAKE_S = 5.0
"""Seconds between checks of the advisory lock."""
LOOK_AGAIN_MINUTES = 10
"""How often blocked and failed steps are looked at between their times."""
_FOLLOWING = "following"
"""The lane of every step other than harvests."""

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
    clock: Callable[[], datetime] = now,
    wake_s: float = WAKE_S,
) -> list[StepResult]:
    """Run each step when it is due until `stop` is set, or with `once` run what is due now; the results.

    A step that is running when `stop` is set is cancelled; its row stays "running" and the next scheduler runs it
    again. Raises CheckFailed with `once` while another scheduler is active, ConfigError, and DatabaseUnavailable.
    """
    async with (
        open_database(settings) as database,
        lock_connection(database) as connection,
        open_app(database).open_async() as app,
    ):
        runner = _Runner(app, database, settings, notify, clock, once)
        working = asyncio.create_task(runner.work(connection, once=once, wake_s=wake_s))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
        return runner.results


@dataclass
class _Runner:
    """Runs due steps, one after another in each lane."""

    app: App
    database: Database
    settings: Settings
    notify: Notify
    clock: Callable[[], datetime]
    again: bool
    results: list[StepResult] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)
    lanes: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def work(self, connection: Connection, *, once: bool, wake_s: float) -> None:
        """Run due steps while this process has the lock of `connection`."""
        while not await ask_lock(connection, "SELECT pg_try_advisory_lock(:key)", SCHEDULER_LOCK):
            if once:
                raise CheckFailed("another scheduler is active", hint="it runs the steps when they are due")
            self._notify_once("another scheduler is active; waiting for it to end")
            await asyncio.sleep(wake_s)
        if once:
            await self._run_due(lambda lane: True)
            return
        times = steps.weekly_times(self.settings.schedule, select_sources(self.settings, []))
        clock = AsyncIOScheduler(timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None})
        for name, time in times.items():
            at = CronTrigger(day_of_week=time.weekday, hour=time.hour, minute=time.minute, timezone=UTC)
            clock.add_job(self._look, at, args=[name])
        clock.add_job(self._look, "interval", args=[*times], minutes=LOOK_AGAIN_MINUTES, next_run_time=now())
        clock.start()
        try:
            while True:
                # A lost connection loses the lock, and another scheduler may be active.
                if not await ask_lock(connection, _HAS_LOCK, SCHEDULER_LOCK):
                    raise DatabaseUnavailable("the scheduler's lock was lost")
                for task in [task for task in self.lanes.values() if task.done()]:
                    task.result()
                await asyncio.sleep(wake_s)
        finally:
            clock.shutdown(wait=False)
            for task in self.lanes.values():
                task.cancel()
            await asyncio.gather(*self.lanes.values(), return_exceptions=True)

    def _notify_once(self, message: str) -> bool:
        """Send a message unless it was sent before; whether it was sent."""
        if message in self.sent:
            return False
        self.sent.add(message)
        self.notify(message)
        return True

    async def _look(self, *names: str) -> None:
        """Run what is due in the lanes of the named steps, except in a lane that is busy."""
        for lane in dict.fromkeys(map(_lane, names)):
            if lane not in self.lanes or self.lanes[lane].done():
                self.lanes[lane] = asyncio.create_task(self._run_lane(lane))

    async def _run_lane(self, lane: str) -> None:
        if await self._run_due(lambda other: other == lane) and lane != _FOLLOWING:
            # Late threads are queued, and a freeze that waited continues.
            await self._look(_FOLLOWING)

    async def _run_due(self, wanted: Callable[[str], bool]) -> bool:
        """Run the due steps of these lanes, reading the rows before each; whether there were any."""
        tried: set[tuple[str, str]] = set()
        while True:
            harvesting = any(lane != _FOLLOWING and not task.done() for lane, task in self.lanes.items())
            states = await steps.read_states(
                self.database, self.settings, self.clock(), again=self.again, harvesting=harvesting
            )
            states = [state for state in states if wanted(_lane(state.name))]
            for state in states:
                if state.status is StepStatus.BLOCKED:
                    self._report_blocked(state)
            due = [s for s in steps.due_steps(states) if (s.name, s.week) not in tried]
            if not due:
                return bool(tried)
            tried.add((due[0].name, due[0].week))
            done = await self._run_step(due[0])
            self.results.append(done)
            message = f"{done.iso_week} {done.command}: {done.state.value}: {done.detail}"
            self.notify(message)
            if done.state is StepOutcome.FAILED and _result(due[0], due[0].latest) != done:
                await self._notify_operators(done.iso_week, message)

    async def _run_step(self, step: StepState) -> StepResult:
        works = {STEP: step_work(self.database, self.settings)}
        await run_step_job(self.app, self.database, works, step.queue, step.name, step.week)
        async with self.database.begin() as session:
            return _result(step, await latest_run(session, step.command, step.week))

    async def _notify_operators(self, week: str, message: str) -> None:
        """Send a failure to the configured places; one that cannot be reached fails no step."""
        try:
            await notify(self.settings.notify, "step_failed", week, message)
        except ServiceUnavailable as error:
            self.notify(error.message)

    def _report_blocked(self, state: StepState) -> None:
        skipped = StepResult(state.command, state.week, StepOutcome.SKIPPED, state.why or "")
        if self._notify_once(f"{skipped.iso_week} {skipped.command}: {skipped.detail}"):
            self.results.append(skipped)


def _lane(step: str) -> str:
    return step if step.startswith("harvest:") else _FOLLOWING


def step_work(database: Database, settings: Settings) -> Callable[[str, str], Awaitable[None]]:
    """The work of a weekly step's job."""

    async def work(step: str, week: str) -> None:
        await run_step(database, settings, step, week)

    return work


async def run_step(database: Database, settings: Settings, step: str, week: str) -> None:
    """Run a step for an ISO week and record it, with its problem if it fails.

    A cancelled step leaves its row "running", and is run again. Raises DatabaseUnavailable.
    """
    async with recorded_run(database, steps.command_of(step), {}, iso_week=week) as run:
        try:
            with bound(step=step, week=week):
                if (source := steps.source_of(step)) is not None:
                    run.counts = await _harvest(database, settings, source)
                else:
                    run.counts = await WORK[step](database, settings, week)
        except DatabaseUnavailable:
            raise
        except MedliveError as error:
            run.counts = {"problem": describe(error)}
        except Exception as error:
            _log.exception("step %s of %s failed", step, week)
            run.counts = {"problem": f"internal error: {describe(error)}"}
        run.failed = "problem" in run.counts


def _result(step: StepState, run: Run | None) -> StepResult:
    if run is None or run.week != step.week or run.outcome is RunOutcome.RUNNING:
        return StepResult(step.command, step.week, StepOutcome.FAILED, "its job ended without a result")
    return StepResult(step.command, step.week, StepOutcome(run.outcome.value), steps.summarize_counts(run.counts))


async def _harvest(database: Database, settings: Settings, source: str) -> Counts:
    done = await harvest_source(database, settings, source, select_sources(settings, [source])[source])
    problem = done.failed or (f"quarantined: {done.quarantined}" if done.quarantined else None)
    return {**done.counts, **({"problem": problem} if problem else {})}


async def _queue(database: Database, settings: Settings, week: str) -> Counts:
    """Filter new threads, queue them with earlier failures, and curate the queue unless workers do."""
    chain, attempts = build_filters(settings), settings.curation.max_attempts
    async with open_pipeline(settings, database) as pipeline, open_app(database).open_async() as app:
        passed, rejected = await filter_pending(database, app, chain)
        queued = await queue_again(app, pipeline, chain.digest, max_attempts=attempts)
    curated, left = await _curate(database, settings)
    return {"passed": passed, "rejected": rejected, "queued_again": queued, "left_to_workers": left, **curated}


async def _freeze(database: Database, settings: Settings, week: str) -> Counts:
    """Freeze a week, curating the queue first unless workers do."""
    curated, left = await _curate(database, settings)
    done = await freeze(database, settings, week, key=load_signing_key(os.environ))
    kept_out = len({hit.case_id for hit in done.kept_out})
    # Threads left to workers enter the next week's snapshot.
    return {
        "cases": done.cases, "criteria": done.criteria, "held_out": done.held, "kept_out": kept_out,
        "still_with_workers": left, **curated,
    }  # fmt: skip


async def _curate(database: Database, settings: Settings) -> tuple[Counts, int]:
    """Curate the queue unless workers do: the non-zero counts, and the jobs left to workers."""
    async with database.begin() as session:
        jobs, workers = await count_ready(session, Queue.CURATE), await count_servers(session, Queue.CURATE)
    if not jobs or workers:
        return {}, jobs
    async with open_pipeline(settings, database) as pipeline, open_app(database).open_async() as app:
        curated = await curate_queued(app, pipeline, grace_s=GRACE_S)
    counts = {key: value for key, value in curated.as_json().items() if value}
    if faults := curated.faults:
        counts["problem"] = f"{len(faults)} threads failed with an internal error, first {faults[0]}"
    return counts, 0


async def _retention(database: Database, settings: Settings, week: str) -> Counts:
    counts: Counts = dict(await apply_retention(database, settings))
    if counts["busy"] or counts["damaged"]:
        counts["problem"] = (
            f"{counts['busy']} communities are being harvested, {counts['damaged']} files are damaged"
        )
    return counts


WORK: dict[str, Work] = {
    steps.QUEUE: _queue, steps.FREEZE: _freeze, steps.RETENTION: _retention,
    steps.VERIFY: verify_week, steps.PUBLISH: publish_week, steps.ANNOUNCE: announce_week,
}  # fmt: skip
"""The steps other than harvests: each does its work for an ISO week."""
