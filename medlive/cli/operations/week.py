"""`medlive week`: show one week on one page, run a weekly step again, or let the scheduler do it (`clear`)."""

from typing import Annotated, Any

from typer import Argument

from medlive.cli.options import ByOption
from medlive.cli.output import (
    Result,
    Shown,
    say,
    table_of,
    with_instance,
)
from medlive.clock import parse_week
from medlive.errors import CheckFailed
from medlive.service.schedule.rerun import clear_step, run_again
from medlive.service.watch.status import read_week, run_as_json
from medlive.snapshot.manifest import Headroom

_SHIPPED = (
    "state",
    "cases",
    "criteria",
    "signed",
    "publishable",
    "why_not",
    "held_out",
    "kept_out",
)
_COST = ("replies", "cost_usd", "unpriced", "estimated")
Row = dict[str, Any]
"""Values by name, as the service returns them."""


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
    """What people see of a week; `value` is what `read_week` returned."""
    names = ("name", "outcome", "started_at", "took", "in_short")
    yield table_of(value["harvests"], names, f"{value['week']}: what came (UTC)")
    steps = []
    for step in value["steps"]:
        name, cost = step["name"].removeprefix("scheduler "), step["cost_usd"]
        if name == "queue" and cost is None:
            cost = "unknown"
        steps.append(step | {"name": name, "cost_usd": cost})
    yield table_of(steps, (*names, "cost_usd"), "Steps")
    for step in steps:
        if step["outcome"] == "failed" and step["log"]:
            yield f"last lines of {step['name']}:"
            for line in step["log"][-5:]:
                yield f"  {line}"
    yield f"decided: {value['standing']['in_short']}"
    parts = ("stage", "outcome", "reason", "count")
    yield table_of(value["threads"], parts, "What became of the threads")
    title = "What the paper's own rule would have decided"
    yield table_of(value["by_paper"], ("outcome", "by_paper", "threads"), title)
    if cost := value["cost"]:
        yield table_of([cost], _COST, f"Cost (medlive cost --week {value['week']})")
    yield from _proofs(value["proofs"])
    if snapshot := value["snapshot"]:
        yield table_of([snapshot], _SHIPPED, "Shipped")
    else:
        yield "shipped: nothing is frozen"


def _proofs(proofs: Row) -> Shown:
    """The proofs of the week's rubrics, and warnings about them."""
    names = ("passed", "failed", "ceiling", "floor", "separation")
    yield table_of([proofs], names, "Rubrics: proofs, and means of the proved")
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
