"""The parquet twins of the JSON Lines, derived from the rows; the manifest names the library that wrote them.

pyarrow comes with the extra `service` only, so it is imported inside the functions.
"""

import io
import json
from collections.abc import Mapping
from datetime import date
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from medlive.errors import MissingExtra
from medlive.integrity.folder import lines

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
    source: io.FileIO, twin: io.FileIO, fields: Mapping[str, type], canary: str, max_bytes: int
) -> str | None:
    """Find the first row at which a parquet file and its JSON Lines differ.

    Args:
        source: The parquet file.
        twin: The JSON Lines.
        fields: The columns.
        canary: What the file's metadata must state.
        max_bytes: The most that the columns may claim to unpack to.

    Returns:
        The row, from 1, and what differs; None if nothing does.

    Raises:
        ParquetFault: If one of them does not hold rows of these columns.
        OSError: If one of them cannot be read.
        TooLong: If a line is too long.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    remaining = lines(twin)
    first = 1
    try:
        file = pq.ParquetFile(source)
        _check_frame(file, schema(fields), canary, max_bytes)
        for group in range(file.num_row_groups):
            read = file.read_row_group(group)
            rows = [_parse(data) for data in islice(remaining, len(read))]
            expected = pa.Table.from_pylist(rows, schema=schema(fields))
            if not read.equals(expected):
                pairs = enumerate(zip_longest(read.to_pylist(), expected.to_pylist()), start=first)
                number, (one, other) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
                names = [name for name in fields if one and other and one[name] != other[name]]
                return f"row {number}: {', '.join(names) or 'the twin has fewer rows'}"
            first += len(read)
        return f"row {first}: the twin has more rows" if next(remaining, None) else None
    except (pa.ArrowException, LookupError, ValueError, AttributeError, MemoryError, OverflowError) as exc:
        raise ParquetFault(f"cannot be read: {type(exc).__name__}: {str(exc)[:200]}") from exc


def _parse(data: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(data)
    return {**row, "posted_at": date.fromisoformat(row["posted_at"])} if "posted_at" in row else row


def _check_frame(file: "pq.ParquetFile", expected: "pa.Schema", canary: str, max_bytes: int) -> None:
    """Raise ParquetFault for another canary or other columns, or groups that claim more than `max_bytes`."""
    stated = (file.schema_arrow.metadata or {}).get(CANARY_KEY.encode())
    if stated != canary.encode():
        raise ParquetFault(f"{CANARY_KEY} is {(stated or b'').decode('utf-8', 'replace')[:60]!r}, not {canary!r}")
    if not file.schema_arrow.remove_metadata().equals(expected):
        found = [(field.name, str(field.type)) for field in file.schema_arrow]
        raise ParquetFault(f"unexpected columns: {found}"[:300])
    claimed = sum(file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups))
    if claimed > max_bytes:
        raise ParquetFault(f"claims {claimed} bytes of columns, expected at most {max_bytes}")
