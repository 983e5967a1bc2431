"""The public site at `/`: the pages of `medlive site build`, made of what is given out here."""

import asyncio
import gzip
from functools import lru_cache
from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response

from medlive.db.studies import blind_items
from medlive.publishing.target import MUTABLE, media_type
from medlive.web.downloads.catalog import Catalog
from medlive.web.downloads.find import TheCatalog
from medlive.web.site import Site, SiteOf

_READ: Final = ["GET", "HEAD"]
router: Final = APIRouter(include_in_schema=False)


@lru_cache(maxsize=64)
def _compress(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


async def _send(request: Request, site: Site, catalog: Catalog, name: str) -> Response:
    files = None
    if site.evaluation is not None:
        async with site.database.begin() as session:
            checked = await blind_items(session)
        given_out = {shown.version: shown.release.digest for shown in catalog.given_out}
        files = await asyncio.to_thread(site.evaluation.pages, given_out, checked)
    if files is None:
        raise HTTPException(503, "The public site cannot be made; the log says why.")
    data = files.get(name)
    if data is None:
        raise HTTPException(404)
    headers = {"Cache-Control": MUTABLE, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        data = await asyncio.to_thread(_compress, data)
        headers["Content-Encoding"] = "gzip"
    return Response(data, media_type=media_type(name), headers=headers)


@router.api_route("/", methods=_READ)
async def front(request: Request, site: SiteOf, catalog: TheCatalog) -> Response:
    """What the benchmark is."""
    return await _send(request, site, catalog, "index.html")


async def _page(request: Request, site: SiteOf, catalog: TheCatalog) -> Response:
    return await _send(request, site, catalog, request.url.path.removeprefix("/"))


router.add_api_route("/{name}.html", _page, methods=_READ)
for _folder in ("assets", "cases", "data", "lists", "models"):
    router.add_api_route(f"/{_folder}/{{name}}", _page, methods=_READ)
