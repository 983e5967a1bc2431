"""The read-only web: whether the database answers, where the threads stand, and the frozen snapshots' files.

Text that came from a community or an engine is only ever shown escaped, and no page runs a script.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from aiohttp import hdrs, web
from jinja2 import Environment, PackageLoader, StrictUndefined

from medlive import __version__
from medlive.db.curation.funnel import funnel
from medlive.db.release.snapshots import find_snapshot, list_snapshots
from medlive.db.session import Database, ping
from medlive.db.tables.release import SnapshotState
from medlive.errors import DatabaseUnavailable, ServiceUnavailable
from medlive.integrity.folder import list_files, sha256
from medlive.snapshot.identity import folder_name
from medlive.snapshot.model import week_end

DATABASE: Final = web.AppKey("database", Database)
SNAPSHOTS: Final = web.AppKey("snapshots", Path)
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_TEMPLATES: Final = Environment(
    loader=PackageLoader("medlive.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def build_app(database: Database, snapshots: Path) -> web.Application:
    """The application; `snapshots` is the folder of frozen snapshots, `database` stays its owner's."""
    app = web.Application(middlewares=[_unavailable])
    app[DATABASE], app[SNAPSHOTS] = database, snapshots
    app.router.add_get("/health", _health)
    app.router.add_get("/", _status)
    app.router.add_get("/snapshots/{version}/{file:.+}", _file)
    app.on_response_prepare.append(_finish)
    return app


@asynccontextmanager
async def serve_web(database: Database, snapshots: Path, host: str, port: int) -> AsyncIterator[str]:
    """Serve while the context lasts; yields the address. `port` 0 takes a free one.

    Raises ServiceUnavailable when the address is taken.
    """
    runner = web.AppRunner(build_app(database, snapshots), shutdown_timeout=2.0)
    try:
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ServiceUnavailable(
                f"cannot listen on {host}:{port}: {error.strerror or error}", hint="choose another port"
            ) from error
        bound = runner.addresses[0]
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        yield f"http://{shown}:{bound[1]}"
    finally:
        await runner.cleanup()


@web.middleware
async def _unavailable(request: web.Request, handler: Any) -> web.StreamResponse:
    """Answer 503 while the database cannot be reached, without its address."""
    try:
        answer: web.StreamResponse = await handler(request)
    except DatabaseUnavailable:
        return web.Response(status=503, text="the database cannot be reached\n", headers={"Retry-After": "10"})
    return answer


async def _finish(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    if isinstance(response, _FrozenFile) and response.status in {200, 206}:
        # Here, since FileResponse sets an ETag of its own from the file's time.
        response.headers.update(_lasting(response.digest))


async def _health(request: web.Request) -> web.Response:
    try:
        async with asyncio.timeout(5), request.app[DATABASE].begin() as session:
            await ping(session)
    except (DatabaseUnavailable, TimeoutError):
        return web.json_response({"status": "unavailable", "database": "unreachable"}, status=503)
    return web.json_response({"status": "ok", "database": "ok", "version": __version__})


async def _status(request: web.Request) -> web.Response:
    async with request.app[DATABASE].begin() as session:
        rows = await funnel(session)
        snapshots = await list_snapshots(session)
    frozen = [(s, _files(request.app[SNAPSHOTS], s.version)) for s in snapshots if s.state is SnapshotState.FROZEN]
    page = _TEMPLATES.get_template("status.html").render(funnel=rows, snapshots=frozen, version=__version__)
    return web.Response(text=page, content_type="text/html", headers={hdrs.CACHE_CONTROL: "no-store"})


def _files(snapshots: Path, version: str) -> list[str]:
    """The names of the plain files in a snapshot's folder, as its SHA256SUMS names them; links are left out."""
    return sorted(list_files(snapshots / folder_name(version)).files)


async def _file(request: web.Request) -> web.StreamResponse:
    version, name = request.match_info["version"], request.match_info["file"]
    if week_end(version) is None:
        raise web.HTTPNotFound
    async with request.app[DATABASE].begin() as session:
        info = await find_snapshot(session, version)
    snapshots = request.app[SNAPSHOTS]
    # A name becomes a path only if it is among the existing files.
    if info is None or info.state is not SnapshotState.FROZEN or name not in _files(snapshots, version):
        raise web.HTTPNotFound
    path = snapshots / folder_name(version) / name
    stat = path.stat()
    digest = await asyncio.to_thread(_digest, path, stat.st_mtime_ns, stat.st_size)
    if any(tag.value in (digest, "*") for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=_lasting(digest))
    return _FrozenFile(path, digest)


class _FrozenFile(web.FileResponse):
    """A file that never changes, with its SHA-256."""

    def __init__(self, path: Path, digest: str) -> None:
        super().__init__(path)
        self.digest = digest


def _lasting(digest: str) -> dict[str, str]:
    return {hdrs.ETAG: f'"{digest}"', hdrs.CACHE_CONTROL: "public, max-age=31536000, immutable"}


@lru_cache(maxsize=1024)
def _digest(path: Path, mtime_ns: int, size: int) -> str:
    """A file's SHA-256, computed again when the file is another."""
    return sha256(path)
