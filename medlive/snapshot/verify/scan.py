"""One pass over a snapshot's rows that collects what every row-level step of `verify` reports."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Final

from medlive.integrity.checks import Faults
from medlive.integrity.folder import TooLong
from medlive.integrity.paths import open_plain
from medlive.snapshot.gates import row_hits
from medlive.snapshot.ledgers import CHANGES, HOLDOUTS, Entry, Ledgers
from medlive.snapshot.manifest import Manifest, Tally
from medlive.snapshot.model import (
    TABLES,
    SnapshotCase,
    SnapshotCriterion,
    Table,
    case_from_rows,
    commitment,
    livemedbench_end,
    livemedbench_piece,
)
from medlive.snapshot.rows import CASES, CRITERIA, CaseRows, Row, RowReader, group_rows
from medlive.snapshot.verify.text_checks import (
    find_contact,
    find_disguise,
    find_unstorable,
    texts_of,
)

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
                for group in group_rows(*readers, self._report_orphan):
                    expected.update(
                        livemedbench_piece(self.tally.cases, group.row, group.criteria)
                    )
                    self._check_case(group)
        except (OSError, TooLong) as exc:
            self.rows.add("data", "readable rows", str(exc)[:300])
            return
        for reader in readers:
            self.rows.extend(reader.faults)
            self.canary.extend(reader.canary_faults)
        expected.update(livemedbench_end())
        self.livemedbench = expected.hexdigest()
        self._check_unmatched()

    def _report_orphan(self, number: int, criterion: Row) -> None:
        expected, got = (
            f"a case for {criterion['criterion_id']!r}",
            f"no case {criterion['case_id']!r}",
        )
        self.ids.add(f"{CRITERIA}:{number}", expected[:300], got[:300])

    def _check_case(self, group: CaseRows) -> None:
        """Check one case by itself, and what the ledgers state about it."""
        where, row = f"{CASES}: {group.case_id!r}"[:300], group.row
        if group.case_id in self.seen:
            self.ids.add(
                f"{CASES}:{group.number}", "each case once", f"{group.case_id!r} again"
            )
        self.seen.add(group.case_id)
        try:
            case = case_from_rows(row, group.criteria, self.unknown)
        except ValueError:  # the earliest date lets the other checks go on
            earliest = {**row, "posted_at": date.min.isoformat()}
            case = case_from_rows(earliest, group.criteria, self.unknown)
        if case.posted_at.isoformat() != row["posted_at"]:
            self.releases.add(
                where, "a posting date as YYYY-MM-DD", repr(row["posted_at"])[:50]
            )
        self.tally.add(case)
        line = {
            *(ancestor.version for ancestor in self.manifest.lineage),
            self.manifest.version,
        }
        if case.first_release not in line:
            expected = "a first release of the line that manifest.json states"
            self.releases.add(where, expected, repr(case.first_release)[:50])
        positions = [criterion["position"] for criterion in group.criteria]
        if any(earlier >= other for earlier, other in pairwise(positions)):
            self.rows.add(
                f"{CRITERIA}: {case.case_id!r}",
                "rows in the order of position",
                f"{positions}"[:200],
            )
        for hit in row_hits(case, self.enumerations):
            faults = getattr(self, _step_of(hit.detail))
            faults.add(where, "a legal case", hit.detail[:300])
        self._check_texts(case, where)
        self._check_entries(case)

    def _check_texts(self, case: SnapshotCase, where: str) -> None:
        texts = [
            ("source", case.source),
            ("narrative", case.narrative),
            ("query", case.query),
            ("advice", case.advice),
        ]
        # Two criteria may claim one position: each is looked at.
        for criterion in case.criteria:
            texts.append((f"criterion {criterion.position}", criterion.criterion))
        for criterion in case.criteria:
            texts.append(
                (f"source of criterion {criterion.position}", criterion.source)
            )
        frozen: list[SnapshotCase | SnapshotCriterion] = [case, *case.criteria]
        for row in frozen:
            for name, value in row.further.items():
                texts += [(name, text) for text in texts_of(value)]
        for name, text in texts:
            for find, what in (
                (find_unstorable, "control characters"),
                (find_disguise, "disguised characters"),
                (find_contact, "addresses or handles"),
            ):
                if (leak := find(text)) is not None:
                    self.leaks.add(where, f"a {name} without {what}", leak)

    def _check_entries(self, case: SnapshotCase) -> None:
        new, case_id = case.first_release == self.manifest.version, case.case_id
        if (changes := self.ledgers.changes) is not None:
            entries = {}
            for section, listed in changes.items():
                if case_id in listed:
                    entries[section] = listed[case_id]
            self._check_change(case, new, entries)
        if (
            revealed := (self.ledgers.holdouts or {}).get("revealed", {}).get(case_id)
        ) is not None:
            where = f"{HOLDOUTS}: revealed {case_id!r}"
            if not new:
                self.proofs.add(
                    where,
                    f"first release {self.manifest.version}",
                    case.first_release[:50],
                )
            if revealed["commitment"] != (proof := commitment(case, revealed["salt"])):
                self.proofs.add(
                    where,
                    f"the commitment of its salt and rows, {proof}",
                    revealed["commitment"],
                )

    def _check_change(
        self, case: SnapshotCase, new: bool, entries: dict[str, Entry]
    ) -> None:
        where = f"{CHANGES}: {case.case_id!r}"
        if new and "added" not in entries:
            self.changes.add(
                where, "added, since this is its first release", "not listed"
            )
        if "withdrawn" in entries or len(entries) > 1:
            self.changes.add(
                where, "added or revised, for it is in the snapshot", ", ".join(entries)
            )
        for entry in entries.values():
            if entry["to_revision"] != case.revision:
                self.changes.add(
                    where,
                    f"to_revision {case.revision}",
                    f"{entry['to_revision']}"[:50],
                )

    def _check_unmatched(self) -> None:
        """Report entries of the ledgers whose cases are not in the snapshot."""
        changes, holdouts = self.ledgers.changes or {}, self.ledgers.holdouts or {}
        for name, section, entries, faults in (
            (CHANGES, "added", changes.get("added", {}), self.changes),
            (CHANGES, "revised", changes.get("revised", {}), self.changes),
            (HOLDOUTS, "revealed", holdouts.get("revealed", {}), self.proofs),
        ):
            for case_id in sorted(entries.keys() - self.seen):
                faults.add(
                    f"{name}: {section} {case_id!r}"[:300],
                    "a case of the snapshot",
                    "no such case",
                )


def _step_of(detail: str) -> str:
    """The step that reports a hit of the gates."""
    for words, step in _STEPS_OF_HITS.items():
        if words in detail:
            return step
    return "rubric"
