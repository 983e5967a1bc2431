"""Publishing: a verified, publishable snapshot is copied to a target, where its files never change again.

Data goes first and SHA256SUMS last: a version without SHA256SUMS is incomplete, and is finished by publishing it
again. The index, feed and latest.json are made again from the versions on the target.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from medlive.errors import BadInput, CheckFailed, first_fault
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.integrity.log import some
from medlive.integrity.signing import PublicKey
from medlive.snapshot.describe.feed import (
    FEED,
    INDEX,
    LATEST,
    Release,
    feed_xml,
    index_html,
    latest_json,
)
from medlive.snapshot.errata import (
    ERRATA,
    PUBLIC_ERRATA,
    Errata,
    WithdrawalKind,
    load_errata,
    parse_errata,
)
from medlive.snapshot.errata import SIGNATURE as ERRATA_SIGNATURE
from medlive.snapshot.manifest import FileEntry, Manifest
from medlive.snapshot.model import folder_name, version_of
from medlive.snapshot.verify.steps import verify_snapshot

from .s3 import S3Target
from .target import IMMUTABLE, FolderTarget, Item, page

Target = FolderTarget | S3Target
"""A place with named files: immutable ones are added, mutable ones replaced; `where` names it in messages.

Calls block, as the clients of object stores do. Every method raises a MedliveError if the place refuses.
"""

PUBLIC_KEY = "minisign.pub"


@dataclass(frozen=True, kw_only=True)
class PreparedRelease(Release):
    """A snapshot that was just verified and may be published, with its errata."""

    path: Path
    errata: Mapping[str, bytes]
    """errata.json and its signature, by name; empty if there are none beside the snapshot."""
    known_errata: Errata | None = None
    """All errata beside the snapshot, also those of snapshots that are not publishable; None if there are none."""

    def check_unpublished(self) -> None:
        """Raise CheckFailed if the snapshot, which is not published yet, shows what must not be given out."""
        errata = self.known_errata or Errata()
        for entry in errata.affecting(self.version):
            if entry.kind in (WithdrawalKind.TAKEDOWN, WithdrawalKind.PRIVACY):
                raise CheckFailed(
                    f"medlive {self.version} shows {entry.criterion_id or entry.case_id}, which was withdrawn since "
                    f"({entry.kind.value}), and is not published yet; nothing was written",
                    hint="freeze the next week, which does without it, and publish that",
                )

    def items(self) -> list[Item]:
        """The immutable files in the order they are sent."""
        items = []
        for name in sorted(self.files, key=lambda name: (name == SUMS, name)):
            entry = self.files[name]
            item = Item(
                name=f"{self.folder}/{name}",
                source=self.path / name,
                size=entry.size,
                sha256=entry.sha256,
                cache_control=IMMUTABLE,
            )
            items.append(item)
        return items


@dataclass
class Published:
    """What a publication did."""

    version: str
    digest: str
    where: str
    signed: bool
    sent: list[str] = field(default_factory=list)  # Immutable files that were added
    # Immutable files that existed with the same bytes
    already: list[str] = field(default_factory=list)
    latest: str | None = None  # The newest version on the target afterwards


def prepare_release(
    folder: Path, public_key: PublicKey | None = None
) -> PreparedRelease:
    """Verify a snapshot, with the given key or the one that it names, and read what its publication needs.

    Raises CheckFailed if it fails verification, cannot be verified completely, is not publishable, or its errata
    cannot be read.
    """
    manifest = _verified(folder, public_key)
    files = dict(manifest.files)
    for name in ("manifest.json", SIGNATURE, SUMS):
        if (folder / name).is_file():
            files[name] = _entry((folder / name).read_bytes())
    root = folder.parent
    errata, known = {}, None
    # If both files exist, the errata of publishable snapshots are published.
    name = PUBLIC_ERRATA if (root / PUBLIC_ERRATA).exists() else ERRATA
    if (root / name).exists():
        try:
            load_errata(root / name, public_key=public_key or _key_of(manifest))
            if (root / ERRATA).exists():
                known = load_errata(root / ERRATA)
        except (BadInput, CheckFailed) as exc:
            hint = "write them again with the key that signs the releases"
            raise CheckFailed(exc.message, hint=hint) from exc
        errata[ERRATA] = (root / name).read_bytes()
        if (signature := root / f"{name}.minisig").exists():
            errata[ERRATA_SIGNATURE] = signature.read_bytes()
    return PreparedRelease(
        manifest=manifest,
        files=dict(sorted(files.items())),
        path=folder,
        errata=errata,
        known_errata=known,
    )


def _verified(folder: Path, public_key: PublicKey | None) -> Manifest:
    """Verify a snapshot and return its manifest. Raises CheckFailed if it may not be published."""
    report = verify_snapshot(folder, public_key=public_key)
    if not report.ok or report.manifest is None:
        raise CheckFailed(
            report.summary(), hint="only a snapshot that verifies can be published"
        )
    # Two steps may be skipped: the signature of an unsigned release, and the parent where it is not here, since
    # the digests of ancestors are compared with those on the target.
    skippable = [len(report.steps)]
    if report.trust == "not signed":
        skippable.append(1)
    steps = [str(s) for s in report.skipped if s.number not in skippable]
    if steps:
        reasons = "; ".join(steps)
        raise CheckFailed(f"{folder} could not be verified completely: {reasons}")
    if not report.manifest.publishable:
        reasons = "; ".join(report.manifest.why_not)
        text = f"medlive {report.manifest.version} is not publishable: {reasons}"
        raise CheckFailed(text, hint="no option overrides this")
    return report.manifest


def publish(
    prepared: PreparedRelease,
    target: Target,
    base_url: str | None,
) -> Published:
    """Copy a snapshot to a target and update latest.json, feed, page and errata; same files are not sent again.

    `base_url` is the target's address on its pages, None for relative links.

    Raises:
        CheckFailed: If the target has other bytes of this version, a version that cannot be read or descends from
            other snapshots, or errata that ours lack; or if the version is not there and shows what was taken down or
            identifies a person. Nothing is written then.
        MedliveError: If the target refuses.
    """
    done = Published(prepared.version, prepared.digest, target.where, prepared.signed)
    with target.session():
        missing = _missing_items(prepared, target, done)
        if missing:
            prepared.check_unpublished()
        _check_line(prepared, target, _releases(target))
        check_errata_kept(prepared, target.where, target.read)
        for item in missing:
            target.add(item)
            done.sent.append(item.name)
        _update_pages(prepared, target, base_url, done)
    return done


def _missing_items(
    prepared: PreparedRelease, target: Target, done: Published
) -> list[Item]:
    """Return what has yet to be sent. Raises CheckFailed if the target has other files of this version."""
    existing = target.names(f"{prepared.folder}/")
    missing = []
    wrong = set(existing)
    for item in prepared.items():
        is_same = target.has(item) if item.name in existing else None
        if is_same is None:
            missing.append(item)
        elif is_same:
            done.already.append(item.name)
            wrong.discard(item.name)
    if wrong:
        raise CheckFailed(
            f"{target.where} has other bytes of medlive {prepared.version}: "
            f"{some(sorted(wrong), 8)}; nothing was written",
            hint="a published version never changes: freeze and publish a new one",
        )
    return missing


def _check_line(
    prepared: PreparedRelease, target: Target, releases: Sequence[Release]
) -> None:
    """Raise CheckFailed if the snapshot and a published version disagree about an ancestor."""
    own = prepared.ancestry
    signed = []
    for release in releases:
        theirs = release.ancestry
        shared = sorted(own.keys() & theirs.keys())
        if conflicting := [name for name in shared if own[name] != theirs[name]]:
            raise CheckFailed(
                f"medlive {prepared.version} and {release.version} in {target.where} descend from "
                f"different snapshots that are both called {', '.join(conflicting)}; nothing was written",
                hint="publish the other line of releases elsewhere",
            )
        if release.signed and release.version in own:
            signed.append(release.version)
    if signed and not prepared.signed:
        raise CheckFailed(
            f"medlive {prepared.version} has no signature, and {max(signed)}, which it continues, "
            f"has one in {target.where}; nothing was written",
            hint="readers check signatures: freeze the next week with the key",
        )


def _releases(target: Target) -> list[Release]:
    """Return the complete versions on the target, the oldest first."""
    releases: list[Release] = []
    for name in sorted(target.folders()):
        version = version_of(name)
        if version is None:
            continue
        if (sums := target.read(f"{name}/{SUMS}")) is not None:
            releases.append(read_release(target, version, sums))
    return releases


def read_release(target: Target, version: str, sums: bytes) -> Release:
    """Return a complete version on a target. Raises CheckFailed unless `sums`, its SHA256SUMS, names its manifest."""
    name = folder_name(version)
    data = target.read(f"{name}/manifest.json") or b""
    entry = _entry(data)
    hint = "latest.json lists every version: publish with a newer medlive, or repair that version"
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as exc:
        text = f"{name} in {target.where} cannot be listed: its manifest: {first_fault(exc)}"
        raise CheckFailed(text, hint=hint) from exc
    line = f"{entry.sha256}  manifest.json\n"
    if line.encode() not in sums or manifest.version != version:
        text = f"{name} in {target.where} cannot be listed: it has another manifest"
        raise CheckFailed(text, hint=hint)
    files = {**manifest.files, "manifest.json": entry, SUMS: _entry(sums)}
    if (signature := target.read(f"{name}/{SIGNATURE}")) is not None:
        files[SIGNATURE] = _entry(signature)
    return Release(manifest, dict(sorted(files.items())))


def _update_pages(
    prepared: PreparedRelease, target: Target, base_url: str | None, done: Published
) -> None:
    """Write the mutable files until they list every version on the target.

    Another publisher may finish a version meanwhile, so the versions are read again after writing.
    """

    def put(files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            if target.read(name) != data:
                target.replace(page(name, data))

    put(prepared.errata)
    before: list[str] = []
    releases = _releases(target)
    while [release.version for release in releases] != before:
        data = target.read(ERRATA)
        errata = Errata()
        if data is not None:
            errata = parse_errata(data, f"{ERRATA} in {target.where}")
        key = _key_of(releases[-1].manifest)
        files = {}
        name = None
        if key is not None:
            name = PUBLIC_KEY
            files[name] = key.text().encode("ascii")
        files[INDEX] = index_html(releases, base_url, errata=errata, key=name)
        files[FEED] = feed_xml(releases, base_url, errata)
        files[LATEST] = latest_json(releases, base_url)
        put(files)
        before = [release.version for release in releases]
        releases = _releases(target)
    done.latest = before[-1]


def _key_of(manifest: Manifest) -> PublicKey | None:
    """The key that a manifest names."""
    signing = manifest.signing
    return None if signing is None else PublicKey.parse(signing.public_key)


def check_errata_kept(
    prepared: PreparedRelease, where: str, read: Callable[[str], bytes | None]
) -> None:
    """Raise CheckFailed if what a published erratum says, or its signature, is missing in ours.

    `where` is the target for messages; `read` returns the bytes of a published file, or None.
    """
    published = read(ERRATA)
    if published is None or prepared.errata.get(ERRATA) in (None, published):
        return
    theirs = parse_errata(published, f"{ERRATA} in {where}")
    ours = prepared.known_errata or parse_errata(prepared.errata[ERRATA])
    if (lost := ours.find_lost(theirs)) is not None:
        raise CheckFailed(
            f"{ERRATA} in {where} is newer than ours, which lack {lost}",
            hint="errata are never removed or undone: publish from where they were written",
        )
    if ERRATA_SIGNATURE not in prepared.errata and read(ERRATA_SIGNATURE) is not None:
        raise CheckFailed(
            f"{ERRATA} in {where} is signed, and ours is not",
            hint="write it again with the key that signs the releases",
        )


def _entry(data: bytes) -> FileEntry:
    return FileEntry(size=len(data), sha256=digest_bytes(data).removeprefix("sha256:"))
