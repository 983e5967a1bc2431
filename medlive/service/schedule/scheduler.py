"""The scheduler: APScheduler says when a step is due, the stored rows say whether it is to be done.

Each step is one persisted job, which does nothing but announce the step. An announced step is taken in its lane:
one for each source's harvest, so that a slow community delays no other, and one for the steps that follow each
other. A lane looks at the rows before each step, so an announcement too many changes nothing. One scheduler at a
time works, held by an advisory lock.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from apscheduler.events import EVENT_JOB_EXECUTED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger

from medlive.clock import now
from medlive.config import Settings, WeeklyTime
from medlive.db.session import (
    Connection,
    Database,
    answers_yes,
    lock_connection,
    translated_errors,
)
from medlive.db.steps import SCHEDULER_LOCK, open_job_store
from medlive.errors import CheckFailed, DatabaseUnavailable
from medlive.service.database import open_database
from medlive.service.schedule.states import read_states, step_times
from medlive.service.schedule.steps import RETRY_AFTER, Standing, StepState, in_order
from medlive.service.schedule.weekly import State, Taken, take

WAKE_S = 5.0
"""How often a scheduler looks whether it holds the lock, and one that waits whether it can have it."""
LOOK_AGAIN = timedelta(minutes=10)
"""When a step that was due and could not be taken is looked at again."""
_FOLLOWING = "following"
"""The lane of every step that is no harvest."""

Say = Callable[[str], None]


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
    again. Raises CheckFailed with `once` while another scheduler works, ConfigError, and DatabaseUnavailable.
    """
    async with open_database(settings) as database, lock_connection(database) as connection:
        runner = _Runner(database, settings, say, clock, again=once)
        working = asyncio.create_task(_work(runner, connection, once=once, wake_s=wake_s))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
        return runner.taken


async def list_steps(settings: Settings, *, clock: Callable[[], datetime] = now) -> list[StepState]:
    """How every step stands, and when it is due; nothing is done. Raises ConfigError and DatabaseUnavailable."""
    async with open_database(settings) as database:
        return await read_states(database, settings, clock())


async def announce() -> None:
    """What a job does: its end is the announcement, which the scheduler of this process listens to."""


async def _work(runner: "_Runner", connection: Connection, *, once: bool, wake_s: float) -> None:
    while not await answers_yes(connection, "SELECT pg_try_advisory_lock(:key)", SCHEDULER_LOCK):
        if once:
            raise CheckFailed("another scheduler is active", hint="it takes the steps when they are due")
        runner.say_once("another scheduler is active; waiting for its place")
        await asyncio.sleep(wake_s)
    if once:
        await runner.take_due(lambda step: True)
        return
    states = await read_states(runner.database, runner.settings, runner.clock())
    async with _clock_running(runner, states):
        while True:
            # Whoever lost the connection lost the lock with it, and must not go on beside another.
            if not await answers_yes(connection, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "
                                          "objid = :key AND pid = pg_backend_pid()", SCHEDULER_LOCK):  # fmt: skip
                raise DatabaseUnavailable("the scheduler's lock was lost")
            await runner.watch(wake_s)


