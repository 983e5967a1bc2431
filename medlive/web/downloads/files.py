"""A file over HTTP: ranges, conditions, and an ETag that is the file's SHA-256 (RFC 9110 §13, §14)."""

import asyncio
import hashlib
import io
import os
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fastapi import HTTPException, Request
from fastapi.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from medlive.integrity.paths import UnsafePath, open_below
from medlive.publishing.target import IMMUTABLE, media_type

FIGURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For a file that is opened by itself: the styles of a figure, and nothing else."""
DAMAGED = "This file is damaged here and is not given out until it is restored."
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_BLOCK = 1024 * 1024


class _File(FileResponse):
    """A file that stays open since it was checked: it is sent even where another file now has its name."""

    chunk_size = _BLOCK

    def __init__(self, handle: io.FileIO, **options: Any) -> None:
        self._handle = handle
        super().__init__(
            f"/dev/fd/{handle.fileno()}",
            stat_result=os.fstat(handle.fileno()),
            **options,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or its head, and close it."""
        with self._handle:
            await super().__call__(scope, receive, send)


async def send_file(
    request: Request,
    root: Path,
    name: str,
    *,
    expected: str | None = None,
    cache_control: str = IMMUTABLE,
    policy: str = FIGURE_POLICY,
) -> Response:
    """Answer GET or HEAD with a file or one range of it; several ranges are answered with the whole file.

    Args:
        request: What was asked.
        root: The folder.
        name: The file below it, as the client names it; 404 unless it is a regular one that no link leads to.
        expected: The SHA-256 that it must have, as 64 hexadecimal digits; None for any. 503 if it has another.
        cache_control: How long it may be kept.
        policy: Its Content-Security-Policy.
    """
    try:
        handle = await asyncio.to_thread(open_below, root, name)
    except (OSError, UnsafePath) as exc:
        raise HTTPException(404) from exc
    with ExitStack() as closed:
        closed.enter_context(handle)
        try:
            digest = await asyncio.to_thread(_digest, handle)
        except OSError as exc:
            raise HTTPException(404) from exc
        if expected not in (None, digest):
            raise HTTPException(503, DAMAGED)
        headers = {"ETag": f'"{digest}"', "Cache-Control": cache_control}
        # If-Match compares strongly, If-None-Match weakly.
        for condition, status in (("if-match", 412), ("if-none-match", 304)):
            tags = ",".join(request.headers.getlist(condition)).split(",")
            known = {tag.strip() for tag in tags}
            if status == 304:
                known = {tag.removeprefix("W/") for tag in known}
            is_met = not known.isdisjoint({"*", headers["ETag"]})
            if known != {""} and is_met is (status == 304):
                return Response(status_code=status, headers=headers)
        closed.pop_all()  # the answer closes it
    _keep_one_range(request)
    headers["Content-Security-Policy"] = policy
    return _File(handle, headers=headers, media_type=media_type(name))


def _keep_one_range(request: Request) -> None:
    """Drop a Range header that is not one valid range of bytes; HEAD has no ranges (RFC 9110 §14.2)."""
    text = request.headers.get("range", "").strip()
    match = _RANGE.fullmatch(text) if request.method == "GET" else None
    first, last = match.groups() if match else ("", "")
    if (first and int(first) <= int(last or first)) or (last and not first):
        return
    kept = [pair for pair in request.scope["headers"] if pair[0] != b"range"]
    request.scope["headers"] = kept


# Device, inode, times and size of a file → its SHA-256
_DIGESTS: dict[tuple[int, ...], str] = {}
_MOST_DIGESTS = 4096


def _digest(handle: io.FileIO) -> str:
    """Return an open file's SHA-256, computed again when the file has changed. Raises OSError."""
    status = os.fstat(handle.fileno())
    state = (
        status.st_dev,
        status.st_ino,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
    )
    if state not in _DIGESTS:
        if len(_DIGESTS) >= _MOST_DIGESTS:
            _DIGESTS.clear()
        _DIGESTS[state] = hashlib.file_digest(handle, "sha256").hexdigest()
        handle.seek(0)
    return _DIGESTS[state]
