"""How tables write shares and differences, their intervals, and what they rest on."""

from collections.abc import Iterable

from medlive.evaluation.scoring.graded import GradedRun


def percent(share: float | None) -> str | None:
    """A share in per cent."""
    return None if share is None else f"{100 * share:z.1f}"


def percents(low: float | None, high: float | None) -> str | None:
    """An interval of shares in per cent."""
    return None if low is None else f"{percent(low)} to {percent(high)}"


def points(difference: float | None) -> str | None:
    """A difference of shares in points of 100, with its sign."""
    return None if difference is None else f"{100 * difference:+z.1f}"


def points_between(low: float | None, high: float | None) -> str | None:
    """The interval of a difference in points of 100."""
    return None if low is None else f"{points(low)} to {points(high)}"


def rests_on(runs: Iterable[GradedRun]) -> str:
    """The cases and the graders of a table's figures, for its title."""
    cases, graders = set(), set()
    for run in runs:
        cases.add(run.info.cases.name)
        if (grader := run.grader) is not None:
            graders.add(f"{grader.model} ({grader.engine} engine, {grader.mode} mode)")
    return f"{', '.join(sorted(cases))}, graded by {', '.join(sorted(graders)) or 'nobody'}"
