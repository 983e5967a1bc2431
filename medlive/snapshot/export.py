"""A slice of a snapshot as one file: what is exported is data to work with, and no snapshot any more."""

import csv
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Final

from medlive.digest import canonical_json, digest_file
from medlive.errors import MissingExtra, UsageError
from medlive.integrity.folder import writing_to
from medlive.snapshot.load import Snapshot
from medlive.snapshot.model import (
    CASE_FIELDS,
    CRITERION_FIELDS,
    SnapshotCase,
    line,
    livemedbench_end,
    livemedbench_piece,
    stamped,
)

BATCH: Final = 2_000
"""Cases of one row group of parquet."""


class ExportFormat(StrEnum):
    """What a slice is written as."""

    LIVEMEDBENCH = "livemedbench"
    """One JSON list, as LiveMedBench's scripts and `medlive eval run --cases` read it."""
    JSONL = "jsonl"
    """A case a line, its criteria nested."""
    CSV = "csv"
    """A case a row for spreadsheets, its criteria as JSON in the last column."""
    PARQUET = "parquet"
    """A case a row, its criteria as a list of structs."""


SUFFIXES: Final[Mapping[str, ExportFormat]] = {
    ".json": ExportFormat.LIVEMEDBENCH,
    ".jsonl": ExportFormat.JSONL,
    ".csv": ExportFormat.CSV,
    ".parquet": ExportFormat.PARQUET,
}
"""The format that a file's name asks for."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A slice that was written."""

    path: Path
    format: ExportFormat
    cases: int
    criteria: int
    digest: str
    """Of the file."""
    source: str
    """The digest of the whole snapshot that it is a part of."""


def export_slice(snapshot: Snapshot, out: Path, form: ExportFormat) -> Exported:
    """Write the part's cases into the file `out`, which appears whole or not at all. Memory stays flat.

    The canary stands with every case; parquet names the snapshot and its digest in its metadata, too. Raises
    UsageError for a part without cases, a file that is there already, or one inside the snapshot; MissingExtra
    for parquet without pyarrow; DiskFull, and BadInput when the disk refuses otherwise.
    """
    if out.is_symlink() or out.exists():
        raise UsageError(f"{out} is there already", hint="name another file, or remove it")
    if out.absolute().resolve().is_relative_to(snapshot.path.absolute().resolve()):
        raise UsageError(f"{out} lies inside the snapshot, which would not verify any more")
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    criteria = cases = 0

    def counted() -> Iterator[SnapshotCase]:
        nonlocal cases, criteria
        for case in snapshot:
            cases, criteria = cases + 1, criteria + len(case.criteria)
            yield case

    with writing_to(out):
        try:
            WRITERS[form](counted(), snapshot, partial)
            if not cases:
                raise UsageError(f"no case of {snapshot.version} fits the filters: nothing was written")
            digest = digest_file(partial)
            partial.rename(out)
        finally:
            partial.unlink(missing_ok=True)
    return Exported(out, form, cases, criteria, digest, snapshot.digest)


def _record(case: SnapshotCase, canary: str) -> dict[str, Any]:
    """The case's stamped row and its criteria, without what they repeat of the case."""
    return {**stamped(case.row(), canary), "criteria": [_nested(c.row()) for c in case.criteria]}


def _nested(criterion: Mapping[str, Any]) -> dict[str, Any]:
    return {name: criterion[name] for name in _NESTED}


_NESTED: Final = tuple(n for n in CRITERION_FIELDS if n not in ("case_id", "revision", "canary"))


def _livemedbench(cases: Iterator[SnapshotCase], snapshot: Snapshot, path: Path) -> None:
    canary = snapshot.manifest.canary
    with path.open("wb") as handle:
        for number, case in enumerate(cases):
            rows = [c.row() for c in case.criteria]
            handle.write(livemedbench_piece(number, stamped(case.row(), canary), rows))
        handle.write(livemedbench_end())


def _jsonl(cases: Iterator[SnapshotCase], snapshot: Snapshot, path: Path) -> None:
    with path.open("wb") as handle:
        for case in cases:
            handle.write(line(_record(case, snapshot.manifest.canary)))


_RISKY: Final = re.compile(r"'*[\t\r\n]|['\s]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""How a cell begins that a spreadsheet may take for a formula, whatever apostrophes stand before it."""


def guarded(text: str) -> str:
    """A text as a CSV cell that no spreadsheet runs: one apostrophe before what may begin a formula."""
    return "'" + text if _RISKY.match(text) else text


def unguarded(cell: str) -> str:
    """The text that `guarded` made the cell of."""
    return cell[1:] if cell.startswith("'") and _RISKY.match(cell[1:]) else cell


def _csv(cases: Iterator[SnapshotCase], snapshot: Snapshot, path: Path) -> None:
    # The mark at the file's beginning is how spreadsheets know UTF-8.
    with path.open("w", encoding="utf-8-sig", newline="") as handle:
        _rows_of_csv(cases, snapshot.manifest.canary, handle)


def _rows_of_csv(cases: Iterator[SnapshotCase], canary: str, handle: IO[str]) -> None:
    writer = csv.writer(handle, quoting=csv.QUOTE_ALL)
    writer.writerow([*CASE_FIELDS, "criteria"])
    for case in cases:
        record = _record(case, canary)
        cells = [guarded(str(record[name])) for name in CASE_FIELDS]
        writer.writerow([*cells, canonical_json(record["criteria"])])


def _parquet(cases: Iterator[SnapshotCase], snapshot: Snapshot, path: Path) -> None:
    from medlive.snapshot import parquet

    if not parquet.available():
        raise MissingExtra("parquet needs pyarrow, which is not installed", hint="pip install pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    nested = pa.struct([f for f in parquet.schema(CRITERION_FIELDS) if f.name in _NESTED])
    schema = parquet.schema(CASE_FIELDS).append(pa.field("criteria", pa.list_(nested), nullable=False))
    schema = schema.with_metadata(
        {
            parquet.CANARY_KEY: snapshot.manifest.canary,
            "medlive.source": f"a part of medlive-{snapshot.version}, no snapshot",
            "medlive.source_digest": snapshot.digest,
        }
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in _batches(cases):
            records = [_record(case, snapshot.manifest.canary) for case in batch]
            for record in records:
                record["posted_at"] = date.fromisoformat(record["posted_at"])
            writer.write_table(pa.Table.from_pylist(records, schema=schema))


def _batches(cases: Iterator[SnapshotCase]) -> Iterator[list[SnapshotCase]]:
    batch: list[SnapshotCase] = []
    for case in cases:
        batch.append(case)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


WRITERS: Final[Mapping[ExportFormat, Callable[[Iterator[SnapshotCase], Snapshot, Path], None]]] = {
    ExportFormat.LIVEMEDBENCH: _livemedbench,
    ExportFormat.JSONL: _jsonl,
    ExportFormat.CSV: _csv,
    ExportFormat.PARQUET: _parquet,
}
