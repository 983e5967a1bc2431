"""A snapshot's folder: built from the stored rows, whether it is complete, and restored where it is not."""

import asyncio
import shutil
from pathlib import Path
from threading import Event

from medlive.config import Settings
from medlive.db.release import snapshots
from medlive.db.release.rows import read_snapshots
from medlive.db.session import Database, Session
from medlive.db.tables.release import SnapshotRow
from medlive.errors import CheckFailed
from medlive.instance.paths import snapshots_path
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.snapshot.freeze import FrozenSnapshot, Sign, write_snapshot
from medlive.snapshot.manifest import Ancestor, SnapshotMeta, Stated
from medlive.snapshot.model import folder_name


def build_folder(
    database: Database,
    info: SnapshotRow,
    fixed: snapshots.FixedMeta,
    out_root: Path,
    sign: Sign | None,
    stop: Event | None = None,
) -> FrozenSnapshot:
    """Build the folder of a snapshot from its stored rows; blocking. Raises Interrupted once `stop` is set."""
    stated = {name: getattr(fixed, name) for name in Stated.model_fields}
    meta = SnapshotMeta(version=info.version, created_at=info.created_at, **stated)
    with read_snapshots(database.engine.url, stop, version=info.version) as reader:
        return write_snapshot(reader.cases(), meta, out_root, reader.section, sign)


def is_complete(folder: Path, info: SnapshotRow) -> bool:
    """Whether a frozen snapshot's folder has its SHA256SUMS and every file listed there, unread."""
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
    """The frozen snapshots before a version, oldest first, each with its digest."""
    ancestors = []
    for info in reversed(await snapshots.list_snapshots(session)):
        if info.state == "frozen" and info.version < version:
            digest = info.sums_digest or ""
            ancestors.append(Ancestor(version=info.version, digest=digest))
    return tuple(ancestors)


async def restore_folder(
    database: Database, settings: Settings, info: SnapshotRow
) -> None:
    """Rebuild the missing or incomplete folder of a frozen snapshot in its place.

    Raises CheckFailed, leaving the folder unchanged, when the rebuilt one differs from what was frozen.
    """
    async with database.begin() as session:
        fixed = await snapshots.load_fixed(session, info.version)
    assert fixed
    root, signature = snapshots_path(settings), info.signature
    name = folder_name(info.version)
    target, aside = root / name, root / f".{name}-again.partial"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        built = await asyncio.to_thread(
            build_folder,
            database,
            info,
            fixed,
            aside,
            None if signature is None else lambda _data, _comment: signature,
        )
        if built.digest != info.sums_digest:
            raise CheckFailed(
                f"{info.version} cannot be rebuilt: expected SHA256SUMS {info.sums_digest}, got {built.digest}",
                hint="restore the folder from a backup",
            )
        if target.exists():
            target.rename(aside / "not-whole")
        built.path.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
