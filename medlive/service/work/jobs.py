"""The job queues in PostgreSQL, by Procrastinate: defer jobs in the transaction of their rows, and run them.

`defer_*` put jobs in; `run_until_stopped` (a worker), `run_until_drained` and `run_step_job` do them.

A job is known by its queueing lock, so that it is deferred once. A job that a stop breaks off waits again at once;
a killed process leaves its jobs "doing", and others take them over once its heartbeat is older than STALLED_AFTER_S.
Whoever does a job has a lock on its name, so that one that is delivered twice is done by one at a time. Jobs wait by
the database's clock.
"""

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import procrastinate
from procrastinate import exceptions
from procrastinate.jobs import Job
from procrastinate.worker import Worker

from medlive.db.jobs import (
    STALLED_AFTER_S,
    Queue,
    announce_serving,
    count_servers,
    defer_alone,
    find_lost,
    forget_failures,
    hurry,
    queued_locks,
)
from medlive.db.release.weeks import note_queued
from medlive.db.session import (
    Database,
    NameLocks,
    Session,
    lock_connection,
    translate,
)
from medlive.errors import DatabaseUnavailable

from .taken import (
    CURATE,
    PROVE,
    STEP,
    Jobs,
    Readiness,
    Retry,
    Works,
    queue_errors,
    run_job,
)

STEP_PRIORITY = 10
"""A weekly step does not wait behind the threads of a queue."""
HEARTBEAT_S = 3.0  # Between a worker's signs of life
NEVER_S = 10 * 365 * 86_400.0  # Ten years
ABORT_POLL_S = 60.0
"""Aborts are notified; this is for a notification that was lost."""
POLL_S = 0.2  # Between looks at a step's job
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""When a job that is put back may begin: at once, by any clock."""
CONNECT_S = 10.0
"""Seconds that a query of the queue waits for a connection."""


def open_app(database: Database) -> procrastinate.App:
    """The job queue of a database, with its own connections; open it with `open_async()`."""
    url = database.engine.url.set(drivername="postgresql").render_as_string(
        hide_password=False
    )
    # Without sorts a claim walks the index by priority, also where the server has no statistics of what was just
    # queued; otherwise it sorts the whole queue.
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(
            conninfo=url,
            min_size=1,
            max_size=8,
            timeout=CONNECT_S,
            kwargs={"options": "-c enable_sort=off"},
        )
    )
    # Registered with each app: a blueprint's tasks belong to the last app that used it, under another name.
    for name in (CURATE, PROVE, STEP):
        app.task(name=name, pass_context=True, retry=Retry())(run_job)
    return app


_DEFERRER = procrastinate.App(connector=procrastinate.PsycopgConnector())
"""Inserts jobs by the connections that it is given, and has none of its own."""


async def defer_revisions(
    session: Session, revisions: Sequence[int], *, week: str | None = None
) -> int:
    """Defer a job for each revision in the session's transaction; how many were not queued already.

    A running job counts as queued: a second one would pay for the same replies again. The freeze of the ISO week
    `week` waits for them; None: the next freeze.
    """
    await note_queued(session, revisions, week)
    jobs = []
    for revision in dict.fromkeys(revisions):
        task = _DEFERRER.configure_task(
            CURATE, queue=Queue.CURATE, queueing_lock=f"curate:{revision}"
        )
        jobs.append(task.make_new_job(revision=revision))
    return await _defer(session, *jobs)


async def defer_proof(session: Session, case_id: str, revision: int) -> bool:
    """Defer the proof of a case's rubric in the session's transaction; False: it is queued already."""
    task = _DEFERRER.configure_task(
        PROVE, queue=Queue.CURATE, queueing_lock=f"prove:{case_id}:{revision}"
    )
    job = task.make_new_job(case_id=case_id, revision=revision)
    return await _defer(session, job) > 0


def step_lock(name: str, week: str) -> str:
    """The queueing lock of a weekly step's job."""
    return f"step:{name}:{week}"


async def defer_step(
    session: Session,
    queue: Queue,
    name: str,
    week: str,
) -> str:
    """Defer a weekly step once, in the session's transaction; the lock that it is known by while it lasts."""
    lock = step_lock(name, week)
    # Else a worker could take the step's job between the look and the insert, and no index would refuse a second.
    await defer_alone(session, lock)
    task = _DEFERRER.configure_task(
        STEP,
        queue=queue,
        lock=f"step:{name}",
        queueing_lock=lock,
        priority=STEP_PRIORITY,
    )
    await _defer(session, task.make_new_job(step=name, week=week))
    return lock


