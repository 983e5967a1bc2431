"""The parquet twins of the JSON Lines: derived from the rows, named after their writer in the manifest.

Needs pyarrow, which only the extra `service` brings; imported inside the functions.
"""

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from medlive.errors import MissingExtra
from medlive.snapshot.model import CASE_FIELDS

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_A_GROUP: Final = 5_000
"""Fixed, since the size of a row group is part of the file's bytes and bounds the writer's memory."""

CANARY_KEY: Final = "medlive.canary"
"""The key of the canary in a file's metadata."""


def available() -> bool:
    """Whether pyarrow is installed."""
    from importlib.util import find_spec

    return find_spec("pyarrow") is not None


def writer_name() -> str:
    """The library and version that writes parquet here."""
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
        """Opens `path` for writing; the canary stands in its key-value metadata, where no codec hides it."""
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
        """One row more."""
        for name, values in self._columns.items():
            value = row[name]
            values.append(date.fromisoformat(value) if name == "posted_at" else value)
        self._rows += 1
        if self._rows >= ROWS_A_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_pydict(self._columns, schema=self._schema))
            self._columns = {name: [] for name in self._columns}
            self._rows = 0

    def close(self) -> None:
        """Write what is left and the footer."""
        self._flush()
        self._writer.close()


class ParquetFault(Exception):
    """A parquet file cannot be read as rows of the expected columns."""


def read_rows(path: Path, fields: Mapping[str, type], *, most: int) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file as JSON would hold them, a batch at a time.

    Raises ParquetFault when it is no parquet, has other columns, or claims more than `most` bytes of data, which
    keeps a small file from unpacking into a large one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            meta = file.metadata
            size = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
            if size > most:
                raise ParquetFault(f"claims {size} bytes of columns, at most {most} can be right")
            expected = schema(fields)
            if not file.schema_arrow.remove_metadata().equals(expected):
                raise ParquetFault(f"columns are {file.schema_arrow.names}, {expected.names} were expected")
            for batch in file.iter_batches(batch_size=2_000):
                for row in batch.to_pylist():
                    if CASE_FIELDS.keys() == row.keys():
                        row["posted_at"] = row["posted_at"].isoformat()
                    yield row
    except (pa.ArrowException, OSError, ValueError, AttributeError, MemoryError) as exc:
        raise ParquetFault(f"cannot be read: {type(exc).__name__}: {str(exc)[:200]}") from exc
