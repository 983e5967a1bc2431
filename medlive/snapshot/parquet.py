"""The parquet twins of the JSON Lines: derived from the rows, named after their writer in the manifest.

Needs pyarrow, which only the extra `service` brings; imported inside the functions.
"""

import io
from collections.abc import Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from medlive.errors import MissingExtra
from medlive.snapshot.rows import blocks
from medlive.snapshot.verify.parquet_pages import PageFault, unpacked_size

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

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


def find_difference(
    source: io.FileIO, twin: io.FileIO, fields: Mapping[str, type], canary: str, *, rows: int, most: int
) -> str | None:
    """The first row, from 1, at which a parquet file and its JSON Lines differ, as a text; None where none does.

    `rows`: how many there are. `most`: bytes of columns that can be right. Columns are compared group by group,
    unpacked only after their pages, dictionaries and lengths have been found no larger than the twin's. Raises
    ParquetFault for what is no such file or no such twin, OSError, and TooLong.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [name for name, python in fields.items() if python is str and name != "posted_at"]
    try:
        opened = partial(
            pq.ParquetFile,
            source,
            thrift_string_size_limit=_MOST_THRIFT,
            thrift_container_size_limit=_MOST_THRIFT,
        )
        _check_frame(opened(), source, schema(fields), canary, rows=rows, most=most)
        file = opened(read_dictionary=names)
        lines = _Lines(twin, fields)
        first = 1
        for group in range(file.num_row_groups):
            number = file.metadata.row_group(group).num_rows
            wanted = lines.take(number)
            if len(wanted) != number:
                return f"row {first + len(wanted)}: the twin has no such row"
            read = file.read_row_group(group)
            for name in fields:
                if (place := _differs(read.column(name), wanted.column(name).combine_chunks())) is not None:
                    return f"row {first + place}: {name} is another"
            first += number
        return f"row {first}: it is missing" if len(lines.take(1)) else None
    except (pa.ArrowException, PageFault, LookupError, ValueError, AttributeError, MemoryError) as exc:
        raise ParquetFault(f"cannot be read: {type(exc).__name__}: {str(exc)[:200]}") from exc


_MOST_THRIFT: Final = 16 * 1024 * 1024
_BLOCK: Final = 4 * 1024 * 1024
_PARSED: Final = 1024 * 1024
"""What one of pyarrow's threads parses at a time."""


def _check_frame(
    file: "pq.ParquetFile", source: io.FileIO, expected: "pa.Schema", canary: str, *, rows: int, most: int
) -> None:
    """Raise ParquetFault for other columns, other numbers, or pages that claim more than can be right."""
    meta = file.metadata
    stated = (file.schema_arrow.metadata or {}).get(CANARY_KEY.encode())
    if stated != canary.encode():
        raise ParquetFault(f"{CANARY_KEY} is {(stated or b'').decode('utf-8', 'replace')[:60]!r}, not {canary!r}")
    if not file.schema_arrow.remove_metadata().equals(expected):
        found = [(field.name, str(field.type)) for field in file.schema_arrow]
        raise ParquetFault(f"columns are not those of the format: {found}"[:300])
    if meta.num_rows != rows:
        raise ParquetFault(f"claims {meta.num_rows} rows, there are {rows}")
    claimed = 0
    for group in range(meta.num_row_groups):
        part = meta.row_group(group)
        if not 0 < part.num_rows <= ROWS_A_GROUP or part.num_columns != len(expected):
            raise ParquetFault(f"row group {group} has {part.num_rows} rows, 1 to {ROWS_A_GROUP} were expected")
        for place in range(part.num_columns):
            chunk = part.column(place)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                start = min(start, chunk.dictionary_page_offset)
            if chunk.num_values != part.num_rows:
                raise ParquetFault(f"row group {group} claims {chunk.num_values} values in a column")
            claimed += unpacked_size(source, start, chunk.total_compressed_size, part.num_rows)
            if claimed > most:
                raise ParquetFault(f"claims over {claimed} bytes of columns, at most {most} can be right")


class _Lines:
    """The rows of JSON Lines as columns, so many at a time as are asked for; a date stays the text it is."""

    def __init__(self, handle: io.FileIO, fields: Mapping[str, type]) -> None:
        import pyarrow as pa

        self._columns = pa.schema(
            [pa.field(n, pa.int32() if python is int else pa.string()) for n, python in fields.items()]
        )
        self._blocks = blocks(handle, "the twin", _BLOCK)
        self._held = self._columns.empty_table()

    def take(self, number: int) -> "pa.Table":
        """The next rows, fewer where the file ends."""
        import pyarrow as pa

        while len(self._held) < number and (block := next(self._blocks, None)) is not None:
            try:
                read = self._parse(block, _PARSED)
            except pa.ArrowInvalid:
                # A line that is longer than a piece, or no row at all, which the whole will tell.
                read = self._parse(block, len(block) + 1)
            self._held = pa.concat_tables([self._held, read])
        taken = self._held.slice(0, number)
        self._held = self._held.slice(number)
        return taken

    def _parse(self, block: bytes, piece: int) -> "pa.Table":
        import pyarrow.json as pj

        return pj.read_json(
            io.BytesIO(block),
            read_options=pj.ReadOptions(block_size=piece),
            parse_options=pj.ParseOptions(explicit_schema=self._columns, unexpected_field_behavior="error"),
        )


def _differs(column: "pa.ChunkedArray[Any]", wanted: Any) -> int | None:
    """The first place at which a column as it was read differs from the one that is right."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = 0
    chunk: Any
    for chunk in column.chunks:
        right = wanted.slice(at, len(chunk))
        if len(right) < len(chunk) or chunk.null_count:
            return at
        if pa.types.is_dictionary(chunk.type):
            # A few bytes of indices may repeat one long entry for ever: lengths first.
            lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
            if not lengths.equals(pc.binary_length(right)):
                return at + _first(lengths, pc.binary_length(right))
            chunk = chunk.dictionary_decode()
        elif pa.types.is_date(chunk.type):
            chunk = chunk.cast(pa.string())
        if not chunk.equals(right):
            return at + _first(chunk, right)
        at += len(chunk)
    return None if at == len(wanted) else at


def _first(one: Any, other: Any) -> int:
    import pyarrow.compute as pc

    return max(0, int(pc.index(pc.not_equal(one, other), value=True).as_py()))
