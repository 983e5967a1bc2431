"""What changed between two releases: cases added, revised and withdrawn, and how each release was made."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any, Final

from medlive.errors import BadInput
from medlive.integrity.folder import SUMS, TooLong, read_small, sha256
from medlive.snapshot.ledgers import CHANGES, read_ledger
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import CASE_FIELDS, CRITERION_CONTENT, OPTIONAL
from medlive.snapshot.rows import Row, pair_cases, read_cases, readable


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


@dataclass(frozen=True, slots=True)
class FieldEdit:
    """The old and new value of a case's field or of a manifest's entry; None where there is none."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class CriterionEdit:
    """A changed criterion, before and after: criterion_id, position, criterion, axis, points, origin and source."""

    edits: tuple[str, ...]
    """"added", "removed", or what of it changed."""
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
    criteria: tuple[
        CriterionEdit, ...
    ] = ()  # If `fields` is empty too, only the revision's number changed

    def field(self, name: str) -> FieldEdit | None:
        """Return the edit of a field, if it changed."""
        return next((edit for edit in self.fields if edit.name == name), None)

    def edited(self) -> Iterator[str]:
        """Yield what changed, each once: names of fields, and `criteria <edit>`."""
        for field in self.fields:
            yield field.name
        edits: set[str] = set()
        for criterion in self.criteria:
            edits.update(criterion.edits)
        for edit in sorted(edits):
            yield f"criteria {edit}"


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """What changed from one release to another."""

    old: Manifest
    new: Manifest
    counts: Mapping[ChangeKind, int]
    # Changed field, or `criteria <edit>` → how many revised cases have it
    touched: Mapping[str, int]
    listed: tuple[CaseDiff, ...]  # The first cases of each kind, by kind and case id
    reasons: Mapping[str, str]  # Case id → reason, for the listed cases
    reasons_from: str  # Where the reasons were read, or why there are none
    # Where the manifests differ in how the releases were made
    settings: tuple[FieldEdit, ...]


_CASE_CONTENT: Final = tuple(
    name for name in CASE_FIELDS if name not in ("case_id", "revision", "canary")
)


def diff_snapshots(
    old: Path,
    new: Path,
    *,
    limit: int | None = None,
) -> SnapshotDiff:
    """Compare two snapshots; memory grows only with what is listed. Neither folder is verified.

    At most `limit` cases of each kind are listed.

    Raises:
        BadInput: If a folder holds no snapshot, or rows that are invalid or out of order.
    """
    before = _manifest(old)
    now = _manifest(new)
    counts = Counter[ChangeKind]()
    touched = Counter[str]()
    by_kind: dict[ChangeKind, list[CaseDiff]] = {kind: [] for kind in ChangeKind}
    for case in diff_cases(old, new):
        counts[case.kind] += 1
        touched.update(case.edited())
        if limit is None or len(by_kind[case.kind]) < limit:
            by_kind[case.kind].append(case)
    listed = tuple(chain.from_iterable(by_kind.values()))
    case_ids = {case.case_id for case in listed}
    reasons, reasons_from = _reasons(old, new, before, now, case_ids)
    made_before = _stated(before)
    made_now = _stated(now)
    names = sorted(made_before.keys() | made_now.keys())
    return SnapshotDiff(
        old=before,
        new=now,
        counts={kind: counts[kind] for kind in ChangeKind},
        touched=dict(sorted(touched.items())),
        listed=listed,
        reasons=reasons,
        reasons_from=reasons_from,
        settings=tuple(_field_edits(made_before, made_now, names)),
    )


def diff_cases(old: Path, new: Path) -> Iterator[CaseDiff]:
    """Yield every case that differs between two snapshots, by case id. Raises BadInput."""
    old_cases = read_cases(old, _manifest(old).shape)
    new_cases = read_cases(new, _manifest(new).shape)
    for before, now in pair_cases(old_cases, new_cases):
        if before is not None and now is not None:
            old_row = {**OPTIONAL["cases"], **before.row}
            new_row = {**OPTIONAL["cases"], **now.row}
            revised = CaseDiff(
                kind=ChangeKind.REVISED,
                case_id=now.case_id,
                from_revision=old_row["revision"],
                to_revision=new_row["revision"],
                fields=tuple(_field_edits(old_row, new_row, _CASE_CONTENT)),
                criteria=tuple(_criteria(before.criteria, now.criteria)),
            )
            is_edited = revised.fields or revised.criteria
            if is_edited or revised.from_revision != revised.to_revision:
                yield revised
        elif now is not None:
            yield CaseDiff(ChangeKind.ADDED, now.case_id, None, now.row["revision"])
        elif before is not None:
            was = before.row["revision"]
            yield CaseDiff(ChangeKind.WITHDRAWN, before.case_id, was, None)


