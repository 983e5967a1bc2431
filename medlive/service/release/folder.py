"""A snapshot's folder: built from the stored rows, and built again where it is missing."""

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
    """Build the missing folder of a frozen snapshot again. Raises CheckFailed when it differs from what was frozen."""
    async with database.begin() as session:
        fixed = await snapshots.load_fixed(session, info.version)
    assert fixed
    # The stored signature is put there again: no key is needed.
    root, signature = snapshots_path(settings), info.signature
    name = folder_name(info.version)
    aside = root / f".{name}-again.partial"
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
        built.path.rename(root / name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
