"""The parquet twins of the JSON Lines, derived from the rows; the manifest names the library that wrote them.

`compare_twins` compares files of strangers in a child process whose memory the system limits; it runs this module as a
program. The child gets the comparisons on stdin and the files as open descriptors, and prints a line of JSON for each
comparison. A footer or page may claim any size; the system refuses the memory that the decoder then asks for.

pyarrow comes with the extra `service` only, so it is imported inside the functions.
"""

import json
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medlive.guard.child_environment import child_environment
from medlive.integrity.folder import lines

from .model import Column

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_GROUP = 5_000
"""A fixed number, since it decides the file's bytes and bounds the writer's memory."""

CANARY_KEY = "medlive.canary"
"""The key of the canary in a file's metadata."""

MEMORY_BYTES = 128 * 2**20
"""Bytes that the child may take beyond the loaded libraries, whatever it compares."""
MEMORY_FACTOR = 8
"""Further bytes for each byte of the JSON Lines: a row group is in memory as text, Python values and two tables."""
SECONDS = 3600.0  # for all comparisons

_SPARING = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "1",
}
"""Variables for the child: one thread and the system's allocator, so that address space is taken as it is used."""

Comparison = tuple[int, int, Sequence[Column], str]
"""The arguments of `find_difference`."""


def schema(columns: Iterable[Column]) -> "pa.Schema":
    """The arrow schema of the columns of known types: strings, 32-bit integers, doubles, and `posted_at` as a date."""
    import pyarrow as pa

    types = {int: pa.int32(), float: pa.float64(), str: pa.string()}
    fields: list[pa.Field[Any]] = []
    for column in columns:
        if column.kind is not None:
            kind = pa.date32() if column.name == "posted_at" else types[column.kind]
            fields.append(pa.field(column.name, kind, nullable=column.nullable))
    return pa.schema(fields)


@contextmanager
def parquet_writer(
    path: Path,
    columns: Iterable[Column],
    canary: str,
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Write rows into one parquet file with fixed settings, a row group at a time: yields a function that adds a row.

    The canary goes into the key-value metadata, which is not compressed. At the end the remaining rows and the footer
    are written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    written = schema(columns).with_metadata({CANARY_KEY: canary})
    writer: pq.ParquetWriter = pq.ParquetWriter(
        path,
        written,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=6,
        use_dictionary=True,
        write_statistics=True,
        store_schema=True,
        write_page_index=False,
    )
    group: list[dict[str, Any]] = []

    def flush() -> None:
        if group:
            writer.write_table(pa.Table.from_pylist(group, schema=written))
            group.clear()

    def add(row: Mapping[str, Any]) -> None:
        group.append(_dated(row))
        if len(group) >= ROWS_PER_GROUP:
            flush()

    yield add
    flush()
    writer.close()


def _dated(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as parquet has it: a case's day is a date."""
    own = dict(row)
    if "posted_at" in own:
        own["posted_at"] = date.fromisoformat(own["posted_at"])
    return own


def find_difference(
    source: int, twin: int, columns: Sequence[Column], canary: str
) -> str | None:
    """Find the first row at which a parquet file and its JSON Lines differ.

    Columns of types that this medlive does not know are not read. A stranger's file may unpack to any size: it is
    read in the process of `compare_twins` alone, whose memory is limited.

    Args:
        source: The descriptor of the open parquet file.
        twin: The descriptor of its open JSON Lines.
        columns: The snapshot's columns of this table.
        canary: What the file's metadata must state.

    Returns:
        The row, from 1, and what differs; None if nothing does.

    Raises:
        ValueError: If one of them does not hold rows of these columns.
        OSError: If one of them cannot be read.
        TooLong: If a line is too long.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    compared = schema(columns)
    remaining = lines(FileIO(twin, closefd=False))
    first = 1
    try:
        file = pq.ParquetFile(FileIO(source, closefd=False))
        _check_columns(file.schema_arrow, compared, columns, canary)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, compared.names, use_threads=False)
            rows = []
            for data in islice(remaining, len(table)):
                rows.append(_dated(json.loads(data)))
            if len(rows) < len(table):
                return f"row {first + len(rows)}: the twin has fewer rows"
            twins = pa.Table.from_pylist(rows, schema=compared)
            for name in compared.names:
                if not table[name].equals(twins[name]):
                    pairs = zip(table[name], twins[name], strict=True)
                    equal = [value.equals(other) for value, other in pairs]
                    return f"row {first + equal.index(False)}: {name}"
            first += len(table)
        return f"row {first}: the twin has more rows" if next(remaining, None) else None
    except (
        pa.ArrowException,
        LookupError,
        ValueError,
        AttributeError,
        MemoryError,
        OverflowError,
    ) as exc:
        raise ValueError(
            f"cannot be read: {type(exc).__name__}: {str(exc)[:200]}"
        ) from exc


def _check_columns(
    stated: "pa.Schema", known: "pa.Schema", columns: Sequence[Column], canary: str
) -> None:
    """Raise ValueError for another canary or other columns."""
    metadata = stated.metadata or {}
    if metadata != {CANARY_KEY.encode(): canary.encode()}:
        expected = f"expected the metadata {CANARY_KEY} = {canary!r} alone"
        raise ValueError(f"{expected}, got {metadata!r}"[:300])
    typed = [field for field in stated if field.name in known.names]
    names = [column.name for column in columns]
    if stated.names != names or typed != list(known):
        fields = [(field.name, str(field.type)) for field in stated]
        raise ValueError(f"unexpected columns: {fields}"[:300])


def compare_twins(
    comparisons: Sequence[Comparison],
) -> list[str | ValueError | None]:
    """Return for each comparison, run in the child, what `find_difference` returns or the fault that it raises."""
    files: list[int] = []
    limit = MEMORY_BYTES
    for source, twin, _, _ in comparisons:
        files += [source, twin]
        limit += MEMORY_FACTOR * os.fstat(twin).st_size
    places = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "medlive.snapshot.parquet",
                str(limit),
            ],
            input=pickle.dumps(list(comparisons)),
            capture_output=True,
            pass_fds=files,
            env=child_environment(values={**_SPARING, "PYTHONPATH": places}),
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [ValueError(f"was not compared in {SECONDS:.0f} seconds")]
    results: list[str | ValueError | None] = []
    for line in done.stdout.splitlines():
        kind, text = json.loads(line)
        results.append(ValueError(text) if kind == "fault" else text)
    if len(results) < len(comparisons):
        needs = f"cannot be read within {limit >> 20} MB of memory"
        results.append(ValueError(needs))
    return results


def main() -> None:
    """Run the comparisons on stdin; the argument is how many bytes they may take beyond the loaded libraries."""
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401  (loaded before the limit)

    comparisons: list[Comparison] = pickle.load(sys.stdin.buffer)
    with open("/proc/self/statm", encoding="ascii") as status:
        taken = int(status.read().split()[0]) * resource.getpagesize()
    limit = taken + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for comparison in comparisons:
        try:
            result = ("difference", find_difference(*comparison))
        except (ValueError, OSError, MemoryError) as exc:
            result = ("fault", str(exc)[:300] or "needs more memory than its rows do")
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
