"""Checks the line of releases (`check_chain`): what a snapshot states of its ancestors, and if its parent agrees."""

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from medlive.errors import BadInput
from medlive.integrity.checks import Faults, Skip
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import SUMS, list_files, parse_sums, read_small, sha256
from medlive.snapshot.contents import (
    CASES,
    CHANGES,
    CRITERIA,
    HOLDOUTS,
    Ledgers,
    Row,
    read_ledgers,
)
from medlive.snapshot.diff import Change, diff_cases
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import folder_name

if TYPE_CHECKING:
    from .steps import Inspected

_PARENT_FILES = ("manifest.json", HOLDOUTS, CASES, CRITERIA)
"""The files of a parent that are compared with the snapshot's."""


def check_chain(folder: "Inspected", out: Faults) -> None:
    """Check what a snapshot states about its ancestors, and compare it with its parent where that is beside it.

    Raises:
        Skip: If the parent is not there, or the rows cannot be compared.
        OSError: If a file of either folder cannot be read.
    """
    manifest = folder.require_manifest()
    _check_lineage(manifest, out)
    if manifest.parent is None:
        return
    beside = Path(os.path.abspath(folder.root)).parent
    parent = beside / folder_name(manifest.parent)
    if parent.is_symlink() or not parent.is_dir():
        if out.count:  # Faults were found: a failed step, not a skipped one
            return
        why = f"the parent was not found: there is no {parent.name} beside it"
        raise Skip(why, allowed=True)
    if not {CASES, CRITERIA} <= folder.sizes.keys() or folder.scan.faults["rows"].count:
        raise Skip("the rows are missing or not valid")
    _check_parent(folder, manifest, parent, out)


def _check_lineage(manifest: Manifest, faults: Faults) -> None:
    """Check what the manifest states about its ancestors."""
    name = "manifest.json"
    for earlier, other in pairwise(manifest.line):
        if earlier >= other:
            faults.add(name, f"an ancestor after {earlier}", other)
    last: tuple[str | None, str | None] = (None, None)
    if manifest.lineage:
        last = (manifest.lineage[-1].version, manifest.lineage[-1].digest)
    stated = (manifest.parent, manifest.parent_digest)
    if stated != last:
        faults.add(name, f"as parent the last ancestor, {last}", f"{stated}")


def _check_parent(
    folder: "Inspected", manifest: Manifest, parent: Path, faults: Faults
) -> None:
    """Compare a snapshot with its parent."""
    before = _read_parent(manifest, parent, faults)
    if before is None:
        return
    name = "manifest.json"
    if before.created_at > manifest.created_at:
        expected = f"a moment after the parent's, {before.created_at}"
        faults.add(name, expected, f"{manifest.created_at}")
    if before.version != manifest.parent:
        expected = f"version {manifest.parent}"
        faults.add(f"{parent.name}/{name}", expected, before.version)
    if before.lineage != manifest.lineage[:-1]:
        faults.add(name, "the parent's lineage and the parent", "other ancestors")
    theirs = read_ledgers(parent, before)
    _check_commitments(theirs, folder.ledgers, manifest.version, faults)
    try:
        differing = {case.case_id: case for case in diff_cases(parent, folder.root)}
    except BadInput as exc:
        expected = "rows that can be compared with the parent's"
        faults.add("data", expected, str(exc))
    else:
        _check_changes(differing, folder.ledgers, faults)


def _read_parent(
    manifest: Manifest,
    parent: Path,
    faults: Faults,
) -> Manifest | None:
    """Read the parent's manifest; None with a fault if its files are not those that the snapshot names."""
    files, _ = list_files(parent)
    for file in {SUMS, *_PARENT_FILES} - files.keys():
        faults.add(f"{parent.name}/{file}", "a file of the parent", "none")
    if faults.count:
        return None
    sums = read_small(parent / SUMS)
    if (digest := digest_bytes(sums)) != manifest.parent_digest:
        expected = f"the parent's digest {manifest.parent_digest}"
        faults.add(f"{parent.name}/{SUMS}", expected, digest)
        return None
    stated = parse_sums(sums)
    for file in _PARENT_FILES:
        if (actual := sha256(parent / file)) != stated.get(file):
            expected = f"the digest that the parent's {SUMS} states"
            faults.add(f"{parent.name}/{file}", expected, actual)
            return None
    try:
        return Manifest.model_validate_json(read_small(parent / "manifest.json"))
    except ValueError as exc:
        faults.add(f"{parent.name}/manifest.json", "a manifest", type(exc).__name__)
        return None


def _check_commitments(
    theirs: Ledgers,
    ours: Ledgers,
    version: str,
    faults: Faults,
) -> None:
    """Each commitment that the parent holds must be held, revealed or dropped now; all others must be new."""
    if HOLDOUTS not in ours.sections:
        return
    before = {}
    for key, (section, since) in theirs.commitments().items():
        if section == "held":
            before[key] = since
    now = ours.commitments()
    for key, since in before.items():
        if key not in now:
            expected = f"the parent's commitment {key}"
            faults.add(HOLDOUTS, expected, "none of its sections has it")
        elif now[key][1] != since:
            faults.add(f"{HOLDOUTS}: {key}", f"held since {since}", now[key][1])
    for key, stated in now.items():
        if key not in before and stated != ("held", version):
            where = f"{HOLDOUTS}: {stated[0]} {key}"
            expected = "a commitment that the parent holds, or a new one"
            faults.add(where, expected, f"held since {stated[1]}")


def _check_changes(
    differing: dict[str, Change],
    ledgers: Ledgers,
    faults: Faults,
) -> None:
    """Check that `changes.json` lists each case exactly as it changed, and that first releases are kept."""
    if CHANGES not in ledgers.sections:
        return
    by_case: dict[str, dict[str, Row]] = {case_id: {} for case_id in differing}
    for section, case_id, entry in ledgers.each(CHANGES):
        by_case.setdefault(case_id, {})[section] = entry
    for case_id, entries in sorted(by_case.items()):
        case = differing.get(case_id)
        for edit in case.fields if case else ():
            if edit["name"] == "first_release":
                first = f"first release {edit['old']}, as in the parent"
                faults.add(f"{CASES}: {case_id!r}", first, edit["new"])
        where = f"{CHANGES}: {case_id!r}"
        expected = [case.kind] if case else []
        if list(entries) != expected:
            listed = ", ".join(entries) or "not listed"
            faults.add(where, "".join(expected) or "not listed", listed)
        elif case is not None:
            stated = entries[case.kind].get("from_revision")
            if stated != case.from_revision:
                before = f"from_revision {case.from_revision}"
                faults.add(where, before, f"{stated}")
