"""The table of the weekly steps, as `medlive status` and `medlive scheduler --dry-run` print it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from medlive.cli.output import print_table

COUNTS_WIDTH = 60


def print_steps(steps: Sequence[Mapping[str, Any]]) -> None:
    """A row for each step; what is overdue or has failed stands in red."""
    print_table(
        ["step", "last run (UTC)", "outcome", "counts", "due (UTC)", "now"],
        [row(step) for step in steps],
        title="Steps",
    )


def row(step: Mapping[str, Any]) -> list[Any]:
    """A step's cells."""
    last = step["last"] or {}
    failed = last.get("outcome") == "failed"
    counts = str(last.get("in_short") or "")
    return [
        step["step"],
        _moment(last.get("started_at")),
        _red(last.get("outcome"), failed),
        counts if len(counts) <= COUNTS_WIDTH else f"{counts[: COUNTS_WIDTH - 1]}…",
        _red(_moment(step["due"]), step["overdue"]),
        _red(_status(step), step["overdue"]),
    ]


def _status(step: Mapping[str, Any]) -> str:
    status = "overdue" if step["overdue"] else str(step["status"])
    if step["why"]:
        return f"{status}: {step['why']}"
    if step["retry_at"]:
        return f"{status} at {_moment(step['retry_at'])}"
    return status if status != "done" or step["last"] else "not due yet"


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%a %Y-%m-%d %H:%M}"


def _red(value: Any, red: bool) -> Any:
    return Text(str(value), style="bold red") if red else value
