"""`medlive status`: where the threads are, what failed, what the week cost, which steps are due."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

import typer
from typer import Context, Option

from medlive.cli.options import ByOption
from medlive.cli.output import Grid, Result, failed, table_of, with_instance
from medlive.service.watch.status import acknowledge, read_problems, read_status

from .schedule import steps_table

Row = dict[str, Any]
"""Values by name, such as a problem or the whole status, as the service returns them."""


def status(
    context: Context,
    check: bool = False,
) -> Result | None:
    """Show where the threads are, what failed, what the week cost, when each step last ran and is due next.

    Exit status 1 when a check finds a problem that nobody has acknowledged; docs/operations.md lists the checks.
    With --check it is silent when all is well, so that cron writes to nobody.

    Args:
        check: Print problems alone, one a line, and nothing when there is none.
    """
    if context.invoked_subcommand:
        return None
    if check:
        problems = _unacknowledged(with_instance(read_problems))
        ended = typer.Exit(1) if problems else None
        return Result(problems, map(_line, problems), failure=ended)
    value = with_instance(read_status)
    lines = list(map(_line, _unacknowledged(value["problems"])))
    columns = ["stage", "outcome", "reason", "threads"]
    shown = [
        Grid(columns, value["funnel"], "Threads"),
        table_of(value["sources"], _SOURCES, "Sources"),
        steps_table(value["steps"]),
        table_of(value["failures"], _FAILURES, "Failed, and to be retried"),
        table_of([value["week"]], _WEEK, "The week's money, in US dollars"),
    ]
    return Result(value, shown, _remarks(value), failed(lines))


def ack(
    code: str,
    hours: Annotated[int | None, Option(min=1, max=100_000)] = None,
    why: str | None = None,
    by: ByOption = None,
) -> Result:
    """Acknowledge a problem: no more messages about it are sent, and --check leaves it out, until it ends.

    Args:
        code: The problem's code, as `medlive status --check` prints it.
        hours: For so many hours; without it until the problem ends.
        why: What you know about it.
    """
    lasts = None if hours is None else timedelta(hours=hours)
    problems = with_instance(acknowledge, code, lasts=lasts, why=why, by=by)
    notes = [f"acknowledged: {problem['text']}" for problem in problems]
    return Result(problems, notes=notes)


def _unacknowledged(problems: list[Row]) -> list[Row]:
    return [problem for problem in problems if not problem["acknowledged"]]


def _line(problem: Row) -> str:
    return f"{problem['code']}: {problem['text']}; {problem['next_step']}"


_SOURCES = (
    "name",
    "last_run",
    "last_outcome",
    "quarantined_at",
)
_WEEK = (
    "week",
    "usd",
    "known_usd",
    "budget_usd",
    "estimated",
    "waiting",
    "projected_usd",
    "delayed",
    "delayed_until",
)
_FAILURES = ("source", "thread_id", "stage", "reason", "detail", "attempt")


def _remarks(status: Row) -> Iterator[str]:
    yield f"retriever: {status['retriever']}"
    if not status["scheduler_active"]:
        yield "no scheduler is running: the steps are taken by cron, by hand, or not at all"
    for problem in status["problems"]:
        if problem["acknowledged"]:
            yield f"acknowledged: {_line(problem)}"
    if (parked := status["parked"])["threads"]:
        yield (
            f"parked for want of evidence: {parked['threads']}, the first since {parked['since']:%Y-%m-%d}; "
            "medlive evidence gaps lists what the library lacks"
        )
    if estimated := status["week"]["estimated"]:
        yield f"{estimated} of the week's replies count by an upper bound: their endpoint says no usage"
    yield f"cases kept: {status['kept']}; medlive cost says what engines cost"
