"""The JSON API of the downloads; FastAPI describes it at /api/openapi.json."""

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Path, Query
from pydantic import BaseModel

from medlive.snapshot.errata import Erratum
from medlive.snapshot.manifest import Counts
from medlive.web.downloads.catalog import ShownSnapshot, TheCatalog, load_public_errata
from medlive.web.site import SiteOf

_MISSING: Final[dict[int | str, dict[str, object]]] = {
    404: {"description": "The site shows no such snapshot."}
}
_AWAY: Final[dict[int | str, dict[str, object]]] = {
    503: {"description": "The database cannot be reached."}
}
router: Final = APIRouter(prefix="/api/v1", responses=_AWAY)

_VERSION: Final = r"^[0-9]{4}\.W[0-9]{2}$"
VersionOrLatest = Annotated[
    str, Path(pattern=rf"^latest$|{_VERSION}", examples=["latest", "2026.W47"])
]


class SnapshotSummary(BaseModel):
    """A snapshot that the site shows."""

    version: str
    digest: str  # Of SHA256SUMS: the identity of the whole folder
    parent: str | None
    created_at: datetime
    cases: int
    criteria: int
    signed: bool
    publishable: bool  # False only where the site shows a preview
    withdrawn: bool  # Whether its rows are no longer given out, since it shows what was taken down
    url: str  # Of its folder, on this site


class SnapshotFile(BaseModel):
    """A file of a snapshot."""

    name: str
    size: int  # Bytes
    sha256: str
    rows: int | None
    url: str


class SnapshotDetail(SnapshotSummary):
    """A snapshot with its counts and files."""

    counts: Counts
    files: tuple[SnapshotFile, ...]


def _summary(shown: ShownSnapshot) -> dict[str, Any]:
    release = shown.release
    manifest = release.manifest
    return {
        "version": shown.version,
        "digest": release.digest,
        "parent": manifest.parent,
        "created_at": manifest.created_at,
        "cases": manifest.counts.cases,
        "criteria": manifest.counts.criteria,
        "signed": manifest.signing is not None,
        "publishable": manifest.publishable,
        "withdrawn": shown.withdrawn,
        "url": f"/{release.folder}/",
    }


@router.get("/snapshots")
async def list_snapshots(catalog: TheCatalog) -> list[SnapshotSummary]:
    """Every snapshot, newest first."""
    return [SnapshotSummary(**_summary(shown)) for shown in catalog.snapshots]


@router.get("/snapshots/{version}", responses=_MISSING)
async def get_snapshot(version: VersionOrLatest, catalog: TheCatalog) -> SnapshotDetail:
    """A snapshot with its counts and files; "latest" is the newest that is given out whole."""
    shown = catalog.latest if version == "latest" else catalog.find(version)
    if shown is None:
        raise HTTPException(404)
    files = []
    for name, entry in shown.release.files.items():
        file = SnapshotFile(
            name=name,
            size=entry.size,
            sha256=entry.sha256,
            rows=entry.rows,
            url=f"/{shown.release.folder}/{name}",
        )
        files.append(file)
    counts = shown.release.manifest.counts
    return SnapshotDetail(**_summary(shown), counts=counts, files=tuple(files))


@router.get("/errata")
async def list_errata(
    site: SiteOf,
    catalog: TheCatalog,
    version: Annotated[str | None, Query(pattern=_VERSION)] = None,
) -> list[Erratum]:
    """What was withdrawn after it was frozen, of one snapshot or of all."""
    errata = await load_public_errata(site, catalog)
    return list(errata.entries if version is None else errata.affecting(version))
