"""A slice of a snapshot as one file: what is exported is data to work with, and no snapshot any more."""

import csv
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from medlive.errors import UsageError
from medlive.integrity.digest import canonical_json, digest_file
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


class ExportFormat(StrEnum):
    """What a slice is written as."""

    LIVEMEDBENCH = "livemedbench"
    """One JSON list, as LiveMedBench's scripts and `medlive eval run --cases` read it."""
    JSONL = "jsonl"  # A case a line, its criteria nested
    # A case a row for spreadsheets, its criteria as JSON in the last column
    CSV = "csv"


SUFFIXES: Final[Mapping[str, ExportFormat]] = {
    ".json": ExportFormat.LIVEMEDBENCH,
    ".jsonl": ExportFormat.JSONL,
    ".csv": ExportFormat.CSV,
}
"""The format that a file's name asks for."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A slice that was written."""

    path: Path
    format: ExportFormat
    cases: int
    criteria: int
    digest: str  # Of the file
    source: str  # The digest of the whole snapshot that it is a part of


def export_slice(snapshot: Snapshot, out: Path, form: ExportFormat) -> Exported:
    """Write the part's cases into the file `out`, which appears whole or not at all.

    The canary stands with every case.

    Raises:
        UsageError: If the part has no cases, the file exists, or lies inside the snapshot.
        DiskFull, BadInput: If the file cannot be written.
    """
    if out.is_symlink() or out.exists():
        raise UsageError(
            f"{out} exists already", hint="name another file, or remove it"
        )
    if out.absolute().resolve().is_relative_to(snapshot.path.absolute().resolve()):
        raise UsageError(
            f"{out} lies inside the snapshot, which would not verify any more"
        )
    cases = snapshot.cases
    if not cases:
        raise UsageError(
            f"no case of {snapshot.version} fits the filters: nothing was written"
        )
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    with writing_to(out):
        try:
            WRITERS[form](cases, snapshot, partial)
            digest = digest_file(partial)
            partial.rename(out)
        finally:
            partial.unlink(missing_ok=True)
    return Exported(
        path=out,
        format=form,
        cases=len(cases),
        criteria=sum(len(case.criteria) for case in cases),
        digest=digest,
        source=snapshot.digest,
    )


_NESTED: Final = tuple(
    n for n in CRITERION_FIELDS if n not in ("case_id", "revision", "canary")
)


def _record(case: SnapshotCase, canary: str) -> dict[str, Any]:
    """The case's stamped row and its criteria, without what they repeat of the case."""
    criteria = []
    for criterion in case.criteria:
        criteria.append({name: getattr(criterion, name) for name in _NESTED})
    return {**stamped(case.row(), canary), "criteria": criteria}


def _livemedbench(
    cases: Sequence[SnapshotCase], snapshot: Snapshot, path: Path
) -> None:
    canary = snapshot.manifest.canary
    with path.open("wb") as handle:
        for number, case in enumerate(cases):
            rows = [c.row() for c in case.criteria]
            handle.write(livemedbench_piece(number, stamped(case.row(), canary), rows))
        handle.write(livemedbench_end())


def _jsonl(cases: Sequence[SnapshotCase], snapshot: Snapshot, path: Path) -> None:
    with path.open("wb") as handle:
        for case in cases:
            handle.write(line(_record(case, snapshot.manifest.canary)))


_RISKY: Final = re.compile(r"'*[\t\r\n]|['\s]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""How a cell begins that a spreadsheet may take for a formula, whatever apostrophes stand before it."""


def guarded(text: str) -> str:
    """A text as a CSV cell that no spreadsheet runs: one apostrophe before what may begin a formula."""
    return "'" + text if _RISKY.match(text) else text


def _csv(cases: Sequence[SnapshotCase], snapshot: Snapshot, path: Path) -> None:
    # The mark at the file's beginning is how spreadsheets know UTF-8.
    with path.open("w", encoding="utf-8-sig", newline="") as handle:
        writer = csv.writer(handle, quoting=csv.QUOTE_ALL)
        writer.writerow([*CASE_FIELDS, "criteria"])
        for case in cases:
            record = _record(case, snapshot.manifest.canary)
            cells = [guarded(_cell(record[name])) for name in CASE_FIELDS]
            writer.writerow([*cells, canonical_json(record["criteria"])])


def _cell(value: object) -> str:
    return "" if value is None else str(value)


WRITERS: Final[
    Mapping[ExportFormat, Callable[[Sequence[SnapshotCase], Snapshot, Path], None]]
] = {
    ExportFormat.LIVEMEDBENCH: _livemedbench,
    ExportFormat.JSONL: _jsonl,
    ExportFormat.CSV: _csv,
}
