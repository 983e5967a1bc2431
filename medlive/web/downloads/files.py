"""A snapshot's files over HTTP: ranges, conditions, and an ETag that is the file's SHA-256."""

import asyncio
import os
from functools import lru_cache
from pathlib import Path
from typing import Final

from fastapi import Request
from fastapi.responses import FileResponse, Response

from medlive.integrity.folder import sha256
from medlive.publishing.target import IMMUTABLE, media_type

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For a figure that is opened by itself: its own styles, and nothing else."""


class _File(FileResponse):
    chunk_size = 1024 * 1024


async def send_file(request: Request, path: Path, cache_control: str = IMMUTABLE) -> Response:
    """Answer GET or HEAD with a file, or a part of it; the file must exist (RFC 9110 §13, §14)."""
    stat = await asyncio.to_thread(path.stat)
    etag = f'"{await asyncio.to_thread(_digest, path, stat.st_mtime_ns, stat.st_size)}"'
    headers = {"ETag": etag, "Cache-Control": cache_control}
    wanted, known = request.headers.get("if-match"), request.headers.get("if-none-match")
    if wanted is not None and not _names(wanted, etag, weak=False):
        return Response(status_code=412, headers=headers)
    if known is not None and _names(known, etag, weak=True):
        return Response(status_code=304, headers=headers)
    headers |= {"Content-Security-Policy": _POLICY, "Content-Length": str(stat.st_size)}
    return _File(path, headers=headers, media_type=media_type(path.name), stat_result=stat)


def _names(condition: str, etag: str, *, weak: bool) -> bool:
    """Whether a list of tags, or `*`, names a file's tag; a weak tag counts in weak comparison only."""
    tags = [tag.strip() for tag in condition.split(",")]
    return "*" in tags or etag in [tag.removeprefix("W/") if weak else tag for tag in tags]


@lru_cache(maxsize=4096)
def _digest(path: os.PathLike[str], mtime_ns: int, size: int) -> str:
    """A file's SHA-256, computed again when the file is another."""
    return sha256(Path(path))
