"""Jobs in PostgreSQL, by Procrastinate: deferred in the transaction of their rows, run by those who serve a queue.

A job is known by its queueing lock, so that it is deferred once. A job that a stop breaks off waits again at once;
a killed process leaves its jobs "doing", and others take them over once they have seen no new heartbeat of it for
STALLED_AFTER_S. Whoever does a job has a lock on its name, so that one that is delivered twice is done by one at a
time. Jobs wait by the database's clock.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import procrastinate
from procrastinate import exceptions
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from procrastinate.retry import BaseRetryStrategy, RetryDecision
from procrastinate.utils import utcnow
from procrastinate.worker import Worker

from medlive.clock import now
from medlive.db.jobs import (
    HEARTBEATS,
    STALLED_AFTER_S,
    TAKE_OVER,
    UNCOUNT_ATTEMPT,
    Queue,
    announce_serving,
    count_servers,
    hurry,
    queued_locks,
)  # fmt: skip
from medlive.db.release.weeks import note_queued
from medlive.db.session import Claims, Connection, Database, Session, lock_connection
from medlive.errors import CircuitOpen, DatabaseUnavailable
from medlive.logs import bound
from medlive.service.database import RETRY_S
from medlive.service.week_budget import WeekSpent

CURATE = "medlive:curate_revision"
STEP = "medlive:step"
EMBED = "medlive:embed_shard"
STEP_PRIORITY = 10
"""A weekly step does not wait behind the threads of a queue."""
HEARTBEAT_S = 3.0
NEVER_S = 10 * 365 * 86_400.0
ABORT_POLL_S = 60.0
"""Aborts are notified; this is for a notification that was lost."""
POLL_S = 0.2
RETRY_AFTER_S: Mapping[str, Sequence[int]] = {"endpoint_unavailable": (60, 300, 1800, *[4 * 3600] * 6)}
"""Reason for which a thread failed → how long its job waits, attempt by attempt, for a day in all. A job that has
waited so often, or failed for another reason, is left to the next `medlive curate` or weekly step."""
LOOK_AGAIN = timedelta(minutes=1)
"""The longest that a job waits which met an open circuit, or a week whose budget is spent."""

Works = Mapping[str, Callable[..., Awaitable[None]]]
"""Task → what is done with a job's arguments."""

_CLAIMS = "claims"
_RAISED = "P0001"
"""The state of what Procrastinate's functions raise where a job is not in the state to be ended."""
_log = logging.getLogger(__name__)
_QUEUE_UNAVAILABLE = "the job queue cannot be reached"


class RetryLater(Exception):
    """A job failed for a reason that time may mend."""

    def __init__(self, reason: str) -> None:
        """`reason` is a key of RETRY_AFTER_S, or none."""
        super().__init__(reason)
        self.waits = RETRY_AFTER_S.get(reason, ())


class _BeingDone(Exception):
    """Somebody does the same job now."""


class _Retry(BaseRetryStrategy):
    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        if isinstance(exception, asyncio.CancelledError):
            return RetryDecision(retry_in={"seconds": 0})
        if isinstance(exception, CircuitOpen | WeekSpent):
            wait = min(exception.retry_at - now(), LOOK_AGAIN)
            return RetryDecision(retry_in={"seconds": int(wait.total_seconds())})
        if isinstance(exception, DatabaseUnavailable | _BeingDone):
            return RetryDecision(retry_in={"milliseconds": int(RETRY_S * 1000)})
        if isinstance(exception, RetryLater):
            return RetryDecision(retry_in={"seconds": exception.waits[max(job.attempts, 0)]})
        return None


