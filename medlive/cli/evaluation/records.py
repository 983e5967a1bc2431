"""Tables of records for people: a column is a title and the value that it shows of a record."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from medlive.cli.output import Grid, dimmed

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
    from medlive.statistics.correlation import Correlation

    if not isinstance(value, Estimate | Correlation):
        return value
    if value.value is None:
        return f"- ({value.why})"
    if value.low is None or value.high is None:
        return f"{value.value:.3f} ({value.why})"
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"
