"""What changed between two releases: cases added, revised and withdrawn, and how each release was made."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from medlive.digest import canonical_json
from medlive.errors import BadInput
from medlive.integrity.folder import SUMS, TooLong, lines, read_small, sha256
from medlive.snapshot.ledger import CHANGE_SECTIONS, CHANGES, LedgerFault, read_ledger
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS, row_fault


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


class Edit(StrEnum):
    """What became of a criterion."""

    ADDED = "added"
    REMOVED = "removed"
    REWORDED = "reworded"
    WEIGHTED = "re-weighted"
    AXIS = "another axis"
    NUMBERED = "another id"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class FieldEdit:
    """A field of a case, or what a manifest states under a name, as it was and as it is; None: it is not there."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class CriterionEdit:
    """A criterion as it was and as it is: criterion_id, position, criterion, axis and points."""

    edits: tuple[Edit, ...]
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class CaseDiff:
    """One case that differs between two releases."""

    kind: ChangeKind
    case_id: str
    from_revision: int | None
    to_revision: int | None
    fields: tuple[FieldEdit, ...] = ()
    criteria: tuple[CriterionEdit, ...] = ()
    """With `fields` empty too, only the revision's number changed."""

    def edited(self) -> Iterator[str]:
        """What was touched, each once: names of fields, and `criteria <edit>`."""
        yield from (edit.name for edit in self.fields)
        yield from (f"criteria {e}" for e in Edit if any(e in c.edits for c in self.criteria))


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """What changed from one release to another."""

    old: Manifest
    new: Manifest
    counts: Mapping[ChangeKind, int]
    touched: Mapping[str, int]
    """How many revised cases each field, and each kind of edit of criteria, concerns."""
    listed: tuple[CaseDiff, ...]
    """The first of each kind, by kind and case id."""
    reasons: Mapping[str, str]
    """Case id → reason, of those that are listed."""
    reasons_from: str
    """Where the reasons were read, or why there are none."""
    settings: tuple[FieldEdit, ...]
    """What the manifests state of how the releases were made, where they differ."""


_CASE_TEXT: Final = tuple(name for name in CASE_FIELDS if name not in ("case_id", "revision", "canary"))
_CRITERION_TEXT: Final = ("criterion_id", "position", "criterion", "axis", "points")
_CASES: Final = "data/cases.jsonl"
_CRITERIA: Final = "data/criteria.jsonl"
# Neither can stand within a text, where quotes are escaped.
_CASE_ID: Final = re.compile(rb'"case_id":("(?:[^"\\]|\\.)*")')
_CANARY: Final = b'"canary":"%s"'


def diff_snapshots(old: Path, new: Path, *, most: int | None = None) -> SnapshotDiff:
    """What changed from the snapshot in `old` to that in `new`; at most `most` cases of each kind are listed.

    Memory does not grow with the snapshots, but with what is listed. Neither folder is verified. Raises BadInput
    for what is no snapshot, and for rows that are out of order.
    """
    one, other = _manifest(old), _manifest(new)
    counts, touched = Counter[ChangeKind](), Counter[str]()
    listed: dict[ChangeKind, list[CaseDiff]] = {kind: [] for kind in ChangeKind}
    for case in diff_cases(old, new):
        counts[case.kind] += 1
        touched.update(case.edited())
        if most is None or len(listed[case.kind]) < most:
            listed[case.kind].append(case)
    everything = tuple(case for cases in listed.values() for case in cases)
    reasons, reasons_from = _reasons(old, new, one, other, {case.case_id for case in everything})
    return SnapshotDiff(
        one,
        other,
        {kind: counts[kind] for kind in ChangeKind},
        dict(sorted(touched.items())),
        everything,
        reasons,
        reasons_from,
        tuple(_settings(one, other)),
    )


def diff_cases(old: Path, new: Path) -> Iterator[CaseDiff]:
    """Every case that differs between two snapshots' folders, by case id, as both are read. Raises BadInput."""
    was, now = (_CANARY % _manifest(root).canary.encode() for root in (old, new))
    left, right = _blocks(old), _blocks(new)
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one.case_id < other.case_id):
            assert one is not None
            yield CaseDiff(ChangeKind.WITHDRAWN, one.case_id, one.case()["revision"], None)
            one = next(left, None)
        elif one is None or other.case_id < one.case_id:
            yield CaseDiff(ChangeKind.ADDED, other.case_id, None, other.case()["revision"])
            other = next(right, None)
        else:
            # Most cases are the same but for the canary, and are never parsed.
            if one.data.replace(was, now) != other.data and (found := _revision(one, other)) is not None:
                yield found
            one, other = next(left, None), next(right, None)


