"""`medlive scheduler`, `worker` and `serve`: the processes that run until they are stopped."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from typer import Option

from medlive.cli.options import DryRunOption
from medlive.cli.output import (
    Grid,
    Result,
    failed,
    progress,
    say,
    wait_for,
    with_instance,
)
from medlive.config import Settings
from medlive.errors import CheckFailed, UsageError
from medlive.instance.loading import read_settings
from medlive.instance.paths import keep_site_address, snapshots_path
from medlive.service.database import (
    instance_key,
    keep_reachable,
    open_database,
    outlast,
)
from medlive.service.waiting import Liveness, answer_probes, wait_until_ready

if TYPE_CHECKING:
    from fastapi import FastAPI

    from medlive.service.curation.curate import CurationCounts


T = TypeVar("T")
HealthPort = Annotated[
    int | None,
    Option(
        min=1,
        max=65535,
        help="Answer /healthz on this port of every address while at work.",
    ),
]


WebPart = Literal["all", "public", "private", "metrics"]


@contextmanager
def _stopped_by_signals() -> Iterator[asyncio.Event]:
    """An event set by the first SIGTERM or SIGINT; the second has its default effect."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def request_stop() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, request_stop)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _until_stopped(
    settings: Settings,
    health_port: int | None,
    work: Callable[[asyncio.Event, Liveness], Awaitable[T]],
    *,
    once: bool = False,
) -> T:
    """Run `work` until it ends or is stopped, and return its result; unless `once`, begin it again after the database
    was lost."""
    health = Liveness()
    with _stopped_by_signals() as stop:
        async with answer_probes(health_port, health):
            begin = partial(work, stop, health)
            return await (begin() if once else outlast(settings, begin, stop, health))


def scheduler(
    once: bool = False,
    dry_run: DryRunOption = False,
    health_port: HealthPort = None,
) -> Result:
    """Each week harvest the sources, curate new threads and freeze a snapshot, at the times of config/schedule.toml.

    Missed steps are caught up once; a failed step is tried again after an hour, and after longer if it fails again. Any
    number of schedulers may be started: one is active, the others wait to take over. Queued threads are curated here
    when no `medlive worker` runs.

    Args:
        once: Do what is due now, and exit.
    """
    from medlive.service.schedule.scheduler import (
        StepResult,
        run_scheduler,
    )
    from medlive.service.schedule.steps import read_states
    from medlive.service.watch.status import step_as_json

    settings = read_settings()
    if dry_run:
        steps = list(map(step_as_json, with_instance(read_states)))
        return Result(steps, [steps_table(steps)])

    async def work(stop: asyncio.Event, health: Liveness) -> list[StepResult]:
        if not once:
            say("taking each week's steps when they are due (stop with Ctrl-C)")
        return await run_scheduler(settings, stop, say, once=once, health=health)

    done = wait_for(_until_stopped(settings, health_port, work, once=once))
    problems = []
    for step in done:
        if once and step["state"] == "failed":
            problems.append(f"{step['command']}: {step['detail']}")
    notes = ["nothing is due"] if once and not done else ()
    return Result(done, notes=notes, failure=failed(problems))


def worker(
    queues: str = "curate",
    concurrency: Annotated[int | None, Option(min=1, max=1024)] = None,
    grace: Annotated[float, Option(min=0)] = 60.0,
    health_port: HealthPort = None,
) -> Result:
    """Do the jobs that are queued in the database, whoever queued them, until stopped by SIGTERM or SIGINT.

    A job that has begun is finished first; jobs of a worker that was killed are taken over. A budget in
    config/medlive.toml holds for the worker's life. Queues: harvest, filter, curate, release, upkeep, backup (as the
    database's owner). harvest, release, upkeep and backup need the scheduler's MEDLIVE_HOME, filter and curate the
    evidence index and the engines' keys.

    Args:
        queues: What to serve: queues, comma-separated, or all.
        concurrency: Jobs at once [as configured].
        grace: Seconds that jobs may take when stopped; then they are given back.
    """
    from medlive.db.jobs import Queue
    from medlive.service.wiring import new_budget
    from medlive.service.work.worker import run_worker

    settings = read_settings()
    try:
        served = list(Queue if queues == "all" else map(Queue, queues.split(",")))
    except ValueError as exc:
        raise UsageError(f"--queues {queues}: choose {' or '.join(Queue)}") from exc

    ready = f"waiting for jobs of {', '.join(served)} (stop with Ctrl-C)"
    budget = new_budget(settings)

    async def work(stop: asyncio.Event, health: Liveness) -> "CurationCounts":
        return await run_worker(
            settings,
            stop,
            served,
            concurrency=concurrency,
            grace_s=grace,
            tick=tick,
            ready=partial(say, ready),
            health=health,
            budget=budget,
        )

    with progress("curated") as tick:
        done = wait_for(_until_stopped(settings, health_port, work))
    threads = sum(done.outcomes.values())
    text = f"stopped after {threads} threads and {done.calls} calls"
    failure = None
    if done.faults:
        failure = CheckFailed(
            f"threads that met a fault of medlive itself: {len(done.faults)}",
            hint="medlive curate tries them again",
        )
    return Result(
        done.as_json(),
        notes=[text, *done.faults],
        failure=failure,
    )


