"""The site of the documents at `/docs`, where `make docs` has built it: files below one folder, no account needed."""

import asyncio

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from medlive.instance.paths import documents_path
from medlive.publishing.target import MUTABLE
from medlive.web.downloads.files import send_file
from medlive.web.site import READ, SiteOf

_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""Material's pages hold scripts of their own. What it shows is built from the repository, never from a thread."""
router = APIRouter(include_in_schema=False)


@router.api_route("/docs", methods=READ)
async def without_slash() -> Response:
    """The pages' relative links need the slash."""
    return RedirectResponse("/docs/", 308)


@router.api_route("/docs/{name:path}", methods=READ)
async def document(request: Request, site: SiteOf, name: str = "") -> Response:
    """A file of the built site; an address that ends with a slash is its folder's page."""
    root = documents_path(site.settings)
    if not await asyncio.to_thread((root / "index.html").is_file):
        raise HTTPException(404, "The documents are not built here: run `make docs`.")
    if not name or name.endswith("/"):
        name += "index.html"
    return await send_file(
        request,
        root,
        name,
        cache_control=MUTABLE,
        policy=_POLICY,
    )