async def _defer(session: Session, *wanted: Job) -> int:
    """Insert the jobs whose queueing lock no queued or running job has; how many."""
    queued = await queued_locks(session, [str(job.queueing_lock) for job in wanted])
    jobs = [job for job in wanted if job.queueing_lock not in queued]
    if not jobs:
        return 0
    connection = await session.connection()
    driver = (await connection.get_raw_connection()).driver_connection
    try:
        # A duplicate lock aborts its transaction, hence the savepoint.
        async with connection.begin_nested():
            await _DEFERRER.job_manager.batch_defer_jobs_async(jobs, driver)
    except exceptions.AlreadyEnqueued:
        # Another process queued some of them meanwhile.
        if len(jobs) == 1:
            return 0
        return sum([await _defer(session, job) for job in jobs])
    except exceptions.ConnectorException as exc:
        known = translate(connection.engine.url, exc.__cause__ or exc)
        if known is None:
            raise
        raise known from exc
    return len(jobs)


async def run_until_drained(
    app: procrastinate.App,
    database: Database,
    works: Works,
    *,
    concurrency: int,
    grace_s: float | None = None,
) -> int:
    """Do the jobs of the queue `curate` in this process until it is empty, also delayed ones and dead workers'.

    Ends earlier when no further job can be done here: an open circuit, a spent budget; the number of jobs that are
    left. On cancellation, running jobs are finished first, for at most `grace_s` seconds if given. Raises
    DatabaseUnavailable.
    """
    readiness = Readiness()
    while True:
        with queue_errors(database):
            await take_over(app, [Queue.CURATE])
        await database.ask(hurry, Queue.CURATE)
        await _drain(
            Jobs(app, database, works, readiness), Queue.CURATE, concurrency, grace_s
        )
        with queue_errors(database):
            left = await app.job_manager.list_jobs_async(queue=Queue.CURATE)
        states = [job.status for job in left]
        todo = states.count("todo")
        if readiness.pauses or not (todo or "doing" in states):
            return todo
        await asyncio.sleep(0.5)


async def run_until_stopped(
    jobs: Jobs,
    queues: Sequence[str],
    *,
    concurrency: int,
    stop: asyncio.Event,
    grace_s: float | None = None,
    beside: Sequence[Coroutine[Any, Any, None]] = (),
) -> None:
    """Run the queues' jobs as they come until `stop` is set, also those of dead workers; then finish running jobs.

    Args:
        jobs: Holds the jobs that are being done.
        queues: What to serve.
        concurrency: Most jobs at once.
        stop: Ends the worker when set.
        grace_s: Seconds after `stop` in which jobs may end; then they are given back. None: no limit.
        beside: What has to go on as long as jobs are done. When one of them ends, the worker does.

    Raises:
        DatabaseUnavailable: also when the queue is lost later; what was taken is left to others.
    """

    async def stop_in_order() -> None:
        await stop.wait()
        jobs.stop()

    async with lock_connection(jobs.database) as connection:
        await announce_serving(connection, queues)
        jobs.claims = claims = NameLocks(connection)
        works_beside = (
            _repeat(partial(take_over, jobs.app, queues)),
            # A lost connection takes with it what says that this process serves.
            _repeat(partial(claims.ask, "SELECT :key = 0", 0)),
            *beside,
        )
        tasks = [asyncio.create_task(jobs.watch(work)) for work in works_beside]
        stopping = asyncio.create_task(stop_in_order())
        working = asyncio.create_task(
            _work(jobs, queues, concurrency, grace_s, wait=True)
        )
        try:
            await asyncio.wait([working])
            await working
        except asyncio.CancelledError:
            jobs.lose(DatabaseUnavailable())
            raise
        finally:
            try:
                await end_tasks(working, stopping)
            finally:
                await end_tasks(*tasks)
        if not jobs.is_stopping:
            raise DatabaseUnavailable


async def _repeat(work: Callable[[], Awaitable[object]]) -> None:
    """Do `work` every HEARTBEAT_S, until cancelled."""
    while True:
        await work()
        await asyncio.sleep(HEARTBEAT_S)


