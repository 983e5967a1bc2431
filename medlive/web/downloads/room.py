"""The routes of the downloads: pages, and the files where `medlive snapshot fetch` looks for them."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import Response

from medlive.db.release.snapshots import SnapshotInfo, find_snapshot, list_snapshots
from medlive.db.tables.release import SnapshotState
from medlive.integrity.folder import list_files
from medlive.snapshot.identity import folder_name
from medlive.snapshot.model import week_end
from medlive.web.downloads.files import send_file
from medlive.web.pages import Page, render
from medlive.web.site import Room, Section, Site, site_of

router: Final = APIRouter(include_in_schema=False)
DOWNLOADS: Final = Room("downloads", True, router, (Section("Snapshots", "/"),))
_READ: Final = ["GET", "HEAD"]


@dataclass(frozen=True)
class IndexPage(Page):
    """Every version, newest first."""

    template = "downloads/index.html"
    snapshots: tuple[SnapshotInfo, ...]


def _is_served(site: Site, info: SnapshotInfo | None) -> bool:
    return info is not None and info.state is SnapshotState.FROZEN and (bool(info.publishable) or site.preview)


@router.api_route("/", methods=_READ)
async def index(request: Request, site: Annotated[Site, Depends(site_of)]) -> Response:
    """Every version, newest first."""
    async with site.database.begin() as session:
        found = await list_snapshots(session)
    return render(request, IndexPage(tuple(info for info in found if _is_served(site, info))))


@router.api_route("/medlive-{version}/{name:path}", methods=_READ)
async def snapshot_file(
    request: Request, version: str, name: str, site: Annotated[Site, Depends(site_of)]
) -> Response:
    """A file of a snapshot."""
    if week_end(version) is None:
        raise HTTPException(404)
    async with site.database.begin() as session:
        info = await find_snapshot(session, version)
    folder = site.snapshots / folder_name(version)
    # A name becomes a path only if it is among the existing files.
    if not _is_served(site, info) or name not in list_files(folder).files:
        raise HTTPException(404)
    return await send_file(request, folder / name)
