"""Builds a snapshot's folder from its fixed rows: for the first time, to put it back, and to prove that it is what
was frozen."""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

from medlive.config import Settings
from medlive.db.release.rows import read_snapshots
from medlive.db.release.snapshots import (
    FixedMeta,
    SnapshotInfo,
    find_snapshot,
    list_snapshots,
    load_fixed,
    load_manifest,
)
from medlive.db.session import Database, Session
from medlive.db.tables import SnapshotState
from medlive.digest import digest_bytes, digest_file
from medlive.errors import CheckFailed, UsageError
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.service.paths import snapshots_path
from medlive.snapshot.freeze import FrozenSnapshot, Sign, SnapshotMeta, differences, write_snapshot
from medlive.snapshot.identity import folder_name
from medlive.snapshot.manifest import Ancestor

IDENTITY: Final = (
    "data/cases.jsonl", "data/criteria.jsonl", "livemedbench.json", "changes.json", "holdouts.json",
)  # fmt: skip
"""The files that are made of the frozen rows alone; others tell of the library that wrote parquet as well."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A frozen snapshot that was built again from its rows, beside what was frozen and what lies in its folder."""

    version: str
    folder: Path
    """Where it lies since it was frozen."""
    is_there: bool
    expected: str
    """The digest of SHA256SUMS as it was frozen."""
    got: str
    """The digest of SHA256SUMS as it was built now."""
    differing: tuple[str, ...]
    """Files of the folder that are not as they were built now; all of them where it is not there."""
    writers: tuple[str, str] | None
    """(then, now) where another library writes parquet now than did then; else None."""
    out: Path | None
    """The folder that was built now, where it was to be kept."""

    @property
    def identical(self) -> bool:
        """Whether every byte is as it was frozen, and lies so in the folder.

        Where another library writes parquet now, the files of IDENTITY decide.
        """
        if not self.is_there:
            return False
        if self.writers is None:
            return self.got == self.expected and not self.differing
        return not set(self.differing) & set(IDENTITY)


def build(
    database: Database,
    info: SnapshotInfo,
    fixed: FixedMeta,
    out_root: Path,
    sign: Sign | None,
    stop: Event | None = None,
) -> FrozenSnapshot:
    """Build the folder of a snapshot from its fixed rows; for a thread of its own."""
    meta = SnapshotMeta(
        version=info.version,
        created_at=info.created_at,
        provenance=fixed.provenance,
        lineage=fixed.lineage,
        signing=fixed.signing,
        why_not=fixed.why_not,
    )
    with read_snapshots(database.engine.url, stop) as reader:
        return write_snapshot(reader.cases(info.version), meta, out_root, reader.entries(info.version), sign)


async def rebuild(database: Database, settings: Settings, version: str, out: Path | None = None) -> Rebuilt:
    """Build a frozen snapshot again and compare it with what was frozen and with its folder; no key is needed.

    `out`: a folder in which the built one is kept. Raises UsageError for what is not frozen, or was in format 1.
    """
    async with database.begin() as session:
        info, fixed = await find_snapshot(session, version), await load_fixed(session, version)
        then = ((await load_manifest(session, version)) or {}).get("writers", {}).get("parquet")
    if info is None or info.state is not SnapshotState.FROZEN:
        raise UsageError(f"{version} is no frozen snapshot", hint="medlive snapshot list names them")
    if fixed is None or info.sums_digest is None:
        raise UsageError(f"{version} was frozen in format 1, which this medlive does not build")
    folder = snapshots_path(settings) / folder_name(version)
    with tempfile.TemporaryDirectory(prefix="medlive-rebuild-") as temporary:
        built = await asyncio.to_thread(build, database, info, fixed, out or Path(temporary), _stored(info))
        is_there = folder.is_dir()
        differing = await asyncio.to_thread(differences, built.path, folder)
    now = built.manifest.writers["parquet"]
    return Rebuilt(
        version=version,
        folder=folder,
        is_there=is_there,
        expected=info.sums_digest,
        got=built.digest,
        differing=tuple(differing),
        writers=None if then == now else (str(then), now),
        out=built.path if out else None,
    )


async def put_back(database: Database, settings: Settings, info: SnapshotInfo) -> None:
    """Build a frozen snapshot's folder again in its place, where it is missing or not whole.

    Raises CheckFailed when it cannot be built as it was frozen; what is there is left as it is then.
    """
    async with database.begin() as session:
        fixed = await load_fixed(session, info.version)
    if fixed is None:
        raise UsageError(f"{info.version} was frozen in format 1, which this medlive does not build")
    root = snapshots_path(settings)
    target, aside = root / folder_name(info.version), root / f".{folder_name(info.version)}-again.partial"
    if aside.exists():
        shutil.rmtree(aside)
    try:
        built = await asyncio.to_thread(build, database, info, fixed, aside, _stored(info))
        if built.digest != info.sums_digest:
            raise CheckFailed(
                f"{info.version} cannot be built as it was frozen: SHA256SUMS would be {built.digest}, "
                f"{info.sums_digest} was frozen",
                hint="restore the folder from a backup; medlive snapshot rebuild says what differs",
            )
        if target.exists():
            target.rename(aside / "not-whole")
        built.path.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def is_complete(folder: Path, info: SnapshotInfo) -> bool:
    """Whether a frozen snapshot's folder has its SHA256SUMS and every file that this names.

    What is in them is for `verify_snapshot` to read.
    """
    try:
        sums = (folder / SUMS).read_bytes()
        names = [line.split("  ", 1)[1] for line in sums.decode("utf-8").splitlines()]
        return (
            digest_bytes(sums) == info.sums_digest
            and all((folder / name).is_file() for name in names)
            and (info.signature is None or (folder / SIGNATURE).is_file())
        )
    except (OSError, ValueError, IndexError):
        return False


async def lineage_of(session: Session, version: str) -> tuple[Ancestor, ...]:
    """The frozen snapshots before a version, the oldest first, each with its digest.

    That of one that was frozen in format 1 is taken from its folder. Raises CheckFailed where that is not there.
    """
    before = [s for s in await list_snapshots(session) if s.state is SnapshotState.FROZEN and s.version < version]
    return tuple(Ancestor(version=s.version, digest=s.sums_digest or _digest_of(s)) for s in reversed(before))


def _digest_of(info: SnapshotInfo) -> str:
    folder = Path(info.path or "")
    try:
        if digest_file(folder / "manifest.json") == info.manifest_digest:
            return digest_file(folder / SUMS)
    except OSError as exc:
        raise CheckFailed(
            f"snapshot {info.version} is not in {folder}: {exc.strerror or exc}",
            hint="restore it: what comes after it names its digest",
        ) from exc
    raise CheckFailed(f"{folder} is not snapshot {info.version} as it was frozen", hint="restore it")


def _stored(info: SnapshotInfo) -> Sign | None:
    """What signs with the signature that was made then."""
    signature = info.signature
    return None if signature is None else lambda _data, _comment: signature