class _Jobs(JobManager):
    """Ends jobs without a trace in the log where another worker has ended them, and by the database's clock."""

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """See JobManager."""
        await self._end(job, partial(super().finish_job, job, status, delete_job))

    async def retry_job(self, job: Job, retry_at: datetime | None = None, *more: Any, **named: Any) -> None:
        """See JobManager; `retry_at` is by this process's clock."""
        wait, retry = retry_at - utcnow() if retry_at else timedelta(), super().retry_job

        async def retry_by_its_clock() -> None:
            answer = await self.connector.execute_query_one_async("SELECT now()")
            await retry(job, answer["now"] + wait, *more, **named)

        await self._end(job, retry_by_its_clock)

    async def _end(self, job: Job, end: Callable[[], Awaitable[None]]) -> None:
        for last in (False, True):  # again in case the connection was lost; with the database the worker ends
            try:
                await end()
                break
            except exceptions.ConnectorException as exc:
                cause = exc.__cause__ or exc
                if last or getattr(cause, "sqlstate", "") == _RAISED:
                    _log.info("job %s was not ended here: %s", job.id, str(cause).partition("\n")[0])
                    break


async def _run_job(context: procrastinate.JobContext, /, **arguments: int | str) -> None:
    job, more = context.job, context.additional_context
    with bound(job=job.id, **arguments):
        try:
            async with more[_CLAIMS].claim(f"{job.task_name} {sorted(arguments.items())}") as alone:
                if not alone:
                    raise _BeingDone
                await more[job.task_name](**arguments)
        except RetryLater as later:
            if job.attempts < len(later.waits):
                raise
        except (CircuitOpen, WeekSpent, DatabaseUnavailable, _BeingDone, asyncio.CancelledError):
            await _uncount_attempt(context.app, job)
            raise


async def _uncount_attempt(app: procrastinate.App, job: Job) -> None:
    """Take back the attempt that putting a job back will count: nothing was asked of its endpoint."""
    with suppress(exceptions.ConnectorException):
        await app.connector.execute_query_async(UNCOUNT_ATTEMPT, job_id=job.id)


def open_app(database: Database) -> procrastinate.App:
    """The job queue of a database, with its own connections; open it with `open_async()`."""
    url = database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    # Without sorts a claim walks the index by priority, also where the server has no statistics of what was just
    # queued; otherwise it sorts the whole queue.
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(
            conninfo=url, min_size=1, max_size=8, kwargs={"options": "-c enable_sort=off"}
        )
    )
    app.job_manager = _Jobs(app.connector)
    # Registered with each app: a blueprint's tasks belong to the last app that used it, under another name.
    for name in (CURATE, STEP, EMBED):
        app.task(name=name, pass_context=True, retry=_Retry())(_run_job)
    return app


async def defer_revisions(
    app: procrastinate.App, session: Session, revisions: Sequence[int], *, week: str | None = None
) -> int:
    """Defer a job for each revision in the session's transaction; how many were not queued already.

    A running job counts as queued: a second one would pay for the same replies again. The freeze of the ISO week
    `week` waits for them; None: the next freeze.
    """
    await note_queued(session, revisions, week)
    locks = {f"curate:{n}": n for n in revisions}
    queued = await queued_locks(session, list(locks)) if locks else set()
    jobs = [
        app.configure_task(CURATE, queue=Queue.CURATE, queueing_lock=lock).make_new_job(revision=n)
        for lock, n in locks.items()
        if lock not in queued
    ]
    return await _defer(app, session, jobs) if jobs else 0


def step_lock(name: str, week: str) -> str:
    """The queueing lock of a weekly step's job."""
    return f"step:{name}:{week}"


async def defer_step(app: procrastinate.App, session: Session, queue: Queue, name: str, week: str) -> str:
    """Defer a weekly step once, in the session's transaction; the lock that it is known by while it lasts."""
    lock = step_lock(name, week)
    if not await queued_locks(session, [lock]):
        task = app.configure_task(
            STEP, queue=queue, lock=f"step:{name}", queueing_lock=lock, priority=STEP_PRIORITY
        )
        await _defer(app, session, [task.make_new_job(step=name, week=week)])
    return lock


