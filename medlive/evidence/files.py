"""Files that are complete or absent, and a full disk as an error of its own."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from medlive.errors import NO_SPACE, DiskFull


@contextmanager
def room_for(place: Path) -> Iterator[None]:
    """Turn a full disk within the block into DiskFull for that file."""
    try:
        yield
    except OSError as exc:
        if exc.errno not in NO_SPACE:
            raise
        raise DiskFull(
            f"{place} could not be written: {exc.strerror}",
            hint=f"free space below {place.parent}, or let this user write more there, and run the same command"
            " again: every finished shard stays and is not made again, and an index that was there is still in force",
        ) from exc


ABANDONED_S = 3600.0
"""A file that nobody has written to for so long is of a killed process."""


def sweep_parts(folder: Path) -> None:
    """Remove what killed writers of `whole_file` left in a folder."""
    for part in folder.glob("*.part"):
        with suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > ABANDONED_S:
                part.unlink()


@contextmanager
def whole_file(place: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears at `place` only if the block succeeds. Raises DiskFull."""
    # Another process may be writing the same file.
    part = place.with_name(f"{place.name}.{secrets.token_hex(4)}.part")
    try:
        with room_for(place):
            with part.open("wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            part.replace(place)
    finally:
        part.unlink(missing_ok=True)
