"""The ledgers of a snapshot, checked by themselves and read beside its rows: changes and held-out cases."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from medlive.integrity.checks import Faults
from medlive.integrity.folder import TooLong, lines, open_inside
from medlive.snapshot.ledger import CHANGE_SECTIONS, CHANGES, HOLDOUT_SECTIONS, HOLDOUTS, LedgerFault, read_ledger
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.verify.disguise import find_disguise
from medlive.snapshot.verify.leaks import find_contact, find_unstorable

_COMMITMENT: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SALT: Final = re.compile(r"[0-9a-f]{64}")
_HAS_REVISION: Final[Mapping[str, tuple[bool, bool]]] = {
    "added": (False, True),
    "revised": (True, True),
    "withdrawn": (True, False),
}
"""Section → whether an entry has a revision before and one now."""
_CHANGE_KEYS: Final = frozenset({"case_id", "from_revision", "reason", "to_revision"})
_HOLDOUT_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "held": frozenset({"commitment", "held_since"}),
    "revealed": frozenset({"case_id", "commitment", "held_since", "salt"}),
    "dropped": frozenset({"commitment", "held_since", "reason"}),
}


@dataclass(slots=True)
class Ledgers:
    """What one pass over both ledgers found."""

    root: Path
    ancestors: frozenset[str]
    """The versions of the ancestors."""
    changes: Faults = field(default_factory=Faults)
    holdouts: Faults = field(default_factory=Faults)
    leaks: Faults = field(default_factory=Faults)
    counts: dict[str, int] = field(default_factory=dict)
    """Section → how many entries it has."""
    commitments: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Commitment → its section and the version since which it is held."""
    readable: set[str] = field(default_factory=set)
    """The ledgers that were read to their ends, each entry with values of the right types."""

    def entries(self, section: str) -> Iterator[dict[str, Any]]:
        """Read the entries of a section again, in order; none where its ledger is not readable."""
        name = CHANGES if section in CHANGE_SECTIONS else HOLDOUTS
        if name not in self.readable:
            return
        inside = False
        with open_inside(self.root, name) as handle:
            for data in lines(handle):
                if data == f',"{section}":[\n'.encode():
                    inside = True
                elif inside and data == b"]\n":
                    return
                elif inside:
                    yield from_json(data.removeprefix(b","))


def read_ledgers(root: Path, files: frozenset[str], manifest: Manifest) -> Ledgers:
    """Check both ledgers by themselves and against the manifest.

    Args:
        root: The snapshot's folder.
        files: The files in it.
        manifest: Its manifest.
    """
    ledgers = Ledgers(root, frozenset(ancestor.version for ancestor in manifest.lineage))
    head: dict[str, Any] = {"canary": manifest.canary, "version": manifest.version}
    for name, sections, faults, expected, check in (
        (CHANGES, CHANGE_SECTIONS, ledgers.changes, {**head, "parent": manifest.parent}, _check_change),
        (HOLDOUTS, HOLDOUT_SECTIONS, ledgers.holdouts, head, _check_holdout),
    ):
        if name not in files:
            faults.add(name, "a file", "none")
            continue
        ledgers.counts |= dict.fromkeys(sections, 0)
        usable = True
        try:
            for section, entry in read_ledger(root / name, sections):
                if not section:
                    if entry != expected:
                        faults.add(f"{name}:1", f"the head {expected}", f"{entry}"[:300])
                    continue
                ledgers.counts[section] += 1
                usable &= check(section, entry, manifest, ledgers)
            if usable:
                ledgers.readable.add(name)
        except LedgerFault as exc:
            faults.add(f"{name}:{exc.line}", exc.expected, exc.got)
        except (OSError, TooLong) as exc:
            faults.add(name, "a readable file", str(exc)[:200])
    return ledgers


def _check_change(section: str, entry: dict[str, Any], manifest: Manifest, ledgers: Ledgers) -> bool:
    """Check an entry of `changes.json`; return whether it has the right keys."""
    where = f"{CHANGES}: {section} {entry.get('case_id')!r}"[:300]
    if entry.keys() != _CHANGE_KEYS:
        ledgers.changes.add(where, "case_id, from_revision, reason, to_revision", ", ".join(sorted(entry))[:200])
        return False
    for expected, name in zip(_HAS_REVISION[section], ("from_revision", "to_revision"), strict=True):
        number = entry[name]
        if not ((type(number) is int and number >= 0) if expected else number is None):
            ledgers.changes.add(where, f"{name}: {'a number' if expected else 'null'}", repr(number)[:100])
    _check_reason(where, entry["reason"], ledgers.changes, ledgers.leaks)
    if manifest.parent is None and section != "added":
        ledgers.changes.add(where, "only added cases, since there is no parent", section)
    return True


def _check_holdout(section: str, entry: dict[str, Any], manifest: Manifest, ledgers: Ledgers) -> bool:
    """Check an entry of `holdouts.json`; return whether its keys, commitment and salt have their forms."""
    commitment, since = entry.get("commitment"), entry.get("held_since")
    where = f"{HOLDOUTS}: {section} {commitment!r}"[:300]
    if entry.keys() != _HOLDOUT_KEYS[section]:
        ledgers.holdouts.add(where, ", ".join(sorted(_HOLDOUT_KEYS[section])), ", ".join(sorted(entry))[:200])
        return False
    if not isinstance(commitment, str) or not _COMMITMENT.fullmatch(commitment):
        ledgers.holdouts.add(where, "sha256: and 64 hexadecimal digits", repr(commitment)[:100])
        return False
    releases = {*ledgers.ancestors, manifest.version} if section == "held" else ledgers.ancestors
    if not isinstance(since, str) or since not in releases:
        earlier = "" if section == "held" else " before this one"
        ledgers.holdouts.add(where, f"held since a release of this line{earlier}", repr(since)[:100])
    if section == "dropped":
        _check_reason(where, entry["reason"], ledgers.holdouts, ledgers.leaks)
    if section == "revealed" and not (isinstance(entry["salt"], str) and _SALT.fullmatch(entry["salt"])):
        ledgers.holdouts.add(where, "a salt of 64 hexadecimal digits", repr(entry["salt"])[:100])
        return False
    if commitment in ledgers.commitments:
        ledgers.holdouts.add(where, "each commitment once", f"{ledgers.commitments[commitment][0]} as well")
    ledgers.commitments[commitment] = section, str(since)
    return True


def _check_reason(where: str, reason: object, faults: Faults, leaks: Faults) -> None:
    if not isinstance(reason, str) or not reason.strip():
        faults.add(where, "a reason", repr(reason)[:100])
    elif leak := find_unstorable(reason) or find_disguise(reason) or find_contact(reason):
        leaks.add(where, "a reason of plain text without addresses", leak)


class Cursor:
    """The entries of a section, read forward beside rows of the same order."""

    def __init__(self, entries: Iterator[dict[str, Any]], on_unmatched: Callable[[dict[str, Any]], None]) -> None:
        """`on_unmatched` is called with each entry that was passed over."""
        self._entries, self._on_unmatched = entries, on_unmatched
        self._next = next(entries, None)

    def at(self, case_id: str) -> dict[str, Any] | None:
        """Return the entry of a case; to be called with ids in ascending order."""
        while (entry := self._next) is not None and entry["case_id"] <= case_id:
            self._next = next(self._entries, None)
            if entry["case_id"] == case_id:
                return entry
            self._on_unmatched(entry)
        return None

    def close(self) -> None:
        """Report the remaining entries as unmatched."""
        while self._next is not None:
            self._on_unmatched(self._next)
            self._next = next(self._entries, None)
