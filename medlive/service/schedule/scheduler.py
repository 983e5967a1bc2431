"""The scheduler: APScheduler says when to look, the stored rows decide which steps are run.

Steps run in lanes: one for each source's harvest, so that a slow community delays no other, and one for the steps
that depend on each other. A lane reads the rows before each step, so looking once too often changes nothing. An
advisory lock keeps one scheduler active.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger

from medlive.clock import now
from medlive.config import Settings
from medlive.db.runs import SCHEDULER_LOCK
from medlive.db.session import Connection, Database, ask_lock, lock_connection
from medlive.errors import CheckFailed, DatabaseUnavailable
from medlive.service.database import open_database
from medlive.service.schedule.steps import StepState, StepStatus, due_steps, read_states, step_times
from medlive.service.schedule.weekly import StepOutcome, StepResult, run_step

WAKE_S = 5.0
"""Seconds between checks of the advisory lock."""
LOOK_AGAIN_MINUTES = 10
"""How often blocked and failed steps are looked at between their times."""
_FOLLOWING = "following"
"""The lane of every step other than harvests."""

_HAS_LOCK = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = :key AND pid = pg_backend_pid()"

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


class _Runner:
    """Runs due steps, one after another in each lane."""

    def __init__(
        self, database: Database, settings: Settings, notify: Notify, clock: Callable[[], datetime], *, again: bool
    ) -> None:
        self.results: list[StepResult] = []
        self._database = database
        self._settings = settings
        self._notify = notify
        self._clock = clock
        self._again = again
        self._sent: set[str] = set()
        self._lanes: dict[str, asyncio.Task[None]] = {}

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
        times = step_times(self._settings)
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
                for task in [task for task in self._lanes.values() if task.done()]:
                    task.result()
                await asyncio.sleep(wake_s)
        finally:
            clock.shutdown(wait=False)
            for task in self._lanes.values():
                task.cancel()
            await asyncio.gather(*self._lanes.values(), return_exceptions=True)

    def _notify_once(self, message: str) -> bool:
        """Send a message unless it was sent before; whether it was sent."""
        if message in self._sent:
            return False
        self._sent.add(message)
        self._notify(message)
        return True

    async def _look(self, *steps: str) -> None:
        """Run what is due in the lanes of these steps, except in a lane that is busy."""
        for lane in dict.fromkeys(map(_lane, steps)):
            if lane not in self._lanes or self._lanes[lane].done():
                self._lanes[lane] = asyncio.create_task(self._run_lane(lane))

    async def _run_lane(self, lane: str) -> None:
        if await self._run_due(lambda other: other == lane) and lane != _FOLLOWING:
            # Late threads are queued, and a freeze that waited continues.
            await self._look(_FOLLOWING)

    async def _run_due(self, wanted: Callable[[str], bool]) -> bool:
        """Run the due steps of these lanes, reading the rows before each; whether there were any."""
        tried: set[tuple[str, str]] = set()
        while True:
            harvesting = any(lane != _FOLLOWING and not task.done() for lane, task in self._lanes.items())
            states = await read_states(
                self._database, self._settings, self._clock(), again=self._again, harvesting=harvesting
            )
            states = [state for state in states if wanted(_lane(state.name))]
            for state in states:
                if state.status is StepStatus.BLOCKED:
                    self._report_blocked(state)
            due = [s for s in due_steps(states) if (s.name, s.week) not in tried]
            if not due:
                return bool(tried)
            tried.add((due[0].name, due[0].week))
            done = await run_step(self._database, self._settings, due[0])
            self.results.append(done)
            self._notify(f"{done.iso_week} {done.command}: {done.state.value}: {done.detail}")

    def _report_blocked(self, state: StepState) -> None:
        skipped = StepResult(state.command, state.week, StepOutcome.SKIPPED, state.why or "")
        if self._notify_once(f"{skipped.iso_week} {skipped.command}: {skipped.detail}"):
            self.results.append(skipped)


def _lane(step: str) -> str:
    return step if step.startswith("harvest:") else _FOLLOWING
