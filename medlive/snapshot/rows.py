"""Rows of a snapshot's JSON Lines, each checked against the format; what is wrong is collected, not raised."""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from medlive.integrity.folder import Finding, lines
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS, line, row_fault

if TYPE_CHECKING:
    import io

CASES: Final = "data/cases.jsonl"
CRITERIA: Final = "data/criteria.jsonl"

MAX_FAULTS: Final = 10_000
"""Reading a file stops after this many faults."""

Row = dict[str, Any]


class RowReader:
    """Iterates over (line number from 1, row) of one file; lines that hold no row are skipped and reported."""

    def __init__(self, handle: "io.FileIO", kind: str, canary: str | None, name: str | None = None) -> None:
        """Prepare to read.

        Args:
            handle: The open file; it is closed at the end of the iteration.
            kind: CASES or CRITERIA.
            canary: What every row must state; None accepts any.
            name: The file's name in findings, by default `kind`.
        """
        self._handle, self._kind, self._canary, self._name = handle, kind, canary, name or kind
        self._fields = CASE_FIELDS if kind == CASES else CRITERION_FIELDS
        self.faults: list[Finding] = []
        self.canary_faults: list[Finding] = []
        self.truncated = False
        """Whether reading stopped early, at MAX_FAULTS."""

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        previous: str | None = None
        for number, data in enumerate(lines(self._handle), start=1):
            if len(self.faults) > MAX_FAULTS:
                self.truncated = True
                return
            if (row := self._parse(data, number)) is None:
                continue
            case_id = row["case_id"]
            if previous is not None and (case_id < previous or (case_id == previous and self._kind == CASES)):
                self._report(number, "rows in the order of case_id", f"{case_id!r} after {previous!r}"[:300])
            previous = case_id
            yield number, row

    def _report(self, number: int, expected: str, got: str) -> None:
        self.faults.append(Finding(f"{self._name}:{number}", expected, got))

    def _parse(self, data: bytes, number: int) -> Row | None:
        try:
            row = json.loads(data.decode("utf-8"))
            fault = row_fault(row, self._fields)
            canonical = line(row) if fault is None else b""
        except (ValueError, RecursionError) as exc:
            self._report(number, "one JSON object", f"{type(exc).__name__}: {str(exc)[:120]}")
            return None
        if fault is not None:
            self._report(number, "a row of the format", fault)
            return None
        if canonical != data:
            self._report(number, "canonical JSON and a line end", "the same value spelled otherwise")
        if self._canary not in (None, row["canary"]):
            finding = Finding(f"{self._name}:{number}", f"the canary {self._canary}", repr(row["canary"])[:100])
            self.canary_faults.append(finding)
        return dict(row)


class CaseRows(NamedTuple):
    """A case's row with the rows of its criteria."""

    number: int
    """The line of the case, from 1."""
    row: Row
    criteria: list[Row]

    @property
    def case_id(self) -> str:
        """The case's id."""
        return str(self.row["case_id"])


def group_rows(cases: RowReader, criteria: RowReader, on_orphan: Callable[[int, Row], None]) -> Iterator[CaseRows]:
    """Join both files by case.

    Args:
        cases: The rows of the cases, in the order of their ids.
        criteria: The rows of the criteria, in the order of their cases' ids.
        on_orphan: Called with the line number and row of each criterion without a case.
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
    while head is not None and not cases.truncated:
        on_orphan(*head)
        head = next(remaining, None)


def pair_cases(
    old_cases: Iterator[CaseRows], new_cases: Iterator[CaseRows]
) -> Iterator[tuple[CaseRows | None, CaseRows | None]]:
    """Pair the cases of two snapshots by id; None where a side has no such case."""
    old, new = next(old_cases, None), next(new_cases, None)
    while old is not None or new is not None:
        if old is not None and (new is None or old.case_id < new.case_id):
            yield old, None
            old = next(old_cases, None)
        elif new is not None and (old is None or new.case_id < old.case_id):
            yield None, new
            new = next(new_cases, None)
        else:
            yield old, new
            old, new = next(old_cases, None), next(new_cases, None)
