"""The line of releases: what a snapshot states about its ancestors, and whether its parent agrees."""

from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from medlive.integrity.checks import Faults
from medlive.integrity.folder import SUMS, digest_of, list_files, open_inside, read_all
from medlive.snapshot.entries import Cursor, Ledgers, read_ledgers
from medlive.snapshot.ledger import CHANGES, HOLDOUTS
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.rows import CASES, CRITERIA, CaseRows, Row, RowReader, group_rows, pair_cases

_PARENT_FILES: Final = ("manifest.json", HOLDOUTS, CASES, CRITERIA)
"""The files of a parent that are compared."""


def check_lineage(manifest: Manifest, faults: Faults) -> None:
    """Check what the manifest states about its ancestors."""
    name = "manifest.json"
    versions = [*(ancestor.version for ancestor in manifest.lineage), manifest.version]
    for one, other in pairwise(versions):
        if one >= other:
            faults.add(name, f"an ancestor after {one}", other)
    last = manifest.lineage[-1] if manifest.lineage else None
    stated = (manifest.parent, manifest.parent_digest)
    if stated != ((last.version, last.digest) if last else (None, None)):
        expected = f"{last.version}, {last.digest}" if last else "no parent"
        faults.add(name, f"as parent the last ancestor, {expected}", f"{stated[0]}, {stated[1]}")


def check_parent(root: Path, manifest: Manifest, ledgers: Ledgers, parent: Path, faults: Faults) -> None:
    """Compare a snapshot with its parent.

    Args:
        root: The snapshot's folder.
        manifest: Its manifest.
        ledgers: Its ledgers.
        parent: The parent's folder.
        faults: Where differences are added.

    Raises:
        OSError: If a file of either folder cannot be read.
        TooLong: If a file or line is longer than a snapshot's can be.
    """
    files = list_files(parent).files
    if missing := [name for name in (SUMS, *_PARENT_FILES) if name not in files]:
        for file in missing:
            faults.add(f"{parent.name}/{file}", "a file of the parent", "none")
        return
    _check_parent_digests(manifest, parent, faults)
    if faults.count:
        return
    before = _manifest(parent, faults)
    if before is None:
        return
    if before.created_at > manifest.created_at:
        faults.add("manifest.json", f"a moment after the parent's, {before.created_at}", f"{manifest.created_at}")
    if before.version != manifest.parent:
        faults.add(f"{parent.name}/manifest.json", f"version {manifest.parent}", before.version)
    if before.lineage != manifest.lineage[:-1]:
        faults.add("manifest.json", "the parent's lineage and the parent", "other ancestors")
    parent_ledgers = read_ledgers(parent, files, before)
    if HOLDOUTS not in parent_ledgers.readable:
        faults.add(f"{parent.name}/{HOLDOUTS}", "a ledger", "none that can be read")
    _check_commitments(parent_ledgers, ledgers, manifest.version, faults)
    _compare(root, parent, before, ledgers, faults)


def _check_parent_digests(manifest: Manifest, parent: Path, faults: Faults) -> None:
    with open_inside(parent, SUMS) as handle:
        sums = read_all(handle, SUMS)
    digest = "sha256:" + sha256(sums).hexdigest()
    if digest != manifest.parent_digest:
        faults.add(f"{parent.name}/{SUMS}", f"the parent's digest {manifest.parent_digest}", digest)
        return
    stated = set(sums.split(b"\n"))
    for file in _PARENT_FILES:
        with open_inside(parent, file) as handle:
            found = digest_of(handle)
        if f"{found}  {file}".encode() not in stated:
            faults.add(f"{parent.name}/{file}", f"the digest that the parent's {SUMS} states", found)


def _manifest(parent: Path, faults: Faults) -> Manifest | None:
    try:
        with open_inside(parent, "manifest.json") as handle:
            return Manifest.model_validate_json(read_all(handle, "manifest.json"))
    except (ValidationError, ValueError, RecursionError) as exc:
        faults.add(f"{parent.name}/manifest.json", "a manifest", f"{type(exc).__name__}")
        return None


