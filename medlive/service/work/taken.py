"""Which jobs a worker takes now (`Readiness`), and how each ends (`run_job`, `Jobs`): done, failed, or given back.

Whoever may write the table of jobs must not make a worker do what its queue is not for: `check_job` refuses that.

A job that meets a state of its surroundings (an open circuit, a spent budget, no evidence, no rights, a full disk,
a wrong configuration) is given back, and its queue is paused: no further job of it is taken. After a while jobs are
let through. When one is done, or fails for a reason of its own, the pause ends; otherwise the wait doubles. A state is
logged when it begins and ends.

A job is also given back when its worker is stopped or the database is lost; no attempt is counted. One that fails for
another reason keeps it in `job_failures`.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
from medlive.db.adapters import to_stored
from medlive.db.jobs import FORGET_REPLACED, SAVE_FAILURE, UNCOUNT_ATTEMPT, Queue
from medlive.db.session import Database, NameLocks, translate
from medlive.errors import (
    NO_SPACE,
    CheckFailed,
    CircuitOpen,
    ConfigError,
    DatabaseFull,
    DatabaseUnavailable,
    DiskFull,
    EvidenceUnavailable,
    MedliveError,
    MissingExtra,
    ServiceUnavailable,
    describe,
)
from medlive.guard.printable import printable
from medlive.llm.budget import BudgetSpent
from medlive.logs import bound
from medlive.service.database import RETRY_S
from medlive.service.schedule.steps import QUEUES, source_of
from medlive.service.week_budget import WeekSpent
from medlive.snapshot.model import week_end
from medlive.sources.registry import known_sites

_log = logging.getLogger(__name__)

# Tasks: curate a thread's revision, prove a case's rubric, run a weekly step
CURATE = "medlive:curate_revision"
PROVE = "medlive:prove_case"
STEP = "medlive:step"

# Task → the types of its arguments
_ARGUMENTS: Mapping[str, Mapping[str, type]] = {
    CURATE: {"revision": int},
    PROVE: {"case_id": str, "revision": int},
    STEP: {"step": str, "week": str},
}
_CASE_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


def check_job(
    task: str,
    queue: str,
    arguments: Mapping[str, Any],
) -> None:
    """Raise CheckFailed for a job of another queue, or with arguments that no program of ours writes."""
    expected: Queue | None = None
    types = {name: type(value) for name, value in arguments.items()}
    if types == _ARGUMENTS.get(task):
        if task == STEP:
            step = arguments["step"]
            if week_end(arguments["week"]):
                harvest = Queue.HARVEST if source_of(step) in known_sites() else None
                expected = QUEUES.get(step, harvest)
        elif arguments["revision"] > 0:
            case_id = arguments.get("case_id")  # Of a proof
            if case_id is None or _CASE_ID.fullmatch(case_id):
                expected = Queue.CURATE
    if queue != expected:
        text = printable(f"{task} {dict(arguments)} in the queue {queue}")[:200]
        queued = f"one in the queue {expected}" if expected else "one of medlive's"
        raise CheckFailed(f"refused: expected {queued}, got {text}")


# Seconds that a queue pauses at first, at most, and at least
FIRST_WAIT_S = 30.0
MOST_WAIT_S = 300.0
LEAST_WAIT_S = 0.2
NEVER = float("inf")  # For a pause that lets no job through

# The errors that are states of the surroundings
_SURROUNDINGS = (BudgetSpent, ConfigError, MissingExtra, ServiceUnavailable)


def find_obstacle(error: BaseException) -> MedliveError | None:
    """The state of the surroundings that an error of a job shows; None for a fault of the job or of medlive.

    A lost database is no obstacle: its jobs are given back, and the worker begins again when it is back.
    """
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return DiskFull(
            f"no space is left on this machine: {error.filename or error.strerror}"
        )
    if isinstance(error, DatabaseUnavailable) and not isinstance(error, DatabaseFull):
        return None
    return error if isinstance(error, _SURROUNDINGS) else None


@dataclass
class Pause:
    """Why no jobs of a queue are taken, and until when."""

    obstacle: MedliveError
    wait_s: float
    due_at: float  # When jobs are let through, by the readiness's clock; NEVER: not in this process


class Readiness:
    """The queues whose jobs a worker takes now, and why not others'. For one event loop at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self.pauses: dict[str, Pause] = {}
        """By queue; a pause that is due lasts until a job is done."""

    def is_open(self, queue: str) -> bool:
        """Whether jobs of a queue may be taken now."""
        pause = self.pauses.get(queue)
        return pause is None or self._clock() >= pause.due_at

    def worked(self, queue: str) -> None:
        """A job was done, or failed for a reason of its own."""
        if self.is_open(queue):  # else it was begun before the pause
            self.resume(queue)

    def pause(
        self, queue: str, obstacle: MedliveError, wait_s: float | None = None
    ) -> None:
        """Take no jobs of a queue for a while; None: for as long as the obstacle asks for."""
        known = self.pauses.get(queue)
        same = known if known and type(known.obstacle) is type(obstacle) else None
        if wait_s is None:
            if not self.is_open(queue):
                return  # a job that was begun before the pause shows nothing new
            wait_s = FIRST_WAIT_S
            if isinstance(obstacle, CircuitOpen | WeekSpent):
                wait_s = (obstacle.retry_at - now()).total_seconds()
                wait_s = max(LEAST_WAIT_S, wait_s)
            elif isinstance(obstacle, BudgetSpent | EvidenceUnavailable | DatabaseFull):
                # The budget is this process's own; the others are looked at, and a job would pay for lost replies.
                wait_s = NEVER
            elif same:
                wait_s = min(MOST_WAIT_S, 2 * same.wait_s)
        if same:
            obstacle = same.obstacle
        else:
            _log.warning("no jobs of %s are taken: %s", queue, obstacle.whole)
        self.pauses[queue] = Pause(obstacle, wait_s, self._clock() + wait_s)

    def resume(self, queue: str) -> None:
        """Take jobs of a queue again."""
        if self.pauses.pop(queue, None):
            _log.warning("jobs of %s are taken again", queue)

    def describe(self) -> str | None:
        """Why jobs of some queues are not taken; None: all are."""
        reasons = []
        for queue, pause in sorted(self.pauses.items()):
            reasons.append(f"{queue}: {pause.obstacle.whole}")
        return "; ".join(reasons) or None


