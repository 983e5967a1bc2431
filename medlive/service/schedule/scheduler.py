"""The scheduler: APScheduler triggers a step, the stored rows decide whether it is to be run.

Each step is one persisted job, which only announces the step. Announced steps run in lanes: one for each source's
harvest, so that a slow community delays no other, and one for the steps that depend on each other. A lane reads
the rows before each step, so an extra announcement changes nothing. An advisory lock keeps one scheduler active.
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
from medlive.db.runs import SCHEDULER_LOCK, open_job_store
from medlive.db.session import Connection, Database, ask_lock, lock_connection, translated_errors
from medlive.errors import CheckFailed, DatabaseUnavailable
from medlive.service.database import open_database
from medlive.service.schedule.states import read_states, step_times
from medlive.service.schedule.steps import RETRY_AFTER, StepState, StepStatus, due_steps
from medlive.service.schedule.weekly import StepOutcome, StepResult, run_step

WAKE_S = 5.0
"""Seconds between checks of the advisory lock."""
LOOK_AGAIN = timedelta(minutes=10)
"""When a blocked step is checked again."""
_FOLLOWING = "following"
"""The lane of every step other than harvests."""

Notify = Callable[[str], None]


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
    async with open_database(settings) as database, lock_connection(database) as connection:
        runner = _Runner(database, settings, notify, clock, again=once)
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
        return runner.results


async def list_steps(settings: Settings, *, clock: Callable[[], datetime] = now) -> list[StepState]:
    """The state of every step, without running any. Raises ConfigError and DatabaseUnavailable."""
    async with open_database(settings) as database:
        return await read_states(database, settings, clock())


async def announce() -> None:
    """The job of every step: the scheduler listens to its end."""


async def _work(runner: "_Runner", connection: Connection, *, once: bool, wake_s: float) -> None:
    while not await ask_lock(connection, "SELECT pg_try_advisory_lock(:key)", SCHEDULER_LOCK):
        if once:
            raise CheckFailed("another scheduler is active", hint="it runs the steps when they are due")
        runner.notify_once("another scheduler is active; waiting for it to end")
        await asyncio.sleep(wake_s)
    if once:
        await runner.take_due(lambda step: True)
        return
    states = await read_states(runner.database, runner.settings, runner.clock())
    async with _clock_running(runner, states):
        while True:
            # A lost connection loses the lock, and another scheduler may be active.
            if not await ask_lock(connection, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "
                                          "objid = :key AND pid = pg_backend_pid()", SCHEDULER_LOCK):  # fmt: skip
                raise DatabaseUnavailable("the scheduler's lock was lost")
            await runner.watch(wake_s)


class _Runner:
    """Runs announced steps, one after another in each lane."""

    def __init__(
        self, database: Database, settings: Settings, notify: Notify, clock: Callable[[], datetime], *, again: bool
    ) -> None:
        self.database = database
        self.settings = settings
        self.clock = clock
        self.results: list[StepResult] = []
        self.on_pending: Callable[[StepState], None] = lambda _: None
        """Called with each step that a lane leaves pending."""
        self._notify = notify
        self._again = again
        self._sent: set[str] = set()
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._announced: set[str] = set()

    def notify_once(self, message: str) -> bool:
        """Send a message unless it was sent before; whether it was sent."""
        if message in self._sent:
            return False
        self._sent.add(message)
        self._notify(message)
        return True

    def announce(self, step: str) -> None:
        """Run a step in its lane as soon as that is free."""
        lane = step if step.startswith("harvest:") else _FOLLOWING
        self._announced.add(lane)
        if lane not in self._lanes:
            self._lanes[lane] = asyncio.create_task(self._run_lane(lane))

    async def watch(self, seconds: float) -> None:
        """Wait, or until a lane fails; raises its error."""
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
        """Cancel all lanes."""
        for task in self._lanes.values():
            task.cancel()
        await asyncio.gather(*self._lanes.values(), return_exceptions=True)

    async def take_due(self, wanted: Callable[[StepState], bool]) -> tuple[list[StepResult], list[StepState]]:
        """Run the due steps among these, reading the rows before each; the results, and the pending steps."""
        tried: set[tuple[str, str]] = set()
        results: list[StepResult] = []
        while True:
            harvesting = any(lane != _FOLLOWING for lane in self._lanes)
            states = [
                state
                for state in await read_states(
                    self.database, self.settings, self.clock(), again=self._again, harvesting=harvesting
                )
                if wanted(state)
            ]
            for state in states:
                if state.status is StepStatus.BLOCKED:
                    skipped = StepResult(state.command, state.week, StepOutcome.SKIPPED, state.why or "")
                    if self.notify_once(f"{skipped.iso_week} {skipped.command}: {skipped.detail}"):
                        self.results.append(skipped)
            due = [s for s in due_steps(states) if (s.name, s.week) not in tried]
            if not due:
                return results, [s for s in states if s.status is not StepStatus.DONE]
            tried.add((due[0].name, due[0].week))
            done = await run_step(self.database, self.settings, due[0])
            results.append(done)
            self.results.append(done)
            self._notify(f"{done.iso_week} {done.command}: {done.state.value}: {done.detail}")

    async def _run_lane(self, lane: str) -> None:
        while lane in self._announced:
            self._announced.discard(lane)
            results, pending = await self.take_due(lambda step: (step.name if step.source else _FOLLOWING) == lane)
            for state in pending:
                self.on_pending(state)
            if lane != _FOLLOWING and results:
                # Late threads are queued, and a freeze that waited continues.
                self.announce("queue")
        del self._lanes[lane]


@asynccontextmanager
async def _clock_running(runner: _Runner, states: Sequence[StepState]) -> AsyncIterator[None]:
    """Run APScheduler on the stored jobs, updated to the configuration and the rows; then stop the lanes."""
    clock = open_clock(runner.database, runner.announce)

    def look_again(state: StepState) -> None:
        wait = LOOK_AGAIN if state.status is StepStatus.BLOCKED else RETRY_AFTER
        with translated_errors(runner.database.engine.url):
            _reschedule_earlier(clock, state, state.retry_at or now() + wait)

    runner.on_pending = look_again
    try:
        with translated_errors(runner.database.engine.url):
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
    """APScheduler on the jobs stored in this database, not started; `on_due` gets each due step's name."""
    clock = AsyncIOScheduler(
        timezone=UTC,
        jobstores={"default": open_job_store(database)},
        # Missed times run once, however many and however long ago.
        job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1},
    )
    clock.add_listener(lambda event: on_due(event.job_id), EVENT_JOB_EXECUTED)
    return clock


def arrange(clock: AsyncIOScheduler, times: Mapping[str, WeeklyTime], states: Sequence[StepState]) -> None:
    """Create one job for each step at its configured time, and remove others; pending steps are due at once.

    An existing job with the same time keeps its next run, so that a missed one is caught up.
    """
    existing = {job.id: job for job in clock.get_jobs()}  # this removes unreadable jobs
    for name in existing.keys() - times.keys():
        clock.remove_job(name)
    for name, time in times.items():
        trigger = CronTrigger(day_of_week=time.weekday, hour=time.hour, minute=time.minute, timezone=UTC)
        if name not in existing:
            clock.add_job(announce, trigger, id=name, name=name, replace_existing=True)
        elif str(existing[name].trigger) != str(trigger):
            clock.reschedule_job(name, trigger=trigger)
    for state in states:
        if state.status is not StepStatus.DONE:
            _reschedule_earlier(clock, state, state.retry_at or now())


def _reschedule_earlier(clock: AsyncIOScheduler, state: StepState, moment: datetime) -> None:
    job = clock.get_job(state.name)
    if job is not None and job.next_run_time > moment:
        clock.modify_job(state.name, next_run_time=moment)
