"""What a snapshot's ledgers state, read along with its rows: added, revised, withdrawn, held out, revealed."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from medlive.integrity.checks import Faults
from medlive.integrity.folder import TooLong, lines, open_inside
from medlive.snapshot.ledger import (
    CHANGE_SECTIONS,
    CHANGES,
    HOLDOUT_SECTIONS,
    HOLDOUTS,
    LedgerFault,
    read_ledger,
)
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.verify.disguise import find_disguise
from medlive.snapshot.verify.leaks import find_contact, find_unstorable

_COMMITMENT: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SALT: Final = re.compile(r"[0-9a-f]{64}")
_NUMBERS: Final[Mapping[str, tuple[bool, bool]]] = {
    "added": (False, True),
    "revised": (True, True),
    "withdrawn": (True, False),
}
"""Section → whether an entry has a revision before and one now."""
_CHANGE_KEYS: Final = frozenset({"case_id", "from_revision", "reason", "to_revision"})
_PLAIN_REASON: Final = re.compile(r"[A-Za-z][A-Za-z0-9 ,;()-]{0,300}")
_HELD_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "held": frozenset({"commitment", "held_since"}),
    "revealed": frozenset({"case_id", "commitment", "held_since", "salt"}),
    "dropped": frozenset({"commitment", "held_since", "reason"}),
}


@dataclass(slots=True)
class Ledgers:
    """What one pass over both ledgers found. Where a ledger is not spelled as one, its entries are not used."""

    root: Path
    before: frozenset[str]
    """The versions of the ancestors."""
    changes: Faults = field(default_factory=Faults)
    holdouts: Faults = field(default_factory=Faults)
    leaks: Faults = field(default_factory=Faults)
    numbers: dict[str, int] = field(default_factory=dict)
    """Section → how many entries it has."""
    commitments: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    """Each commitment's 32 bytes → its section and since when it is held."""
    places: dict[str, int] = field(default_factory=dict)
    """Section → where its first entry begins."""
    spelled: set[str] = field(default_factory=set)
    """The ledgers that can be read to their ends, each entry with values of its kind."""

    def entries(self, section: str) -> Iterator[dict[str, Any]]:
        """The entries of a section, by its key, read again from its place; none where the ledger is spoilt."""
        name = CHANGES if section in CHANGE_SECTIONS else HOLDOUTS
        if name not in self.spelled:
            return
        with open_inside(self.root, name) as handle:
            handle.seek(self.places[section])
            for data in lines(handle):
                if data == b"]\n":
                    return
                # Canonical JSON, as `read_ledger` has found: any parser reads the same in it.
                yield from_json(data.removeprefix(b","))


def read_ledgers(root: Path, there: frozenset[str], manifest: Manifest) -> Ledgers:
    """Check both ledgers for themselves and against the manifest; `there`: the files of the folder."""
    found = Ledgers(root, frozenset(ancestor.version for ancestor in manifest.lineage))
    head: dict[str, Any] = {"canary": manifest.canary, "version": manifest.version}
    for name, sections, faults, wanted, check in (
        (CHANGES, CHANGE_SECTIONS, found.changes, {**head, "parent": manifest.parent}, _check_change),
        (HOLDOUTS, HOLDOUT_SECTIONS, found.holdouts, head, _check_holdout),
    ):
        if name not in there:
            faults.add(name, "a file", "none")
            continue
        found.numbers |= dict.fromkeys(sections, 0)
        usable = True
        try:
            for section, entry in read_ledger(root / name, sections):
                if not section:
                    if entry != wanted:
                        faults.add(f"{name}:1", f"the head {wanted}", f"{entry}"[:300])
                    continue
                found.numbers[section] += 1
                usable &= check(section, entry, manifest, found)
            found.places |= _places(root, name)
            if usable:
                found.spelled.add(name)
        except LedgerFault as exc:
            faults.add(f"{name}:{exc.line}", exc.expected, exc.got)
        except (OSError, TooLong) as exc:
            faults.add(name, "a readable file", str(exc)[:200])
    return found


def _places(root: Path, name: str) -> dict[str, int]:
    places: dict[str, int] = {}
    at = 0
    with open_inside(root, name) as handle:
        for data in lines(handle):
            at += len(data)
            if data.startswith(b',"'):
                places[data[2 : data.index(b'"', 2)].decode()] = at
    return places


