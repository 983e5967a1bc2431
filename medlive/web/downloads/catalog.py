"""Which snapshots are given out: frozen in the database, publishable, and here with the bytes that were frozen."""

import asyncio
import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from fastapi import Depends, HTTPException

from medlive.db.release.snapshots import list_snapshots
from medlive.db.release.withdrawals import must_not_be_given_out
from medlive.db.tables.release import SnapshotRow
from medlive.errors import BadInput, CheckFailed
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import SUMS
from medlive.publishing.publish import read_release
from medlive.publishing.target import FolderTarget
from medlive.snapshot.describe.feed import Release
from medlive.snapshot.errata import ERRATA, PUBLIC_ERRATA, Errata, load_errata
from medlive.snapshot.model import folder_name
from medlive.web.site import Site, SiteOf

_log = logging.getLogger(__name__)
_WITH_ROWS = ("data/", "livemedbench.json")


@dataclass(frozen=True, kw_only=True)
class ShownSnapshot(Release):
    """A snapshot that the site shows."""

    path: Path
    # Whether it shows a case that was taken down or identifies a person
    withdrawn: bool

    def holds_rows(self, name: str) -> bool:
        """Whether a file holds cases or criteria."""
        return name.startswith(_WITH_ROWS)


async def load_catalog(site: SiteOf) -> tuple[ShownSnapshot, ...]:
    """The snapshots that the site shows, newest first. Raises DatabaseUnavailable."""
    async with site.database.begin() as session:
        infos = await list_snapshots(session)
        withdrawn = await must_not_be_given_out(session)
    frozen = []
    for info in infos:
        if info.state == "frozen" and (info.publishable or site.preview):
            frozen.append(info)
    return await asyncio.to_thread(_read_catalog, site.snapshots, frozen, withdrawn)


def _read_catalog(
    root: Path, infos: list[SnapshotRow], withdrawn: frozenset[str]
) -> tuple[ShownSnapshot, ...]:
    """Those of the snapshots whose folders hold what was frozen."""
    snapshots = []
    for info in infos:
        folder = root / folder_name(info.version)
        try:
            sums = FolderTarget(root).read(f"{folder.name}/{SUMS}") or b""
            # What lies here under the name may be damaged, or of another database.
            if digest_bytes(sums) != info.sums_digest:
                raise CheckFailed(f"{folder} does not hold what was frozen")
            release = _release(root, info.version, sums)
        except (CheckFailed, BadInput) as exc:
            _warn_once(info.version, exc.message)
            continue
        shown = ShownSnapshot(
            manifest=release.manifest,
            files=release.files,
            path=folder,
            withdrawn=info.version in withdrawn,
        )
        snapshots.append(shown)
    return tuple(snapshots)


@lru_cache(maxsize=512)
def _release(root: Path, version: str, sums: bytes) -> Release:
    return read_release(FolderTarget(root), version, sums)


@lru_cache(maxsize=512)
def _warn_once(version: str, why: str) -> None:
    _log.warning("snapshot %s is not shown: %s", version, why)


TheCatalog = Annotated[tuple[ShownSnapshot, ...], Depends(load_catalog)]


def given_out(catalog: TheCatalog) -> tuple[ShownSnapshot, ...]:
    """Those of the snapshots whose files may all be given out."""
    return tuple(shown for shown in catalog if not shown.withdrawn)


async def find_snapshot(version: str, catalog: TheCatalog) -> ShownSnapshot:
    """The snapshot of that version: a dependency of routes. Raises HTTPException 404 if the site does not show it."""
    for shown in catalog:
        if shown.version == version:
            return shown
    raise HTTPException(404)


TheSnapshot = Annotated[ShownSnapshot, Depends(find_snapshot)]


def errata_name(site: Site) -> str:
    """The file of errata that the site gives out: one that names no hidden snapshot, unless it is a preview.

    In a folder of fetched snapshots, `errata.json` is what the other machine gave out.
    """
    public = (site.snapshots / PUBLIC_ERRATA).is_file()
    return PUBLIC_ERRATA if public and not site.preview else ERRATA


async def load_public_errata(site: Site, catalog: TheCatalog) -> Errata:
    """The errata of the snapshots that the site shows; none where the file is missing or damaged."""
    versions = {shown.version for shown in catalog}
    path = site.snapshots / errata_name(site)
    try:
        errata = await asyncio.to_thread(load_errata, path)
    except BadInput:
        return Errata()
    shown = [own for own in errata.entries if versions.intersection(own.snapshots)]
    return Errata(entries=tuple(shown))
