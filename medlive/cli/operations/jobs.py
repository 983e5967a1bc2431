"""`medlive jobs`: what is queued, being done or failed; try it again, or cancel it."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from medlive.cli.options import JsonOption
from medlive.cli.output import pick, print_result, print_table, say, wait_for, with_session
from medlive.config import load_settings
from medlive.errors import BadInput

if TYPE_CHECKING:
    from procrastinate.manager import JobManager

app = typer.Typer(no_args_is_help=True)

JobsArgument = Annotated[list[int], Argument(metavar="JOB...", help="Numbers, as `medlive jobs list` shows them.")]


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
    from medlive.db.jobs import count_jobs, list_jobs, parse_queue

    queue = None if queue is None else parse_queue(queue)
    counts = with_session(count_jobs)
    jobs = with_session(lambda session: list_jobs(session, queue=queue, status=status, after=after, limit=limit))
    value = {"queues": [asdict(count) for count in counts], "jobs": [asdict(job) for job in jobs]}

    def show() -> None:
        columns = "queue status jobs delayed servers"
        print_table(columns.split(), pick(value["queues"], columns), title="Queues")
        columns = "id queue args status attempts scheduled_at heartbeat"
        print_table(columns.split(), pick(value["jobs"], columns), title="Jobs")

    print_result(value, as_json, show)


@app.command()
def retry(jobs: JobsArgument) -> None:
    """Try failed jobs again, or jobs of a worker that hangs."""
    from medlive.clock import now

    _each(jobs, "failed or being done", lambda manager, job: manager.retry_job_by_id_async(job, retry_at=now()))
    say(f"queued again: {', '.join(map(str, jobs))}")


@app.command()
def cancel(jobs: JobsArgument) -> None:
    """Cancel jobs that wait, and break off those that are being done."""

    async def stop(manager: "JobManager", job: int) -> None:
        if not await manager.cancel_job_by_id_async(job, abort=True):
            raise BadInput

    _each(jobs, "waiting or being done", stop)
    say(f"cancelled: {', '.join(map(str, jobs))}")


def _each(jobs: list[int], state: str, act: Callable[["JobManager", int], Awaitable[None]]) -> None:
    """Act on each job. Raises BadInput for one that is not in that state."""
    from procrastinate.exceptions import ConnectorException

    from medlive.service.database import open_database
    from medlive.service.jobs import open_app

    async def run() -> None:
        async with open_database(load_settings().settings) as database, open_app(database).open_async() as queue:
            for job in jobs:
                try:
                    await act(queue.job_manager, job)
                except (BadInput, ConnectorException) as exc:
                    raise BadInput(f"job {job} is not {state}", hint="medlive jobs list shows the jobs") from exc

    wait_for(run())