def serve(
    host: str = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535)] = 8080,
    part: WebPart = "all",
    preview: bool = False,
) -> None:
    """Serve the public site, the downloads of frozen snapshots and the pages that need an account, until stopped.

    --part metrics serves /metrics without an account: give it a port that the public cannot reach.

    Args:
        host: Address to listen on.
        port: Port; 0 picks a free one.
        part: The public site and downloads, the pages that need an account (private), both (all), or /metrics alone.
        preview: Show snapshots that are not publishable too, marked as such.
    """
    from medlive.web.app import serve_web

    settings = read_settings()

    async def run() -> None:
        with _stopped_by_signals() as stop:
            async with AsyncExitStack() as stack:
                prepare = partial(_open_app, stack, settings, part, preview, host)
                app = await wait_until_ready(prepare, stop, host, port)
                if app is None:
                    return
                async with serve_web(app, host, port) as address:
                    if part in ("all", "private"):
                        keep_site_address(settings, address)
                    say(f"serving at {address} (stop with Ctrl-C)")
                    await keep_reachable(settings, stop)

    wait_for(run())


async def _open_app(
    stack: AsyncExitStack, settings: Settings, part: WebPart, preview: bool, host: str
) -> "FastAPI":
    """The web application for `part`; its database stays open as long as `stack`.

    Args:
        stack: Closes the database when it ends.
        settings: The settings.
        part: What is served.
        preview: Whether snapshots that are not publishable are shown.
        host: The address that will be listened on.

    Raises:
        ServiceUnavailable: while the database, its tables or an account are missing.
        ConfigError: while a key is missing.
    """
    from medlive.cli.site import served_evaluation
    from medlive.service.watch.metrics import read_metrics
    from medlive.web.accounts.access import check_exposure
    from medlive.web.app import ROOMS, build_app, metrics_room
    from medlive.web.site import Site

    async with AsyncExitStack() as own:
        database = await own.enter_async_context(open_database(settings))
        if part == "metrics":
            rooms = [metrics_room(partial(read_metrics, database, settings))]
        else:
            public = part == "public"
            rooms = [room for room in ROOMS if part == "all" or room.public is public]
        snapshots = snapshots_path(settings)
        evaluation = served_evaluation(settings, snapshots, preview)
        site = Site(database, settings, snapshots, preview, evaluation)
        if not all(room.public for room in rooms):
            key = instance_key(settings, "web.key")
            site = replace(site, key=key)
            await check_exposure(site, host)
        stack.push_async_exit(own.pop_all())
        return build_app(site, rooms)


def steps_table(steps: Iterable[Mapping[str, Any]]) -> Grid:
    """The scheduler's steps as a table; `steps` are as `step_as_json` makes them."""
    rows = []
    for step in steps:
        last, status = step["last"] or {}, step["status"]
        if step["overdue"]:
            status = "overdue"
        elif status == "done" and not last:
            status = "not due yet"
        if step["why"]:
            status += f": {step['why']}"
        elif step["retry_at"]:
            status += f" at {step['retry_at']:%Y-%m-%d %H:%M}"
        run = [last.get(name) for name in ("started_at", "took", "outcome", "in_short")]
        rows.append([step["step"], *run, step["due"], status])
    columns = ["step", "last run (UTC)", "took", "outcome", "counts", "due (UTC)"]
    return Grid([*columns, "now"], rows, "Steps")
