"""Publishing: a verified, publishable snapshot goes to a shelf, where its files never change again.

Data goes first and SHA256SUMS last: a version with SHA256SUMS is complete, one without is half published and is
finished by publishing it again. What tells of the versions is made anew from what lies on the shelf.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from medlive.errors import BadInput, CheckFailed
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.integrity.signing import PublicKey
from medlive.publishing.target import IMMUTABLE, Item, Shelf, Standing, page
from medlive.snapshot.describe.feed import FEED, INDEX, LATEST, Place, Release, feed_xml, index_html, latest_json
from medlive.snapshot.errata import ERRATA, load_errata, parse_errata
from medlive.snapshot.errata import SIGNATURE as ERRATA_SIGNATURE
from medlive.snapshot.identity import folder_name
from medlive.snapshot.manifest import FileEntry, Manifest
from medlive.snapshot.model import week_end
from medlive.snapshot.verify.run import StepState, Trust, verify_snapshot

PUBLIC_KEY: Final = "minisign.pub"
_FOLDER: Final = re.compile(r"medlive-([0-9]{4}\.W[0-9]{2})")
_MOST_ROUNDS: Final = 20

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)."""


def _unseen(done: int, total: int) -> None:
    """Shows nobody how far it has come."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A snapshot that may be published: verified whole just now, with what goes out beside it."""

    folder: Path
    manifest: Manifest
    sums: Mapping[str, FileEntry]
    """Every file, SHA256SUMS and the signature among them."""
    errata: Mapping[str, bytes]
    """errata.json, and its signature, by name; empty where no errata lie beside the snapshot."""

    @property
    def digest(self) -> str:
        """The release's digest: that of SHA256SUMS."""
        return f"sha256:{self.sums[SUMS].sha256}"

    @property
    def signed(self) -> bool:
        """Whether the release has a key."""
        return self.manifest.signing is not None

    def items(self) -> list[Item]:
        """The immutable files in the order they go out."""
        last = {"manifest.json": 1, SIGNATURE: 2, SUMS: 3}
        names = sorted(self.sums, key=lambda name: (last.get(name, 0), name))
        root = folder_name(self.manifest.version)
        return [
            Item(f"{root}/{n}", self.folder / n, self.sums[n].size, self.sums[n].sha256, IMMUTABLE) for n in names
        ]


@dataclass(slots=True)
class Published:
    """What a publication did, or would do."""

    version: str
    digest: str
    where: str
    signed: bool
    dry_run: bool = False
    sent: list[str] = field(default_factory=list)
    """Immutable files that were added."""
    already: list[str] = field(default_factory=list)
    """Immutable files that were there, with these bytes."""
    updated: list[str] = field(default_factory=list)
    """Mutable files that were written."""
    bytes_sent: int = 0
    """Of immutable files."""
    latest: str | None = None
    """The version that the place now calls its newest; None for a dry run."""
    unfinished: list[str] = field(default_factory=list)
    """Other versions there that were published in part."""


def make_ready(folder: Path, public_key: PublicKey | None = None) -> Ready:
    """Verify a snapshot and read what its publication needs.

    Raises CheckFailed for a snapshot that fails verification, that could not be verified whole, that is not
    publishable (nothing overrides that), or whose errata cannot be read.
    """
    report = verify_snapshot(folder, public_key=public_key)
    if not report.ok or report.manifest is None:
        raise CheckFailed(report.summary(), hint="only a snapshot that verifies can be published")
    # Only two things may stay unproven: who signed a release that has no key, and what a parent says that is not
    # here; the digests of ancestors are compared with those on the shelf.
    innocent = {len(report.steps), *([1] if report.trust is Trust.NOT_SIGNED else [])}
    skipped = [s for s in report.steps if s.state is StepState.SKIPPED and s.number not in innocent]
    if skipped:
        raise CheckFailed(
            f"{folder} could not be verified whole: " + "; ".join(f"step {s.number}: {s.why}" for s in skipped)
        )
    manifest = report.manifest
    if not manifest.publishable:
        raise CheckFailed(
            f"medlive {manifest.version} is not publishable: " + "; ".join(manifest.why_not),
            hint="its card says so too; no option publishes it all the same",
        )
    entries = dict(manifest.files)
    for name in ("manifest.json", SUMS, SIGNATURE):
        if (folder / name).is_file():
            entries[name] = _entry((folder / name).read_bytes())
    return Ready(folder, manifest, entries, _errata(folder.parent, _key_of(manifest, public_key)))


