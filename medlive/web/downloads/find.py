"""What pages and API ask for: the catalog, one of its snapshots, the difference of two."""

import asyncio
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Annotated, Final

from fastapi import Depends, HTTPException

from medlive.guard.bounds import CHANGES_SHOWN
from medlive.snapshot.diff import SnapshotDiff, diff_snapshots
from medlive.web.downloads.catalog import Catalog, ShownSnapshot, load_catalog
from medlive.web.site import SiteOf

_DIFFING: Final = Lock()


async def _catalog(site: SiteOf) -> Catalog:
    return await load_catalog(site)


TheCatalog = Annotated[Catalog, Depends(_catalog)]


def find_shown(catalog: Catalog, version: str) -> ShownSnapshot:
    """Return a snapshot that the site shows. Raises HTTPException 404."""
    if (shown := catalog.find(version)) is None:
        raise HTTPException(404)
    return shown


async def find_diff(catalog: Catalog, old: str, new: str) -> SnapshotDiff:
    """Compare two snapshots. Raises HTTPException 404, or 410 where one is no longer given out."""
    first, second = find_shown(catalog, old), find_shown(catalog, new)
    if first.withdrawn or second.withdrawn:
        raise HTTPException(410)
    digests = first.release.digest, second.release.digest
    return await asyncio.to_thread(_diff, first.folder, second.folder, digests)


@lru_cache(maxsize=32)
def _diff(old: Path, new: Path, digests: tuple[str, str]) -> SnapshotDiff:
    with _DIFFING:  # reads both whole: one at a time
        return diff_snapshots(old, new, limit=CHANGES_SHOWN)
