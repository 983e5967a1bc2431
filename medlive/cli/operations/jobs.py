"""`medlive jobs`: what is queued, being done or failed and why; try it again, or cancel it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, TypeVar

from procrastinate import App
from procrastinate.exceptions import ConnectorException, UniqueViolation
from procrastinate.manager import JobManager
from typer import Argument, Option

from medlive.cli.output import (
    Result,
    failed,
    say,
    table_of,
    with_database,
    with_session,
)
from medlive.clock import now
from medlive.db.jobs import (
    Queue,
    count_jobs,
    count_waiting,
    find_failed_jobs,
    hurry,
    list_jobs,
)
from medlive.db.session import Database
from medlive.errors import BadInput, UsageError
from medlive.service.work.jobs import open_app, queue_lost
from medlive.service.work.taken import queue_errors

T = TypeVar("T")

_HINT = "medlive jobs list shows the jobs"
_NUMBERS = Argument(
    metavar="JOB...", help="Numbers, as `medlive jobs list` shows them."
)
_QUEUES = ("queue", "status", "jobs", "delayed", "servers")
_JOBS = (
    "id",
    "queue",
    "args",
    "status",
    "attempts",
    "scheduled_at",
    "heartbeat",
    "reason",
)


def _with_queue(work: Callable[[App, Database], Awaitable[T]]) -> T:
    """Work on the queue of the configured database."""

    async def run(database: Database) -> T:
        async with open_app(database).open_async() as queue:
            return await work(queue, database)

    return with_database(run)


def list_(limit: Annotated[int, Option(min=0, max=10_000)] = 20) -> Result:
    """Count the jobs of every queue, and list those that wait, are being done or have failed.

    Args:
        limit: Show so many at most.
    """
    counts = with_session(count_jobs)
    jobs = with_session(list_jobs, limit)
    shown = [table_of(counts, _QUEUES, "Queues"), table_of(jobs, _JOBS, "Jobs")]
    notes = [] if jobs else ["nothing waits"]
    return Result({"queues": counts, "jobs": jobs}, shown, notes)


def retry(
    jobs: Annotated[list[int] | None, _NUMBERS] = None,
    all_: bool = False,
    reason: str | None = None,
) -> Result:
    """Try failed jobs again, or jobs of a worker that hangs, by number; or many at once.

    --all also ends the waits after an endpoint gave no answer.

    Args:
        all_: All jobs that failed, and all that wait for their next attempt.
        reason: Jobs that failed for a reason with these words.
    """
    if [bool(jobs), all_, bool(reason)].count(True) != 1:
        raise UsageError(
            "give the numbers of jobs, or --all, or --reason TEXT", hint=_HINT
        )
    if jobs:
        _each(jobs, "failed or being done", _retry_now)
        text = f"queued again: {', '.join(map(str, jobs))}"
        return Result({"retried": jobs, "delayed": 0}, notes=[text])

    async def retry_many(queue: App, database: Database) -> Result:
        delayed = 0
        async with database.begin() as session:
            failures = await find_failed_jobs(session, reason or "")
            if all_:
                delayed = (await count_waiting(session, Queue.CURATE)).delayed
                await hurry(session, Queue.CURATE)
        with queue_errors(database):
            for job in failures:
                # A job whose thread was queued again meanwhile stays failed.
                with suppress(UniqueViolation):
                    await _retry_now(queue.job_manager, job)
        text = f"queued again: {len(failures)} jobs, and {delayed} delayed ones at once"
        return Result({"retried": failures, "delayed": delayed}, notes=[text])

    return _with_queue(retry_many)


def check() -> Result:
    """Queue threads again that wait but have no job; exit status 1 when there were such threads."""
    lost = with_database(queue_lost)
    problem = f"{lost} threads waited without a job: queued again"
    return Result({"queued_again": lost}, failure=failed([problem] if lost else []))


def cancel(jobs: Annotated[list[int], _NUMBERS]) -> None:
    """Cancel jobs that wait, and break off those that are being done."""

    async def stop(manager: JobManager, job: int) -> None:
        if not await manager.cancel_job_by_id_async(job, abort=True):
            raise BadInput

    _each(jobs, "waiting or being done", stop)
    say(f"cancelled: {', '.join(map(str, jobs))}")


async def _retry_now(manager: JobManager, job: int) -> None:
    await manager.retry_job_by_id_async(job, retry_at=now())


def _each(
    jobs: list[int], state: str, act: Callable[[JobManager, int], Awaitable[None]]
) -> None:
    """Act on each job. Raises BadInput for a job that is not in `state`, words for the message."""

    async def run(queue: App, _: Database) -> None:
        for job in jobs:
            try:
                await act(queue.job_manager, job)
            except (BadInput, ConnectorException) as exc:
                raise BadInput(f"job {job} is not {state}", hint=_HINT) from exc

    _with_queue(run)
