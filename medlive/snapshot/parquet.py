"""The parquet twins of the JSON Lines, derived from the rows; the manifest names the library that wrote them.

pyarrow comes with the extra `service` only, so it is imported inside the functions.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from medlive.errors import MissingExtra
from medlive.integrity.folder import lines
from medlive.snapshot.shape import Column

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS_PER_GROUP: Final = 5_000
"""Fixed, since it decides the file's bytes and bounds the writer's memory."""

CANARY_KEY: Final = "medlive.canary"
"""The key of the canary in a file's metadata."""


def available() -> bool:
    """Whether pyarrow is installed."""
    from importlib.util import find_spec

    return find_spec("pyarrow") is not None


def writer_name() -> str:
    """The library and version that write parquet."""
    require()
    import pyarrow as pa

    return f"pyarrow {pa.__version__}"


def require() -> None:
    """Raise MissingExtra without pyarrow."""
    if not available():
        raise MissingExtra(
            "parquet needs pyarrow, which is not installed", hint="pip install pyarrow"
        )


def schema(columns: Iterable[Column]) -> "pa.Schema":
    """The columns of known types: strings, 32-bit integers, doubles, and `posted_at` as a date."""
    import pyarrow as pa

    types = {int: pa.int32(), float: pa.float64(), str: pa.string()}
    fields: list[pa.Field[Any]] = []
    for column in columns:
        if column.kind is not None:
            kind = pa.date32() if column.name == "posted_at" else types[column.kind]
            fields.append(pa.field(column.name, kind, nullable=column.nullable))
    return pa.schema(fields)


class ParquetRows:
    """Writes rows into one parquet file with fixed settings, a row group at a time."""

    def __init__(self, path: Path, columns: Iterable[Column], canary: str) -> None:
        """Open `path` for writing; the canary goes into the key-value metadata, which is not compressed."""
        require()
        import pyarrow.parquet as pq

        self._schema = schema(columns).with_metadata({CANARY_KEY: canary})
        self._writer: pq.ParquetWriter = pq.ParquetWriter(
            path,
            self._schema,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=6,
            use_dictionary=True,
            write_statistics=True,
            store_schema=True,
            write_page_index=False,
        )
        self._columns: dict[str, list[Any]] = {name: [] for name in self._schema.names}
        self._rows = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row."""
        for name, values in self._columns.items():
            value = row[name]
            values.append(date.fromisoformat(value) if name == "posted_at" else value)
        self._rows += 1
        if self._rows >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(
                pa.Table.from_pydict(self._columns, schema=self._schema)
            )
            self._columns = {name: [] for name in self._columns}
            self._rows = 0

    def close(self) -> None:
        """Write the remaining rows and the footer."""
        self._flush()
        self._writer.close()


class ParquetFault(Exception):
    """A parquet file cannot be read as rows of the expected columns."""


_ENCODINGS: Final = frozenset(
    {"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "BIT_PACKED"}
)
"""Others, such as DELTA_BYTE_ARRAY, let few bytes stand for many."""


@dataclass(frozen=True, slots=True)
class TwinComparison:
    """A parquet file that is to be compared with its JSON Lines."""

    source: int  # The descriptor of the open parquet file
    twin: int  # That of its JSON Lines
    columns: tuple[Column, ...]
    canary: str  # What the file's metadata must state
    rows: int
    max_bytes: int  # The most that the columns may claim to unpack to


def find_difference(comparison: TwinComparison) -> str | None:
    """Find the first row at which a parquet file and its JSON Lines differ.

    Texts are read as dictionaries, and unpacked only once their lengths are known to be the twin's. Columns of
    types that this medlive does not know are not read. A stranger's file is read by `parquet_process` alone.

    Returns:
        The row, from 1, and what differs; None if nothing does.

    Raises:
        ParquetFault: If one of them does not hold rows of these columns.
        OSError: If one of them cannot be read.
        TooLong: If a line is too long.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = comparison.columns
    source = FileIO(comparison.source, closefd=False)
    twin = FileIO(comparison.twin, closefd=False)
    remaining = lines(twin)
    first = 1
    try:
        compared = schema(columns)
        _check_frame(pq.ParquetFile(source), comparison)
        texts = [field.name for field in compared if pa.types.is_string(field.type)]
        file = pq.ParquetFile(source, read_dictionary=texts)
        for group in range(file.num_row_groups):
            number = file.metadata.row_group(group).num_rows
            parsed = [_parse(data) for data in islice(remaining, number)]
            expected = pa.Table.from_pylist(parsed, schema=compared)
            if len(expected) < number:
                return f"row {first + len(expected)}: the twin has fewer rows"
            read = file.read_row_group(group, columns=compared.names, use_threads=False)
            for name in compared.names:
                place = _first_difference(read.column(name), expected.column(name))
                if place is not None:
                    return f"row {first + place}: {name}"
            first += number
        return f"row {first}: the twin has more rows" if next(remaining, None) else None
    except (
        pa.ArrowException,
        LookupError,
        ValueError,
        AttributeError,
        MemoryError,
        OverflowError,
    ) as exc:
        raise ParquetFault(
            f"cannot be read: {type(exc).__name__}: {str(exc)[:200]}"
        ) from exc