def _check_commitments(theirs: Ledgers, ours: Ledgers, version: str, faults: Faults) -> None:
    """Each commitment that the parent holds must be held, revealed or dropped now; all others must be new."""
    if HOLDOUTS not in ours.readable:
        return
    before = {key: since for key, (section, since) in theirs.commitments.items() if section == "held"}
    for key, since in before.items():
        section, now = ours.commitments.get(key, ("", ""))
        if not section:
            faults.add(HOLDOUTS, f"the parent's commitment {key}", "none of its sections has it")
        elif now != since:
            faults.add(f"{HOLDOUTS}: {key}", f"held since {since}", now)
    for key, (section, since) in ours.commitments.items():
        if key not in before and (section != "held" or since != version):
            where = f"{HOLDOUTS}: {section} {key}"
            faults.add(where, "a commitment that the parent holds, or a new one", f"held since {since}")


def _compare(root: Path, parent: Path, before: Manifest, ledgers: Ledgers, faults: Faults) -> None:
    """Check that `changes.json` is the difference between both releases, and that first releases are kept."""
    if CHANGES not in ledgers.readable:
        return
    with (
        open_inside(root, CASES) as cases,
        open_inside(root, CRITERIA) as criteria,
        open_inside(parent, CASES) as old_cases,
        open_inside(parent, CRITERIA) as old_criteria,
    ):
        old_readers = (
            RowReader(old_cases, CASES, before.canary, f"{parent.name}/{CASES}"),
            RowReader(old_criteria, CRITERIA, before.canary, f"{parent.name}/{CRITERIA}"),
        )
        cursors = {section: _cursor(section, ledgers, faults) for section in ("added", "revised", "withdrawn")}
        readers = RowReader(cases, CASES, None), RowReader(criteria, CRITERIA, None)
        # The scan of the rows reports criteria without a case.
        pairs = pair_cases(*(group_rows(*both, lambda number, row: None) for both in (old_readers, readers)))
        for old, new in pairs:
            case_id = old.case_id if old is not None else new.case_id if new is not None else ""
            listed = {section: cursor.at(case_id) for section, cursor in cursors.items()}
            _check_case(case_id, old, new, listed, faults)
        for cursor in cursors.values():
            cursor.close()
        for reader in old_readers:
            for finding in (*reader.faults, *reader.canary_faults):
                faults.append(finding)


def _content(case: CaseRows) -> list[Row]:
    """A case's rows without the first release and the canary."""
    left_out = ("first_release", "canary")
    return [{k: v for k, v in row.items() if k not in left_out} for row in (case.row, *case.criteria)]


def _cursor(section: str, ledgers: Ledgers, faults: Faults) -> Cursor:
    def unmatched(entry: dict[str, Any]) -> None:
        where = f"{CHANGES}: {section} {entry['case_id']!r}"[:300]
        faults.add(where, "a case of the snapshot or of its parent", "neither has it")

    return Cursor(ledgers.entries(section), unmatched)


def _check_case(
    case_id: str, old: CaseRows | None, new: CaseRows | None, listed: dict[str, Any], faults: Faults
) -> None:
    """Check that `changes.json` lists a case exactly as it changed."""
    if old is None:
        expected = "added"
    elif new is None:
        expected = "withdrawn"
    else:
        expected = "revised" if _content(old) != _content(new) else ""
        first, now = old.row["first_release"], new.row["first_release"]
        if first != now:
            faults.add(f"{CASES}: {case_id!r}"[:300], f"first release {first}, as in the parent", now[:50])
    where = f"{CHANGES}: {case_id!r}"[:300]
    found = [section for section, entry in listed.items() if entry is not None]
    if found != ([expected] if expected else []):
        got = ", ".join(found) or "not listed"
        faults.add(where, expected or "unchanged since the parent, and not listed", got)
    elif old is not None and expected and listed[expected]["from_revision"] != old.row["revision"]:
        stated = str(listed[expected]["from_revision"])
        faults.add(where, f"from_revision {old.row['revision']}", stated[:50])