def _check_change(section: str, entry: dict[str, Any], manifest: Manifest, found: Ledgers) -> bool:
    """Whether the entry can be used."""
    if section == "added" and _is_plain_addition(entry):
        return True
    case_id = entry.get("case_id")
    where = f"{CHANGES}: {section} {case_id!r}"[:300]
    if entry.keys() != _CHANGE_KEYS:
        found.changes.add(where, "case_id, from_revision, reason, to_revision", ", ".join(sorted(entry))[:200])
        return False
    for wanted, name in zip(_NUMBERS[section], ("from_revision", "to_revision"), strict=True):
        number = entry[name]
        if (type(number) is int and number >= 0) if wanted else number is None:
            continue
        found.changes.add(where, f"{name}: {'a number' if wanted else 'null'}", repr(number)[:100])
    _check_reason(where, entry["reason"], found.changes, found.leaks)
    if manifest.parent is None and section != "added":
        found.changes.add(where, "nothing but added cases, for there is no parent", section)
    return True


def _is_plain_addition(entry: dict[str, Any]) -> bool:
    """Whether nothing can be wrong with the entry of an added case, as with nearly all of the first release's."""
    number, reason = entry.get("to_revision"), entry.get("reason")
    return (
        entry.keys() == _CHANGE_KEYS
        and entry["from_revision"] is None
        and type(number) is int
        and number >= 0
        and isinstance(reason, str)
        and _PLAIN_REASON.fullmatch(reason) is not None
    )


def _check_holdout(section: str, entry: dict[str, Any], manifest: Manifest, found: Ledgers) -> bool:
    """Whether the entry can be used."""
    commitment, since = entry.get("commitment"), entry.get("held_since")
    where = f"{HOLDOUTS}: {section} {commitment!r}"[:300]
    if entry.keys() != _HELD_KEYS[section]:
        found.holdouts.add(where, ", ".join(sorted(_HELD_KEYS[section])), ", ".join(sorted(entry))[:200])
        return False
    if not isinstance(commitment, str) or not _COMMITMENT.fullmatch(commitment):
        found.holdouts.add(where, "sha256: and 64 hexadecimal digits", repr(commitment)[:100])
        return False
    if not isinstance(since, str) or (
        since not in found.before and not (section == "held" and since == manifest.version)
    ):
        found.holdouts.add(where, "held since a release of this line" + _earlier(section), repr(since)[:100])
    if section == "dropped":
        _check_reason(where, entry["reason"], found.holdouts, found.leaks)
    if section == "revealed" and not (isinstance(entry["salt"], str) and _SALT.fullmatch(entry["salt"])):
        found.holdouts.add(where, "a salt of 64 hexadecimal digits", repr(entry["salt"])[:100])
        return False
    key = bytes.fromhex(commitment.removeprefix("sha256:"))
    if key in found.commitments:
        found.holdouts.add(where, "each commitment once", f"{found.commitments[key][0]} as well")
    found.commitments[key] = section, str(since)
    return True


def _earlier(section: str) -> str:
    return "" if section == "held" else " before this one"


def _check_reason(where: str, reason: object, faults: Faults, leaks: Faults) -> None:
    if not isinstance(reason, str) or not reason.strip():
        faults.add(where, "a reason", repr(reason)[:100])
    elif odd := find_unstorable(reason) or find_disguise(reason) or find_contact(reason):
        leaks.add(where, "a reason of plain text without addresses", odd)


class Cursor:
    """A section's entries, walked along with the cases of the same order."""

    def __init__(self, entries: Iterator[dict[str, Any]], lonely: Callable[[dict[str, Any]], None]) -> None:
        """`lonely`: called with each entry that no case was asked for."""
        self._entries, self._lonely = entries, lonely
        self._next: dict[str, Any] | None = None
        self._key = b""
        self._step()

    def _step(self) -> None:
        self._next = next(self._entries, None)
        self._key = b"" if self._next is None else self._next["case_id"].encode("utf-8")

    def at(self, key: bytes) -> dict[str, Any] | None:
        """The entry of the case of that id; asked for in ascending order."""
        while self._next is not None:
            if self._key > key:
                return None
            entry, same = self._next, self._key == key
            self._step()
            if same:
                return entry
            self._lonely(entry)
        return None

    def close(self) -> None:
        """No case comes any more."""
        while self._next is not None:
            self._lonely(self._next)
            self._step()