def publish(
    ready: Ready, shelf: Shelf, place: Place, *, dry_run: bool = False, progress: Progress = _unseen
) -> Published:
    """Put a snapshot on a shelf and bring latest.json, feed, page and errata up to date.

    A file that lies there with other bytes stops everything before the first byte is written; one with the same
    bytes is not sent again. Raises CheckFailed for other bytes, for a version there that cannot be read or is of
    another line, and for errata there that ours have lost; otherwise what the shelf raises.
    """
    done = Published(ready.manifest.version, ready.digest, shelf.where, ready.signed, dry_run)
    with shelf.session(write=not dry_run):
        wanting = _wanting(ready, shelf, done)
        _same_line(ready, shelf, _releases(shelf, done))
        keep_errata(ready, shelf.where, shelf.read)
        if dry_run:
            done.sent = [item.name for item in wanting]
            done.bytes_sent = sum(item.size for item in wanting)
            return done
        total = sum(item.size for item in wanting)
        out = [0]

        def sent(amount: int) -> None:
            # A try that failed half-way is sent, and counted, again.
            out[0] = min(total, out[0] + amount)
            progress(out[0], total)

        for item in wanting:
            shelf.add(item, sent)
            done.sent.append(item.name)
            done.bytes_sent += item.size
        _tell(ready, shelf, place, done)
    return done


def _wanting(ready: Ready, shelf: Shelf, done: Published) -> list[Item]:
    """What has yet to be sent. Raises CheckFailed, naming it, for whatever there is not this version's."""
    items = ready.items()
    there = shelf.names(f"{folder_name(ready.manifest.version)}/")
    wrong = sorted(there - {item.name for item in items})
    wanting: list[Item] = []
    for item in items:
        standing = shelf.compare(item) if item.name in there else Standing.ABSENT
        if standing is Standing.ABSENT:
            wanting.append(item)
        elif standing is Standing.SAME:
            done.already.append(item.name)
        else:
            wrong.append(item.name)
    if wrong:
        raise CheckFailed(
            f"{shelf.where} holds other bytes of medlive {ready.manifest.version}: {', '.join(sorted(wrong)[:8])}"
            + (f" and {len(wrong) - 8} more" if len(wrong) > 8 else "")
            + "; nothing was written",
            hint="a published version never changes: freeze and publish a new one",
        )
    return wanting


def _same_line(ready: Ready, shelf: Shelf, releases: Sequence[Release]) -> None:
    """Raise CheckFailed where the snapshot and a version there disagree about one's ancestor."""
    mine = {a.version: a.digest for a in ready.manifest.lineage} | {ready.manifest.version: ready.digest}
    for release in releases:
        theirs = {a.version: a.digest for a in release.manifest.lineage} | {release.version: release.digest}
        if odd := sorted(v for v in mine.keys() & theirs.keys() if mine[v] != theirs[v]):
            raise CheckFailed(
                f"medlive {ready.manifest.version} and {release.version} in {shelf.where} descend from different "
                f"snapshots that are both called {', '.join(odd)}; nothing was written",
                hint="two lines of releases need two places",
            )
    signed = sorted(r.version for r in releases if r.manifest.signing is not None and r.version in mine)
    if signed and not ready.signed:
        raise CheckFailed(
            f"medlive {ready.manifest.version} has no signature, and {signed[-1]}, which it continues, has one in "
            f"{shelf.where}; nothing was written",
            hint="readers who check signatures would lose the line: the next week can be frozen with the key",
        )


def _releases(shelf: Shelf, done: Published) -> list[Release]:
    """The complete versions on the shelf."""
    found: list[Release] = []
    done.unfinished.clear()
    for name in sorted(shelf.folders()):
        match = _FOLDER.fullmatch(name)
        if match is None or week_end(match[1]) is None:
            continue
        sums = shelf.read(f"{name}/{SUMS}")
        if sums is None:
            if match[1] != done.version:
                done.unfinished.append(match[1])
            continue
        found.append(_release(shelf, name, match[1], sums))
    return found