async def run_step_job(
    app: procrastinate.App,
    database: Database,
    works: Works,
    queue: Queue,
    name: str,
    week: str,
) -> None:
    """Defer a weekly step and wait for its end: in a worker that serves its queue, else in this process.

    On cancellation a step that runs here is broken off and waits. Raises DatabaseUnavailable, and what keeps this
    process from doing the step.
    """
    readiness = Readiness()
    lock = await database.ask(defer_step, queue, name, week)
    while True:
        async with database.begin() as session:
            if not await queued_locks(session, [lock]):
                return
            served = await count_servers(session, queue)
        if not served:
            with queue_errors(database):
                await take_over(app, [queue])
                waiting = await app.job_manager.list_jobs_async(
                    queue=queue, queueing_lock=lock, status="todo"
                )
            if waiting:
                jobs = Jobs(app, database, works, readiness)
                await _drain(jobs, queue, 1, 0)
            if pause := readiness.pauses.get(queue):
                raise pause.obstacle
        await asyncio.sleep(POLL_S)


async def _drain(
    jobs: Jobs, queue: Queue, concurrency: int, grace_s: float | None
) -> None:
    """Do the jobs of a queue that can begin now."""
    async with lock_connection(jobs.database) as connection:
        jobs.claims = NameLocks(connection)
        await _work(jobs, [queue], concurrency, grace_s, wait=False)


async def _work(
    jobs: Jobs,
    queues: Sequence[str],
    concurrency: int,
    grace_s: float | None,
    *,
    wait: bool,
) -> None:
    """Do jobs until the worker is stopped or, without `wait`, none can begin any more.

    On cancellation no more are taken, and jobs that last longer than `grace_s` are broken off. Raises
    DatabaseUnavailable when jobs cannot be ended any more.
    """
    app = copy.copy(jobs.app)  # A copy, since its job manager is this call's
    app.job_manager = jobs
    jobs.worker = Worker(
        app,
        queues=queues,
        concurrency=concurrency,
        wait=wait,
        listen_notify=wait,
        install_signal_handlers=False,
        delete_jobs="successful",
        update_heartbeat_interval=HEARTBEAT_S,
        # A worker that is removed for its heartbeat's age could fetch no more jobs; a dead one leaves one small row.
        stalled_worker_timeout=NEVER_S,
        abort_job_polling_interval=ABORT_POLL_S,
        fetch_job_polling_interval=HEARTBEAT_S,
        shutdown_graceful_timeout=grace_s,
    )
    try:
        with queue_errors(jobs.database):
            # A stop or a loss that came before the worker was made did not reach it.
            if not jobs.is_stopping and jobs.cause is None:
                await jobs.worker.run()  # type: ignore[no-untyped-call]
    except DatabaseUnavailable as error:
        raise jobs.cause or error from error
    finally:
        await end_tasks(*jobs.tasks)
    if jobs.cause:
        raise jobs.cause


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their end, also where whoever waits is itself cancelled; that is raised afterwards.

    A `gather` in a `finally` is broken off by a second cancellation, as when two connections are lost one after the
    other: what it waited for would go on, and what ended it would be seen by nobody.
    """
    is_cancelled = False
    for task in tasks:
        task.cancel()
    while left := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError:
            is_cancelled = True
            for task in left:
                task.cancel()
    for task in tasks:
        if not task.cancelled():
            # Known otherwise; asyncio would log an error that nobody asked for.
            task.exception()
    if is_cancelled:
        raise asyncio.CancelledError


async def take_over(app: procrastinate.App, queues: Sequence[str]) -> None:
    """Put back the jobs of workers whose latest heartbeat is older than STALLED_AFTER_S."""
    for queue in queues:
        stalled = await app.job_manager.get_stalled_jobs(
            queue=queue, seconds_since_heartbeat=STALLED_AFTER_S
        )
        for job in stalled:
            # Another process may have done it, and of one queueing lock no two jobs may wait.
            with suppress(exceptions.ConnectorException):
                await app.job_manager.retry_job(job, retry_at=LONG_AGO)


_log = logging.getLogger(__name__)


async def queue_lost(database: Database) -> int:
    """Queue threads that wait though no job or decision will take them up; how many."""
    async with database.begin() as session:
        await forget_failures(session)
        queued = await defer_revisions(session, await find_lost(session))
    if queued:
        _log.warning("%d threads waited without a job, and are queued again", queued)
    return queued
