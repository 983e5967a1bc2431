"""`medlive week`: one week on one page."""

from typing import Annotated, Any

import typer
from typer import Argument

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, wait_for
from medlive.config import load_settings

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """One week on one page."""


@app.command()
def show(
    week: Annotated[str, Argument(help="An ISO week such as 2026.W47, this or last.")] = "this",
    as_json: JsonOption = False,
) -> None:
    """Show what came in a week, what fell, what it cost, what was held and what was shipped."""
    from medlive.service.audit import parse_week
    from medlive.service.week import read_week

    value = wait_for(read_week(load_settings().settings, parse_week(week)))
    print_result(value, as_json, lambda: _print(value))


def _print(value: dict[str, Any]) -> None:
    names = ["source", "outcome", "began (UTC)", "ended (UTC)", "counts"]
    print_table(names, map(_run, value["harvests"]), title=f"{value['week']}: what came")
    print_table(["step", *names[1:]], map(_run, value["steps"]), title="Steps")
    rows = [list(row.values()) for row in value["threads"]]
    print_table(["stage", "outcome", "reason", "threads"], rows, title="What became of the threads")
    cost = []
    for spent in value["cost"]:
        if spent["by"] != "task":
            counted = [spent["replies"], _money(spent["cost_usd"]), spent["unpriced"], spent["estimated"]]
            cost.append([spent["by"], spent["name"], *counted])
    print_table(
        ["by", "what", "replies", "USD", "without a price", "by upper bound"],
        cost,
        title="What it cost (by task: medlive cost)",
    )
    print(_shipped(value["snapshot"]))


def _run(run: dict[str, Any]) -> list[Any]:
    moments = [run[name] and f"{run[name]:%a %H:%M}" for name in ("started_at", "finished_at")]
    return [run["name"], run["outcome"], *moments, run["in_short"]]


def _shipped(snapshot: dict[str, Any] | None) -> str:
    if snapshot is None:
        return "shipped: nothing is frozen"
    kept_out = ", ".join(f"{n} {gate}" for gate, n in snapshot["kept_out"].items()) or "nothing"
    if snapshot["frozen_at"] is None:
        return f"shipped: being frozen; kept out so far: {kept_out}"
    why = "; ".join(snapshot["why_not"] or ())
    publishable = "publishable" if snapshot["publishable"] else f"not publishable ({why})"
    signed = "signed" if snapshot["signed"] else "unsigned"
    return (
        f"shipped: {snapshot['cases']} cases, {snapshot['criteria']} criteria, {signed}, {publishable}; "
        f"held out: {snapshot['held_out']}; kept out: {kept_out}"
    )


def _money(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:.4f}"
