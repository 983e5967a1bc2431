"""A snapshot's parquet files as data frames, cut to a slice while they are read.

pyarrow, pandas and polars are no part of the base install: imported inside the functions.
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
    """Whether a value is one of these; for a column of pyarrow or polars their expression of it."""
    if isinstance(column, str):
        return column in values
    if hasattr(column, "is_in"):
        return column.is_in(list(values))
    import pyarrow as pa

    return column.isin(pa.array(values, pa.string()))


@dataclass(frozen=True, slots=True)
class Condition:
    """What a case's column must be. `test` works on values and on columns alike: an operator, or `among`."""

    column: str
    test: Callable[[Any, Any], Any]
    value: Any

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of `data/cases.jsonl` fits."""
        given = row[self.column]
        # A row's date is text, and ISO dates sort as what they mean.
        wanted = self.value.isoformat() if isinstance(self.value, date) else self.value
        return bool(self.test(given, wanted))


def check_table(table: str) -> None:
    """Raises UsageError for a table that a snapshot does not have."""
    if table not in get_args(Table):
        raise UsageError(f"{table!r} is neither cases nor criteria")


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
    """A slice's rows of a parquet file: those of the cases in `ids`, else those that the conditions leave.

    `columns`: only these. Raises MissingExtra, and BadInput for what is no such file.
    """
    _require("pyarrow", "an Arrow table")
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = None
    if ids is not None:
        wanted = among(_arrow_field("case_id"), ids)
    elif table == "cases":
        for condition in conditions:
            one = condition.test(_arrow_field(condition.column), condition.value)
            wanted = one if wanted is None else wanted & one
    try:
        return pq.read_table(path, columns=list(columns or FIELDS[table]), filters=wanted)
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise BadInput(f"{path} cannot be read: {str(exc)[:300]}") from exc


def _arrow_field(name: str) -> Any:
    import pyarrow.compute as pc

    return pc.field(name)


def to_pandas(
    path: Path, table: Table, conditions: Sequence[Condition], ids: Sequence[str] | None
) -> "pd.DataFrame":
    """`to_arrow` as a pandas frame, `posted_at` as datetime64."""
    _require("pandas", "a pandas frame")
    return to_arrow(path, table, conditions, ids).to_pandas(date_as_object=False)


def rows_to_pandas(rows: Iterable[Mapping[str, Any]], table: Table) -> "pd.DataFrame":
    """The same frame from rows of the JSON Lines, where pyarrow is not installed."""
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
    """The same as `to_arrow`, read by polars itself."""
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