async def run_shard_jobs(
    database: Database,
    index: str,
    data: str,
    encoder: str,
    ranges: Sequence[tuple[int, int]],
    progress: Callable[[int], None],
) -> bool:
    """Have the workers on the queue `embed` embed these ranges of passages, and wait; False if there is none.

    `progress` gets the number of passages in finished jobs. When the last worker goes, the jobs that are left are
    cancelled. Raises DatabaseUnavailable.
    """
    locks = {f"embed:{data}:{first}": (first, end) for first, end in ranges}
    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            if not await count_servers(session, Queue.EMBED):
                return False
            jobs = [
                app.configure_task(EMBED, queue=Queue.EMBED, queueing_lock=lock).make_new_job(
                    index=index, data=data, encoder=encoder, first=first, end=end
                )
                for lock, (first, end) in locks.items()
            ]
            await _defer(app, session, jobs)
        while True:
            async with database.begin() as session:
                left = await queued_locks(session, list(locks))
                served = await count_servers(session, Queue.EMBED)
            progress(sum(end - first for lock, (first, end) in locks.items() if lock not in left))
            if not left:
                return True
            if not served:
                for job in await app.job_manager.list_jobs_async(queue=Queue.EMBED, status="todo"):
                    if job.queueing_lock in left and job.id is not None:
                        await app.job_manager.cancel_job_by_id_async(job.id, delete_job=True)
                return True
            await asyncio.sleep(POLL_S)


async def _defer(app: procrastinate.App, session: Session, jobs: list[Job]) -> int:
    connection = await session.connection()
    driver = (await connection.get_raw_connection()).driver_connection
    try:
        # A duplicate lock aborts its transaction, hence the savepoint.
        async with connection.begin_nested():
            await app.job_manager.batch_defer_jobs_async(jobs, connection=driver)
    except exceptions.AlreadyEnqueued:
        # Another process queued some of them meanwhile.
        return sum([await _defer(app, session, [job]) for job in jobs]) if len(jobs) > 1 else 0
    return len(jobs)


@asynccontextmanager
async def serving(database: Database, queues: Sequence[str]) -> AsyncIterator[Connection]:
    """Make it known while the block runs that this process serves these queues; the connection that says so."""
    async with lock_connection(database) as connection:
        await announce_serving(connection, queues)
        yield connection


async def run_until_drained(
    app: procrastinate.App,
    database: Database,
    works: Works,
    *,
    concurrency: int,
    on_wait: Callable[[int], None] = lambda _: None,
    grace_s: float | None = None,
) -> None:
    """Curate in this process until that queue is empty, also what waits after a failure or was a dead worker's.

    `on_wait` gets the number of jobs that other live workers are running. On cancellation, running jobs are
    finished first, for at most `grace_s` seconds if given. Raises DatabaseUnavailable.
    """
    queues = [Queue.CURATE]
    taking_over = TakingOver(app, queues)
    try:
        while True:
            await taking_over.look()
            async with database.begin() as session:
                await hurry(session, Queue.CURATE)
            async with lock_connection(database) as connection:
                await _run(app, Claims(connection), works, queues, concurrency, wait=False, grace_s=grace_s)
            waiting, todo = [
                list(await app.job_manager.list_jobs_async(queue=Queue.CURATE, status=status))
                for status in ("doing", "todo")
            ]
            if not waiting and not todo:
                return
            if waiting:
                on_wait(len(waiting))
            await asyncio.sleep(0.5)
    except exceptions.ConnectorException as exc:
        raise DatabaseUnavailable(_QUEUE_UNAVAILABLE) from exc


