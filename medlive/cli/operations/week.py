"""`medlive week`: one week on one page, and its steps run again."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from typer import Argument

from medlive.cli.options import ByOption
from medlive.cli.output import (
    Grid,
    Result,
    Shown,
    counted,
    say,
    table_of,
    with_instance,
)
from medlive.clock import parse_week
from medlive.errors import CheckFailed
from medlive.service.schedule.rerun import clear_step, run_again
from medlive.service.watch.status import read_week, run_as_json
from medlive.snapshot.manifest import Headroom

Row = dict[str, Any]
"""What the service says of a week, by name."""
_DIGEST = re.compile(r"(sha256:[0-9a-f]{8})[0-9a-f]+")
"""The log and --json have it whole."""


def show(
    week: Annotated[str, Argument(metavar="WEEK", parser=parse_week)] = "this",
) -> Result:
    """Show a week's steps, what came, what fell, what it cost, what it waits for and what was shipped.

    Args:
        week: An ISO week such as 2026.W47, this or last.
    """
    value = with_instance(read_week, week)
    return Result(value, describe_week(value))


StepArgument = Annotated[
    str, Argument(help="A step, as `medlive scheduler --dry-run` names it.")
]


def run(
    step: StepArgument,
    by: ByOption = None,
) -> Result:
    """Run a step now, whether or not it is done; a scheduler may be at work. Exit status 1 when it fails."""
    done = with_instance(run_again, step, by=by)
    if done is None:
        raise CheckFailed(
            f"the job of {step} ended without a result",
            hint="medlive jobs list shows the jobs",
        )
    value = {"name": step} | run_as_json(done)
    failure = None
    if value["outcome"] == "failed":
        failure = CheckFailed(f"{step} failed: {value['in_short']}")
    text = f"{done.week} {step}: {value['outcome']}: {value['in_short']}"
    return Result(value, notes=[text], failure=failure)


def clear(
    step: StepArgument,
    reason: str | None = None,
    by: ByOption = None,
) -> None:
    """Make a step count as not done: the scheduler runs it again at its next look, within seconds.

    Args:
        reason: Why, for the audit log.
    """
    cleared = with_instance(clear_step, step, reason=reason, by=by)
    say(f"{step} of {cleared} counts as not done")


def describe_week(value: Row) -> Shown:
    """What people see of a week."""
    names = ["source", "outcome", "began (UTC)", "took", "counts"]
    if value["harvests"]:
        runs = map(_run, value["harvests"])
        yield Grid(names, runs, f"{value['week']}: what came")
    else:
        yield f"{value['week']}: no source was harvested"
    rows = []
    for step in value["steps"]:
        is_queue = step["name"].endswith(" queue")
        rows.append([*_run(step), _money(step["cost_usd"]) if is_queue else None])
    if rows:
        yield Grid(["step", *names[1:], "USD"], rows, "Steps")
    else:
        yield "no step of the week was run by the scheduler or medlive week run"
    for step in value["steps"]:
        if step["outcome"] == "failed" and step["log"]:
            yield f"last lines of {_short_name(step['name'])}:"
            for line in step["log"][-5:]:
                yield f"  {line}"
    yield f"decided: {value['standing']['in_short']}"
    parts = ("stage", "outcome", "reason", "count")
    yield table_of(value["threads"], parts, "What became of the threads")
    title = "What the paper's own rule would have decided"
    yield table_of(value["by_paper"], ("outcome", "by_paper", "threads"), title)
    if cost := value["cost"]:
        text = f"cost: {_money(cost['cost_usd'])} USD for {counted(cost['replies'], 'reply', 'replies')}"
        if cost["estimated"]:
            text += f", {cost['estimated']} of them by an upper bound of their tokens"
        yield f"{text}; medlive cost --week {value['week']} says for what"
    yield from _proofs(value["proofs"])
    yield _shipped(value["snapshot"])


def _proofs(proofs: Row) -> Iterator[str]:
    """How the rubrics of the week measure, and what to know about it."""
    text = f"rubrics: {proofs['passed']} proved, {proofs['failed']} not"
    if proofs["passed"]:
        names = ("ceiling", "floor", "separation")
        figures = [f"{name} {proofs[name]:.2f}" for name in names]
        text += f"; means of the proved: {', '.join(figures)}"
    yield text
    headroom = Headroom.model_validate(proofs["headroom"])
    if headroom.words:
        yield f"headroom: {headroom.words}"
    if headroom.is_little:
        yield (
            "warning: these rubrics leave little room above an ordinary answer: they"
            " hardly tell good models apart"
        )
    for model in proofs["one_model"]:
        yield (
            f"warning: {model} wrote rubrics, wrote the answers that prove them, and"
            " graded these"
        )


def _run(run: Row) -> list[object]:
    took = run["took"] or "not ended"
    if not run["took"] and (ended := run["finished_at"]):
        took = f"begun again, ended {ended:%a %H:%M}"
    began = f"{run['started_at']:%a %H:%M}"
    counts = _DIGEST.sub(r"\1…", run["in_short"])
    return [_short_name(run["name"]), run["outcome"], began, took, counts]


def _short_name(command: str) -> str:
    return command.removeprefix("scheduler ")


def _shipped(snapshot: Row | None) -> str:
    if snapshot is None:
        return "shipped: nothing is frozen"
    gates = [f"{n} {gate}" for gate, n in snapshot["kept_out"].items()]
    kept_out = ", ".join(gates) or "nothing"
    if snapshot["frozen_at"] is None:
        return f"shipped: being frozen; kept out so far: {kept_out}"
    publishable = "publishable"
    if not snapshot["publishable"]:
        publishable = f"not publishable ({'; '.join(snapshot['why_not'] or ())})"
    cases, criteria = snapshot["cases"], snapshot["criteria"]
    return (
        f"shipped: {counted(cases, 'case')}, {counted(criteria, 'criterion', 'criteria')}, "
        f"{'signed' if snapshot['signed'] else 'unsigned'}, {publishable}; "
        f"held out: {snapshot['held_out']}; kept out: {kept_out}"
    )


def _money(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:.4f}"
