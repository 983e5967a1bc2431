"""What changed between two sets of rows: added, revised, withdrawn."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from medlive.digest import digest_json
from medlive.snapshot.model import SnapshotCase


class ChangeKind(StrEnum):
    """How a case changed since the parent."""

    ADDED = "added"
    REVISED = "revised"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Change:
    """One case's change since the parent snapshot, with its reason."""

    kind: ChangeKind
    case_id: str
    reason: str
    from_revision: int | None = None
    to_revision: int | None = None

    def row(self) -> dict[str, Any]:
        """The change as an entry of `changes.json`."""
        return {
            "case_id": self.case_id,
            "reason": self.reason,
            "from_revision": self.from_revision,
            "to_revision": self.to_revision,
        }


def _parts(case: SnapshotCase) -> dict[str, str]:
    record = case.record()
    return {name: digest_json(record[name]) for name in record if name != "revision"}


def diff_rows(
    old: Iterable[SnapshotCase], new: Iterable[SnapshotCase], reasons: Mapping[str, str] | None = None
) -> list[Change]:
    """The changes from `old` to `new`, by kind and then by case id.

    `reasons` maps a case id to why it was revised or withdrawn; where it is silent, a revision names the fields
    that differ and a withdrawal says that no reason was recorded. Cases are compared by content, so that a new
    revision number over equal content is no change.
    """
    reasons = reasons or {}
    before = {case.case_id: (case.revision, _parts(case)) for case in old}
    changes: list[Change] = []
    seen: set[str] = set()
    for case in new:
        seen.add(case.case_id)
        if case.case_id not in before:
            reason = reasons.get(case.case_id, "new in this release")
            changes.append(Change(ChangeKind.ADDED, case.case_id, reason, None, case.revision))
            continue
        revision, parts = before[case.case_id]
        now = _parts(case)
        # Criterion ids and revisions inside `criteria` count: a rubric that was written anew is a revision.
        if differing := [name for name in now if now[name] != parts[name]]:
            reason = reasons.get(case.case_id, "changed: " + ", ".join(differing))
            changes.append(Change(ChangeKind.REVISED, case.case_id, reason, revision, case.revision))
    for case_id, (revision, _) in before.items():
        if case_id not in seen:
            reason = reasons.get(case_id, "no reason was recorded")
            changes.append(Change(ChangeKind.WITHDRAWN, case_id, reason, revision, None))
    order = list(ChangeKind)
    return sorted(changes, key=lambda c: (order.index(c.kind), c.case_id))
