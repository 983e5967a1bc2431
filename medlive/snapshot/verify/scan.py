"""One pass over a snapshot's rows that collects what every row-level step of `verify` reports."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from medlive.integrity.checks import Faults
from medlive.integrity.folder import TooLong, open_inside
from medlive.snapshot.entries import Cursor, Ledgers
from medlive.snapshot.gates import row_hits
from medlive.snapshot.ledger import CHANGES, HOLDOUTS
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import (
    SnapshotCase,
    case_from_rows,
    commitment,
    livemedbench_end,
    livemedbench_piece,
    stamped,
)
from medlive.snapshot.rows import CASES, CRITERIA, Row, RowReader, group_rows
from medlive.snapshot.verify.disguise import find_disguise
from medlive.snapshot.verify.leaks import find_contact, find_unstorable

LIVEMEDBENCH: Final = "livemedbench.json"

MAX_VALUES: Final = 10_000
"""Distinct values of one count; all further ones are counted together."""
_MAX_VALUE_LENGTH: Final = 300
_OTHER: Final = "(more)"

_COUNTED: Final = (
    "by_language", "by_source", "by_theme", "by_specialty", "by_axis", "by_month", "by_first_release",
    "criteria_per_case",
)  # fmt: skip


@dataclass(slots=True)
class Scan:
    """What one pass over the rows found, by the step that reports it."""

    rows: Faults = field(default_factory=Faults)
    ids: Faults = field(default_factory=Faults)
    rubric: Faults = field(default_factory=Faults)
    positive: Faults = field(default_factory=Faults)
    livemedbench: Faults = field(default_factory=Faults)
    releases: Faults = field(default_factory=Faults)
    changes: Faults = field(default_factory=Faults)
    proofs: Faults = field(default_factory=Faults)
    canary: Faults = field(default_factory=Faults)
    leaks: Faults = field(default_factory=Faults)
    cases: int = 0
    criteria: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in _COUNTED})
    """As the manifest's counts: name → value → how often."""

    def count_case(self, case: Row, criteria: Sequence[Row]) -> None:
        """Count a case and its criteria."""
        self.cases += 1
        self.criteria += len(criteria)
        for name in ("language", "source", "theme", "specialty", "first_release"):
            self.count(f"by_{name}", case[name])
        self.count("by_month", case["posted_at"][:7])
        self.count("criteria_per_case", str(len(criteria)))
        for criterion in criteria:
            self.count("by_axis", criterion["axis"])

    def count(self, name: str, value: str) -> None:
        """Count one value under a name of the manifest's counts; memory is bounded whatever the rows hold."""
        counter = self.counts[name]
        if value not in counter and (len(counter) >= MAX_VALUES or len(value) > _MAX_VALUE_LENGTH):
            value = _OTHER
        counter[value] += 1


class _ExpectedFile:
    """Compares `livemedbench.json` with the bytes that the rows imply, piece by piece."""

    def __init__(self, root: Path, faults: Faults) -> None:
        self._faults = faults
        self._handle = BufferedReader(open_inside(root, LIVEMEDBENCH), 1 << 18)
        self._position = 0
        self._differs = False

    def expect(self, data: bytes, what: str) -> None:
        if not self._differs and self._handle.read(len(data)) != data:
            self._differs = True
            self._faults.add(LIVEMEDBENCH, what, f"other bytes after byte {self._position}")
        self._position += len(data)

    def close(self, complete: bool) -> None:
        with self._handle:
            if complete:
                self.expect(livemedbench_end(), "its end")
                if not self._differs and self._handle.read(1):
                    self._faults.add(LIVEMEDBENCH, f"its end at byte {self._position}", "more")


def scan_rows(root: Path, manifest: Manifest | None, ledgers: Ledgers | None) -> Scan:
    """Read cases and criteria side by side and compare them with the ledgers and `livemedbench.json`.

    Never raises for what a folder may hold.

    Args:
        root: The snapshot's folder.
        manifest: Its manifest; None where it cannot be read: what needs it is left out.
        ledgers: Its ledgers, likewise.
    """
    scan = Scan()
    try:
        expected = _ExpectedFile(root, scan.livemedbench) if manifest is not None else None
    except OSError as exc:
        scan.livemedbench.add(LIVEMEDBENCH, "a readable file", exc.strerror or str(exc))
        return scan
    complete = False
    try:
        with open_inside(root, CASES) as cases, open_inside(root, CRITERIA) as criteria:
            canary = manifest.canary if manifest else None
            _Pass(scan, manifest, ledgers, expected).run(
                RowReader(cases, CASES, canary), RowReader(criteria, CRITERIA, canary)
            )
        complete = True
    except (OSError, TooLong) as exc:
        scan.rows.add("data", "readable rows", str(exc)[:300])
    finally:
        if expected is not None:
            expected.close(complete)
    return scan


