"""`medlive week`: one week on one page, and its steps run again."""

import re
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from medlive.cli.options import JsonOption
from medlive.cli.output import (
    echo,
    print_result,
    print_table,
    say,
    wait_for,
    with_database,
)
from medlive.config import load_settings
from medlive.errors import CheckFailed

app = typer.Typer(no_args_is_help=True)
_DIGEST: Final = re.compile(r"(sha256:[0-9a-f]{8})[0-9a-f]+")
"""The log and --json have it whole."""


@app.callback()
def _group() -> None:
    """One week on one page, and its steps run again."""


@app.command()
def show(
    week: Annotated[
        str, Argument(help="An ISO week such as 2026.W47, this or last.")
    ] = "this",
    last: Annotated[
        int,
        Option(min=1, max=52, help="So many weeks up to it, their steps side by side."),
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Show a week's steps, what came, what fell, what it cost, what it waits for and what was shipped."""
    from medlive.service.audit import parse_week, weeks_before
    from medlive.service.watch.week import read_week

    settings = load_settings().settings
    weeks = [
        wait_for(read_week(settings, name))
        for name in weeks_before(parse_week(week), last)
    ]
    if last == 1:
        print_result(weeks[0], as_json, lambda: _print(weeks[0]))
    else:
        print_result(weeks, as_json, lambda: _print_beside(weeks))


StepArgument = Annotated[
    str, Argument(help="A step, as `medlive scheduler --dry-run` names it.")
]
WeekOption = Annotated[
    str | None, Option("--week", help="The ISO week [the one the step is at].")
]
ByOption = Annotated[
    str | None, Option(metavar="NAME", help="Who does it, for the audit log.")
]


@app.command()
def run(
    step: StepArgument,
    week: WeekOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a step now, whether or not it is done; a scheduler may be at work. Exit status 1 when it fails."""
    from medlive.service.audit import parse_week
    from medlive.service.schedule.rerun import run_again
    from medlive.service.watch.week import run_as_json

    of_week = week and parse_week(week)
    done = with_database(
        lambda database, settings: run_again(database, settings, step, of_week, by=by)
    )
    if done is None:
        raise CheckFailed(
            f"the job of {step} ended without a result",
            hint="medlive jobs list shows the jobs",
        )
    value = {"name": step} | run_as_json(done)
    failure = (
        CheckFailed(f"{step} failed: {value['in_short']}")
        if value["outcome"] == "failed"
        else None
    )
    text = f"{done.week} {step}: {value['outcome']}: {value['in_short']}"
    print_result(value, as_json, lambda: say(text), failure=failure)


@app.command()
def clear(
    step: StepArgument,
    week: WeekOption = None,
    reason: Annotated[str | None, Option(help="Why, for the audit log.")] = None,
    by: ByOption = None,
) -> None:
    """Make a step count as not done: the scheduler runs it again at its next look, within seconds."""
    from medlive.service.audit import parse_week
    from medlive.service.schedule.rerun import clear_step

    of_week = week and parse_week(week)
    cleared = with_database(
        lambda database, settings: clear_step(
            database, settings, step, of_week, reason=reason, by=by
        )
    )
    say(f"{step} of {cleared} counts as not done")


def _print(value: dict[str, Any]) -> None:
    names = ["source", "outcome", "began (UTC)", "took", "counts"]
    if value["harvests"]:
        print_table(
            names, map(_run, value["harvests"]), title=f"{value['week']}: what came"
        )
    else:
        echo(f"{value['week']}: no source was harvested")
    if value["steps"]:
        rows = [[*_run(step), _cost(step)] for step in value["steps"]]
        print_table(["step", *names[1:], "USD"], rows, title="Steps")
    else:
        echo("no step of the week has begun")
    for step in value["steps"]:
        if step["outcome"] == "failed" and step["log"]:
            echo(f"last lines of {_short_name(step['name'])}:")
            for line in step["log"][-5:]:
                echo(f"  {line}")
    echo(f"decided: {value['standing']['in_short']}")
    rows = [[cell or None for cell in row.values()] for row in value["threads"]]
    if rows:
        print_table(
            ["stage", "outcome", "reason", "threads"],
            rows,
            title="What became of the threads",
        )
    if (cost := value["cost"]) is not None:
        text = f"cost: {_money(cost['cost_usd'])} USD for {cost['replies']} replies"
        if cost["estimated"]:
            text += f", {cost['estimated']} of them by an upper bound of their tokens"
        echo(f"{text}; medlive cost --week {value['week']} says for what")
    for line in _proofs(value["proofs"]):
        echo(line)
    echo(_shipped(value["snapshot"]))


def _proofs(proofs: dict[str, Any]) -> list[str]:
    """How the rubrics of the week measure, and what to know about it."""
    if not proofs["passed"] + proofs["failed"]:
        return ["rubrics: none was proved"]
    text = f"rubrics: {proofs['passed']} proved, {proofs['failed']} not"
    if proofs["passed"]:
        names = ("ceiling", "floor", "separation")
        means = ", ".join(f"{name} {proofs[name]:.2f}" for name in names)
        text += f"; means of the proved: {means}"
    warnings = []
    for model in proofs["one_model"]:
        warnings.append(
            f"warning: {model} wrote rubrics, wrote the answers that prove them, and"
            " graded these"
        )
    return [text, *warnings]


def _print_beside(weeks: list[dict[str, Any]]) -> None:
    """The steps of several weeks: how each ended, when it began, how long it took."""
    steps: dict[str, dict[str, str]] = {}
    for week in weeks:
        for step in week["steps"]:
            began, took = f"{step['started_at']:%a %H:%M}", step["took"] or "not ended"
            cost = f", {_cost(step)} USD" if _cost(step) else ""
            cell = f"{step['outcome']} {began}, {took}{cost}"
            steps.setdefault(_short_name(step["name"]), {})[week["week"]] = cell
    names = [week["week"] for week in weeks]
    rows = [
        [step, *(cells.get(name) for name in names)] for step, cells in steps.items()
    ]
    rows.append(["decided", *(week["standing"]["in_short"] for week in weeks)])
    print_table(["step", *names], rows, title="Steps")


def _run(run: dict[str, Any]) -> list[Any]:
    return [
        _short_name(run["name"]),
        run["outcome"],
        f"{run['started_at']:%a %H:%M}",
        run["took"] or "not ended",
        _DIGEST.sub(r"\1…", run["in_short"]),
    ]


def _short_name(command: str) -> str:
    return command.removeprefix("scheduler ")


def _cost(step: dict[str, Any]) -> str | None:
    return _money(step["cost_usd"]) if step["name"].endswith(" queue") else None


def _shipped(snapshot: dict[str, Any] | None) -> str:
    if snapshot is None:
        return "shipped: nothing is frozen"
    kept_out = (
        ", ".join(f"{n} {gate}" for gate, n in snapshot["kept_out"].items())
        or "nothing"
    )
    if snapshot["frozen_at"] is None:
        return f"shipped: being frozen; kept out so far: {kept_out}"
    why = "; ".join(snapshot["why_not"] or ())
    publishable = (
        "publishable" if snapshot["publishable"] else f"not publishable ({why})"
    )
    signed = "signed" if snapshot["signed"] else "unsigned"
    return (
        f"shipped: {snapshot['cases']} cases, {snapshot['criteria']} criteria, {signed}, {publishable}; "
        f"held out: {snapshot['held_out']}; kept out: {kept_out}"
    )


def _money(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:.4f}"
