"""Files that are complete or absent, and a full disk as an error of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def whole_file(place: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears at `place` only if the block succeeds. Raises DiskFull."""
    part = place.with_name(f"{place.name}.part")
    try:
        with room_for(place):
            with part.open("wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            part.replace(place)
    finally:
        part.unlink(missing_ok=True)
