"""The jobs that a worker has taken: each is done, failed with its reason, or given back.

A job is given back when its surroundings keep it from being done, its worker is stopped, or the database is lost;
no attempt is counted. One that fails for another reason keeps it in `job_failures`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import procrastinate
from procrastinate import exceptions
from procrastinate.connector import BaseConnector
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from procrastinate.retry import BaseRetryStrategy, RetryDecision
from procrastinate.utils import utcnow

from medlive.db.jobs import UNCOUNT_ATTEMPT
from medlive.db.mapping import to_stored
from medlive.db.session import Database, translate
from medlive.db.waits import SAVE_FAILURE
from medlive.errors import DatabaseUnavailable, describe
from medlive.logs import bound
from medlive.service.database import RETRY_S
from medlive.service.work.admission import check_job
from medlive.service.work.readiness import Readiness, find_obstacle

RETRY_AFTER_S: Mapping[str, Sequence[int]] = {
    "endpoint_unavailable": (60, 300, 1800, *[4 * 3600] * 6)
}
"""Reason for which a thread failed → how long its job waits, attempt by attempt, for a day in all. A job that has
waited so often, or failed for another reason, is left to the next `medlive curate` or weekly step."""

CLAIMS, TAKEN = "claims", "taken"
_RAISED = "P0001"
"""The state of what Procrastinate's functions raise where a job is not in the state to be ended."""
QUEUE_UNAVAILABLE = "the job queue cannot be reached"
_log = logging.getLogger(__name__)


class TakenJobs:
    """The jobs that are being done in this process, and whether they can still be ended."""

    def __init__(self, readiness: Readiness) -> None:
        """`readiness` says of which queues further jobs are taken."""
        self.readiness = readiness
        self.lost = asyncio.Event()
        """Set when jobs can no longer be ended here: others take them over once no heartbeat comes."""
        self.cause: DatabaseUnavailable | None = None
        self.moved_at = time.monotonic()
        """When a job last began or ended."""
        self._tasks: dict[asyncio.Task[object], str] = {}

    def count(self, queue: str) -> int:
        """How many jobs of a queue are being done."""
        return sum(name == queue for name in self._tasks.values())

    @contextmanager
    def holding(self, job: Job) -> Iterator[None]:
        """Count a job as being done, by the current task, while the block runs."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = job.queue
        self.moved_at = time.monotonic()
        try:
            yield
        finally:
            del self._tasks[task]
            self.moved_at = time.monotonic()

    def lose(self, cause: DatabaseUnavailable) -> None:
        """The jobs can no longer be ended here."""
        self.cause = self.cause or cause
        self.lost.set()

    def break_off(self) -> None:
        """Cancel what is being done."""
        for task in self._tasks:
            task.cancel()


class RetryLater(Exception):
    """A job failed for a reason that time may mend."""

    def __init__(self, reason: str) -> None:
        """`reason` is a key of RETRY_AFTER_S, or none."""
        super().__init__(reason)
        self.waits = RETRY_AFTER_S.get(reason, ())


class _BeingDone(Exception):
    """Somebody does the same job now."""


class _GivenBack(Exception):
    """The job met a state of its surroundings, and waits for whoever can do it."""


class Retry(BaseRetryStrategy):
    def get_retry_decision(
        self, *, exception: BaseException, job: Job
    ) -> RetryDecision | None:
        if isinstance(exception, asyncio.CancelledError | _GivenBack):
            return RetryDecision(retry_in={"seconds": 0})
        if isinstance(exception, DatabaseUnavailable | _BeingDone):
            return RetryDecision(retry_in={"milliseconds": int(RETRY_S * 1000)})
        if isinstance(exception, RetryLater):
            return RetryDecision(
                retry_in={"seconds": exception.waits[max(job.attempts, 0)]}
            )
        return None


async def run_job(context: procrastinate.JobContext, /, **arguments: int | str) -> None:
    """Do a job: it is done, has failed with its reason, or is given back."""
    job, more = context.job, context.additional_context
    taken: TakenJobs = more[TAKEN]
    assert job.id is not None
    with taken.holding(job), ExitStack() as stack:
        try:
            check_job(job.task_name, job.queue, arguments)
            stack.enter_context(bound(job=job.id, **arguments))
            async with more[CLAIMS].claim(
                f"{job.task_name} {sorted(arguments.items())}"
            ) as alone:
                if not alone:
                    raise _BeingDone
                await more[job.task_name](**arguments)
        except RetryLater as later:
            taken.readiness.worked(job.queue, job.id)
            if job.attempts < len(later.waits):
                raise
        except (_BeingDone, asyncio.CancelledError):
            taken.readiness.let_go(job.queue, job.id)
            await _uncount_attempt(context.app, job, taken)
            raise
        except Exception as error:
            await _sort_out(context.app, job, taken, error)
            raise
        else:
            taken.readiness.worked(job.queue, job.id)


async def _sort_out(
    app: procrastinate.App, job: Job, taken: TakenJobs, error: Exception
) -> None:
    """Raises _GivenBack where the job's surroundings are at fault; else keeps why it failed."""
    assert job.id is not None
    obstacle = find_obstacle(error)
    if obstacle is not None:
        taken.readiness.pause(job.queue, obstacle, job.id)
        await _uncount_attempt(app, job, taken)
        raise _GivenBack from error
    if isinstance(error, DatabaseUnavailable):
        taken.readiness.let_go(job.queue, job.id)
        await _uncount_attempt(app, job, taken)
        return
    taken.readiness.worked(job.queue, job.id)
    # Where it cannot be kept the thread counts as lost, and is queued again.
    with suppress(exceptions.ConnectorException):
        values = {
            "job_id": job.id,
            "queue": job.queue,
            "reason": to_stored(describe(error)),
        }
        await app.connector.execute_query_async(SAVE_FAILURE, **values)