def _release(shelf: Shelf, name: str, version: str, sums: bytes) -> Release:
    data = shelf.read(f"{name}/manifest.json") or b""
    entry = _entry(data)
    fault = None
    try:
        manifest = Manifest.model_validate_json(data)
        if f"{entry.sha256}  manifest.json\n".encode() not in sums or manifest.version != version:
            fault = "its manifest is another version's or not the one that SHA256SUMS names"
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        fault = f"its manifest cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    if fault is not None:
        raise CheckFailed(
            f"{name} in {shelf.where} cannot be told of: {fault}",
            hint="publish with a newer medlive, or mend that version: latest.json is made from all of them",
        )
    others = {"manifest.json": entry}
    if (signature := shelf.read(f"{name}/{SIGNATURE}")) is not None:
        others[SIGNATURE] = _entry(signature)
    return Release(manifest, _entry(sums), others)


def _tell(ready: Ready, shelf: Shelf, place: Place, done: Published) -> None:
    """Write the mutable files until they tell of what lies there.

    Another publisher may finish a version meanwhile. Whoever writes last looks once more after writing, so that
    what stays is never older than the versions.
    """
    for name, data in ready.errata.items():
        _put(shelf, name, data, done)
    for _ in range(_MOST_ROUNDS):
        releases = _releases(shelf, done)
        for name, data in _pages(releases, shelf, place).items():
            _put(shelf, name, data, done)
        if {r.version for r in _releases(shelf, done)} == {r.version for r in releases}:
            done.latest = max(r.version for r in releases)
            return
    raise CheckFailed(f"{shelf.where} changes all the time: publish again when nobody else does")


def _pages(releases: Sequence[Release], shelf: Shelf, place: Place) -> dict[str, bytes]:
    data = shelf.read(ERRATA)
    errata = parse_errata(data, f"{ERRATA} in {shelf.where}") if data is not None else None
    key = _key_of(max(releases, key=lambda r: r.version).manifest, None)
    pages = {PUBLIC_KEY: key.text().encode("ascii")} if key is not None else {}
    pages[INDEX] = index_html(releases, place, errata=errata, key=PUBLIC_KEY if key is not None else None)
    pages[FEED] = feed_xml(releases, place, errata)
    pages[LATEST] = latest_json(releases, place)
    return pages


def _put(shelf: Shelf, name: str, data: bytes, done: Published) -> None:
    if shelf.read(name) != data:
        shelf.replace(page(name, data))
        if name not in done.updated:
            done.updated.append(name)


def _key_of(manifest: Manifest, given: PublicKey | None) -> PublicKey | None:
    """The key that signatures are checked with; None for a release that was made without one."""
    if given is not None or manifest.signing is None:
        return given
    return PublicKey.parse(manifest.signing.public_key)


def _errata(folder: Path, key: PublicKey | None) -> dict[str, bytes]:
    """What goes out of the errata that lie beside the snapshot."""
    path, beside = folder / ERRATA, folder / ERRATA_SIGNATURE
    if not path.exists():
        return {}
    try:
        load_errata(path, public_key=key)
    except (BadInput, CheckFailed) as exc:
        hint = "have them written again, with the key that signs the releases at hand"
        raise CheckFailed(exc.message, hint=hint) from exc
    found = {ERRATA: path.read_bytes()}
    if beside.exists():
        found[ERRATA_SIGNATURE] = beside.read_bytes()
    return found


def keep_errata(ready: Ready, where: str, read: Callable[[str], bytes | None]) -> None:
    """Raise CheckFailed where ours would take back what the errata there have said.

    `read` gives the bytes of a file there, or None.
    """
    there = read(ERRATA)
    if there is None or ERRATA not in ready.errata or there == ready.errata[ERRATA]:
        return
    said = {(e.id, e.criterion_id) for e in parse_errata(there, f"{ERRATA} in {where}").entries}
    kept = {(e.id, e.criterion_id) for e in parse_errata(ready.errata[ERRATA]).entries}
    if lost := sorted(number for number, _ in said - kept):
        raise CheckFailed(
            f"{ERRATA} in {where} has entries that ours lack: {', '.join(map(str, lost[:8]))}",
            hint="errata are never taken back: publish from where they were written",
        )
    if ERRATA_SIGNATURE not in ready.errata and read(ERRATA_SIGNATURE) is not None:
        raise CheckFailed(
            f"{ERRATA} in {where} is signed, and ours is not",
            hint="have it written again, with the key that signs the releases at hand",
        )


def _entry(data: bytes) -> FileEntry:
    return FileEntry(size=len(data), sha256=hashlib.sha256(data).hexdigest())