class _Runner:
    """Takes announced steps, each lane's one after another."""

    def __init__(
        self, database: Database, settings: Settings, say: Say, clock: Callable[[], datetime], *, again: bool
    ) -> None:
        self.database = database
        self.settings = settings
        self.clock = clock
        self.taken: list[Taken] = []
        self.on_open: Callable[[StepState], None] = lambda _: None
        """Told of each step that a lane leaves undone."""
        self._say = say
        self._again = again
        self._said: set[str] = set()
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._announced: set[str] = set()

    def say_once(self, told: str) -> bool:
        """Whether this was not said before."""
        if told in self._said:
            return False
        self._said.add(told)
        self._say(told)
        return True

    def announce(self, step: str) -> None:
        """Take a step in its lane as soon as that is free; what is announced twice meanwhile is looked at once."""
        lane = step if step.startswith("harvest:") else _FOLLOWING
        self._announced.add(lane)
        if lane not in self._lanes:
            self._lanes[lane] = asyncio.create_task(self._run_lane(lane))

    async def watch(self, seconds: float) -> None:
        """Wait so long, or until a lane breaks. Raises what it raised."""
        if self._lanes:
            await asyncio.wait(self._lanes.values(), timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(seconds)
        for lane, task in list(self._lanes.items()):
            if task.done():
                del self._lanes[lane]
                await task

    async def stop(self) -> None:
        """Break off what is under way."""
        for task in self._lanes.values():
            task.cancel()
        await asyncio.gather(*self._lanes.values(), return_exceptions=True)

    async def take_due(self, mine: Callable[[StepState], bool]) -> tuple[list[Taken], list[StepState]]:
        """Take what is due of these steps, looking anew before each; those taken, and those left undone."""
        tried: set[tuple[str, str]] = set()
        took: list[Taken] = []
        while True:
            harvesting = any(lane != _FOLLOWING for lane in self._lanes)
            states = [
                state
                for state in await read_states(
                    self.database, self.settings, self.clock(), again=self._again, harvesting=harvesting
                )
                if mine(state)
            ]
            for state in states:
                if state.standing is Standing.BLOCKED:
                    skipped = Taken(state.command, state.week, State.SKIPPED, state.why or "")
                    if self.say_once(f"{skipped.iso_week} {skipped.command}: {skipped.detail}"):
                        self.taken.append(skipped)
            due = [s for s in in_order(states) if (s.name, s.week) not in tried]
            if not due:
                return took, [s for s in states if s.standing is not Standing.DONE]
            tried.add((due[0].name, due[0].week))
            done = await take(self.database, self.settings, due[0])
            took.append(done)
            self.taken.append(done)
            self._say(f"{done.iso_week} {done.command}: {done.state.value}: {done.detail}")

    async def _run_lane(self, lane: str) -> None:
        while lane in self._announced:
            self._announced.discard(lane)
            took, left = await self.take_due(lambda step: (step.name if step.source else _FOLLOWING) == lane)
            for state in left:
                self.on_open(state)
            if lane != _FOLLOWING and took:
                # What it brought late is queued, and a freeze that waited for it goes on.
                self.announce("queue")
        del self._lanes[lane]


@asynccontextmanager
async def _clock_running(runner: _Runner, states: Sequence[StepState]) -> AsyncIterator[None]:
    """APScheduler at work on the stored jobs, brought to the configuration and the rows; lanes end with it."""
    clock = open_clock(runner.database, runner.announce)

    def look_again(state: StepState) -> None:
        wait = LOOK_AGAIN if state.standing is Standing.BLOCKED else RETRY_AFTER
        with translated_errors(runner.database):
            _bring_forward(clock, state, state.retry_at or now() + wait)

    runner.on_open = look_again
    try:
        with translated_errors(runner.database):
            clock.start(paused=True)
            arrange(clock, step_times(runner.settings), states)
            clock.resume()
        yield
    finally:
        if clock.running:
            clock.shutdown(wait=False)
            await asyncio.sleep(0)  # it ends in the loop's next round
        await runner.stop()


def open_clock(database: Database, on_due: Callable[[str], None]) -> AsyncIOScheduler:
    """APScheduler on the jobs stored in this database, not started; `on_due` is told the step of each job."""
    clock = AsyncIOScheduler(
        timezone=UTC,
        jobstores={"default": open_job_store(database)},
        # What was missed is due once, however often and however long ago.
        job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1},
    )
    clock.add_listener(lambda event: on_due(event.job_id), EVENT_JOB_EXECUTED)
    return clock


def arrange(clock: AsyncIOScheduler, times: Mapping[str, WeeklyTime], states: Sequence[StepState]) -> None:
    """Give each step its job and no other, at its configured time; what is open by the rows is due at once.

    A job that is there with the same time keeps its next run, so that one that was missed is caught up.
    """
    there = {job.id: job for job in clock.get_jobs()}  # what cannot be read is removed by this
    for name in there.keys() - times.keys():
        clock.remove_job(name)
    for name, time in times.items():
        trigger = CronTrigger(day_of_week=time.weekday, hour=time.hour, minute=time.minute, timezone=UTC)
        if name not in there:
            clock.add_job(announce, trigger, id=name, name=name, replace_existing=True)
        elif str(there[name].trigger) != str(trigger):
            clock.reschedule_job(name, trigger=trigger)
    for state in states:
        if state.standing is not Standing.DONE:
            _bring_forward(clock, state, state.retry_at or now())


def _bring_forward(clock: AsyncIOScheduler, state: StepState, moment: datetime) -> None:
    job = clock.get_job(state.name)
    if job is not None and job.next_run_time > moment:
        clock.modify_job(state.name, next_run_time=moment)