async def _uncount_attempt(app: procrastinate.App, job: Job, taken: TakenJobs) -> None:
    """Take back the attempt that giving a job back will count: nothing was asked of its endpoint."""
    if taken.lost.is_set():
        return
    with suppress(exceptions.ConnectorException):
        await app.connector.execute_query_async(UNCOUNT_ATTEMPT, job_id=job.id)


class Jobs(JobManager):
    """Takes jobs of the queues that are ready, and ends them by the database's clock.

    A job that another worker has ended leaves no trace in the log. One that cannot be ended here is lost to this
    process, which says so in its `TakenJobs`.
    """

    def __init__(
        self, connector: BaseConnector, taken: TakenJobs, database: Database
    ) -> None:
        """`taken` holds what a worker does."""
        super().__init__(connector)
        self._taken, self._database = taken, database

    async def fetch_job(
        self, queues: Iterable[str] | None, worker_id: int
    ) -> Job | None:
        """See JobManager; None, too, while none of the queues is ready."""
        ready = self._taken.readiness.select([*(queues or ())])
        job = await super().fetch_job(ready, worker_id) if ready else None
        if job is not None and job.id is not None:
            self._taken.readiness.took(job.queue, job.id)
        return job

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """See JobManager."""
        await self._end(job, partial(super().finish_job, job, status, delete_job))

    async def retry_job(
        self, job: Job, retry_at: datetime | None = None, *more: Any, **named: Any
    ) -> None:
        """See JobManager; `retry_at` is by this process's clock."""
        wait = retry_at - utcnow() if retry_at else timedelta()
        retry, finish = super().retry_job, super().finish_job

        async def retry_by_its_clock() -> None:
            answer = await self.connector.execute_query_one_async("SELECT now()")
            try:
                await retry(job, answer["now"] + wait, *more, **named)
            except exceptions.UniqueViolation:  # the same was queued meanwhile
                await finish(job, Status.SUCCEEDED, delete_job=True)

        await self._end(job, retry_by_its_clock)

    async def _end(self, job: Job, end: Callable[[], Awaitable[None]]) -> None:
        for last in (False, True):  # again in case the connection was lost
            try:
                if not self._taken.lost.is_set():
                    await end()
                break
            except exceptions.ConnectorException as exc:
                cause = exc.__cause__ or exc
                if getattr(cause, "sqlstate", "") == _RAISED:
                    _log.info(
                        "job %s was not ended here: %s",
                        job.id,
                        str(cause).partition("\n")[0],
                    )
                    break
                if last:
                    self._taken.lose(_lost_queue(self._database, exc))


@contextmanager
def queue_errors(database: Database) -> Iterator[None]:
    """Raise DatabaseUnavailable, or DatabaseForbidden, for the job queue's own errors."""
    try:
        yield
    except exceptions.ConnectorException as exc:
        raise translate(
            database.engine.url, exc.__cause__ or exc
        ) or DatabaseUnavailable(QUEUE_UNAVAILABLE) from exc


def _lost_queue(
    database: Database, exc: exceptions.ConnectorException
) -> DatabaseUnavailable:
    known = translate(database.engine.url, exc.__cause__ or exc)
    return (
        known
        if isinstance(known, DatabaseUnavailable)
        else DatabaseUnavailable(QUEUE_UNAVAILABLE)
    )
