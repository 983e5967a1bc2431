"""The numbered steps of a verification, as a table and as JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from medlive.cli.output import print_table

if TYPE_CHECKING:
    from medlive.integrity.checks import StepResult


def print_steps(steps: "Sequence[StepResult]", most: int | None = None) -> None:
    """A row for each step, with at most so many of its findings."""
    print_table(
        ["step", "what", "state", "finding"],
        [[step.number, step.name, step.state.value, _finding(step, most)] for step in steps],
    )


def step_as_json(step: "StepResult") -> dict[str, Any]:
    """A step with all its findings."""
    return {
        "number": step.number, "name": step.name, "state": step.state.value, "why": step.why,
        "faults": step.faults,
        "findings": [{"file": f.file, "expected": f.expected, "got": f.got} for f in step.findings],
    }  # fmt: skip


def _finding(step: "StepResult", most: int | None) -> str | None:
    shown = step.findings[:most]
    more = step.faults - len(shown)
    return "; ".join([*map(str, shown), *([f"and {more} more"] if more else [])]) or step.why or None
