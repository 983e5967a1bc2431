"""`medlive jobs`: what is queued, being done or failed and why; try it again, or cancel it."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from medlive.cli.options import JsonOption, one_of
from medlive.cli.output import (
    Grid,
    print_result,
    render,
    say,
    wait_for,
    with_session,
)
from medlive.config import load_settings
from medlive.errors import BadInput, CheckFailed, UsageError

if TYPE_CHECKING:
    from procrastinate.manager import JobManager

    from medlive.db.jobs import JobRow, QueueCount
    from medlive.db.waits import FailedJobs, Wait

app = typer.Typer(no_args_is_help=True)

RetriedArgument = Annotated[
    list[int] | None,
    Argument(metavar="JOB...", help="Numbers, as `medlive jobs list` shows them."),
]
JobsArgument = Annotated[
    list[int],
    Argument(metavar="JOB...", help="Numbers, as `medlive jobs list` shows them."),
]


@dataclass(frozen=True)
class _Retried:
    """What is tried again."""

    failed: list[int]  # Jobs by number
    delayed: int  # Jobs that waited for their next attempt


@dataclass(frozen=True, slots=True)
class _Jobs:
    """The jobs of every queue by number, and some of them."""

    queues: "Sequence[QueueCount]"
    jobs: "Sequence[JobRow]"

    def as_json(self) -> object:
        """All fields."""
        return asdict(self)

    def tables(self) -> Iterable[Grid]:
        """The queues, then the jobs."""
        queues = []
        for count in self.queues:
            numbers = (count.jobs, count.delayed, count.servers)
            queues.append([count.queue, count.status, *numbers])
        columns = ["queue", "status", "jobs", "delayed", "servers"]
        yield Grid(columns, queues, "Queues")
        jobs = []
        for job in self.jobs:
            times = (job.scheduled_at, job.heartbeat)
            row = [job.id, job.queue, job.args, job.status, job.attempts]
            jobs.append([*row, *times, job.reason])
        columns = ["id", "queue", "args", "status", "attempts"]
        columns += ["scheduled_at", "heartbeat", "reason"]
        yield Grid(columns, jobs, "Jobs")

    def remarks(self) -> Iterable[str]:
        """None."""
        return ()


@dataclass(frozen=True, slots=True)
class _Waits:
    """What threads wait for, and why jobs failed."""

    queued_again: int
    waits: "Sequence[Wait]"
    failed: "Sequence[FailedJobs]"

    def as_json(self) -> object:
        """All fields."""
        return asdict(self)

    def tables(self) -> Iterable[Grid]:
        """What threads wait for, then what failed."""
        waits = [[wait.waits_for, wait.threads] for wait in self.waits]
        yield Grid(["waits for", "threads"], waits, "Threads that wait")
        failed = []
        for jobs in self.failed:
            failed.append([jobs.queue, jobs.reason, jobs.jobs, jobs.last_at])
        yield Grid(["queue", "reason", "jobs", "last_at"], failed, "Failed jobs")

    def remarks(self) -> Iterable[str]:
        """None."""
        return ()


@app.command("list")
def list_(
    queue: Annotated[str | None, Option(help="Only this queue.")] = None,
    status: Annotated[
        Literal["todo", "doing", "failed", "cancelled", "aborted"] | None,
        Option(help="Only jobs in this state [the first three]."),
    ] = None,
    after: Annotated[int, Option(help="Begin after the job of this number.")] = 0,
    limit: Annotated[int, Option(min=0, max=10_000, help="Show so many at most.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Count the jobs of every queue, and list those that wait, are being done or have failed."""
    from medlive.db.jobs import Queue, count_jobs, list_jobs

    queue = None if queue is None else one_of("--queue", Queue, queue)
    counts = with_session(count_jobs)
    jobs = with_session(
        lambda session: list_jobs(
            session, queue=queue, status=status, after=after, limit=limit
        )
    )
    render(_Jobs(counts, jobs), as_json)


