"""The routes of the downloads: pages, and the files where `medlive snapshot fetch` looks for them.

At `/` is the public site: the pages of `medlive site build`, made of the snapshots that are given
out: those shown and not withdrawn.
"""

import asyncio
import gzip
import hashlib
from functools import lru_cache, partial
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from medlive.db.studies import blind_items, blind_versions
from medlive.instance.paths import report_path, site_address
from medlive.integrity.folder import read_small
from medlive.integrity.signing import PublicKey
from medlive.publishing.publish import PUBLIC_KEY
from medlive.publishing.target import MUTABLE, media_type
from medlive.snapshot.describe.feed import FEED, LATEST, feed_xml, latest_json
from medlive.snapshot.errata import ERRATA
from medlive.snapshot.errata import SIGNATURE as ERRATA_SIGNATURE
from medlive.web.pages import render
from medlive.web.site import READ, Room, Section, SiteOf

from .catalog import (
    TheCatalog,
    TheSnapshot,
    errata_name,
    given_out,
    load_public_errata,
)
from .files import DAMAGED, send_file

_REPORT_POLICY = (
    "frame-ancestors 'none'; sandbox allow-scripts allow-downloads allow-popups"
)
"""A report's pages state their own policy, with the digests of their styles; here they are kept from cookies."""

_WITHHELD = (
    "People check a grader's verdicts on cases of this snapshot without seeing them. Its report, which holds the"
    " verdicts, is shown again when their study is closed."
)
_CARD = "README.md"
router = APIRouter()
route = partial(router.api_route, methods=READ)


@route("/snapshots")
async def index(request: Request, site: SiteOf, catalog: TheCatalog) -> Response:
    """Every snapshot, newest first."""
    return render(
        request,
        "downloads/index.html",
        snapshots=catalog,
        latest=next(iter(given_out(catalog)), None),
        address=site_address(site.settings),
    )


@route("/latest")
@route("/latest/{name:path}")
async def latest(catalog: TheCatalog, name: str = "") -> Response:
    """Redirect to the same file of the newest snapshot."""
    if not (snapshots := given_out(catalog)):
        raise HTTPException(404)
    return RedirectResponse(
        f"/{snapshots[0].folder}/{quote(name)}",
        307,
        headers={"Cache-Control": MUTABLE},
    )


@route(f"/{LATEST}")
@route(f"/{FEED}")
@route(f"/{PUBLIC_KEY}")
async def made_file(request: Request, site: SiteOf, catalog: TheCatalog) -> Response:
    """`latest.json`, the feed, or the newest snapshot's key, made of the snapshots that are given out."""
    name, releases = request.url.path.removeprefix("/"), given_out(catalog)
    if name == FEED:
        data = feed_xml(releases, None, await load_public_errata(site, catalog))
    elif not releases:
        raise HTTPException(404)
    elif name == LATEST:
        data = latest_json(releases, None)
    elif (signing := releases[0].manifest.signing) is not None:
        data = PublicKey.parse(signing.public_key).text().encode("ascii")
    else:
        raise HTTPException(404)
    return Response(
        data, media_type=media_type(name), headers={"Cache-Control": MUTABLE}
    )


@route(f"/{ERRATA}")
@route(f"/{ERRATA_SIGNATURE}")
async def errata_file(request: Request, site: SiteOf) -> Response:
    """The errata of what is given out, or their signature, as they lie beside the snapshots."""
    name = request.url.path.removeprefix("/").replace(ERRATA, errata_name(site))
    return await send_file(request, site.snapshots, name, cache_control=MUTABLE)


@route("/report/{version}/{name:path}")
async def report_file(
    request: Request, name: str, site: SiteOf, shown: TheSnapshot
) -> Response:
    """A file of the report on a snapshot, as `medlive eval report` wrote it under MEDLIVE_HOME.

    None is shown while a blind study checks a grader's verdicts on its cases.
    """
    if shown.withdrawn:  # its pages show the cases
        raise HTTPException(410)
    if shown.version in await site.database.ask(blind_versions):
        raise HTTPException(403, _WITHHELD)
    folder, name = report_path(site.settings, shown.version), name or "index.html"
    return await send_file(
        request, folder, name, cache_control=MUTABLE, policy=_REPORT_POLICY
    )


@route("/medlive-{version}/")
async def snapshot(
    request: Request, site: SiteOf, catalog: TheCatalog, shown: TheSnapshot
) -> Response:
    """One snapshot."""
    async with site.database.begin() as session:
        is_blind = shown.version in await blind_versions(session)
    report = report_path(site.settings, shown.version) / "index.html"
    may_be_shown = not shown.withdrawn and not is_blind
    try:
        card = await asyncio.to_thread(read_small, shown.path / _CARD)
    except OSError:
        card = b""
    if hashlib.sha256(card).hexdigest() != shown.files[_CARD].sha256:
        raise HTTPException(503, DAMAGED)
    return render(
        request,
        "downloads/snapshot.html",
        shown=shown,
        address=site_address(site.settings),
        errata=(await load_public_errata(site, catalog)).affecting(shown.version),
        has_report=may_be_shown and report.is_file(),
        # Without the front matter, which is for hubs.
        card=card.decode("utf-8").split("\n---\n", 1)[-1].strip(),
    )


@route("/medlive-{version}/{name:path}")
async def snapshot_file(request: Request, name: str, shown: TheSnapshot) -> Response:
    """A file of a snapshot, with the digest that was frozen."""
    if (entry := shown.files.get(name)) is None:
        raise HTTPException(404)
    if shown.withdrawn and shown.holds_rows(name):
        raise HTTPException(410)
    return await send_file(request, shown.path, name, expected=entry.sha256)


async def show_site(request: Request, site: SiteOf, catalog: TheCatalog) -> Response:
    """A file of the public site, at the paths listed below; at the root its front page."""
    files = None
    if site.evaluation is not None:
        # Verdicts on these are not shown
        blind = await site.database.ask(blind_items)
        released = {shown.version: shown.digest for shown in given_out(catalog)}
        files = await asyncio.to_thread(site.evaluation.pages, released, blind)
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
    router.add_api_route(f"/{_path}", show_site, methods=READ)
for _folder in ("assets", "cases", "data", "lists", "models"):
    router.add_api_route(f"/{_folder}/{{name}}", show_site, methods=READ)
DOWNLOADS = Room(
    True,
    router,
    (
        Section("Snapshots", "/snapshots"),
        Section("Leaderboard", "/leaderboard.html"),
    ),
)
