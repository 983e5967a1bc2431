"""Reads and checks a snapshot's rows (`read_cases`, `RowReader`) and its ledgers (`read_ledgers`); writes the ledgers.

`RowReader` collects what is wrong with rows, and does not raise it. A ledger (`changes.json`, `holdouts.json`) is JSON
with one entry a line. Its spelling is fixed to the byte: anything else is a fault, even where it is JSON of the same
value.
"""

import io
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    StringConstraints,
    ValidationError,
)

from medlive.errors import BadInput, first_fault
from medlive.integrity.checks import Faults
from medlive.integrity.digest import canonical_json
from medlive.integrity.folder import lines, read_small
from medlive.integrity.paths import open_plain

from .manifest import Count, Digest, Hex, Manifest, Version
from .model import Shape, Table, line
from .verify.text_checks import find_leak, texts_of

CASES = "data/cases.jsonl"
CRITERIA = "data/criteria.jsonl"

Row = dict[str, Any]
CaseRows = tuple[Row, list[Row]]
"""A case's row, and the rows of its criteria."""


@dataclass
class RowReader:
    """Iterates over the cases of a snapshot's folder; lines that hold no row are skipped and reported."""

    root: Path
    shape: Shape
    canary: str | None = None  # What every row must state; None accepts any
    trusted: bool = False  # Whether rows were verified, and need not be checked again
    alone: bool = False  # Whether to read the cases without their criteria
    # Lines that hold no row, or are out of order
    faults: Faults = field(default_factory=Faults)
    canaries: Faults = field(default_factory=Faults)  # Rows with another canary
    orphans: Faults = field(default_factory=Faults)  # Criteria without a case

    def __iter__(self) -> Iterator[tuple[int, CaseRows]]:
        """Yield the cases, each after its line from 1. Raises OSError if a file cannot be read."""
        with (
            open_plain(self.root / CASES) as cases,
            open_plain(self.root / CRITERIA) as criteria,
        ):
            remaining = iter(()) if self.alone else self._rows(criteria, "criteria")
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

    def _rows(
        self,
        handle: io.FileIO,
        table: Table,
    ) -> Iterator[tuple[int, Row]]:
        """Yield (line number from 1, row)."""
        previous = ("", 0)
        for number, data in enumerate(lines(handle), start=1):
            where = f"data/{table}.jsonl:{number}"
            if (row := self._parse(data, where, table)) is None:
                continue
            place = row["case_id"], row["position"] if table == "criteria" else 0
            if place <= previous:
                got = f"{place} after {previous}"
                self.faults.add(where, "rows in order, each once", got)
            previous = place
            yield number, row

    def _parse(self, data: bytes, where: str, table: Table) -> Row | None:
        try:
            row: Row = json.loads(data.decode("utf-8"))
            if self.trusted:
                return row
            fault = self.shape.row_fault(row, table)
            canonical = line(row) if fault is None else b""
        except (ValueError, RecursionError) as exc:
            fault = f"{type(exc).__name__}: {exc!s}"
        if fault is not None:
            self.faults.add(where, "a row of the format", fault)
            return None
        if canonical != data:
            got = "the same value spelled otherwise"
            self.faults.add(where, "canonical JSON and a line end", got)
        if self.canary not in (None, row["canary"]):
            expected = f"the canary {self.canary}"
            self.canaries.add(where, expected, repr(row["canary"]))
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
        shape: The tables' shape, from the snapshot's manifest.
        trusted: Whether the files were verified, so that only their order is checked.
        alone: Whether to leave out the criteria, which are most of the rows.

    Raises:
        BadInput: At the first fault.
    """
    reader = RowReader(root, shape, trusted=trusted, alone=alone)

    def check() -> None:
        for fault in (*reader.faults.findings, *reader.orphans.findings):
            raise BadInput(f"{root} cannot be read as a snapshot: {fault}"[:500])

    with readable(root):
        for _, (case, criteria) in reader:
            check()
            yield case, criteria
        check()


# --- ledgers

CHANGES = "changes.json"
HOLDOUTS = "holdouts.json"
SECTIONS: Mapping[str, Mapping[str, str]] = {
    CHANGES: dict.fromkeys(("added", "revised", "withdrawn"), "case_id"),
    # Held back behind a commitment, shown now with its proof, withdrawn without having been shown
    HOLDOUTS: {"held": "commitment", "revealed": "case_id", "dropped": "commitment"},
}
"""Ledger → section → the key by which its entries are in order, each once."""
_REVISIONS = {
    "added": (False, True),
    "revised": (True, True),
    "withdrawn": (True, False),
}
"""Section → whether its entries have a revision before and after."""

Reason = Annotated[str, StringConstraints(pattern=r"\S")]


class _Entry(BaseModel, extra="allow", strict=True):
    pass


class _Changed(_Entry):
    case_id: str
    from_revision: Count | None
    reason: Reason
    to_revision: Count | None


class _Held(_Entry):
    commitment: Digest
    held_since: Version


class _Revealed(_Held):
    case_id: str
    salt: Hex


class _Dropped(_Held):
    reason: Reason


_MODELS: Mapping[str, type[_Entry]] = {
    **dict.fromkeys(SECTIONS[CHANGES], _Changed),
    "held": _Held,
    "revealed": _Revealed,
    "dropped": _Dropped,
}
"""Section → the model of its entries."""
_FIELDS = {name for model in _MODELS.values() for name in model.model_fields}
"""The fields of all sections: each means the same wherever it occurs."""


def write_ledger(
    write: Callable[[bytes], object],
    head: Mapping[str, Any],
    sections: Iterable[tuple[str, Iterable[Mapping[str, Any]]]],
) -> dict[str, int]:
    """Write a ledger: the fields of `head`, then each section's entries as given; return how many each has."""
    write(canonical_json(dict(head))[:-1].encode("utf-8") + b"\n")
    counts: dict[str, int] = {}
    for name, entries in sections:
        write(f",{canonical_json(name)}:[\n".encode())
        number = 0
        for number, entry in enumerate(entries, start=1):
            comma = "," if number > 1 else ""
            write(f"{comma}{canonical_json(dict(entry))}\n".encode())
        counts[name] = number
        write(b"]\n")
    write(b"}\n")
    return counts


