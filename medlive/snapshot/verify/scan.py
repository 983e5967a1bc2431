"""One pass over a snapshot's rows that collects what every row-level step of `verify` reports."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final

from medlive.integrity.checks import Faults
from medlive.integrity.folder import TooLong
from medlive.integrity.paths import open_plain
from medlive.snapshot.gates import released_texts, row_hits
from medlive.snapshot.ledgers import CHANGES, HOLDOUTS, Ledgers
from medlive.snapshot.manifest import Manifest, Tally
from medlive.snapshot.model import (
    TABLES,
    SnapshotCase,
    Table,
    case_from_rows,
    commitment,
    livemedbench_end,
    livemedbench_piece,
)
from medlive.snapshot.rows import CASES, CRITERIA, CaseRows, Row, RowReader, group_rows
from medlive.snapshot.verify.text_checks import find_leak, texts_of

_STEPS_OF_HITS: Final = {
    "no criterion has positive points": "positive",
    "two criteria share an id": "ids",
    "first release": "releases",
}
"""Words of a hit of `row_hits` → the step that reports it; all others are reported as `rubric`."""


@dataclass(slots=True)
class Scan:
    """What one pass over the rows found, by the step that reports it."""

    manifest: Manifest
    ledgers: Ledgers
    rows: Faults = field(default_factory=Faults)
    ids: Faults = field(default_factory=Faults)
    rubric: Faults = field(default_factory=Faults)
    positive: Faults = field(default_factory=Faults)
    releases: Faults = field(default_factory=Faults)
    changes: Faults = field(default_factory=Faults)
    proofs: Faults = field(default_factory=Faults)
    canary: Faults = field(default_factory=Faults)
    leaks: Faults = field(default_factory=Faults)
    tally: Tally = field(init=False)
    seen: set[str] = field(default_factory=set)  # The ids of the cases
    enumerations: Mapping[str, tuple[str, ...]] = field(init=False)
    unknown: Mapping[Table, Mapping[str, object]] = field(init=False)
    livemedbench: str = ""  # The sha256 of `livemedbench.json` as these rows imply it

    def __post_init__(self) -> None:
        shape = self.manifest.shape
        self.tally = Tally(shape)
        self.enumerations = shape.enumerations
        self.unknown = {table: shape.unknown(table) for table in TABLES}

    def run(self, root: Path) -> None:
        """Read cases and criteria side by side; faults are collected and nothing is raised."""
        expected = hashlib.sha256()

        def report_orphan(number: int, criterion: Row) -> None:
            wanted = f"a case for {criterion['criterion_id']!r}"[:300]
            got = f"no case {criterion['case_id']!r}"[:300]
            self.ids.add(f"{CRITERIA}:{number}", wanted, got)

        try:
            with (
                open_plain(root / CASES) as cases,
                open_plain(root / CRITERIA) as criteria,
            ):
                canary = self.manifest.canary
                shape = self.manifest.shape
                readers = (
                    RowReader(cases, CASES, shape, canary),
                    RowReader(criteria, CRITERIA, shape, canary),
                )
                for group in group_rows(*readers, report_orphan):
                    number = self.tally.cases
                    piece = livemedbench_piece(number, group.row, group.criteria)
                    expected.update(piece)
                    self._check_case(group)
        except (OSError, TooLong) as exc:
            self.rows.add("data", "readable rows", str(exc)[:300])
            return
        for reader in readers:
            self.rows.extend(reader.faults)
            self.canary.extend(reader.canary_faults)
        expected.update(livemedbench_end())
        self.livemedbench = expected.hexdigest()
        for name, section, faults in (
            (CHANGES, "added", self.changes),
            (CHANGES, "revised", self.changes),
            (HOLDOUTS, "revealed", self.proofs),
        ):
            entries = self.ledgers.entries(name, section)
            for case_id in sorted(entries.keys() - self.seen):
                where = f"{name}: {section} {case_id!r}"[:300]
                faults.add(where, "a case of the snapshot", "no such case")

    def _check_case(self, group: CaseRows) -> None:
        """Check one case by itself, and what the ledgers state about it."""
        where = f"{CASES}: {group.case_id!r}"[:300]
        row = group.row
        if group.case_id in self.seen:
            again = f"{group.case_id!r} again"
            self.ids.add(f"{CASES}:{group.number}", "each case once", again)
        self.seen.add(group.case_id)
        try:
            case = case_from_rows(row, group.criteria, self.unknown)
        except ValueError:  # the earliest date lets the other checks go on
            earliest = {**row, "posted_at": date.min.isoformat()}
            case = case_from_rows(earliest, group.criteria, self.unknown)
        if case.posted_at.isoformat() != row["posted_at"]:
            got = repr(row["posted_at"])[:50]
            self.releases.add(where, "a posting date as YYYY-MM-DD", got)
        self.tally.add(case)
        if case.first_release not in self.manifest.line:
            expected = "a first release of the line that manifest.json states"
            self.releases.add(where, expected, repr(case.first_release)[:50])
        positions = [criterion["position"] for criterion in group.criteria]
        if positions != sorted(set(positions)):
            place = f"{CRITERIA}: {case.case_id!r}"
            self.rows.add(place, "rows in the order of position", f"{positions}"[:200])
        for hit in row_hits(case, self.enumerations):
            faults = self.rubric
            for words, step in _STEPS_OF_HITS.items():
                if words in hit.detail:
                    faults = getattr(self, step)
            faults.add(where, "a legal case", hit.detail[:300])
        self._check_texts(case, where)
        self._check_changes(case)
        self._check_proof(case)

    def _check_texts(
        self,
        case: SnapshotCase,
        where: str,
    ) -> None:
        texts = list(released_texts(case))
        further = [case.further]
        for criterion in case.criteria:
            texts.append((f"source of {criterion.criterion_id}", criterion.source))
            further.append(criterion.further)
        for columns in further:
            for name, value in columns.items():
                texts += [(name, text) for text in texts_of(value)]
        for name, text in texts:
            if leak := find_leak(text):
                self.leaks.add(where, f"a {name} of plain text without addresses", leak)

    def _check_changes(self, case: SnapshotCase) -> None:
        if self.ledgers.changes is None:
            return
        where = f"{CHANGES}: {case.case_id!r}"
        sections = []
        for section, listed in self.ledgers.changes.items():
            if (entry := listed.get(case.case_id)) is None:
                continue
            sections.append(section)
            if entry["to_revision"] != case.revision:
                got = f"{entry['to_revision']}"[:50]
                self.changes.add(where, f"to_revision {case.revision}", got)
        if case.first_release == self.manifest.version and "added" not in sections:
            expected = "added, since this is its first release"
            self.changes.add(where, expected, "not listed")
        if "withdrawn" in sections or len(sections) > 1:
            expected = "added or revised, for it is in the snapshot"
            self.changes.add(where, expected, ", ".join(sections))

    def _check_proof(self, case: SnapshotCase) -> None:
        """Check that a case that was held out is shown as it was committed to."""
        revealed = self.ledgers.entries(HOLDOUTS, "revealed").get(case.case_id)
        if revealed is None:
            return
        where = f"{HOLDOUTS}: revealed {case.case_id!r}"
        version = self.manifest.version
        if case.first_release != version:
            first = case.first_release[:50]
            self.proofs.add(where, f"first release {version}", first)
        if revealed["commitment"] != (proof := commitment(case, revealed["salt"])):
            expected = f"the commitment of its salt and rows, {proof}"
            self.proofs.add(where, expected, revealed["commitment"])
