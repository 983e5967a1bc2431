"""The chain of releases: what a snapshot says of its ancestors, and whether its parent agrees where it is here."""

from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from medlive.integrity.checks import Faults
from medlive.integrity.folder import SUMS, digest_of, list_files, open_inside, read_all
from medlive.snapshot.entries import Cursor, Ledgers, read_ledgers
from medlive.snapshot.ledger import CHANGES, HOLDOUTS
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.rows import CASES, CRITERIA, CaseParts, Reader
from medlive.snapshot.verify.scan import contents

_READ: Final = ("manifest.json", HOLDOUTS, CASES, CRITERIA)
"""The files of a parent that are looked at."""


class _Case(NamedTuple):
    key: bytes
    parts: CaseParts
    criteria: bytes

    def content(self) -> tuple[object, ...]:
        """All but the first release."""
        return self.parts._replace(first_release=b""), self.criteria


def check_lineage(manifest: Manifest, faults: Faults) -> None:
    """What a manifest alone must say of its ancestors."""
    name = "manifest.json"
    versions = [*(ancestor.version for ancestor in manifest.lineage), manifest.version]
    for one, other in pairwise(versions):
        if one >= other:
            faults.add(name, f"an ancestor after {one}", other)
    last = manifest.lineage[-1] if manifest.lineage else None
    stated = (manifest.parent, manifest.parent_digest)
    if stated != ((last.version, last.digest) if last else (None, None)):
        said = f"{last.version}, {last.digest}" if last else "no parent"
        faults.add(name, f"as parent the last ancestor, {said}", f"{stated[0]}, {stated[1]}")


def check_parent(root: Path, manifest: Manifest, ledgers: Ledgers, parent: Path, faults: Faults) -> None:
    """Compare a snapshot with its parent's folder. Raises OSError and TooLong for files of either."""
    listing = list_files(parent)
    name = parent.name
    missing = [n for n in (SUMS, *_READ) if n not in listing.files]
    for file in missing:
        faults.add(f"{name}/{file}", "a file of the parent", "none")
    if missing:
        return
    with open_inside(parent, SUMS) as handle:
        sums = read_all(handle, SUMS)
    digest = "sha256:" + sha256(sums).hexdigest()
    if digest != manifest.parent_digest:
        faults.add(f"{name}/{SUMS}", f"the parent's digest {manifest.parent_digest}", digest)
        return
    stated = set(sums.split(b"\n"))
    for file in _READ:
        with open_inside(parent, file) as handle:
            found = digest_of(handle)
        if f"{found}  {file}".encode() not in stated:
            faults.add(f"{name}/{file}", f"the digest that the parent's {SUMS} states", found)
    if faults.count:
        return
    before = _manifest(parent, faults)
    if before is None:
        return
    if before.created_at > manifest.created_at:
        faults.add("manifest.json", f"a moment after the parent's, {before.created_at}", f"{manifest.created_at}")
    if before.version != manifest.parent:
        faults.add(f"{name}/manifest.json", f"version {manifest.parent}", before.version)
    if before.lineage != manifest.lineage[:-1]:
        faults.add("manifest.json", "the parent's lineage and the parent", "other ancestors")
    theirs = read_ledgers(parent, listing.files, before)
    if HOLDOUTS not in theirs.spelled:
        faults.add(f"{name}/{HOLDOUTS}", "a ledger", "none that can be read")
    _held(theirs, ledgers, manifest.version, faults)
    _compare(root, manifest, parent, before, ledgers, faults)


def _manifest(parent: Path, faults: Faults) -> Manifest | None:
    try:
        with open_inside(parent, "manifest.json") as handle:
            return Manifest.model_validate_json(read_all(handle, "manifest.json"))
    except (ValidationError, ValueError, RecursionError) as exc:
        faults.add(f"{parent.name}/manifest.json", "a manifest", f"{type(exc).__name__}")
        return None