async def run_until_stopped(
    app: procrastinate.App,
    database: Database,
    works: Works,
    queues: Sequence[str],
    *,
    concurrency: int,
    stop: asyncio.Event,
    grace_s: float | None = None,
) -> None:
    """Run the queues' jobs as they come until `stop` is set, also those of dead workers; then finish running jobs.

    Jobs that last longer than `grace_s` after that are broken off and wait for another worker. Raises
    DatabaseUnavailable, also when the queue is lost later.
    """
    async with serving(database, queues) as connection:
        claims = Claims(connection)
        worker = asyncio.create_task(_run(app, claims, works, queues, concurrency, wait=True, grace_s=grace_s))
        others = [
            asyncio.create_task(work)
            for work in (stop.wait(), TakingOver(app, queues).keep_looking(), _keep_connected(claims))
        ]
        try:
            await asyncio.wait([worker, *others], return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                # Only a lost database ends these tasks; the heartbeat releases the running jobs.
                raise DatabaseUnavailable(_QUEUE_UNAVAILABLE) from next(
                    (t.exception() for t in (worker, *others) if t.done() and not t.cancelled()), None
                )
        finally:
            for task in (worker, *others):
                task.cancel()
            # On cancellation Procrastinate fetches no more jobs and finishes the running ones.
            await asyncio.gather(worker, *others, return_exceptions=True)


async def run_step_job(
    app: procrastinate.App, database: Database, works: Works, queue: Queue, name: str, week: str
) -> None:
    """Defer a weekly step and wait for its end: in a worker that serves its queue, else in this process.

    On cancellation a step that runs here is broken off and waits. Raises DatabaseUnavailable.
    """
    taking_over = TakingOver(app, [queue])
    try:
        async with database.begin() as session:
            lock = await defer_step(app, session, queue, name, week)
        while True:
            async with database.begin() as session:
                if not await queued_locks(session, [lock]):
                    return
                served = await count_servers(session, queue)
            if not served:
                await taking_over.look()
                if await app.job_manager.list_jobs_async(queueing_lock=lock, status="todo"):
                    async with lock_connection(database) as connection:
                        await _run(app, Claims(connection), works, [queue], 1, wait=False, grace_s=0)
            await asyncio.sleep(POLL_S)
    except exceptions.ConnectorException as exc:
        raise DatabaseUnavailable(_QUEUE_UNAVAILABLE) from exc


async def _run(
    app: procrastinate.App,
    claims: Claims,
    works: Works,
    queues: Sequence[str],
    concurrency: int,
    *,
    wait: bool,
    grace_s: float | None = None,
) -> None:
    worker = Worker(
        app, queues=[*queues], concurrency=concurrency, wait=wait, listen_notify=wait,
        install_signal_handlers=False, delete_jobs="successful", update_heartbeat_interval=HEARTBEAT_S,
        # Who is removed for its heartbeat's age can fetch no more jobs; a dead worker leaves one small row.
        stalled_worker_timeout=NEVER_S, additional_context={**works, _CLAIMS: claims},
        abort_job_polling_interval=ABORT_POLL_S, fetch_job_polling_interval=HEARTBEAT_S,
    )  # fmt: skip
    running = asyncio.create_task(worker.run())  # type: ignore[no-untyped-call]
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        # The limit applies to cancellation only, not to the last jobs of the queue.
        worker.shutdown_graceful_timeout = grace_s
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        raise


async def _keep_connected(claims: Claims) -> None:
    """Raises DatabaseUnavailable when the connection is lost, and with it what says that this process serves."""
    while True:
        await claims.ask("SELECT :key = 0", 0)
        await asyncio.sleep(HEARTBEAT_S)


class TakingOver:
    """Puts the jobs of dead workers back: of those whose heartbeat stays the same, whatever any clock says."""

    def __init__(self, app: procrastinate.App, queues: Sequence[str]) -> None:
        """Of these queues alone."""
        self._connector, self._queues = app.connector, [*queues]
        self._seen: dict[tuple[int, datetime], float] = {}
        """Worker and heartbeat → when they were first seen."""

    async def look(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Look at the heartbeats once."""
        rows = await self._connector.execute_query_all_async(HEARTBEATS, queues=self._queues)
        moment = clock()
        beats = [(row["id"], row["last_heartbeat"]) for row in rows]
        self._seen = {beat: self._seen.get(beat, moment) for beat in beats}
        dead = [worker for (worker, _), since in self._seen.items() if moment - since >= STALLED_AFTER_S]
        await self._connector.execute_query_async(TAKE_OVER, queues=self._queues, dead=dead)

    async def keep_looking(self) -> None:
        """Look with every heartbeat."""
        while True:
            await self.look()
            await asyncio.sleep(HEARTBEAT_S)
