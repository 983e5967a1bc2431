"""A snapshot's parquet files as data frames, filtered while they are read.

pyarrow, pandas and polars are not in the base install, so they are imported inside the functions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from medlive.errors import BadInput, MissingExtra, UsageError
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Table = Literal["cases", "criteria"]

FIELDS: Final[Mapping[str, Mapping[str, type]]] = {"cases": CASE_FIELDS, "criteria": CRITERION_FIELDS}


def among(column: Any, values: Sequence[str]) -> Any:
    """Whether a value is one of these; for a column of pyarrow or polars, the expression of that."""
    if isinstance(column, str):
        return column in values
    if hasattr(column, "is_in"):
        return column.is_in(list(values))
    import pyarrow as pa

    return column.isin(pa.array(values, pa.string()))


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of a case's column; `test` is an operator or `among`, for values and for columns."""

    column: str
    test: Callable[[Any, Any], Any]
    value: Any

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of `data/cases.jsonl` meets the condition."""
        # A row's date is text, and ISO dates sort as text.
        value = self.value.isoformat() if isinstance(self.value, date) else self.value
        return bool(self.test(row[self.column], value))


def check_table(table: str) -> None:
    """Raise UsageError unless a snapshot has this table."""
    if table not in get_args(Table):
        raise UsageError(f"expected the table cases or criteria, got {table!r}")


def has(library: str) -> bool:
    """Whether a library is installed."""
    return find_spec(library) is not None


def _require(library: str, what: str) -> None:
    if not has(library):
        raise MissingExtra(f"{what} needs {library}, which is not installed", hint=f"pip install {library}")


def to_arrow(
    path: Path,
    table: Table,
    conditions: Sequence[Condition],
    ids: Sequence[str] | None,
    columns: Sequence[str] | None = None,
) -> "pa.Table":
    """Read a slice of a parquet file.

    Args:
        path: The file.
        table: The table it holds.
        conditions: What rows of cases must meet; unused if `ids` is given.
        ids: The cases whose rows are read.
        columns: The columns to read; None reads all.

    Raises:
        MissingExtra: If pyarrow is not installed.
        BadInput: If the file cannot be read.
    """
    _require("pyarrow", "an Arrow table")
    import pyarrow as pa
    import pyarrow.parquet as pq

    selection = None
    if ids is not None:
        selection = among(_arrow_field("case_id"), ids)
    elif table == "cases":
        for condition in conditions:
            one = condition.test(_arrow_field(condition.column), condition.value)
            selection = one if selection is None else selection & one
    try:
        return pq.read_table(path, columns=list(columns or FIELDS[table]), filters=selection)
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise BadInput(f"{path} cannot be read: {str(exc)[:300]}") from exc


def _arrow_field(name: str) -> Any:
    import pyarrow.compute as pc

    return pc.field(name)


def to_pandas(
    path: Path, table: Table, conditions: Sequence[Condition], ids: Sequence[str] | None
) -> "pd.DataFrame":
    """Read the same as a pandas frame, `posted_at` as datetime64."""
    _require("pandas", "a pandas frame")
    return to_arrow(path, table, conditions, ids).to_pandas(date_as_object=False)


def rows_to_pandas(rows: Iterable[Mapping[str, Any]], table: Table) -> "pd.DataFrame":
    """Make the same frame from rows of the JSON Lines, without pyarrow."""
    check_table(table)
    _require("pandas", "a pandas frame")
    import pandas as pd

    columns: dict[str, list[Any]] = {name: [] for name in FIELDS[table]}
    for row in rows:
        for name, values in columns.items():
            values.append(row[name])
    kinds = {str: "str", int: "int32"}
    frame = {
        name: pd.Series(values, dtype="object" if name == "posted_at" else kinds[FIELDS[table][name]])
        for name, values in columns.items()
    }
    if "posted_at" in frame:
        frame["posted_at"] = pd.to_datetime(frame["posted_at"], format="%Y-%m-%d").astype("datetime64[ms]")
    return pd.DataFrame(frame)


def to_polars(
    path: Path, table: Table, conditions: Sequence[Condition], ids: Sequence[str] | None
) -> "pl.DataFrame":
    """Read the same with polars itself."""
    _require("polars", "a polars frame")
    import polars as pl

    scan = pl.scan_parquet(path).select(list(FIELDS[table]))
    if ids is not None:
        scan = scan.filter(pl.col("case_id").is_in(ids))
    elif table == "cases":
        for condition in conditions:
            scan = scan.filter(condition.test(pl.col(condition.column), condition.value))
    try:
        return scan.collect()
    except (pl.exceptions.PolarsError, OSError) as exc:
        raise BadInput(f"{path} cannot be read: {str(exc)[:300]}") from exc