class _Pass:
    def __init__(
        self, scan: Scan, manifest: Manifest | None, ledgers: Ledgers | None, expected: _ExpectedFile | None
    ) -> None:
        self._scan, self._manifest, self._ledgers, self._expected = scan, manifest, ledgers, expected
        self._releases: frozenset[str] | None = None
        if manifest is not None:
            self._releases = frozenset((*(ancestor.version for ancestor in manifest.lineage), manifest.version))
        self._added = self._cursor("added", CHANGES, scan.changes)
        self._revised = self._cursor("revised", CHANGES, scan.changes)
        self._withdrawn = self._cursor("withdrawn", CHANGES, None)
        self._revealed = self._cursor("revealed", HOLDOUTS, scan.proofs)

    def _cursor(self, section: str, name: str, faults: Faults | None) -> Cursor:
        """A ledger's section; an entry without its case is added to `faults`."""

        def unmatched(entry: dict[str, Any]) -> None:
            if faults is not None:
                faults.add(_place(name, section, entry), "in the snapshot", "not there")

        return Cursor(self._ledgers.entries(section) if self._ledgers else iter(()), unmatched)

    def run(self, cases: RowReader, criteria: RowReader) -> None:
        """Check both files."""
        scan, previous = self._scan, None
        for group in group_rows(cases, criteria, self._report_orphan):
            number, row, rubric = group
            case_id = group.case_id
            if case_id == previous:
                scan.ids.add(f"{CASES}:{number}", "each case once", f"{case_id!r} again")
            previous = case_id
            if self._expected is not None and self._manifest is not None:
                piece = livemedbench_piece(scan.cases, stamped(row, self._manifest.canary), rubric)
                self._expected.expect(piece, f"what {CASES} and {CRITERIA} say of case {case_id!r}")
            scan.count_case(row, rubric)
            case = self._check_case(row, rubric)
            if self._ledgers is not None and self._manifest is not None:
                self._check_entries(case, self._ledgers, self._manifest.version)
        for cursor in (self._added, self._revised, self._withdrawn, self._revealed):
            cursor.close()
        for reader in (cases, criteria):
            if reader.truncated:
                scan.rows.add("data", "rows", f"{len(reader.faults)} invalid lines; the rest was not read")
            for finding in reader.faults:
                scan.rows.append(finding)
            for finding in reader.canary_faults:
                scan.canary.append(finding)

    def _report_orphan(self, number: int, criterion: Row) -> None:
        self._scan.criteria += 1
        self._scan.count("by_axis", criterion["axis"])
        expected, got = f"a case for {criterion['criterion_id']!r}", f"no case {criterion['case_id']!r}"
        self._scan.ids.add(f"{CRITERIA}:{number}", expected[:300], got[:300])

    def _check_case(self, row: Row, rubric: list[Row]) -> SnapshotCase:
        """Check one case by itself."""
        scan, where = self._scan, f"{CASES}: {row['case_id']!r}"
        posted_at = row["posted_at"]
        try:
            case = case_from_rows(row, rubric)
            if case.posted_at.isoformat() != posted_at:
                scan.releases.add(where, "a posting date as YYYY-MM-DD", posted_at[:50])
        except ValueError as exc:
            scan.releases.add(where, "a posting date", f"{posted_at!r}: {exc}"[:200])
            # The earliest date lets the other checks go on.
            case = case_from_rows({**row, "posted_at": date.min.isoformat()}, rubric)
        if self._releases is not None and case.first_release not in self._releases:
            expected = "a first release of the line that manifest.json states"
            scan.releases.add(where, expected, repr(case.first_release)[:50])
        positions = [criterion["position"] for criterion in rubric]
        if any(one >= other for one, other in pairwise(positions)):
            scan.rows.add(f"{CRITERIA}: {case.case_id!r}", "rows in the order of position", f"{positions}"[:200])
        for hit in row_hits(case):
            self._step_of(hit.detail).add(where, "a legal case", hit.detail[:300])
        texts = [(name, row[name]) for name in ("source", "narrative", "query", "advice")]
        texts += [(f"criterion {criterion['position']}", criterion["criterion"]) for criterion in rubric]
        for name, text in texts:
            if (character := find_unstorable(text)) is not None:
                scan.leaks.add(where, f"a {name} without control characters", character)
            if (character := find_disguise(text)) is not None:
                scan.leaks.add(where, f"a {name} without disguised characters", character)
            if (kind := find_contact(text)) is not None:
                scan.leaks.add(where, f"a {name} without addresses or handles", f"a {kind}")
        return case

    def _step_of(self, detail: str) -> Faults:
        """The step that reports a hit of `row_hits`."""
        scan = self._scan
        if detail == "no criterion has positive points":
            return scan.positive
        if detail == "two criteria share an id":
            return scan.ids
        return scan.releases if "first release" in detail else scan.rubric

    def _check_entries(self, case: SnapshotCase, ledgers: Ledgers, version: str) -> None:
        """Check what the ledgers state about a case of the snapshot."""
        scan, new = self._scan, case.first_release == version
        added, revised = self._added.at(case.case_id), self._revised.at(case.case_id)
        if CHANGES in ledgers.readable:
            where = f"{CHANGES}: {case.case_id!r}"
            if new and added is None:
                scan.changes.add(where, "added, since this is its first release", "not listed")
            if added is not None and revised is not None:
                scan.changes.add(where, "added or revised", "both")
            for entry in (added, revised):
                if entry is not None and entry["to_revision"] != case.revision:
                    scan.changes.add(where, f"to_revision {case.revision}", f"{entry['to_revision']}"[:50])
            if (withdrawn := self._withdrawn.at(case.case_id)) is not None:
                scan.changes.add(_place(CHANGES, "withdrawn", withdrawn), "not in the snapshot", "it is there")
        if (revealed := self._revealed.at(case.case_id)) is not None:
            where = _place(HOLDOUTS, "revealed", revealed)
            if not new:
                scan.proofs.add(where, f"first release {version}", case.first_release[:50])
            if revealed["commitment"] != (proof := commitment(case, revealed["salt"])):
                scan.proofs.add(where, f"the commitment of its salt and rows, {proof}", revealed["commitment"])


def _place(name: str, section: str, entry: Mapping[str, Any]) -> str:
    return f"{name}: {section} {entry['case_id']!r}"[:300]
