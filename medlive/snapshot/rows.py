"""Rows of a snapshot's JSON Lines, each checked against the format; what is wrong is collected, not raised."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from medlive.errors import BadInput
from medlive.integrity.checks import Faults
from medlive.integrity.folder import lines, read_small
from medlive.integrity.paths import open_plain
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import TABLES, Shape, Table, line

CASES: Final = "data/cases.jsonl"
CRITERIA: Final = "data/criteria.jsonl"

Row = dict[str, Any]
CaseRows = tuple[Row, list[Row]]
"""A case's row, and the rows of its criteria."""


class RowReader:
    """Iterates over the cases of a snapshot's folder; lines that hold no row are skipped and reported."""

    def __init__(
        self,
        root: Path,
        shape: Shape,
        canary: str | None = None,
        *,
        trusted: bool = False,
        alone: bool = False,
    ) -> None:
        """Prepare to read.

        Args:
            root: The folder.
            shape: The snapshot's.
            canary: What every row must state; None accepts any.
            trusted: Whether the files were verified, so that rows need not be checked again.
            alone: Whether to leave the criteria out.
        """
        self._root = root
        self._shape = shape
        self._canary = canary
        self._trusted, self._alone = trusted, alone
        self.faults = {table: Faults() for table in TABLES}
        self.canary_faults = {table: Faults() for table in TABLES}
        self.orphans = Faults()  # Criteria without a case

    def __iter__(self) -> Iterator[tuple[int, CaseRows]]:
        """Yield the cases, each after its line from 1. Raises OSError if a file cannot be read."""
        with (
            open_plain(self._root / CASES) as cases,
            open_plain(self._root / CRITERIA) as criteria,
        ):
            remaining = iter(()) if self._alone else self._rows(criteria, "criteria")
            head = next(remaining, None)
            for number, case in self._rows(cases, "cases"):
                own: list[Row] = []
                while head is not None and head[1]["case_id"] <= case["case_id"]:
                    if head[1]["case_id"] == case["case_id"]:
                        own.append(head[1])
                    else:
                        self._add_orphan(*head)
                    head = next(remaining, None)
                yield number, (case, own)
            while head is not None:
                self._add_orphan(*head)
                head = next(remaining, None)

    def _add_orphan(self, number: int, row: Row) -> None:
        expected = f"a case for {row['criterion_id']!r}"
        self.orphans.add(
            f"{CRITERIA}:{number}", expected, f"no case {row['case_id']!r}"
        )

    def _rows(self, handle: io.FileIO, table: Table) -> Iterator[tuple[int, Row]]:
        """Yield (line number from 1, row)."""
        faults = self.faults[table]
        previous = ""
        for number, data in enumerate(lines(handle), start=1):
            where = f"data/{table}.jsonl:{number}"
            if (row := self._parse(data, where, table)) is None:
                continue
            case_id = row["case_id"]
            again = case_id == previous and number > 1 and table == "cases"
            if case_id < previous or again:
                got = f"{case_id!r} after {previous!r}"
                faults.add(where, "rows in the order of case_id", got)
            previous = case_id
            yield number, row

    def _parse(self, data: bytes, where: str, table: Table) -> Row | None:
        faults = self.faults[table]
        try:
            row: Row = json.loads(data.decode("utf-8"))
            if self._trusted:
                return row
            fault = self._shape.row_fault(row, table)
            canonical = line(row) if fault is None else b""
        except (ValueError, RecursionError) as exc:
            fault = f"{type(exc).__name__}: {exc!s}"
        if fault is not None:
            faults.add(where, "a row of the format", fault)
            return None
        if canonical != data:
            got = "the same value spelled otherwise"
            faults.add(where, "canonical JSON and a line end", got)
        if self._canary not in (None, row["canary"]):
            expected = f"the canary {self._canary}"
            self.canary_faults[table].add(where, expected, repr(row["canary"]))
        return row


@contextmanager
def readable(root: Path) -> Iterator[None]:
    """Turn what reading a damaged snapshot's folder raises into BadInput."""
    try:
        yield
    except (OSError, ValueError) as exc:
        raise BadInput(
            f"{root} cannot be read as a snapshot: {str(exc)[:300]}"
        ) from exc


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a snapshot's folder. Raises BadInput."""
    with readable(root):
        return Manifest.model_validate_json(read_small(root / "manifest.json"))


def read_cases(
    root: Path,
    shape: Shape,
    *,
    trusted: bool = False,
    alone: bool = False,
) -> Iterator[CaseRows]:
    """Yield the cases of a snapshot's folder, in order of their ids.

    Args:
        root: The folder.
        shape: As its manifest states it.
        trusted: Whether the files were verified, so that only their order is checked.
        alone: Whether to leave the criteria out, which are most of the rows.

    Raises:
        BadInput: At the first fault.
    """
    reader = RowReader(root, shape, trusted=trusted, alone=alone)

    def check() -> None:
        for faults in (*reader.faults.values(), reader.orphans):
            for fault in faults.findings:
                raise BadInput(f"{root} cannot be read as a snapshot: {fault}"[:500])

    with readable(root):
        for _, (case, criteria) in reader:
            check()
            positions = [row["position"] for row in criteria]
            if positions != sorted(set(positions)):
                raise BadInput(
                    f"{root / CRITERIA}: the criteria of {case['case_id']!r} are not in order"
                )
            yield case, criteria
        check()