def read_ledger(
    root: Path,
    name: str,
) -> tuple[Row, dict[str, list[Row]]]:
    """Return the head of a snapshot's ledger, and the entries of each section.

    Raises:
        ValueError: At the first line that is not as `write_ledger` spells it, not in order or not of the format.
        OSError: If it cannot be read.
    """
    sections: dict[str, list[Row]] = {section: [] for section in SECTIONS[name]}
    rows = lines(root / name)
    number, row = 1, next(rows, b"")

    def compare(data: bytes) -> None:
        """Compare what is written with the next line of the file."""
        nonlocal number, row
        if data != row:
            raise ValueError(f"expected {data[:80]!r}, got {row[:80]!r}")
        number += 1
        row = next(rows, b"")

    def parse(section: str) -> Iterator[Row]:
        earlier, key = sections[section], SECTIONS[name][section]
        while row != b"]\n":
            entry = json.loads(row.removeprefix(b","))
            further = _MODELS[section].model_validate(entry).model_extra or {}
            # A held case that is named is no longer held.
            if wrong := sorted(further.keys() & _FIELDS):
                raise ValueError(f"{wrong[0]} belongs to another section")
            if earlier and entry[key] <= earlier[-1][key]:
                raise ValueError(f"{section} is not in the order of {key}, each once")
            earlier.append(entry)
            yield entry

    try:
        head = json.loads(row[:-1] + b"}")
        write_ledger(compare, head, ((section, parse(section)) for section in sections))
        compare(b"")
    except ValidationError as exc:
        raise ValueError(f"line {number}: {first_fault(exc)}"[:300]) from exc
    except (ValueError, TypeError, RecursionError) as exc:
        raise ValueError(f"line {number}: {str(exc)[:250]}") from exc
    return head, sections


