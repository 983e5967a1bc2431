"""Rows of a snapshot's JSON Lines, each checked against the format; what is wrong is collected, not raised."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from medlive.errors import BadInput
from medlive.integrity.checks import Faults
from medlive.integrity.folder import TooLong, lines
from medlive.integrity.paths import open_plain
from medlive.snapshot.model import Table, line
from medlive.snapshot.shape import Shape

if TYPE_CHECKING:
    import io

CASES: Final = "data/cases.jsonl"
CRITERIA: Final = "data/criteria.jsonl"

Row = dict[str, Any]


class RowReader:
    """Iterates over (line number from 1, row) of one file; lines that hold no row are skipped and reported."""

    def __init__(
        self,
        handle: "io.FileIO",
        name: str,
        shape: Shape,
        canary: str | None = None,
        *,
        trusted: bool = False,
    ) -> None:
        """Prepare to read.

        Args:
            handle: The open file; it is closed at the end of the iteration.
            name: CASES or CRITERIA.
            shape: The snapshot's.
            canary: What every row must state; None accepts any.
            trusted: Whether the file was verified, so that rows need not be checked again.
        """
        self._handle = handle
        self._name = name
        self._canary = canary
        self._trusted = trusted
        self._table: Table = "cases" if name == CASES else "criteria"
        self._shape = shape
        self.faults = Faults()
        self.canary_faults = Faults()

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        previous = ""
        for number, data in enumerate(lines(self._handle), start=1):
            where = f"{self._name}:{number}"
            if (row := self._parse(data, where)) is None:
                continue
            case_id = row["case_id"]
            if case_id < previous or (
                case_id == previous and number > 1 and self._name == CASES
            ):
                self.faults.add(
                    where,
                    "rows in the order of case_id",
                    f"{case_id!r} after {previous!r}"[:300],
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
            if self._trusted:
                return row
            fault = self._shape.row_fault(row, self._table)
            canonical = line(row) if fault is None else b""
        except (ValueError, RecursionError) as exc:
            fault = f"{type(exc).__name__}: {str(exc)[:120]}"
        if fault is not None:
            self.faults.add(where, "a row of the format", fault)
            return None
        if canonical != data:
            self.faults.add(
                where,
                "canonical JSON and a line end",
                "the same value spelled otherwise",
            )
        if self._canary not in (None, row["canary"]):
            self.canary_faults.add(
                where, f"the canary {self._canary}", repr(row["canary"])[:100]
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
    except (OSError, TooLong, ValueError) as exc:
        raise BadInput(
            f"{root} cannot be read as a snapshot: {str(exc)[:300]}"
        ) from exc


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


def pair_cases(
    old_cases: Iterator[CaseRows], new_cases: Iterator[CaseRows]
) -> Iterator[tuple[CaseRows | None, CaseRows | None]]:
    """Pair the cases of two snapshots by id; None where a side has no such case."""
    old = next(old_cases, None)
    new = next(new_cases, None)
    while old is not None or new is not None:
        if old is not None and (new is None or old.case_id < new.case_id):
            yield old, None
            old = next(old_cases, None)
        elif new is not None and (old is None or new.case_id < old.case_id):
            yield None, new
            new = next(new_cases, None)
        else:
            yield old, new
            old = next(old_cases, None)
            new = next(new_cases, None)
