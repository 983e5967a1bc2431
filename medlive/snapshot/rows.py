"""Rows of a snapshot's JSON Lines, each checked against the format; what is wrong is collected, not raised."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from medlive.errors import BadInput
from medlive.integrity.checks import Faults
from medlive.integrity.folder import lines, read_small
from medlive.integrity.paths import open_plain
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import Table, line
from medlive.snapshot.shape import Shape

if TYPE_CHECKING:
    import io

CASES: Final = "data/cases.jsonl"
CRITERIA: Final = "data/criteria.jsonl"

Row = dict[str, Any]


@dataclass
class RowReader:
    """Iterates over (line number from 1, row) of one file; lines that hold no row are skipped and reported."""

    handle: "io.FileIO"  # The open file; it is closed at the end of the iteration
    name: str  # CASES or CRITERIA
    shape: Shape  # The snapshot's
    canary: str | None = None  # What every row must state; None accepts any
    trusted: bool = False
    """Whether the file was verified, so that rows need not be checked again."""
    faults: Faults = field(default_factory=Faults)
    canary_faults: Faults = field(default_factory=Faults)

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        previous = ""
        for number, data in enumerate(lines(self.handle), start=1):
            where = f"{self.name}:{number}"
            if (row := self._parse(data, where)) is None:
                continue
            case_id = row["case_id"]
            if case_id < previous or (
                case_id == previous and number > 1 and self.name == CASES
            ):
                self.faults.add(
                    where,
                    "rows in the order of case_id",
                    f"{case_id!r} after {previous!r}",
                )
            previous = case_id
            yield number, row

    def _parse(
        self,
        data: bytes,
        where: str,
    ) -> Row | None:
        try:
            row: Row = json.loads(data.decode("utf-8"))
            if self.trusted:
                return row
            table: Table = "cases" if self.name == CASES else "criteria"
            fault = self.shape.row_fault(row, table)
            canonical = line(row) if fault is None else b""
        except (ValueError, RecursionError) as exc:
            fault = f"{type(exc).__name__}: {exc!s}"
        if fault is not None:
            self.faults.add(where, "a row of the format", fault)
            return None
        if canonical != data:
            self.faults.add(
                where,
                "canonical JSON and a line end",
                "the same value spelled otherwise",
            )
        if self.canary not in (None, row["canary"]):
            self.canary_faults.add(
                where, f"the canary {self.canary}", repr(row["canary"])
            )
        return row


class CaseRows(NamedTuple):
    """A case's row with the rows of its criteria."""

    number: int  # The line of the case, from 1
    row: Row
    criteria: list[Row]

    @property
    def case_id(self) -> str:
        """The case's id."""
        return str(self.row["case_id"])


def group_rows(
    cases: RowReader,
    criteria: RowReader,
    on_orphan: Callable[[int, Row], None],
) -> Iterator[CaseRows]:
    """Join both files by case.

    Both are in the order of their cases' ids; `on_orphan` gets the line number and row of each criterion without a
    case.
    """
    remaining = iter(criteria)
    head = next(remaining, None)
    for number, case in cases:
        own: list[Row] = []
        while head is not None and head[1]["case_id"] <= case["case_id"]:
            if head[1]["case_id"] == case["case_id"]:
                own.append(head[1])
            else:
                on_orphan(*head)
            head = next(remaining, None)
        yield CaseRows(number, case, own)
    while head is not None:
        on_orphan(*head)
        head = next(remaining, None)


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
) -> Iterator[CaseRows]:
    """Yield the cases of a snapshot's folder, in order of their ids.

    Args:
        root: The folder.
        shape: As its manifest states it.
        trusted: Whether the files were verified, so that only their order is checked.

    Raises:
        BadInput: At the first fault.
    """

    def refuse(number: int, row: Row) -> None:
        check()
        raise BadInput(
            f"{root / CRITERIA}:{number}: there is no case {row['case_id']!r}"
        )

    def check() -> None:
        for reader in readers:
            for fault in reader.faults.findings:
                raise BadInput(f"{root} cannot be read as a snapshot: {fault}"[:500])

    with (
        readable(root),
        open_plain(root / CASES) as cases,
        open_plain(root / CRITERIA) as criteria,
    ):
        readers = (
            RowReader(cases, CASES, shape, trusted=trusted),
            RowReader(criteria, CRITERIA, shape, trusted=trusted),
        )
        for case in group_rows(*readers, refuse):
            check()
            positions = [row["position"] for row in case.criteria]
            if positions != sorted(set(positions)):
                raise BadInput(
                    f"{root / CRITERIA}: the criteria of {case.case_id!r} are not in order"
                )
            yield case
        check()
