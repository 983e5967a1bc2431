"""Tables of records for people: a column is a title and the value that it shows of a record."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from medlive.cli.output import Grid, dimmed

if TYPE_CHECKING:
    from medlive.evaluation.scoring.graded import GradedRun

Record = TypeVar("Record")
Columns = Mapping[str, Callable[[Record], object]]


def records(
    title: str | None,
    found: Iterable[Record],
    columns: Columns[Record],
    *,
    dim: Callable[[Record], bool] | None = None,
) -> Grid:
    """A table with a row for each record.

    Args:
        title: The table's, if it has one.
        found: What the rows are about.
        columns: Title → what the column shows; estimates with their interval.
        dim: Which rows are printed faintly.
    """
    rows = []
    for record in found:
        cells = [_cell(value_of(record)) for value_of in columns.values()]
        rows.append(dimmed(cells) if dim is not None and dim(record) else cells)
    return Grid(list(columns), rows, title)


def _cell(value: object) -> object:
    """An estimate as its value with its interval, or why there is none; all else as it is."""
    from medlive.statistics.bootstrap import Estimate

    if not isinstance(value, Estimate):
        return value
    if value.value is None:
        return f"- ({value.why})"
    if value.low is None or value.high is None:
        return f"{value.value:.3f} ({value.why})"
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


class Interval(Protocol):
    """A figure with its interval."""

    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def percent(share: float | None) -> str | None:
    """A share in per cent."""
    return None if share is None else f"{100 * share:z.1f}"


def percents(low: float | None, high: float | None) -> str | None:
    """An interval of shares in per cent."""
    return None if low is None else f"{percent(low)} to {percent(high)}"


def points(difference: float | None) -> str | None:
    """A difference of shares in points of 100, with its sign."""
    return None if difference is None else f"{100 * difference:+z.1f}"


def points_around(figure: Interval) -> str | None:
    """The interval of a difference in points of 100."""
    if figure.low is None:
        return None
    return f"{points(figure.low)} to {points(figure.high)}"


def p_value(p: float | None) -> str:
    """A p as the report writes it."""
    from medlive.report.html import format_p

    return format_p(p)


def rests_on(runs: "Iterable[GradedRun]") -> str:
    """The cases and the graders of a table's figures, for its title."""
    cases, graders = set(), set()
    for run in runs:
        cases.add(run.run.info.cases.name)
        if (grader := run.grader) is not None:
            graders.add(f"{grader.model} ({grader.engine} engine, {grader.mode} mode)")
    return f"{', '.join(sorted(cases))}, graded by {', '.join(sorted(graders)) or 'nobody'}"
