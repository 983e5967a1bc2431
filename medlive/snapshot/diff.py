"""What changed between two releases: cases added, revised and withdrawn."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from heapq import merge
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import Any, Literal

from medlive.integrity.folder import SUMS, sha256

from .contents import (
    CHANGES,
    SECTIONS,
    CaseRows,
    Row,
    read_cases,
    read_ledger,
    read_manifest,
    readable,
)
from .model import CRITERION_CONTENT, FIELDS, OPTIONAL

ChangeKind = Literal["added", "revised", "withdrawn"]
"""How a case changed since the parent: the sections of `changes.json`."""


@dataclass(frozen=True)
class Change:
    """One case that differs between a snapshot and an earlier one."""

    kind: ChangeKind
    case_id: str
    reason: str | None  # None from `diff_cases`; a release's ledger states it
    from_revision: int | None = None
    to_revision: int | None = None
    # Of a revised case that was compared; if both are empty, only the revision's number changed
    fields: tuple[Row, ...] = ()
    """For each changed field: its `name`, and its `old` and `new` value."""
    criteria: tuple[Row, ...] = ()
    """For each changed criterion: `edits` ("added", "removed", or the changed fields), and the `old` and `new` row."""


# The fields of a case that are compared
_CASE_CONTENT = tuple(
    name for name in FIELDS["cases"] if name not in ("case_id", "revision", "canary")
)


def diff_snapshots(
    old: Path,
    new: Path,
    *,
    limit: int | None = None,
) -> dict[str, Any]:
    """Compare two snapshots; memory grows only with what is listed. Neither folder is verified.

    At most `limit` cases of each kind are listed.

    Returns:
        `old` and `new`, their versions; `counts` of the cases by kind; `has_reasons`: whether the newer one states
        reasons, since it continues the older one; and under each kind the first changed cases, by case id, with the
        fields of `Change` and their reason.

    Raises:
        BadInput: If a folder holds no snapshot, or rows that are invalid or out of order.
    """
    before = read_manifest(old)
    now = read_manifest(new)
    counts = dict.fromkeys(SECTIONS[CHANGES], 0)
    listed: dict[str, list[Change]] = {kind: [] for kind in counts}
    for case in diff_cases(old, new):
        counts[case.kind] += 1
        if limit is None or len(listed[case.kind]) < limit:
            listed[case.kind].append(case)
    with readable(new):
        has_reasons = now.parent_digest == f"sha256:{sha256(old / SUMS)}"
        reasons = _reasons(new) if has_reasons else {}
    difference: dict[str, Any] = {
        "old": before.version,
        "new": now.version,
        "counts": counts,
        "has_reasons": has_reasons,
    }
    for kind, cases in listed.items():
        difference[kind] = []
        for case in cases:
            row = asdict(case) | {"reason": reasons.get(case.case_id)}
            del row["kind"]
            difference[kind].append(row)
    return difference


def diff_cases(old: Path, new: Path) -> Iterator[Change]:
    """Yield every case that differs between two snapshots, by case id. Raises BadInput."""
    old_cases = read_cases(old, read_manifest(old).shape)
    new_cases = read_cases(new, read_manifest(new).shape)
    sides = merge(
        zip(old_cases, repeat("old")),
        zip(new_cases, repeat("new")),
        key=_case_id,
    )
    for case_id, group in groupby(sides, key=_case_id):
        match {side: case for case, side in group}:
            case {"old": (before, old_rubric), "new": (now, new_rubric)}:
                old_row = {**OPTIONAL["cases"], **before}
                new_row = {**OPTIONAL["cases"], **now}
                fields = []
                for name in _CASE_CONTENT:
                    if (own := old_row[name]) != new_row[name]:
                        fields.append({"name": name, "old": own, "new": new_row[name]})
                revised = Change(
                    kind="revised",
                    case_id=case_id,
                    reason=None,
                    from_revision=old_row["revision"],
                    to_revision=new_row["revision"],
                    fields=tuple(fields),
                    criteria=tuple(_criteria(old_rubric, new_rubric)),
                )
                is_edited = revised.fields or revised.criteria
                if is_edited or revised.from_revision != revised.to_revision:
                    yield revised
            case {"new": (now, _)}:
                number = now["revision"]
                yield Change("added", case_id, None, to_revision=number)
            case {"old": (before, _)}:
                number = before["revision"]
                yield Change("withdrawn", case_id, None, number)


def _case_id(side: tuple[CaseRows, str]) -> str:
    (case, _), _ = side
    return str(case["case_id"])


def _criteria(
    before: Sequence[Row],
    now: Sequence[Row],
) -> Iterator[Row]:
    """Yield the changed criteria of a rubric, in its present order, then the removed ones."""
    removed = {row["criterion_id"]: row for row in map(_content, before)}
    compared = list(CRITERION_CONTENT)
    if removed.keys() != {row["criterion_id"] for row in now}:
        # Added and removed criteria shift the positions of the others.
        compared.remove("position")
    for row in map(_content, now):
        if (old := removed.pop(row["criterion_id"], None)) is None:
            yield {"edits": ("added",), "old": None, "new": row}
        elif edits := tuple(name for name in compared if old[name] != row[name]):
            yield {"edits": edits, "old": old, "new": row}
    for row in removed.values():
        yield {"edits": ("removed",), "old": row, "new": None}


def _content(row: Row) -> Row:
    """A criterion's compared fields."""
    complete = {**OPTIONAL["criteria"], **row}
    return {name: complete[name] for name in CRITERION_CONTENT}


def _reasons(root: Path) -> dict[str, str]:
    """The reasons that a release gives for what changed since its parent, by case id."""
    reasons = {}
    for entry in chain.from_iterable(read_ledger(root, CHANGES)[1].values()):
        reasons[entry["case_id"]] = entry["reason"]
    return reasons
