"""`medlive status`: where the threads are, what failed, what it cost, which steps are due."""

import re
from datetime import timedelta
from typing import Annotated, Any

import typer
from typer import Argument, Context, Option

from medlive.cli.operations.schedule import print_steps
from medlive.cli.options import JsonOption
from medlive.cli.output import echo, print_result, print_table, say, with_database
from medlive.errors import CheckFailed, UsageError

app = typer.Typer(invoke_without_command=True)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@app.callback()
def status(
    context: Context,
    check: Annotated[
        bool,
        Option(
            "--check",
            help="Print problems alone, one a line, and nothing when there is none.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Where the threads are, what failed, what the week cost, when each step last ran and is due next.

    Exit status 1 when a check finds a problem that nobody has acknowledged; docs/operations.md lists the checks.
    With --check it is silent when all is well, so that cron writes to nobody.
    """
    if context.invoked_subcommand is not None:
        return
    from medlive.service.watch.status import read_problems, read_status

    if check:
        problems = _unacknowledged(with_database(read_problems))
        print_result(problems, as_json, lambda: _print_lines(problems))
        raise typer.Exit(1 if problems else 0)
    value: dict[str, Any] = with_database(read_status)
    lines = [_line(problem) for problem in _unacknowledged(value["problems"])]
    failure = CheckFailed("; ".join(lines)) if lines else None
    print_result(value, as_json, lambda: _print(value), failure=failure)


@app.command()
def ack(
    code: Annotated[
        str, Argument(help="The problem's code, as `medlive status --check` prints it.")
    ],
    lasts: Annotated[
        str | None,
        Option(
            "--for", help="How long: 30m, 12h, 7d. Without it until the problem ends."
        ),
    ] = None,
    why: Annotated[str | None, Option(help="What you know about it.")] = None,
    by: Annotated[
        str | None, Option("--by", metavar="NAME", help="Who says so.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Acknowledge a problem: no more messages about it are sent, and --check leaves it out, until it ends."""
    from medlive.service.watch.status import acknowledge

    span = None if lasts is None else _parse_span(lasts)
    problems = with_database(
        lambda database, settings: acknowledge(
            database, settings, code, lasts=span, why=why, by=by
        )
    )
    until = "until it ends" if lasts is None else f"for {lasts}"
    print_result(
        problems,
        as_json,
        lambda: say(f"acknowledged {until}: {'; '.join(p['text'] for p in problems)}"),
    )


def _parse_span(text: str) -> timedelta:
    match = re.fullmatch(r"([1-9][0-9]{0,3})([mhd])", text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a duration",
            hint="give minutes, hours or days, as in 30m, 12h or 7d",
        )
    return timedelta(**{_UNITS[match.group(2)]: int(match.group(1))})


def _unacknowledged(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [problem for problem in problems if not problem["acknowledged"]]


def _print_lines(problems: list[dict[str, Any]]) -> None:
    for problem in problems:
        echo(_line(problem))


def _line(problem: dict[str, Any]) -> str:
    return f"{problem['code']}: {problem['text']}; {problem['next_step']}"


def _print(status: dict[str, Any]) -> None:
    print_table(
        ["stage", "outcome", "reason", "threads"], status["funnel"], title="Threads"
    )
    print_table(
        ["source", "last week", "outcome", "unchanged (304)", "quarantined"],
        [
            [
                s["name"],
                s["last_run"],
                s["last_outcome"],
                None
                if s["not_modified_share"] is None
                else f"{s['not_modified_share']:.0%}",
                s["quarantined_at"] and f"since {s['quarantined_at']:%Y-%m-%d}",
            ]
            for s in status["sources"]
        ],
        title="Sources",
    )
    print_steps(status["steps"])
    say(f"retriever: {status['retriever']}")
    if not status["scheduler_active"]:
        say(
            "no scheduler is running: the steps are taken by cron, by hand, or not at all"
        )
    for problem in status["problems"]:
        if problem["acknowledged"]:
            say(f"acknowledged: {_line(problem)}")
    print_table(
        [
            "stage",
            "calls",
            "repairs",
            "invalid",
            "refused",
            "truncated",
            "no answer",
            "over budget",
            "replayed",
        ],
        [
            [
                a["name"],
                a["calls"],
                *(
                    _share(a[f"{end}_share"])
                    for end in ("repairs", "invalid", "refused", "truncated")
                ),
                a["unavailable"],
                a["over_budget"],
                a["replayed"],
            ]
            for a in status["answers"]
        ],
        title="Engines: how calls ended",
    )
    if status["failures"]:
        rows = []
        for failure in status["failures"]:
            name = f"{failure['source']}/{failure['thread_id']}"
            why = (failure["stage"], failure["reason"], failure["detail"])
            rows.append([name, *why, failure["attempt"]])
        columns = ["thread", "stage", "reason", "detail", "attempts"]
        print_table(columns, rows, title="Failed, and to be retried")
    _say_parked(status["parked"])
    say(f"{status['kept']} cases kept; medlive cost says what engines cost")
    _say_week(status["week"])


def _say_week(week: dict[str, Any]) -> None:
    budget = "" if week["budget_usd"] is None else f" of {week['budget_usd']:g}"
    spent = (
        f"{week['known_usd']:.4f}"
        if week["usd"] is not None
        else f"unknown, at least {week['known_usd']:.4f},"
    )
    text = f"{week['week']}: {spent}{budget} USD spent"
    if week["estimated"]:
        text += f", {week['estimated']} replies of it by an upper bound of their tokens"
    if week["projected_usd"] is not None:
        text += f", {week['projected_usd']:.4f} projected with {week['waiting']} threads that wait"
        if week["delayed"]:
            text += f", {week['delayed']} of them delayed, the first until {week['delayed_until']:%Y-%m-%d %H:%M} UTC"
    if week["usd_a_kept_case"] is not None:
        text += f"; {week['kept']} cases kept, {week['usd_a_kept_case']:.4f} each"
    say(text)


def _say_parked(parked: dict[str, Any]) -> None:
    if parked["threads"]:
        since = f"{parked['since']:%Y-%m-%d}"
        say(
            f"{parked['threads']} threads are parked for want of evidence, the first since {since}; "
            "medlive evidence gaps lists what the library lacks"
        )


def _share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"
