"""One pass over a snapshot's rows that collects what every row-level step of `verify` wants to know."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

from medlive.snapshot.disguise import find_disguise
from medlive.snapshot.folder import Finding, TooLong, lines
from medlive.snapshot.gates import Gate, row_hits
from medlive.snapshot.leaks import find_contact, find_unstorable
from medlive.snapshot.model import (
    CASE_FIELDS,
    CRITERION_FIELDS,
    SnapshotCase,
    SnapshotCriterion,
    case_from_rows,
    line,
    livemedbench_end,
    livemedbench_piece,
    row_fault,
)

MOST_FINDINGS: Final = 20
"""How many faults of one step are kept; the rest are counted."""

CASES: Final = "data/cases.jsonl"
CRITERIA: Final = "data/criteria.jsonl"
PLAIN: Final = "livemedbench.json"


@dataclass(slots=True)
class Faults:
    """The first faults of a step, and how many there were."""

    kept: list[Finding] = field(default_factory=list)
    count: int = 0

    def add(self, file: str, expected: str, got: str) -> None:
        """One fault more."""
        self.count += 1
        if len(self.kept) < MOST_FINDINGS:
            self.kept.append(Finding(file, expected, got))


@dataclass(slots=True)
class Scan:
    """What one pass over the rows found, by the step that reports it."""

    rows: Faults = field(default_factory=Faults)
    ids: Faults = field(default_factory=Faults)
    rubric: Faults = field(default_factory=Faults)
    releases: Faults = field(default_factory=Faults)
    leaks: Faults = field(default_factory=Faults)
    plain: Faults = field(default_factory=Faults)
    cases: int = 0
    criteria: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    case_ids: set[str] = field(default_factory=set)

    def count(self, name: str, value: str) -> None:
        """Count one value under a name of the manifest's counts."""
        self.counts.setdefault(name, Counter())[value] += 1


class _Expect:
    """Compares a file with the bytes it should hold, as they come."""

    def __init__(self, path: Path, faults: Faults) -> None:
        self._path, self._faults = path, faults
        self._handle = path.open("rb")
        self._at = 0
        self._differs = False

    def feed(self, data: bytes, what: str) -> None:
        if not self._differs and self._handle.read(len(data)) != data:
            self._differs = True
            self._faults.add(PLAIN, f"what {CASES} and {CRITERIA} say of {what}", f"other bytes from {self._at}")
        self._at += len(data)

    def close(self, complete: bool) -> None:
        with self._handle:
            if not complete:
                return
            self.feed(livemedbench_end(), "its end")
            if not self._differs and self._handle.read(1):
                self._faults.add(PLAIN, f"its end at byte {self._at}", "more")


def scan_rows(root: Path, version: str | None) -> Scan:
    """Read cases and criteria side by side and compare `livemedbench.json` on the way.

    `version` is the manifest's, None where that cannot be read. Never raises for what a folder may hold.
    """
    scan = Scan()
    try:
        expect = _Expect(root / PLAIN, scan.plain)
    except OSError as exc:
        scan.plain.add(PLAIN, "a readable file", exc.strerror or str(exc))
        return scan
    complete = False
    try:
        _merge(root, version, scan, expect)
        complete = True
    except (OSError, TooLong) as exc:
        scan.rows.add("data", "readable rows", str(exc))
    finally:
        expect.close(complete)
    return scan


def _merge(root: Path, version: str | None, scan: Scan, expect: _Expect) -> None:
    criteria = _rows(root, CRITERIA, CRITERION_FIELDS, ("case_id", "position"), scan)
    criterion_ids: set[str] = set()
    waiting = next(criteria, None)
    for row in _rows(root, CASES, CASE_FIELDS, ("case_id",), scan):
        mine: list[dict[str, Any]] = []
        while waiting is not None and waiting["case_id"] <= row["case_id"]:
            _criterion(waiting, scan, criterion_ids)
            if waiting["case_id"] == row["case_id"]:
                mine.append(waiting)
            else:
                scan.ids.add(CRITERIA, f"a case for {waiting['criterion_id']!r}", waiting["case_id"])
            waiting = next(criteria, None)
        scan.cases += 1
        if row["case_id"] in scan.case_ids:
            scan.ids.add(CASES, "each case once", f"{row['case_id']!r} again")
        scan.case_ids.add(row["case_id"])
        _case(row, mine, version, scan)
        expect.feed(livemedbench_piece(scan.cases - 1, row, mine), f"case {row['case_id']!r}")
    while waiting is not None:
        _criterion(waiting, scan, criterion_ids)
        scan.ids.add(CRITERIA, f"a case for {waiting['criterion_id']!r}", waiting["case_id"])
        waiting = next(criteria, None)


