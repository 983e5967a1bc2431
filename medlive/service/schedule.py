"""The weekly steps and when each is due: harvest every source, filter and queue, freeze.

What was done is read from the database, so that a restart repeats nothing and a time that was missed is caught
up. One scheduler at a time works, held by an advisory lock.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from sqlalchemy import exc, text
from sqlalchemy.ext.asyncio import AsyncConnection

from medlive.clock import iso_week, now
from medlive.config import Settings, WeeklyTime
from medlive.db.harvests import harvest_outcomes, list_sources
from medlive.db.runs import finish_run, latest_runs, start_run
from medlive.db.session import Database
from medlive.db.snapshots import find_snapshot
from medlive.db.tables import RunOutcome, SnapshotState
from medlive.errors import CheckFailed, DatabaseUnavailable, MedliveError
from medlive.service.curating import queue_failed, queue_untried
from medlive.service.database import open_database
from medlive.service.filtering import filter_pending
from medlive.service.freezing import freeze
from medlive.service.harvesting import chosen, fetch_settings, harvest_source
from medlive.service.jobs import open_app
from medlive.service.wiring import build_filters, build_pipeline

WAKE_S = 60.0
RETRY_AFTER = timedelta(hours=1)
"""How long a step that failed waits, unless a person asks with `--once`."""
_LOCK = 0x6D65644C  # "medL": one number for every scheduler of this database
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

Say = Callable[[str], None]
Work = Callable[[], Awaitable[Mapping[str, Any]]]


class State(StrEnum):
    """What became of a step."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a week needs: `command` is its name in `pipeline_runs`."""

    command: str
    iso_week: str
    work: Work


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was taken, or that was due and could not be."""

    command: str
    iso_week: str
    state: State
    detail: str


def due_at(week_of: datetime, time: WeeklyTime) -> datetime:
    """The moment of a weekly time in the ISO week that `week_of` lies in."""
    day = week_of.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    monday = day - timedelta(days=day.weekday())
    return monday + timedelta(days=_WEEKDAYS.index(time.weekday), hours=time.hour)


async def run_scheduler(
    settings: Settings,
    stop: asyncio.Event,
    say: Say,
    *,
    once: bool = False,
    clock: Callable[[], datetime] = now,
    wake_s: float = WAKE_S,
) -> list[Taken]:
    """Take each step when it is due until `stop` is set, or with `once` take what is due now; what was taken.

    A step under way when `stop` comes is broken off; its row stays "running" and the next scheduler begins it
    again. Raises CheckFailed with `once` while another scheduler works, and DatabaseUnavailable.
    """
    taken: list[Taken] = []
    async with open_database(settings) as database, _lock_connection(database) as connection:
        working = asyncio.create_task(
            _work(database, settings, connection, taken, say, once=once, clock=clock, wake_s=wake_s)
        )
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
    return taken


async def _work(
    database: Database,
    settings: Settings,
    connection: AsyncConnection,
    taken: list[Taken],
    say: Say,
    *,
    once: bool,
    clock: Callable[[], datetime],
    wake_s: float,
) -> None:
    said: set[str] = set()
    while not await _ask(connection, "SELECT pg_try_advisory_lock(:key)"):
        if once:
            raise CheckFailed("another scheduler is active", hint="it takes the steps when they are due")
        _say_once("another scheduler is active; waiting for its place", said, say)
        await asyncio.sleep(wake_s)
    while True:
        # Whoever lost the connection lost the lock with it, and must not go on beside another.
        if not await _ask(connection, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "
                                      "objid = :key AND pid = pg_backend_pid()"):  # fmt: skip
            raise DatabaseUnavailable("the scheduler's lock was lost")
        steps, skipped = await _due(database, settings, clock(), again=once)
        for skip in skipped:
            if _say_once(f"{skip.iso_week} {skip.command}: {skip.detail}", said, say):
                taken.append(skip)
        for step in steps:
            taken.append(await _take(database, step))
            say(f"{step.iso_week} {step.command}: {taken[-1].state.value}: {taken[-1].detail}")
        if once:
            return
        await asyncio.sleep(wake_s)


def _say_once(told: str, said: set[str], say: Say) -> bool:
    if told in said:
        return False
    said.add(told)
    say(told)
    return True


async def _due(
    database: Database, settings: Settings, moment: datetime, *, again: bool
) -> tuple[list[Step], list[Taken]]:
    """The steps that are due and not done, in their order, and those that are due and cannot be taken."""
    week, before = iso_week(moment), iso_week(moment - timedelta(days=7))
    async with database.begin() as session:
        runs, earlier = await latest_runs(session, week), await latest_runs(session, before)
        harvests = await harvest_outcomes(session, week)
        begun_before = bool(earlier or await harvest_outcomes(session, before))
        quarantined = {s.name: s.quarantine_reason for s in await list_sources(session) if s.quarantine_reason}
        frozen = {}
        for version in (before, week):
            found = await find_snapshot(session, version)
            frozen[version] = found is not None and found.state is SnapshotState.FROZEN

    def waits(command: str, of_week: Mapping[str, tuple[RunOutcome, datetime | None]]) -> bool:
        outcome, end = of_week.get(command, (None, None))
        return not again and outcome is RunOutcome.FAILED and end is not None and moment < end + RETRY_AFTER

    steps: list[Step] = []
    skipped: list[Taken] = []
    times = settings.schedule
    # The week before, when this instance had begun it and was away at its end.
    if begun_before and not frozen[before] and not frozen[week] and not waits("scheduler freeze", earlier):
        steps.append(Step("scheduler freeze", before, partial(_freeze, database, settings, before)))
    if moment >= due_at(moment, times.harvest):
        fetching = fetch_settings(settings)
        for source, overrides in chosen(settings, []).items():
            command = f"scheduler harvest {source}"
            if harvests.get(source) is RunOutcome.DONE or waits(command, runs):
                continue
            why = f"quarantined: {quarantined[source]}" if source in quarantined else None
            if fetching.contact is None and not fetching.allow_loopback:
                why = "a harvest needs a contact address: set MEDLIVE_HARVEST__CONTACT=you@example.org"
            if why is not None:
                skipped.append(Taken(command, week, State.SKIPPED, why))
                continue
            steps.append(Step(command, week, partial(_harvest, database, settings, source, overrides)))
    # What a harvest brings late is queued after it.
    queued = _done("scheduler queue", runs) and not any(s.command.startswith("scheduler harvest") for s in steps)
    if moment >= due_at(moment, times.queue) and not queued and not waits("scheduler queue", runs):
        steps.append(Step("scheduler queue", week, partial(_queue, database, settings)))
    if moment >= due_at(moment, times.freeze) and not frozen[week] and not waits("scheduler freeze", runs):
        steps.append(Step("scheduler freeze", week, partial(_freeze, database, settings, week)))
    return steps, skipped


def _done(command: str, runs: Mapping[str, tuple[RunOutcome, datetime | None]]) -> bool:
    return command in runs and runs[command][0] is RunOutcome.DONE


async def _take(database: Database, step: Step) -> Taken:
    """Take a step under a row of its own; what goes wrong is in the row and is told, and the next step follows."""
    async with database.begin() as session:
        run = await start_run(session, step.command, {}, iso_week=step.iso_week)
    counts: Mapping[str, Any] = {}
    problem: str | None = None
    try:
        counts = await step.work()
    except DatabaseUnavailable:
        raise
    except MedliveError as error:
        problem = error.message
    except Exception as error:
        problem = f"a fault of medlive itself: {type(error).__name__}: {error}"
    if problem is not None:
        counts = {"problem": problem}
    async with database.begin() as session:
        await finish_run(session, run, counts, failed=problem is not None)
    told = problem or ", ".join(f"{key} {value}" for key, value in counts.items()) or "nothing new"
    return Taken(step.command, step.iso_week, State.DONE if problem is None else State.FAILED, told)


async def _harvest(
    database: Database, settings: Settings, source: str, overrides: Mapping[str, Any]
) -> Mapping[str, Any]:
    done = await harvest_source(database, settings, source, overrides)
    if done.failed or done.quarantined:
        raise CheckFailed(done.failed or f"quarantined: {done.quarantined}")
    return dict(done.counts)


async def _queue(database: Database, settings: Settings) -> Mapping[str, Any]:
    chain = build_filters(settings)
    pipeline = build_pipeline(settings, database)
    try:
        async with open_app(database).open_async() as app:
            filtered = await filter_pending(database, app, chain)
            attempts = settings.curation.max_attempts
            failed = await queue_failed(database, app, pipeline, max_attempts=attempts)
            lost = await queue_untried(database, app, chain.digest, None)
    finally:
        await pipeline.aclose()
    return {"passed": filtered.passed, "rejected": filtered.rejected, "queued_again": failed + lost}


async def _freeze(database: Database, settings: Settings, week: str) -> Mapping[str, Any]:
    done = await freeze(database, settings, week)
    return {"cases": done.cases, "criteria": done.criteria, "kept_out": len(done.kept_out)}


@asynccontextmanager
async def _lock_connection(database: Database) -> AsyncIterator[AsyncConnection]:
    """A connection of the lock's own; the server frees the lock when it ends, however that happens."""
    async with database.engine.connect() as connection:
        alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
        try:
            yield alone
        finally:
            # Not back to the pool, where the lock would live on.
            await alone.invalidate()


async def _ask(connection: AsyncConnection, question: str) -> bool:
    try:
        return bool(await connection.scalar(text(question), {"key": _LOCK}))
    except exc.DBAPIError as error:
        raise DatabaseUnavailable("the scheduler's connection was lost") from error