def _field_edits(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    names: Iterable[str],
) -> Iterator[FieldEdit]:
    for name in names:
        if before.get(name) != now.get(name):
            yield FieldEdit(name, before.get(name), now.get(name))


def _criteria(before: Sequence[Row], now: Sequence[Row]) -> Iterator[CriterionEdit]:
    """Yield the edits of a rubric, in its present order, then what was removed.

    A criterion is recognised by its text, and by its id only where its text is new: ids that are numbered anew
    after a removal would else make every later criterion seem rewritten.
    """
    removed = list(map(_content, before))
    right = list(map(_content, now))
    pairs: dict[int, Row] = {}
    for name in ("criterion", "criterion_id"):
        for place, row in enumerate(right):
            old = next((old for old in removed if old[name] == row[name]), None)
            if old is not None and place not in pairs:
                pairs[place] = old
                removed.remove(old)
    compared = list(CRITERION_CONTENT)
    if removed or len(pairs) < len(right):
        # Added and removed criteria shift the positions of the others.
        compared.remove("position")
    for place, row in enumerate(right):
        if (old := pairs.get(place)) is None:
            yield CriterionEdit(("added",), None, row)
        elif edits := tuple(name for name in compared if old[name] != row[name]):
            yield CriterionEdit(edits, old, row)
    for row in sorted(removed, key=lambda r: int(r["position"])):
        yield CriterionEdit(("removed",), row, None)


def _content(row: Row) -> Row:
    complete = {**OPTIONAL["criteria"], **row}
    return {name: complete[name] for name in CRITERION_CONTENT}


def _manifest(root: Path) -> Manifest:
    with readable(root):
        return Manifest.model_validate_json(read_small(root / "manifest.json"))


def _reasons(
    old: Path,
    new: Path,
    before: Manifest,
    now: Manifest,
    case_ids: set[str],
) -> tuple[dict[str, str], str]:
    """Return the reasons that the newer release gives for these cases, and where they were read or why not."""
    if before.version not in now.line[:-1]:
        other = f"{now.version} does not continue {before.version}"
        return {}, f"{other}: nothing states reasons for what differs"
    if now.parent != before.version:
        later = ", ".join(now.line[now.line.index(before.version) + 1 :])
        other = f"{before.version} is not the parent of {now.version}"
        return {}, f"{other}: the reasons are in {CHANGES} of {later}"
    try:
        if now.parent_digest != "sha256:" + sha256(old / SUMS):
            other = f"{now.version} continues a {before.version} of other bytes"
            return {}, f"{other}: its reasons may be for other changes"
        reasons: dict[str, str] = {}
        for entry in chain.from_iterable(read_ledger(new, CHANGES)[1].values()):
            if entry["case_id"] in case_ids:
                reasons[entry["case_id"]] = entry["reason"]
    except (OSError, TooLong, ValueError) as exc:
        raise BadInput(f"{new / CHANGES} cannot be read: {str(exc)[:300]}") from exc
    return reasons, f"{CHANGES} of {now.version}"


def _stated(manifest: Manifest) -> dict[str, Any]:
    """What a manifest states about how a release was made and may be used, by name."""
    made = manifest.provenance
    stated: dict[str, Any] = {}
    for use in made.engines:
        stated.setdefault(f"engine {use.role}", []).append(f"{use.engine} {use.model}")
    for models in stated.values():
        models.sort()
    for task, digest in made.prompts.items():
        stated[f"prompt {task}"] = digest
    for name, value in made.thresholds.items():
        stated[f"threshold {name}"] = value
    evidence = []
    for index in made.evidence:
        what = f"{index.retriever} {index.index_digest}, {index.passages} passages"
        evidence.append(what)
    return {
        "code": made.code_version,
        "publishable": manifest.publishable,
        "why not publishable": list(manifest.why_not),
        "signing key": manifest.signing.key_id if manifest.signing else None,
        "held-out cases": manifest.counts.held,
        "evidence": sorted(evidence),
        **stated,
    }
