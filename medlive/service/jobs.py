"""Work as jobs in PostgreSQL, by Procrastinate: deferred with the rows they concern, run until none is left.

One job curates one thread revision. A job is idempotent: it looks first whether its revision is decided. A
process that is killed leaves its jobs "doing"; the next run takes them over once the dead worker's heartbeat is
older than STALLED_AFTER_S.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import procrastinate
from procrastinate import exceptions
from procrastinate.jobs import Job, Status
from procrastinate.worker import Worker

from medlive.clock import now
from medlive.db.curation.queue import queued_revisions
from medlive.db.session import Connection, Database, Session
from medlive.db.steps import CURATION_QUEUE, STALLED_AFTER_S
from medlive.errors import DatabaseUnavailable
from medlive.logs import bound

CURATE = "medlive:curate_revision"
HEARTBEAT_S = 2.0

Work = Callable[[int], Awaitable[None]]

_LOST = "the job queue cannot be reached"


async def _curate_revision(context: procrastinate.JobContext, *, revision: int) -> None:
    with bound(job=context.job.id, revision=revision):
        await context.additional_context["work"](revision)


def open_app(database: Database) -> procrastinate.App:
    """The job queue of a database, with connections of its own; open it with `open_async()`."""
    url = database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=8))
    # Registered with each app anew: a blueprint's tasks belong to the last app that took them, under another name.
    app.task(name=CURATE, queue=CURATION_QUEUE, pass_context=True)(_curate_revision)
    return app


async def defer_revisions(app: procrastinate.App, session: Session, revisions: Sequence[int]) -> int:
    """Defer a job for each revision in the session's own transaction; how many were not queued already.

    One that a worker has under way counts as queued: a second job would pay for the same replies again.
    """
    connection = await session.connection()
    queued = await queued_revisions(session, CURATION_QUEUE)
    jobs = [
        app.configure_task(CURATE, queue=CURATION_QUEUE, queueing_lock=f"curate:{revision}").make_new_job(
            revision=revision
        )
        for revision in dict.fromkeys(revisions)
        if revision not in queued
    ]
    if await _defer(app, connection, jobs):
        return len(jobs)
    # Another process queued some of them meanwhile.
    return sum([await _defer(app, connection, [job]) for job in jobs])


async def _defer(app: procrastinate.App, connection: Connection, jobs: list[Job]) -> bool:
    """Whether these jobs could be deferred, all or none."""
    if not jobs:
        return True
    raw = await connection.get_raw_connection()
    try:
        # A duplicate lock aborts the transaction it happens in, so there is a savepoint around them.
        async with connection.begin_nested():
            await app.job_manager.batch_defer_jobs_async(jobs, connection=raw.driver_connection)
    except exceptions.AlreadyEnqueued:
        return False
    return True


async def run_until_drained(
    app: procrastinate.App,
    work: Work,
    *,
    concurrency: int,
    on_wait: Callable[[int], None] = lambda _: None,
    grace_s: float | None = None,
) -> None:
    """Run jobs in this process until the queue is empty, taking over those of workers that died.

    `on_wait` is told how many jobs other live workers still hold. When the call is cancelled, jobs that have begun
    are finished first; with `grace_s` they have so many seconds, and are then broken off. Raises
    DatabaseUnavailable.
    """
    try:
        while True:
            await _take_over(app)
            await _run(app, work, concurrency, wait=False, grace_s=grace_s)
            waiting = await _jobs(app, Status.DOING)
            if not waiting and not await _jobs(app, Status.TODO):
                return
            if waiting:
                on_wait(len(waiting))
                await asyncio.sleep(0.5)
    except exceptions.ConnectorException as exc:
        raise DatabaseUnavailable(_LOST) from exc


async def run_until_stopped(app: procrastinate.App, work: Work, *, concurrency: int, stop: asyncio.Event) -> None:
    """Run jobs as they come until `stop` is set, taking over those of workers that died.

    Jobs that have begun are finished first. Raises DatabaseUnavailable, also when the queue is lost meanwhile.
    """
    worker = asyncio.create_task(_run(app, work, concurrency, wait=True))
    others = [asyncio.create_task(stop.wait()), asyncio.create_task(_keep_taking_over(app))]
    try:
        await asyncio.wait([worker, *others], return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            # Only a lost database ends the worker or the taking over; what was begun is left to heartbeats.
            raise DatabaseUnavailable(_LOST) from next(
                (t.exception() for t in (worker, *others) if t.done() and not t.cancelled()), None
            )
    finally:
        for task in (worker, *others):
            task.cancel()
        # Procrastinate takes the cancellation as a wish: it fetches no more and finishes what it runs.
        await asyncio.gather(worker, *others, return_exceptions=True)


async def _run(
    app: procrastinate.App, work: Work, concurrency: int, *, wait: bool, grace_s: float | None = None
) -> None:
    worker = Worker(
        app,
        queues=[CURATION_QUEUE],
        concurrency=concurrency,
        wait=wait,
        listen_notify=wait,
        install_signal_handlers=False,
        delete_jobs="successful",
        update_heartbeat_interval=HEARTBEAT_S,
        stalled_worker_timeout=STALLED_AFTER_S,
        additional_context={"work": work},
    )
    running = asyncio.create_task(worker.run())  # type: ignore[no-untyped-call]
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        # Only who breaks off sets a limit: at the queue's own end the last jobs take as long as they need.
        worker.shutdown_graceful_timeout = grace_s
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        raise


async def _keep_taking_over(app: procrastinate.App) -> None:
    while True:
        await _take_over(app)
        await asyncio.sleep(STALLED_AFTER_S)


async def _take_over(app: procrastinate.App) -> None:
    stalled = await app.job_manager.get_stalled_jobs(queue=CURATION_QUEUE, seconds_since_heartbeat=STALLED_AFTER_S)
    for job in stalled:
        await app.job_manager.retry_job(job, retry_at=now())


async def _jobs(app: procrastinate.App, status: Status) -> Sequence[Job]:
    found: Any = await app.job_manager.list_jobs_async(queue=CURATION_QUEUE, status=status.value)
    return list(found)
