"""The public site at `/`: the pages of `medlive site build`, made of what is given out here."""

import asyncio
import gzip
from functools import lru_cache, partial

from fastapi import APIRouter, HTTPException, Request, Response

from medlive.db.studies import blind_items
from medlive.publishing.target import MUTABLE, media_type
from medlive.web.downloads.catalog import TheCatalog
from medlive.web.site import READ, SiteOf

router = APIRouter(include_in_schema=False)


async def show(request: Request, site: SiteOf, catalog: TheCatalog) -> Response:
    """A file of the site; its front at the root."""
    files = None
    if site.evaluation is not None:
        checked = await site.database.ask(blind_items)
        given_out = {shown.version: shown.release.digest for shown in catalog.given_out}
        files = await asyncio.to_thread(site.evaluation.pages, given_out, checked)
    if files is None:
        raise HTTPException(503, "The public site cannot be made; the log says why.")
    name = request.url.path.removeprefix("/") or "index.html"
    if (data := files.get(name)) is None:
        raise HTTPException(404)
    headers = {"Cache-Control": MUTABLE, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        data = await asyncio.to_thread(_compress, data)
        headers["Content-Encoding"] = "gzip"
    return Response(
        data,
        media_type=media_type(name),
        headers=headers,
    )


_compress = lru_cache(maxsize=64)(partial(gzip.compress, mtime=0))
for _path in ("", "{name}.html"):
    router.add_api_route(f"/{_path}", show, methods=READ)
for _folder in ("assets", "cases", "data", "lists", "models"):
    router.add_api_route(f"/{_folder}/{{name}}", show, methods=READ)
