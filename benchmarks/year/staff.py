"""The scheduler and the workers of the simulated instance, and waiting until they have nothing left to do."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg

from medlive.config import Settings
from medlive.db.jobs import Queue
from medlive.service.database import open_database
from medlive.service.schedule.scheduler import run_scheduler
from medlive.service.schedule.steps import read_states
from medlive.service.work.worker import run_worker
from year.clock import Clock

_WAKE_S = 0.1
_LOOK_AGAIN = timedelta(minutes=11)
"""A little more than a scheduler waits between two looks."""
_QUEUE_PAUSE = timedelta(hours=24)
"""How far the clock moves at most while jobs wait for their time."""
_WORKERS: tuple[list[Queue], ...] = (
    [Queue.CURATE],
    [queue for queue in Queue if queue is not Queue.CURATE],
)
# A worker that waits for an endpoint leaves its jobs as they are.
_UNDER_WAY = """
SELECT count(*) FROM procrastinate_jobs
WHERE status = 'doing'
   OR (status = 'todo' AND (scheduled_at IS NULL OR scheduled_at <= now())
       AND EXISTS (SELECT FROM workers WHERE queues ? queue_name::text
                   AND NOT paused ? queue_name::text))
"""
_WAITING = "SELECT min(scheduled_at) FROM procrastinate_jobs WHERE status = 'todo'"


class Staff:
    """What runs on the instance's machine; only while started."""

    def __init__(
        self,
        clock: Clock,
        connection: psycopg.Connection,
        notify: Callable[[str], None],
    ) -> None:
        """`notify` gets the scheduler's messages."""
        self._clock, self._connection, self.notify = clock, connection, notify
        self._tasks: list[asyncio.Task[Any]] = []
        self._stop = asyncio.Event()
        self._looks = 0
        self.settings: Settings | None = None

    async def start(self, settings: Settings) -> None:
        """Start the workers and the scheduler."""
        self.settings, self._stop = settings, asyncio.Event()
        ready = [asyncio.Event() for _ in _WORKERS]
        for queues, event in zip(_WORKERS, ready, strict=True):
            self._tasks.append(
                asyncio.create_task(
                    run_worker(
                        settings, self._stop, queues, concurrency=8, ready=event.set
                    )
                )
            )
        started = asyncio.gather(*(event.wait() for event in ready))
        await self._or_fault(started)
        self._tasks.append(
            asyncio.create_task(
                run_scheduler(
                    settings,
                    self._stop,
                    self.notify,
                    clock=self._moment,
                    wake_s=_WAKE_S,
                )
            )
        )

    async def stop(self) -> None:
        """Stop all in order, as the service manager does."""
        self._stop.set()
        await asyncio.gather(*self._tasks)
        self._tasks.clear()

    async def settle(self) -> None:
        """Wait until the scheduler has looked at the present moment and neither it nor a worker has work left."""
        looks = self._looks
        quiet = 0
        while quiet < 3:
            await self._or_fault(asyncio.ensure_future(asyncio.sleep(_WAKE_S)))
            # What was under way may have begun before the clock moved: only looks after that count.
            busy = self._looks < looks + 2 or _is_busy() or self.rows(_UNDER_WAY)[0][0]
            quiet = 0 if busy else quiet + 1

    async def next_moment(self, moment: datetime, until: datetime) -> datetime:
        """When something can happen next, but not later than `until`."""
        assert self.settings is not None
        async with open_database(self.settings) as database:
            states = await read_states(database, self.settings, moment)
        times = [until]
        for state in states:
            if state.retry_at is not None:
                times.append(state.retry_at)
            elif state.status == "done":
                times.append(state.next_at)
            elif state.status == "blocked" and (state.why or "").startswith(
                "waits for"
            ):
                times.append(moment + _LOOK_AGAIN)
        ((waiting,),) = self.rows(_WAITING)
        if waiting is not None:
            times.append(max(waiting, moment + _QUEUE_PAUSE))
        return min(until, max(min(times), moment) + _LOOK_AGAIN)

    def rows(
        self, query: str, parameters: Sequence[object] = ()
    ) -> list[tuple[Any, ...]]:
        """What a query finds in the instance's database."""
        return self._connection.execute(query.encode(), parameters).fetchall()

    def _moment(self) -> datetime:
        self._looks += 1
        return self._clock.now()

    async def _or_fault(self, waited: "asyncio.Future[Any]") -> None:
        """Wait; an ended scheduler or worker is an error."""
        await asyncio.wait([waited, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done():
                waited.cancel()
                raise RuntimeError(
                    "the scheduler or a worker ended"
                ) from task.exception()


def _is_busy() -> bool:
    """Whether a step of the scheduler is under way."""
    return any(
        getattr(task.get_coro(), "__name__", "") == "_run_step"
        for task in asyncio.all_tasks()
    )
