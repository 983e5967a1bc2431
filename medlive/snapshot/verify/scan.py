"""One pass over a snapshot's rows that collects what every row-level step of `verify` reports."""

import hashlib
from datetime import date
from pathlib import Path

from medlive.integrity.checks import Faults
from medlive.snapshot.contents import (
    CASES,
    CHANGES,
    HOLDOUTS,
    SECTIONS,
    Ledgers,
    Row,
    RowReader,
)
from medlive.snapshot.gates import released_texts, row_hits
from medlive.snapshot.manifest import Manifest, Tally
from medlive.snapshot.model import (
    LIVEMEDBENCH_END,
    SnapshotCase,
    case_from_rows,
    commitment,
    livemedbench_piece,
)

from .text_checks import find_leak, texts_of

_STEPS = (
    "rows",
    "ids",
    "rubric",
    "positive",
    "releases",
    "changes",
    "proofs",
    "canary",
    "leaks",
)
"""The steps that report what this pass finds, fixed so that a misspelt name is an error and not "no faults"."""
_STEPS_OF_HITS = {
    "no criterion has positive points": "positive",
    "two criteria share an id": "ids",
    "first release": "releases",
}
"""Words of a hit of `row_hits` → the step that reports it; other hits are reported as `rubric`."""


class Scan:
    """What one pass over the rows found."""

    def __init__(self, manifest: Manifest, ledgers: Ledgers) -> None:
        """Prepare to read the rows of a snapshot."""
        self.manifest = manifest
        self.ledgers = ledgers
        self.shape = manifest.shape
        self.tally = Tally(self.shape)
        self.faults = {step: Faults() for step in _STEPS}
        """Step that reports them → the faults."""
        self.seen = set[str]()  # The ids of the cases
        self.livemedbench = ""
        """The sha256 of `livemedbench.json` as these rows imply it."""

    def _add(
        self,
        step: str,
        where: str,
        expected: str,
        got: str,
    ) -> None:
        self.faults[step].add(where, expected, got)

    def run(self, root: Path) -> None:
        """Read cases and criteria side by side; faults are collected and nothing is raised."""
        expected = hashlib.sha256()
        reader = RowReader(
            root,
            self.shape,
            self.manifest.canary,
            faults=self.faults["rows"],
            canaries=self.faults["canary"],
            orphans=self.faults["ids"],
        )
        try:
            for number, (row, criteria) in reader:
                expected.update(livemedbench_piece(self.tally.cases, row, criteria))
                self._check_case(number, row, criteria)
        except OSError as exc:
            self._add("rows", "data", "readable rows", str(exc))
            return
        expected.update(LIVEMEDBENCH_END)
        self.livemedbench = expected.hexdigest()
        for name, section, step in (
            (CHANGES, "added", "changes"),
            (CHANGES, "revised", "changes"),
            (HOLDOUTS, "revealed", "proofs"),
        ):
            entries = self.ledgers.entries(name, section)
            for case_id in sorted(entries.keys() - self.seen):
                where = f"{name}: {section} {case_id!r}"
                self._add(step, where, "a case of the snapshot", "no such case")

    def _check_case(
        self,
        number: int,
        row: Row,
        criteria: list[Row],
    ) -> None:
        """Check one case, on line `number`, by itself and against what the ledgers state about it."""
        case_id = str(row["case_id"])
        where = f"{CASES}: {case_id!r}"
        if case_id in self.seen:
            again = f"{case_id!r} again"
            self._add("ids", f"{CASES}:{number}", "each case once", again)
        self.seen.add(case_id)
        try:
            case = case_from_rows(row, criteria, self.shape.unknown)
        except ValueError:  # the earliest date lets the other checks go on
            earliest = {**row, "posted_at": date.min.isoformat()}
            case = case_from_rows(earliest, criteria, self.shape.unknown)
        if case.posted_at.isoformat() != row["posted_at"]:
            got = repr(row["posted_at"])
            self._add("releases", where, "a posting date as YYYY-MM-DD", got)
        self.tally.add(case)
        if case.first_release not in self.manifest.line:
            expected = "a first release of the line that manifest.json states"
            self._add("releases", where, expected, repr(case.first_release))
        for hit in row_hits(case, self.shape.enumerations):
            step = "rubric"
            for words, own_step in _STEPS_OF_HITS.items():
                if words in hit.detail:
                    step = own_step
            self._add(step, where, "a legal case", hit.detail)
        self._check_texts(case, where)
        if CHANGES in self.ledgers.sections:
            self._check_changes(case)
        self._check_proof(case)

    def _check_texts(
        self,
        case: SnapshotCase,
        where: str,
    ) -> None:
        texts = list(released_texts(case))
        for criterion in case.criteria:
            texts.append((f"source of {criterion.criterion_id}", criterion.source))
        further = [case.further, *(criterion.further for criterion in case.criteria)]
        for columns in further:
            for name, value in columns.items():
                texts += [(name, text) for text in texts_of(value)]
        for name, text in texts:
            if leak := find_leak(text):
                self._add(
                    "leaks", where, f"a {name} of plain text without addresses", leak
                )

    def _check_changes(self, case: SnapshotCase) -> None:
        where = f"{CHANGES}: {case.case_id!r}"
        sections = []
        for section in SECTIONS[CHANGES]:
            entry = self.ledgers.entries(CHANGES, section).get(case.case_id)
            if entry is None:
                continue
            sections.append(section)
            if entry["to_revision"] != case.revision:
                got = f"{entry['to_revision']}"
                self._add("changes", where, f"to_revision {case.revision}", got)
        if case.first_release == self.manifest.version and "added" not in sections:
            expected = "added, since this is its first release"
            self._add("changes", where, expected, "not listed")
        if "withdrawn" in sections or len(sections) > 1:
            expected = "added or revised, for it is in the snapshot"
            self._add("changes", where, expected, ", ".join(sections))

    def _check_proof(self, case: SnapshotCase) -> None:
        """Check that a case that was held out is shown as it was committed to."""
        revealed = self.ledgers.entries(HOLDOUTS, "revealed").get(case.case_id)
        if revealed is None:
            return
        where = f"{HOLDOUTS}: revealed {case.case_id!r}"
        version = self.manifest.version
        if case.first_release != version:
            first = case.first_release
            self._add("proofs", where, f"first release {version}", first)
        if revealed["commitment"] != (proof := commitment(case, revealed["salt"])):
            expected = f"the commitment of its salt and rows, {proof}"
            self._add("proofs", where, expected, revealed["commitment"])