@dataclass(frozen=True, slots=True)
class _Block:
    """A case as it lies in its files: its line, and its criteria's lines."""

    root: Path
    case_id: str
    line: bytes
    criteria: bytes

    @property
    def data(self) -> bytes:
        return self.line + self.criteria

    def case(self) -> dict[str, Any]:
        return _parse(self.line, CASE_FIELDS, self.root / _CASES)

    def rubric(self) -> list[dict[str, Any]]:
        rows = [_parse(row, CRITERION_FIELDS, self.root / _CRITERIA) for row in self.criteria.splitlines()]
        places = [row["position"] for row in rows]
        if places != sorted(set(places)):
            raise BadInput(f"{self.root / _CRITERIA}: the criteria of {self.case_id!r} are not in order")
        return rows


def _revision(one: _Block, other: _Block) -> CaseDiff | None:
    before, now = one.case(), other.case()
    fields = tuple(FieldEdit(n, before[n], now[n]) for n in _CASE_TEXT if before[n] != now[n])
    criteria = tuple(_criteria(one.rubric(), other.rubric()))
    if not fields and not criteria and before["revision"] == now["revision"]:
        return None
    return CaseDiff(ChangeKind.REVISED, now["case_id"], before["revision"], now["revision"], fields, criteria)


def _criteria(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> Iterator[CriterionEdit]:
    """The edits of a rubric, in its present order and then what was removed.

    A criterion is known by its words, by its id where its words are new; ids that a rubric counts up anew after a
    removal would else make every later criterion seem rewritten.
    """
    left, right = [_plain(row) for row in before], [_plain(row) for row in now]
    if left == right:
        return
    pairs: dict[int, dict[str, Any]] = {}
    for known_by in (("criterion_id", "criterion"), ("criterion",), ("criterion_id",)):
        left = _pair(left, right, itemgetter(*known_by), pairs)
    shifted = bool(left) or len(pairs) < len(right)
    for place, row in enumerate(right):
        was = pairs.get(place)
        edits = (Edit.ADDED,) if was is None else tuple(_edits(was, row, shifted))
        if edits:
            yield CriterionEdit(edits, was, row)
    for row in sorted(left, key=lambda r: int(r["position"])):
        yield CriterionEdit((Edit.REMOVED,), row, None)


def _pair(
    left: Sequence[dict[str, Any]],
    right: Sequence[dict[str, Any]],
    key: Callable[[dict[str, Any]], Any],
    pairs: dict[int, dict[str, Any]],
) -> list[dict[str, Any]]:
    """Add to `pairs` (place in `right` → row of `left`) the rows of one key; what is left of `left`."""
    waiting: dict[Any, list[dict[str, Any]]] = {}
    for row in left:
        waiting.setdefault(key(row), []).append(row)
    for place, row in enumerate(right):
        if place not in pairs and (found := waiting.get(key(row))):
            pairs[place] = found.pop(0)
    return [row for rows in waiting.values() for row in rows]


def _edits(was: Mapping[str, Any], row: Mapping[str, Any], shifted: bool) -> Iterator[Edit]:
    names = {"criterion": Edit.REWORDED, "points": Edit.WEIGHTED, "axis": Edit.AXIS, "criterion_id": Edit.NUMBERED}
    yield from (edit for name, edit in names.items() if was[name] != row[name])
    # Where criteria came or went, the places of the others say nothing.
    if not shifted and was["position"] != row["position"]:
        yield Edit.MOVED


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _CRITERION_TEXT}