RETRY_AFTER_S: Mapping[str, Sequence[int]] = {
    "endpoint_unavailable": (60, 300, 1800, *[4 * 3600] * 6)
}
"""Reason for which a thread failed → how long its job waits, attempt by attempt, for a day in all. A job that has
waited that often, or failed for another reason, is left to the next `medlive curate` or weekly step."""

_RAISED = "P0001"
"""The state of what Procrastinate's functions raise where a job is not in the state to be ended."""

Work = Callable[..., Awaitable[str | None]]
"""Does a job with its arguments; returns why its thread failed if the job is to be tried again, else None."""
Works = Mapping[str, Work]
"""By the name of the task."""


class _GivenBack(Exception):
    """The job is given back, and may begin again after the given number of seconds."""


class Retry(BaseRetryStrategy):
    """Tells Procrastinate to put back a job that was given back or broken off; any other error ends it."""

    def get_retry_decision(
        self, *, exception: BaseException, job: Job
    ) -> RetryDecision | None:
        """See BaseRetryStrategy."""
        match exception:
            case _GivenBack(args=[wait_s]):
                return RetryDecision(retry_in={"milliseconds": int(wait_s * 1000)})
            case asyncio.CancelledError():
                return RetryDecision(retry_in={"milliseconds": 0})
        return None


