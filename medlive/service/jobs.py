"""Jobs in PostgreSQL, by Procrastinate: deferred in the transaction of their rows, run until none is left.

One job curates one thread revision, and first checks whether that is decided. A killed process leaves its jobs
"doing"; the next run retries them once the dead worker's heartbeat is older than STALLED_AFTER_S.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import procrastinate
from procrastinate import exceptions
from procrastinate.worker import Worker

from medlive.clock import now
from medlive.db.runs import CURATION_QUEUE, STALLED_AFTER_S, queued_revisions
from medlive.db.session import Database, Session
from medlive.errors import DatabaseUnavailable
from medlive.logs import bound

CURATE = "medlive:curate_revision"
HEARTBEAT_S = 2.0

Work = Callable[[int], Awaitable[None]]

_QUEUE_UNAVAILABLE = "the job queue cannot be reached"


async def _curate_revision(context: procrastinate.JobContext, *, revision: int) -> None:
    with bound(job=context.job.id, revision=revision):
        await context.additional_context["work"](revision)


def open_app(database: Database) -> procrastinate.App:
    """The job queue of a database, with its own connections; open it with `open_async()`."""
    url = database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=8))
    # Registered with each app: a blueprint's tasks belong to the last app that used it, under another name.
    app.task(name=CURATE, queue=CURATION_QUEUE, pass_context=True)(_curate_revision)
    return app


async def defer_revisions(app: procrastinate.App, session: Session, revisions: Sequence[int]) -> int:
    """Defer a job for each revision in the session's transaction; how many were not queued already.

    A running job counts as queued: a second one would pay for the same replies again.
    """
    connection = await session.connection()
    driver = (await connection.get_raw_connection()).driver_connection
    queued = await queued_revisions(session, CURATION_QUEUE)

    async def defer(chosen: list[int]) -> int:
        jobs = [
            app.configure_task(CURATE, queue=CURATION_QUEUE, queueing_lock=f"curate:{n}").make_new_job(revision=n)
            for n in chosen
        ]
        try:
            # A duplicate lock aborts its transaction, hence the savepoint.
            async with connection.begin_nested():
                await app.job_manager.batch_defer_jobs_async(jobs, connection=driver)
        except exceptions.AlreadyEnqueued:
            # Another process queued some of them meanwhile.
            return sum([await defer([n]) for n in chosen]) if len(chosen) > 1 else 0
        return len(jobs)

    missing = [n for n in dict.fromkeys(revisions) if n not in queued]
    return await defer(missing) if missing else 0


async def run_until_drained(
    app: procrastinate.App,
    work: Work,
    *,
    concurrency: int,
    on_wait: Callable[[int], None] = lambda _: None,
    grace_s: float | None = None,
) -> None:
    """Run jobs in this process until the queue is empty, including those of dead workers.

    `on_wait` gets the number of jobs that other live workers are running. On cancellation, running jobs are
    finished first, for at most `grace_s` seconds if given. Raises DatabaseUnavailable.
    """
    try:
        while True:
            await _take_over(app)
            await _run(app, work, concurrency, wait=False, grace_s=grace_s)
            waiting, todo = [
                list(await app.job_manager.list_jobs_async(queue=CURATION_QUEUE, status=status))
                for status in ("doing", "todo")
            ]
            if not waiting and not todo:
                return
            if waiting:
                on_wait(len(waiting))
                await asyncio.sleep(0.5)
    except exceptions.ConnectorException as exc:
        raise DatabaseUnavailable(_QUEUE_UNAVAILABLE) from exc


async def run_until_stopped(app: procrastinate.App, work: Work, *, concurrency: int, stop: asyncio.Event) -> None:
    """Run jobs as they come until `stop` is set, including those of dead workers; then finish running jobs.

    Raises DatabaseUnavailable, also when the queue is lost later.
    """
    worker = asyncio.create_task(_run(app, work, concurrency, wait=True))
    others = [asyncio.create_task(stop.wait()), asyncio.create_task(_keep_taking_over(app))]
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


async def _run(
    app: procrastinate.App, work: Work, concurrency: int, *, wait: bool, grace_s: float | None = None
) -> None:
    worker = Worker(
        app, queues=[CURATION_QUEUE], concurrency=concurrency, wait=wait, listen_notify=wait,
        install_signal_handlers=False, delete_jobs="successful", update_heartbeat_interval=HEARTBEAT_S,
        stalled_worker_timeout=STALLED_AFTER_S, additional_context={"work": work},
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


async def _keep_taking_over(app: procrastinate.App) -> None:
    while True:
        await _take_over(app)
        await asyncio.sleep(STALLED_AFTER_S)


async def _take_over(app: procrastinate.App) -> None:
    stalled = await app.job_manager.get_stalled_jobs(queue=CURATION_QUEUE, seconds_since_heartbeat=STALLED_AFTER_S)
    for job in stalled:
        await app.job_manager.retry_job(job, retry_at=now())