def _blocks(root: Path) -> Iterator[_Block]:
    """The cases of a folder with their criteria, by case id."""
    criteria = _lines(root / _CRITERIA)
    waiting, row = next(criteria, (None, b""))
    before: str | None = None
    for case_id, data in _lines(root / _CASES):
        if case_id == before:
            raise BadInput(f"{root / _CASES}: case {case_id!r} came twice")
        before = case_id
        mine: list[bytes] = []
        while waiting == case_id:
            mine.append(row)
            waiting, row = next(criteria, (None, b""))
        if waiting is not None and waiting < case_id:
            raise BadInput(f"{root / _CRITERIA}: criteria of {waiting!r}, which is no case")
        yield _Block(root, case_id, data, b"".join(mine))
    if waiting is not None:
        raise BadInput(f"{root / _CRITERIA}: criteria of {waiting!r}, which is no case")


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a file, each with its case's id, which they stand in the order of."""
    before = ""
    try:
        for number, data in enumerate(lines(path), start=1):
            match = _CASE_ID.search(data)
            case_id = _loads(match[1]) if match else None
            if case_id is None:
                raise BadInput(f"{path}:{number}: the row names no case")
            if case_id < before:
                raise BadInput(f"{path}:{number}: the rows are not in the order of case_id")
            before = case_id
            yield case_id, data
    except (OSError, TooLong, ValueError) as exc:
        raise BadInput(f"{path} cannot be read: {str(exc)[:300]}") from exc


def _parse(data: bytes, fields: Mapping[str, type], path: Path) -> dict[str, Any]:
    try:
        row = _loads(data)
    except (ValueError, RecursionError) as exc:
        raise BadInput(f"{path} cannot be read: {str(exc)[:300]}") from exc
    if (fault := row_fault(row, fields)) is not None:
        raise BadInput(f"{path} cannot be read: a row {fault}")
    return dict(row)


def _loads(data: bytes) -> Any:
    """The value of a JSON text. Raises ValueError, also for half of a surrogate pair, which nobody could print."""
    if b"\\u" in data:
        canonical_json(json.loads(data)).encode("utf-8")
    return json.loads(data)


def _manifest(root: Path) -> Manifest:
    try:
        return Manifest.model_validate_json(read_small(root / "manifest.json"))
    except (OSError, TooLong, ValueError) as exc:
        raise BadInput(f"{root} cannot be read as a snapshot: {str(exc)[:300]}") from exc


def _reasons(old: Path, new: Path, one: Manifest, other: Manifest, wanted: set[str]) -> tuple[dict[str, str], str]:
    """The reasons that the newer release gives for the cases that are wanted, and where they were read."""
    if other.parent != one.version:
        between = [a.version for a in other.lineage if a.version > one.version]
        if one.version in {a.version for a in other.lineage}:
            steps = ", ".join([*between, other.version])
            return (
                {},
                f"{one.version} is not the parent of {other.version}: the reasons are in {CHANGES} of {steps}",
            )
        return {}, f"{other.version} does not continue {one.version}: nothing states reasons for what differs"
    try:
        if other.parent_digest != "sha256:" + sha256(old / SUMS):
            return (
                {},
                f"{other.version} continues a {one.version} of other bytes: its reasons may be for other changes",
            )
        entries = read_ledger(new / CHANGES, CHANGE_SECTIONS)
        found = {e["case_id"]: e["reason"] for name, e in entries if name and e["case_id"] in wanted}
    except (OSError, TooLong, LedgerFault, KeyError) as exc:
        raise BadInput(f"{new / CHANGES} cannot be read: {str(exc)[:300]}") from exc
    return found, f"{CHANGES} of {other.version}"


def _settings(one: Manifest, other: Manifest) -> Iterator[FieldEdit]:
    before, now = _stated(one), _stated(other)
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield FieldEdit(name, before.get(name), now.get(name))


def _stated(manifest: Manifest) -> dict[str, Any]:
    """What a manifest says of how a release was made and may be used, under one name each."""
    made = manifest.provenance
    engines: dict[str, list[str]] = {}
    for use in made.engines:
        engines.setdefault(f"engine {use.role}", []).append(f"{use.engine} {use.model}")
    return {
        "code": made.code_version,
        "publishable": manifest.publishable,
        "why not publishable": list(manifest.why_not),
        "signing key": manifest.signing.key_id if manifest.signing else None,
        "held-out cases": manifest.counts.held,
        "evidence": sorted(f"{e.retriever} {e.index_digest}, {e.passages} passages" for e in made.evidence),
        **{name: sorted(models) for name, models in engines.items()},
        **{f"prompt {task}": digest for task, digest in made.prompts.items()},
        **{f"threshold {name}": value for name, value in made.thresholds.items()},
    }