class Jobs(JobManager):
    """Takes jobs of the queues that are ready, and ends them by the database's clock.

    It is not an error if another worker has ended a job. Once a job cannot be ended since the database is lost, all
    are broken off, and other workers take them over.
    """

    def __init__(
        self,
        app: procrastinate.App,
        database: Database,
        works: Works,
        readiness: Readiness,
    ) -> None:
        """`works` has the work of each task, `readiness` the queues whose jobs are taken."""
        super().__init__(app.connector)
        self.app, self.database = app, database
        self.works, self.readiness = works, readiness
        self.claims: NameLocks | None = None
        """Locks on the names of the jobs that are being done."""
        self.cause: Exception | None = None
        """Why jobs can no longer be ended here."""
        self.tasks: set[asyncio.Task[object]] = set()
        """The tasks of the jobs that are being done."""
        self.worker: Worker | None = None
        self.is_stopping = False

    def stop(self) -> None:
        """Take no more jobs, and finish those that were taken."""
        self.is_stopping = True
        if self.worker:
            self.worker.stop()  # type: ignore[no-untyped-call]

    def lose(self, cause: Exception) -> None:
        """Break off what is being done: it can no longer be ended here."""
        self.cause = self.cause or cause
        if self.worker:
            # What is broken off here keeps what it has paid for; a second time it would not.
            self.worker.shutdown_graceful_timeout = None
            self.worker.stop()  # type: ignore[no-untyped-call]
        for task in self.tasks:
            if not task.cancelling():
                task.cancel()

    async def watch(self, work: Awaitable[None]) -> None:
        """Do what has to go on as long as jobs are done: when it ends, they are broken off."""
        try:
            with queue_errors(self.database):
                await work
        except Exception as error:
            self.lose(error)
        else:
            self.lose(DatabaseUnavailable())

    async def uncount_attempt(self, job: Job) -> None:
        """Take back the attempt that giving a job back will count: nothing was asked of its endpoint."""
        if self.cause is None:
            with suppress(exceptions.ConnectorException):
                await self.connector.execute_query_async(UNCOUNT_ATTEMPT, job_id=job.id)

    async def fetch_job(
        self, queues: Iterable[str] | None, worker_id: int
    ) -> Job | None:
        """See JobManager; None, too, while none of the queues is ready."""
        ready = list(filter(self.readiness.is_open, queues or ()))
        return await super().fetch_job(ready, worker_id) if ready else None

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """See JobManager; what has failed under the same name is done now, and forgotten."""
        finish = partial(super().finish_job, job, status, delete_job)

        async def finish_for_all() -> None:
            if status is Status.SUCCEEDED:
                name = job.lock or job.queueing_lock
                await self.connector.execute_query_async(
                    FORGET_REPLACED, job_id=job.id, name=name
                )
            await finish()

        await self._end(job, finish_for_all)

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

    async def _end(
        self,
        job: Job,
        end: Callable[[], Awaitable[None]],
    ) -> None:
        """Await `end`, which ends the job; when it fails twice because the connection was lost, give up all jobs."""
        for is_last in (False, True):  # again in case the connection was lost
            try:
                if self.cause is None:
                    await end()
                return
            except exceptions.ConnectorException as exc:
                cause = exc.__cause__ or exc
                if getattr(cause, "sqlstate", "") == _RAISED:
                    why = str(cause).partition("\n")[0]
                    _log.info("job %s was not ended here: %s", job.id, why)
                    return
                if is_last:
                    self.lose(queue_error(self.database, exc))


async def run_job(context: procrastinate.JobContext, /, **arguments: int | str) -> None:
    """Do a job: it is done, has failed with its reason, or is given back."""
    job, jobs = context.job, context.app.job_manager
    assert isinstance(jobs, Jobs)
    assert jobs.claims
    name = f"{job.task_name} {sorted(arguments.items())}"
    task = asyncio.current_task()
    assert task
    jobs.tasks.add(task)
    try:
        check_job(job.task_name, job.queue, arguments)
        with bound(job=job.id, **arguments):
            async with jobs.claims.claim(name) as is_alone:
                if not is_alone:
                    raise _GivenBack(RETRY_S)
                failed_for = await jobs.works[job.task_name](**arguments)
        jobs.readiness.worked(job.queue)
    except (_GivenBack, asyncio.CancelledError):
        await jobs.uncount_attempt(job)
        raise
    except Exception as error:
        obstacle = find_obstacle(error)
        if obstacle:
            jobs.readiness.pause(job.queue, obstacle)
        if obstacle or isinstance(error, DatabaseUnavailable):
            await jobs.uncount_attempt(job)
            raise _GivenBack(RETRY_S if obstacle is None else 0) from error
        jobs.readiness.worked(job.queue)
        reason = to_stored(describe(error))
        # Where it cannot be kept the thread counts as lost, and is queued again.
        with suppress(exceptions.ConnectorException):
            await jobs.connector.execute_query_async(
                SAVE_FAILURE, job_id=job.id, queue=job.queue, reason=reason
            )
        raise
    finally:
        jobs.tasks.remove(task)
    waits = RETRY_AFTER_S.get(failed_for or "", ())
    if job.attempts < len(waits):
        raise _GivenBack(waits[max(job.attempts, 0)])


@contextmanager
def queue_errors(database: Database) -> Iterator[None]:
    """Raise DatabaseUnavailable, or DatabaseForbidden, for the job queue's own errors."""
    try:
        yield
    except exceptions.ConnectorException as exc:
        raise queue_error(database, exc) from exc


def queue_error(database: Database, exc: exceptions.ConnectorException) -> Exception:
    """What an error of the job queue means."""
    known = translate(database.engine.url, exc.__cause__ or exc)
    return known or DatabaseUnavailable("the job queue cannot be reached")