def _criterion(row: Mapping[str, Any], scan: Scan, seen: set[str]) -> None:
    scan.criteria += 1
    scan.count("by_axis", row["axis"])
    if row["criterion_id"] in seen:
        scan.ids.add(CRITERIA, "each criterion once", f"{row['criterion_id']!r} again")
    seen.add(row["criterion_id"])


def _rows(
    root: Path, name: str, fields: Mapping[str, type], order: tuple[str, ...], scan: Scan
) -> Iterator[dict[str, Any]]:
    """The rows of a JSON Lines file that are rows; what is not, and what stands out of order, is a fault."""
    before: tuple[Any, ...] | None = None
    for number, data in enumerate(lines(root / name), start=1):
        where = f"{name}:{number}"
        try:
            row = json.loads(data.decode("utf-8"))
            fault = row_fault(row, fields)
            canonical = fault is not None or line(row) == data
        except (ValueError, RecursionError) as exc:
            scan.rows.add(where, "one JSON object", f"{type(exc).__name__}: {str(exc)[:120]}")
            continue
        if fault is not None:
            scan.rows.add(where, "a row of the format", fault)
            continue
        if not canonical:
            scan.rows.add(where, "canonical JSON and a line end", "the same value spelt otherwise")
        here = tuple(row[name_] for name_ in order)
        if before is not None and here <= before:
            scan.rows.add(where, "rows in the order of " + ", ".join(order), f"{here} after {before}")
        before = here
        yield row


def _case(row: dict[str, Any], criteria: list[dict[str, Any]], version: str | None, scan: Scan) -> None:
    for name in ("language", "source", "theme", "specialty"):
        scan.count(f"by_{name}", row[name])
    scan.count("by_month", row["posted_at"][:7])
    where = f"{CASES}: {row['case_id']!r}"
    try:
        case = case_from_rows(row, list(criteria))
    except ValueError as exc:
        scan.releases.add(where, "a posting date", f"{row['posted_at']!r}: {exc}")
        case = _undated(row, criteria)
    if case.posted_at.isoformat() != row["posted_at"] and case.posted_at != date.min:
        scan.releases.add(where, "a posting date as YYYY-MM-DD", row["posted_at"])
    if version is not None and row["first_release"] > version:
        scan.releases.add(where, f"a first release up to {version}", row["first_release"])
    for hit in row_hits(case):
        late = hit.gate is Gate.ROW and ("first release" in hit.detail)
        (scan.releases if late else scan.rubric).add(where, "a legal case", hit.detail)
    texts = [(name, row[name]) for name in ("source", "narrative", "query", "advice")]
    texts += [(f"criterion {c['position']}", c["criterion"]) for c in criteria]
    for name, text in texts:
        if (character := find_unstorable(text)) is not None:
            scan.leaks.add(where, f"a {name} without control characters", character)
        if (character := find_disguise(text)) is not None:
            scan.leaks.add(where, f"a {name} in letters that are what they seem", character)
        if (kind := find_contact(text)) is not None:
            scan.leaks.add(where, f"a {name} without addresses or handles", f"a {kind}")


def _undated(row: Mapping[str, Any], criteria: list[dict[str, Any]]) -> SnapshotCase:
    """The case for its other checks, its unreadable date set to the earliest one."""
    rows = tuple(SnapshotCriterion(**c) for c in criteria)
    return SnapshotCase(**{**row, "posted_at": date.min}, criteria=rows)