def _first_difference(column: Any, twin: Any) -> int | None:
    """Return the place of the first value that differs, or None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    actual, expected = column.combine_chunks(), twin.combine_chunks()
    if pa.types.is_dictionary(actual.type):
        # A long entry repeated in every row would unpack to gigabytes, so lengths are compared first.
        lengths, allowed = (
            pc.binary_length(actual.dictionary).take(actual.indices),
            pc.binary_length(expected),
        )
        actual, expected = (
            (actual.dictionary_decode(), expected)
            if lengths.equals(allowed)
            else (lengths, allowed)
        )
    return (
        None
        if actual.equals(expected)
        else int(pc.index(pc.not_equal(actual, expected), True).as_py())
    )


def _parse(data: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(data)
    return (
        {**row, "posted_at": date.fromisoformat(row["posted_at"])}
        if "posted_at" in row
        else row
    )


def _check_frame(file: "pq.ParquetFile", comparison: TwinComparison) -> None:
    """Raise ParquetFault for another canary, other columns or row counts, or a claim of more than `max_bytes`."""
    stated = file.schema_arrow.metadata or {}
    canary, columns = comparison.canary, comparison.columns
    if stated != {CANARY_KEY.encode(): canary.encode()}:
        raise ParquetFault(
            f"expected the metadata {CANARY_KEY} = {canary!r} alone, got {stated!r}"[
                :300
            ]
        )
    known = schema(columns)
    typed = [field for field in file.schema_arrow if field.name in known.names]
    names = [column.name for column in columns]
    if file.schema_arrow.names != names or typed != list(known):
        fields = [(field.name, str(field.type)) for field in file.schema_arrow]
        raise ParquetFault(f"unexpected columns: {fields}"[:300])
    _check_groups(file.metadata, known.names, comparison)


def _check_groups(
    metadata: "pq.FileMetaData", names: Sequence[str], comparison: TwinComparison
) -> None:
    groups = list(map(metadata.row_group, range(metadata.num_row_groups)))
    if (stated := sum(group.num_rows for group in groups)) != comparison.rows:
        raise ParquetFault(f"claims {stated} rows, expected {comparison.rows}")
    for group in groups:
        if not 0 < group.num_rows <= ROWS_PER_GROUP:
            raise ParquetFault(
                f"has a row group of {group.num_rows} rows, expected 1 to {ROWS_PER_GROUP}"
            )
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema not in names:
                continue
            if chunk.num_values != group.num_rows or not _ENCODINGS.issuperset(
                chunk.encodings
            ):
                raise ParquetFault(
                    f"column {chunk.path_in_schema} claims another number of values or encoding"
                )
    if (claimed := sum(g.total_byte_size for g in groups)) > comparison.max_bytes:
        raise ParquetFault(
            f"claims {claimed} bytes of columns, expected at most {comparison.max_bytes}"
        )
