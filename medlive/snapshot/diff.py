"""What changed between two releases: cases added, revised and withdrawn, and how each release was made."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from heapq import merge
from itertools import chain, groupby, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypedDict

from medlive.integrity.folder import SUMS, sha256
from medlive.snapshot.contents import (
    CHANGES,
    SECTIONS,
    CaseRows,
    Row,
    read_cases,
    read_ledger,
    read_manifest,
    readable,
)
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import CRITERION_CONTENT, FIELDS, OPTIONAL

ChangeKind = Literal["added", "revised", "withdrawn"]
"""How a case changed since the parent: the sections of `changes.json`."""


class FieldEdit(TypedDict):
    """The old and new value of a case's field or of a manifest's entry; None where there is none."""

    name: str
    old: Any
    new: Any


class CriterionEdit(TypedDict):
    """A changed criterion, before and after: criterion_id, position, criterion, axis, points, origin and source."""

    edits: tuple[str, ...]
    """"added", "removed", or what of it changed."""
    old: Row | None
    new: Row | None


@dataclass(frozen=True, slots=True)
class Change:
    """One case that differs between a snapshot and an earlier one."""

    kind: ChangeKind
    case_id: str
    reason: str | None  # None where nothing states it
    from_revision: int | None = None
    to_revision: int | None = None
    # Of a revised case that was compared; if both are empty, only the revision's number changed
    fields: tuple[FieldEdit, ...] = ()
    criteria: tuple[CriterionEdit, ...] = ()


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
        `old` and `new`, their versions; `counts` of the cases by kind; `reasons_from`: where the reasons were read,
        or why there are none; `made_otherwise`: where the manifests differ in how the releases were made (`FieldEdit`);
        and by its kind the first changed cases, by case id, with the fields of `Change`.

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
    reasons, reasons_from = _reasons(old, new, before, now)
    made_before = _stated(before)
    made_now = _stated(now)
    names = sorted(made_before.keys() | made_now.keys())
    difference: dict[str, Any] = {
        "old": before.version,
        "new": now.version,
        "counts": counts,
        "reasons_from": reasons_from,
        "made_otherwise": list(_field_edits(made_before, made_now, names)),
    }
    for kind, cases in listed.items():
        difference[kind] = []
        for case in cases:
            row = asdict(case) | {"reason": reasons.get(case.case_id)}
            del row["kind"]
            difference[kind].append(row)
    return difference


def diff_cases(old: Path, new: Path) -> Iterator[Change]:
    """Yield every case that differs between two snapshots, by case id and without a reason. Raises BadInput."""
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
                revised = Change(
                    kind="revised",
                    case_id=case_id,
                    reason=None,
                    from_revision=old_row["revision"],
                    to_revision=new_row["revision"],
                    fields=tuple(_field_edits(old_row, new_row, _CASE_CONTENT)),
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


def _field_edits(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    names: Iterable[str],
) -> Iterator[FieldEdit]:
    for name in names:
        if before.get(name) != now.get(name):
            yield {"name": name, "old": before.get(name), "new": now.get(name)}


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
            yield {"edits": ("added",), "old": None, "new": row}
        elif edits := tuple(name for name in compared if old[name] != row[name]):
            yield {"edits": edits, "old": old, "new": row}
    for row in sorted(removed, key=lambda r: int(r["position"])):
        yield {"edits": ("removed",), "old": row, "new": None}


def _content(row: Row) -> Row:
    complete = {**OPTIONAL["criteria"], **row}
    return {name: complete[name] for name in CRITERION_CONTENT}


def _reasons(
    old: Path,
    new: Path,
    before: Manifest,
    now: Manifest,
) -> tuple[dict[str, str], str]:
    """Return the reasons that the newer release gives, by case id, and where they were read or why not."""
    if before.version not in now.line[:-1]:
        other = f"{now.version} does not continue {before.version}"
        return {}, f"{other}: nothing states reasons for what differs"
    if now.parent != before.version:
        later = ", ".join(now.line[now.line.index(before.version) + 1 :])
        other = f"{before.version} is not the parent of {now.version}"
        return {}, f"{other}: the reasons are in {CHANGES} of {later}"
    with readable(new):
        if now.parent_digest != "sha256:" + sha256(old / SUMS):
            other = f"{now.version} continues a {before.version} of other bytes"
            return {}, f"{other}: its reasons may be for other changes"
        reasons: dict[str, str] = {}
        for entry in chain.from_iterable(read_ledger(new, CHANGES)[1].values()):
            reasons[entry["case_id"]] = entry["reason"]
    return reasons, f"{CHANGES} of {now.version}"


def _stated(manifest: Manifest) -> dict[str, Any]:
    """What a manifest states about how a release was made and may be used, by name."""
    made = manifest.provenance
    stated: dict[str, Any] = {}
    for use in sorted(made.engines, key=attrgetter("engine", "model")):
        stated.setdefault(f"engine {use.role}", []).append(f"{use.engine} {use.model}")
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
