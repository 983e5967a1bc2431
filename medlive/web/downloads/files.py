"""A file over HTTP: ranges, conditions, and an ETag that is the file's SHA-256 (RFC 9110 §13, §14)."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

from fastapi import HTTPException, Request
from fastapi.responses import FileResponse, Response
from starlette.background import BackgroundTask

from medlive.integrity.folder import sha256
from medlive.publishing.target import IMMUTABLE, media_type

FIGURE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For a file that is opened by itself: the styles of a figure, and nothing else."""
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_BLOCK: Final = 1024 * 1024


class _File(FileResponse):
    chunk_size = _BLOCK


async def send_file(
    request: Request,
    path: Path,
    *,
    expected: str | None = None,
    cache_control: str = IMMUTABLE,
    policy: str = FIGURE_POLICY,
    count: Callable[[], Awaitable[None]] | None = None,
) -> Response:
    """Answer GET or HEAD with a file or one range of it; several ranges are answered with the whole file.

    Args:
        request: What was asked.
        path: The file; 404 if it is not a regular one.
        expected: The SHA-256 that it must have, as 64 hexadecimal digits; None for any. 503 if it has another.
        cache_control: How long it may be kept.
        policy: Its Content-Security-Policy.
        count: Called once a download that starts at the first byte has ended.
    """
    try:
        stat = await asyncio.to_thread(path.lstat)
        digest = await asyncio.to_thread(_digest, path, stat.st_mtime_ns, stat.st_size)
    except OSError as exc:
        raise HTTPException(404) from exc
    if expected not in (None, digest):
        raise HTTPException(503, "This file is damaged here and is not given out until it is restored.")
    headers = {"ETag": f'"{digest}"', "Cache-Control": cache_control}
    if (status := _precondition(request, f'"{digest}"')) is not None:
        return Response(status_code=status, headers=headers)
    start = _keep_one_range(request)
    task = BackgroundTask(count) if count is not None and request.method == "GET" and start == 0 else None
    headers["Content-Security-Policy"] = policy
    return _File(path, headers=headers, media_type=media_type(path.name), stat_result=stat, background=task)


def _precondition(request: Request, etag: str) -> int | None:
    """412 or 304 where If-Match or If-None-Match asks for it; the first compares strongly, the second weakly."""
    wanted, known = (request.headers.getlist(name) for name in ("if-match", "if-none-match"))
    if wanted and not {"*", etag}.intersection(_tags(wanted)):
        return 412
    if known and {"*", etag}.intersection(tag.removeprefix("W/") for tag in _tags(known)):
        return 304
    return None


def _tags(values: list[str]) -> list[str]:
    return [tag.strip() for value in values for tag in value.split(",")]


def _keep_one_range(request: Request) -> int | None:
    """Drop a Range header that is not one valid range of bytes; return the first byte, None if it is unknown."""
    if (text := request.headers.get("range")) is None:
        return 0
    match = _RANGE.fullmatch(text.strip())
    first, last = match.groups() if match else ("", "")
    if first and (not last or int(first) <= int(last)):
        return int(first)
    if last and not first:
        return None
    request.scope["headers"] = [pair for pair in request.scope["headers"] if pair[0] != b"range"]
    return 0


@lru_cache(maxsize=4096)
def _digest(path: Path, mtime_ns: int, size: int) -> str:
    """A file's SHA-256, computed again when the file is another. Raises OSError."""
    return sha256(path)
