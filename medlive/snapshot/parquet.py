"""The parquet twins of the JSON Lines, derived from the rows; the manifest names the library that wrote them.

pyarrow comes with the extra `service` only, so it is imported inside the functions.
"""

import io
import json
from collections.abc import Mapping
from datetime import date
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from medlive.errors import MissingExtra
from medlive.integrity.folder import lines
from medlive.snapshot.verify.parquet_pages import PageFault, unpacked_size

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
    _require()
    import pyarrow as pa

    return f"pyarrow {pa.__version__}"


def _require() -> None:
    if not available():
        raise MissingExtra("parquet needs pyarrow", hint="install medlive[service]")


def schema(fields: Mapping[str, type]) -> "pa.Schema":
    """The columns: strings, 32-bit integers, and `posted_at` as a date; none may be null."""
    import pyarrow as pa

    def kind(name: str, python: type) -> Any:
        return pa.date32() if name == "posted_at" else pa.int32() if python is int else pa.string()

    return pa.schema([pa.field(name, kind(name, python), nullable=False) for name, python in fields.items()])


class ParquetRows:
    """Writes rows into one parquet file with fixed settings, a row group at a time."""

    def __init__(self, path: Path, fields: Mapping[str, type], canary: str) -> None:
        """Open `path` for writing; the canary goes into the key-value metadata, which is not compressed."""
        _require()
        import pyarrow.parquet as pq

        self._schema = schema(fields).with_metadata({CANARY_KEY: canary})
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
        self._columns: dict[str, list[Any]] = {name: [] for name in fields}
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
            self._writer.write_table(pa.Table.from_pydict(self._columns, schema=self._schema))
            self._columns = {name: [] for name in self._columns}
            self._rows = 0

    def close(self) -> None:
        """Write the remaining rows and the footer."""
        self._flush()
        self._writer.close()


class ParquetFault(Exception):
    """A parquet file cannot be read as rows of the expected columns."""


def find_difference(
    source: io.FileIO, twin: io.FileIO, fields: Mapping[str, type], canary: str, *, rows: int, max_bytes: int
) -> str | None:
    """Find the first row at which a parquet file and its JSON Lines differ.

    Columns are compared group by group, and unpacked only once their pages, dictionaries and lengths are known to
    be no larger than the twin's.

    Args:
        source: The parquet file.
        twin: The JSON Lines.
        fields: The columns.
        canary: What the file's metadata must state.
        rows: How many rows there are.
        max_bytes: The most that the columns can unpack to.

    Returns:
        The row, from 1, and what differs; None if nothing does.

    Raises:
        ParquetFault: If one of them does not hold rows of these columns.
        OSError: If one of them cannot be read.
        TooLong: If a line is too long.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [name for name, python in fields.items() if python is str and name != "posted_at"]
    limits: dict[str, Any] = {"thrift_string_size_limit": _MAX_THRIFT, "thrift_container_size_limit": _MAX_THRIFT}
    # A date stays the text it is in JSON.
    columns = pa.schema([(name, pa.int32() if python is int else pa.string()) for name, python in fields.items()])
    try:
        _check_frame(pq.ParquetFile(source, **limits), source, schema(fields), canary, rows, max_bytes)
        file = pq.ParquetFile(source, read_dictionary=names, **limits)
        remaining = lines(twin)
        first = 1
        for group in range(file.num_row_groups):
            number = file.metadata.row_group(group).num_rows
            expected = pa.Table.from_pylist([*map(json.loads, islice(remaining, number))], schema=columns)
            if len(expected) != number:
                return f"row {first + len(expected)}: the twin has no such row"
            read = file.read_row_group(group)
            for name in fields:
                if (place := _differs(read.column(name), expected.column(name).combine_chunks())) is not None:
                    return f"row {first + place}: {name} differs"
            first += number
        return f"row {first}: it is missing" if next(remaining, None) else None
    except (
        pa.ArrowException,
        PageFault,
        LookupError,
        ValueError,
        AttributeError,
        MemoryError,
        OverflowError,
    ) as exc:
        raise ParquetFault(f"cannot be read: {type(exc).__name__}: {str(exc)[:200]}") from exc


_MAX_THRIFT: Final = 16 * 1024 * 1024


def _check_frame(
    file: "pq.ParquetFile", source: io.FileIO, expected: "pa.Schema", canary: str, rows: int, max_bytes: int
) -> None:
    """Raise ParquetFault for wrong columns or row counts, or pages that claim more than `max_bytes`."""
    meta = file.metadata
    stated = (file.schema_arrow.metadata or {}).get(CANARY_KEY.encode())
    if stated != canary.encode():
        raise ParquetFault(f"{CANARY_KEY} is {(stated or b'').decode('utf-8', 'replace')[:60]!r}, not {canary!r}")
    if not file.schema_arrow.remove_metadata().equals(expected):
        found = [(field.name, str(field.type)) for field in file.schema_arrow]
        raise ParquetFault(f"unexpected columns: {found}"[:300])
    if meta.num_rows != rows:
        raise ParquetFault(f"claims {meta.num_rows} rows, expected {rows}")
    claimed = 0
    for group in range(meta.num_row_groups):
        part = meta.row_group(group)
        if not 0 < part.num_rows <= ROWS_PER_GROUP or part.num_columns != len(expected):
            raise ParquetFault(f"row group {group} has {part.num_rows} rows, expected 1 to {ROWS_PER_GROUP}")
        for place in range(part.num_columns):
            chunk = part.column(place)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                start = min(start, chunk.dictionary_page_offset)
            if chunk.num_values != part.num_rows:
                raise ParquetFault(f"row group {group} claims {chunk.num_values} values in a column")
            claimed += unpacked_size(source, start, chunk.total_compressed_size, part.num_rows)
            if claimed > max_bytes:
                raise ParquetFault(f"claims over {claimed} bytes of columns, expected at most {max_bytes}")


def _differs(column: "pa.ChunkedArray[Any]", expected: Any) -> int | None:
    """The first row at which a column differs from the expected one, or None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = 0
    chunk: Any
    for chunk in column.chunks:
        part = expected.slice(at, len(chunk))
        if len(part) < len(chunk) or chunk.null_count:
            return at
        if pa.types.is_dictionary(chunk.type):
            # Few indices may stand for much text, so lengths are compared before the text is unpacked.
            lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
            if not lengths.equals(pc.binary_length(part)):
                return at + _first_difference(lengths, pc.binary_length(part))
            chunk = chunk.dictionary_decode()
        elif pa.types.is_date(chunk.type):
            chunk = chunk.cast(pa.string())
        if not chunk.equals(part):
            return at + _first_difference(chunk, part)
        at += len(chunk)
    return None if at == len(expected) else at


def _first_difference(one: Any, other: Any) -> int:
    import pyarrow.compute as pc

    return max(0, int(pc.index(pc.not_equal(one, other), value=True).as_py()))