@dataclass
class Ledgers:
    """Both ledgers, and what is wrong with them."""

    sections: dict[str, dict[str, dict[str, Row]]] = field(default_factory=dict)
    """Ledger → section → its key → entry; a ledger that is not valid is missing."""
    faults: dict[str, Faults] = field(
        default_factory=lambda: {name: Faults() for name in SECTIONS}
    )
    leaks: Faults = field(default_factory=Faults)
    unknown: set[str] = field(default_factory=set)
    """Descriptions of fields that this version of medlive does not know."""

    def entries(self, name: str, section: str) -> dict[str, Row]:
        """Return the entries of a section of one ledger, by key; none if the ledger is not valid."""
        return self.sections.get(name, {}).get(section, {})

    def each(self, name: str) -> Iterator[tuple[str, str, Row]]:
        """Yield each entry of one ledger after its section and its key; none if the ledger is not valid."""
        for section, entries in self.sections.get(name, {}).items():
            for key, entry in entries.items():
                yield section, key, entry

    def commitments(self) -> dict[str, tuple[str, str]]:
        """Return commitment → its section and the version since which it is held."""
        commitments = {}
        for section, _, entry in self.each(HOLDOUTS):
            commitments[entry["commitment"]] = (section, entry["held_since"])
        return commitments


def read_ledgers(root: Path, manifest: Manifest) -> Ledgers:
    """Read both ledgers, and check them by themselves and against the manifest."""
    ledgers = Ledgers()
    head = {"canary": manifest.canary, "version": manifest.version}
    _read_into(root, CHANGES, {**head, "parent": manifest.parent}, ledgers)
    _read_into(root, HOLDOUTS, head, ledgers)
    changes = ledgers.faults[CHANGES]
    if manifest.format_version < 4:
        for name in sorted(ledgers.unknown):
            changes.add("ledgers", "the fields of its format", name)
    for section, case_id, entry in ledgers.each(CHANGES):
        where = f"{CHANGES}: {section} {case_id!r}"
        has = entry["from_revision"] is not None, entry["to_revision"] is not None
        if has != _REVISIONS[section]:
            changes.add(where, f"the revisions of a case that was {section}", f"{has}")
        if manifest.parent is None and section != "added":
            changes.add(where, "only added cases, since there is no parent", section)
    holdouts = ledgers.faults[HOLDOUTS]
    seen = set[str]()
    for section, _, entry in ledgers.each(HOLDOUTS):
        commitment = entry["commitment"]
        since = entry["held_since"]
        where = f"{HOLDOUTS}: {section} {commitment}"
        is_new = (section, since) == ("held", manifest.version)
        if since not in manifest.ancestry and not is_new:
            holdouts.add(where, "held since a release of this line", since)
        if commitment in seen:
            holdouts.add(where, "each commitment once", "another entry of it")
        seen.add(commitment)
    return ledgers


def _read_into(root: Path, name: str, expected: Row, ledgers: Ledgers) -> None:
    """Read a ledger into `ledgers`, or add a fault if it is not valid or its head has not the `expected` fields."""
    faults = ledgers.faults[name]
    try:
        head, sections = read_ledger(root, name)
    except (ValueError, OSError) as exc:
        faults.add(name, "a valid ledger", str(exc))
        return
    if {key: head.get(key) for key in expected} != expected:
        faults.add(f"{name}:1", f"the head {expected}", f"{head}")
    ledgers.unknown |= _unknown_fields(name, head, expected)
    by_section = ledgers.sections[name] = {}
    for section, key in SECTIONS[name].items():
        by_section[section] = {entry[key]: entry for entry in sections[section]}
    for section, key, entry in ledgers.each(name):
        known = _MODELS[section].model_fields
        ledgers.unknown |= _unknown_fields(f"{section} of {name}", entry, known)
        _check_texts(f"{name}: {section} {key!r}", entry, _CHECKED, ledgers.leaks)
    _check_texts(f"{name}:1", head, expected, ledgers.leaks)


_CHECKED = ("case_id", "commitment", "held_since", "salt")
"""Fields of entries that hold no text, or that other steps compare."""


def _unknown_fields(
    place: str,
    entry: Row,
    known: Iterable[str],
) -> set[str]:
    return {f"field {name!r} of {place}" for name in entry.keys() - set(known)}


def _check_texts(
    where: str, entry: Row, checked: Container[str], leaks: Faults
) -> None:
    """Add the first address or disguise in the texts of an entry, except in `checked` fields, to `leaks`."""
    for text in texts_of({key: entry[key] for key in entry if key not in checked}):
        if leak := find_leak(text):
            leaks.add(where, "plain text without addresses", leak)
            return
