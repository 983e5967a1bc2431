"""The public site at `/`: the pages of `medlive site build`, made of what is given out here."""

import asyncio
import gzip
import logging
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from fastapi import APIRouter, HTTPException, Request, Response

from medlive.db.studies import blind_items
from medlive.errors import MedliveError
from medlive.evaluation.asking.registry import load_registry
from medlive.publishing.target import MUTABLE, media_type
from medlive.service.paths import index_path
from medlive.site.hard import HARD
from medlive.site.model import Content
from medlive.site.pages import SECTIONS, site_files
from medlive.site.read import BUNDLES, Inputs, read_content
from medlive.web.downloads.catalog import Catalog, errata_name
from medlive.web.downloads.find import TheCatalog
from medlive.web.site import Site, SiteOf

_log: Final = logging.getLogger(__name__)
_READ: Final = ["GET", "HEAD"]
_LINKS: Final = (("/snapshots", "Snapshots"), ("/errata", "Errata"), ("/api", "API"))
router: Final = APIRouter(include_in_schema=False)


class _Built:
    """The site's files as they were last made, and what of."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.of: object = None
        self.files: Mapping[str, bytes] | None = {}

    def read(
        self, site: Site, catalog: Catalog, checked: frozenset[str]
    ) -> Mapping[str, bytes] | None:
        """The files; None where they cannot be made.

        They are made again where snapshots, errata, bundles or what people check blind changed.
        """
        with self.lock:
            state = checked, _state(site, catalog)
            if state != self.of:
                self.files = _make(site, catalog, checked)
                self.of = state
            return self.files


def _make(
    site: Site, catalog: Catalog, checked: frozenset[str]
) -> Mapping[str, bytes] | None:
    try:
        content = _content(site, catalog, checked)
    except MedliveError as exc:
        _log.error("the public site cannot be made: %s", exc.message)
        return None
    files = site_files(content, links=_LINKS, downloads="/")
    return {file.name: file.data for file in files}


_BUILT: Final[WeakKeyDictionary[object, _Built]] = WeakKeyDictionary()


def _state(site: Site, catalog: Catalog) -> object:
    digests = tuple(shown.release.digest for shown in catalog.given_out)
    bundles = sorted((site.settings.home / BUNDLES).glob("*"))
    errata = site.snapshots / errata_name(site)
    hard = site.snapshots / HARD
    return digests, *(_stamp(path) for path in (errata, hard, *bundles))


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError:
        return path.name, 0, 0
    return path.name, status.st_size, status.st_mtime_ns


def _content(site: Site, catalog: Catalog, checked: frozenset[str]) -> Content:
    """What is given out. Raises MedliveError where errata or the registry cannot be read."""
    errata = site.snapshots / errata_name(site)
    inputs = Inputs(
        snapshots=site.snapshots,
        bundles=site.settings.home / BUNDLES,
        errata=errata if errata.is_file() else None,
        evidence=index_path(site.settings),
        registry=load_registry(site.settings.candidates),
        allow_not_publishable=site.preview,
        leave_out_not_publishable=not site.preview,
        checked=checked,
        versions=frozenset(shown.version for shown in catalog.given_out),
    )
    return read_content(inputs)


@lru_cache(maxsize=64)
def _compress(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


async def _send(request: Request, site: Site, catalog: Catalog, name: str) -> Response:
    built = _BUILT.setdefault(request.app, _Built())
    async with site.database.begin() as session:
        checked = await blind_items(session)
    files = await asyncio.to_thread(built.read, site, catalog, checked)
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


for _name, *_ in SECTIONS:
    router.add_api_route(f"/{_name}", _page, methods=_READ)
for _folder in ("assets", "cases", "data", "lists", "models"):
    router.add_api_route(f"/{_folder}/{{name}}", _page, methods=_READ)
