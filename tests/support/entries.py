"""The entries of a snapshot's ledgers, as tests state them."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from medlive.snapshot.contents import CHANGES, HOLDOUTS, SECTIONS
from medlive.snapshot.diff import Change


def entry(change: Change) -> dict[str, Any]:
    """A change as an entry of `changes.json`."""
    names = ("case_id", "reason", "from_revision", "to_revision")
    return {name: getattr(change, name) for name in names}


@dataclass(frozen=True)
class Entries:
    """What `write_snapshot` asks for the entries of a section."""

    changed: tuple[Change, ...] = ()
    held: tuple[Mapping[str, Any], ...] = ()
    revealed: tuple[Mapping[str, Any], ...] = ()
    dropped: tuple[Mapping[str, Any], ...] = ()

    def __call__(self, name: str) -> list[Mapping[str, Any]]:
        if name in SECTIONS[CHANGES]:
            rows = [entry(change) for change in self.changed if change.kind == name]
            return sorted(rows, key=itemgetter("case_id"))
        return sorted(getattr(self, name), key=itemgetter(SECTIONS[HOLDOUTS][name]))