@app.command()
def retry(
    jobs: RetriedArgument = None,
    all_: Annotated[
        bool,
        Option(
            "--all", help="All that failed, and all that wait for their next attempt."
        ),
    ] = False,
    reason: Annotated[
        str | None, Option(help="Those that failed for a reason with these words.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Say how many there are; do nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Try failed jobs again, or jobs of a worker that hangs, by number; or many at once.

    Of many jobs the number is printed. --all also ends the waits after an endpoint gave no answer.
    """
    if [bool(jobs), all_, reason is not None].count(True) != 1:
        raise UsageError(
            "give the numbers of jobs, or --all, or --reason TEXT",
            hint="medlive jobs list shows them",
        )
    if jobs:
        if not dry_run:
            _each(jobs, "failed or being done", _retry_now)
        value = _Retried(jobs, 0)
    else:
        value = _retry_many(reason or "", hurry_delayed=all_, dry_run=dry_run)
    verb = "would be queued again" if dry_run else "queued again"
    text = f"{len(value.failed)} jobs {verb}" + (
        f", {value.delayed} delayed ones at once" if all_ else ""
    )
    print_result(asdict(value), as_json, lambda: say(text))


@app.command()
def check(as_json: JsonOption = False) -> None:
    """Count what threads wait for, and why jobs failed; queue threads again that wait for nothing.

    Exit status 1 when there were such threads.
    """
    from medlive.db.waits import count_waits, list_failed_jobs
    from medlive.service.database import open_database
    from medlive.service.work.jobs import open_app
    from medlive.service.work.lost_threads import queue_lost

    async def run() -> _Waits:
        async with (
            open_database(load_settings().settings) as database,
            open_app(database).open_async() as queue,
        ):
            lost = await queue_lost(queue, database)
            async with database.begin() as session:
                waits = await count_waits(session)
                failed = await list_failed_jobs(session)
        return _Waits(lost, waits, failed)

    done = wait_for(run())
    failure = None
    if lost := done.queued_again:
        failure = CheckFailed(
            f"{lost} threads waited without a job, and are queued again"
        )
    render(done, as_json, failure=failure)


@app.command()
def cancel(jobs: JobsArgument) -> None:
    """Cancel jobs that wait, and break off those that are being done."""

    async def stop(manager: "JobManager", job: int) -> None:
        if not await manager.cancel_job_by_id_async(job, abort=True):
            raise BadInput

    _each(jobs, "waiting or being done", stop)
    say(f"cancelled: {', '.join(map(str, jobs))}")


async def _retry_now(manager: "JobManager", job: int) -> None:
    from medlive.clock import now

    await manager.retry_job_by_id_async(job, retry_at=now())


def _retry_many(reason: str, *, hurry_delayed: bool, dry_run: bool) -> _Retried:
    """Try again what failed for a reason ("": any); `hurry_delayed`: and what waits for its next attempt."""
    from medlive.db.jobs import Queue, hurry
    from medlive.db.waits import count_waiting, find_failed_jobs
    from medlive.service.database import open_database
    from medlive.service.work.jobs import open_app
    from medlive.service.work.taken import queue_errors

    async def run() -> _Retried:
        async with (
            open_database(load_settings().settings) as database,
            open_app(database).open_async() as queue,
        ):
            async with database.begin() as session:
                failed = await find_failed_jobs(session, reason)
                delayed = (
                    (await count_waiting(session, Queue.CURATE)).delayed
                    if hurry_delayed
                    else 0
                )
                if delayed and not dry_run:
                    await hurry(session, Queue.CURATE)
            with queue_errors(database):
                for job in [] if dry_run else failed:
                    await _retry_unless_queued(queue.job_manager, job)
        return _Retried(failed, delayed)

    return wait_for(run())


async def _retry_unless_queued(manager: "JobManager", job: int) -> None:
    """Try a failed job again; one whose thread was queued again meanwhile stays as it is."""
    from procrastinate.exceptions import UniqueViolation

    with suppress(UniqueViolation):
        await _retry_now(manager, job)


def _each(
    jobs: list[int], state: str, act: Callable[["JobManager", int], Awaitable[None]]
) -> None:
    """Act on each job. Raises BadInput for one that is not in that state."""
    from procrastinate.exceptions import ConnectorException

    from medlive.service.database import open_database
    from medlive.service.work.jobs import open_app

    async def run() -> None:
        async with (
            open_database(load_settings().settings) as database,
            open_app(database).open_async() as queue,
        ):
            for job in jobs:
                try:
                    await act(queue.job_manager, job)
                except (BadInput, ConnectorException) as exc:
                    raise BadInput(
                        f"job {job} is not {state}",
                        hint="medlive jobs list shows the jobs",
                    ) from exc

    wait_for(run())