def _held(theirs: Ledgers, ours: Ledgers, version: str, faults: Faults) -> None:
    """Each commitment that the parent holds is held, revealed or dropped now, and no other was held before."""
    if HOLDOUTS not in ours.spelled:
        return
    before = {key: since for key, (section, since) in theirs.commitments.items() if section == "held"}
    for key, since in before.items():
        section, now = ours.commitments.get(key, ("", ""))
        if not section:
            faults.add(HOLDOUTS, f"the parent's commitment sha256:{key.hex()}", "none of its sections has it")
        elif now != since:
            faults.add(f"{HOLDOUTS}: sha256:{key.hex()}", f"held since {since}", now)
    for key, (section, since) in ours.commitments.items():
        if key not in before and (section != "held" or since != version):
            where = f"{HOLDOUTS}: {section} sha256:{key.hex()}"
            faults.add(where, "a commitment that the parent holds, or a new one", f"held since {since}")


def _compare(
    root: Path, manifest: Manifest, parent: Path, before: Manifest, ledgers: Ledgers, faults: Faults
) -> None:
    """`changes.json` is the difference between the two, and no first release has changed."""
    with (
        open_inside(root, CASES) as cases,
        open_inside(root, CRITERIA) as criteria,
        open_inside(parent, CASES) as old_cases,
        open_inside(parent, CRITERIA) as old_criteria,
    ):
        old_readers = (
            Reader(old_cases, CASES, before.canary, f"{parent.name}/{CASES}"),
            Reader(old_criteria, CRITERIA, before.canary, f"{parent.name}/{CRITERIA}"),
        )
        ours = map(_Case._make, contents(Reader(cases, CASES, None), Reader(criteria, CRITERIA, None)))
        theirs = map(_Case._make, contents(*old_readers))
        if CHANGES not in ledgers.spelled:
            return
        added, revised, withdrawn = (
            Cursor(ledgers.entries(section), _lonely(section, faults))
            for section in ("added", "revised", "withdrawn")
        )
        for old, new in _side_by_side(theirs, ours):
            key = old.key if old is not None else new.key if new is not None else b""
            listed = {"added": added.at(key), "revised": revised.at(key), "withdrawn": withdrawn.at(key)}
            _check_one(old, new, listed, faults)
        for cursor in (added, revised, withdrawn):
            cursor.close()
        for reader in old_readers:
            for _, finding in reader.faults:
                faults.put(finding)


def _lonely(section: str, faults: Faults) -> Any:
    def say(entry: dict[str, Any]) -> None:
        where = f"{CHANGES}: {section} {entry['case_id']!r}"[:300]
        faults.add(where, "a case of the snapshot or of its parent", "neither has it")

    return say


def _check_one(old: _Case | None, new: _Case | None, listed: dict[str, Any], faults: Faults) -> None:
    here = old or new
    if here is None:
        return
    wanted = _change(old, new)
    where = f"{CHANGES}: {here.key.decode()!r}"[:300]
    if old is not None and new is not None and old.parts.first_release != new.parts.first_release:
        first, now = old.parts.first_release.decode(), new.parts.first_release.decode()
        faults.add(f"{CASES}: {here.key.decode()!r}"[:300], f"first release {first}, as in the parent", now[:50])
    found = [section for section, entry in listed.items() if entry is not None]
    if found != ([wanted] if wanted else []):
        faults.add(where, wanted or "unchanged since the parent, and not listed", ", ".join(found) or "not listed")
    elif wanted in ("revised", "withdrawn") and old is not None:
        stated = str(listed[wanted]["from_revision"])
        if stated.encode() != old.parts.revision:
            faults.add(where, f"from_revision {old.parts.revision.decode()}", stated[:50])


def _change(old: _Case | None, new: _Case | None) -> str:
    """The section that lists what became of a case; "" for one that is as it was."""
    if old is None:
        return "added"
    if new is None:
        return "withdrawn"
    return "revised" if old.content() != new.content() else ""


def _side_by_side(theirs: Iterator[_Case], ours: Iterator[_Case]) -> Iterator[tuple[_Case | None, _Case | None]]:
    """Both sides' cases by id, None where a side has none."""
    old, new = next(theirs, None), next(ours, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old.key < new.key):
            yield old, None
            old = next(theirs, None)
        elif old is None or new.key < old.key:
            yield None, new
            new = next(ours, None)
        else:
            yield old, new
            old, new = next(theirs, None), next(ours, None)
