"""The few files of `static/`, each served under a name with its digest, so that it may be kept for ever."""

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, HTTPException, Response

from medlive.integrity.digest import digest_bytes
from medlive.publishing.target import IMMUTABLE, media_type
from medlive.web.site import READ

router = APIRouter(include_in_schema=False)


@cache
def _served() -> dict[str, tuple[str, bytes]]:
    """Name with digest → name and content."""
    served = {}
    for path in files("medlive.web").joinpath("static").iterdir():
        stem, _, suffix = path.name.rpartition(".")
        if suffix in ("svg", "css", "js"):
            data = path.read_bytes()
            digest = digest_bytes(data).removeprefix("sha256:")[:16]
            served[f"{stem}.{digest}.{suffix}"] = path.name, data
    return served


@cache
def static_url(name: str) -> str:
    """Return the address of a file of `static/`. Raises KeyError if it does not exist."""
    names = {plain: served for served, (plain, _) in _served().items()}
    return f"/static/{names[name]}"


@router.api_route("/static/{name}", methods=READ)
async def static_file(name: str) -> Response:
    """A file of `static/`, by its name with digest."""
    if name not in _served():
        raise HTTPException(404)
    plain, data = _served()[name]
    headers = {"Cache-Control": IMMUTABLE}
    return Response(
        data,
        media_type=media_type(plain),
        headers=headers,
    )
