"""Write a file of an index so that it is complete or absent, even after a kill: `whole_file`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from medlive.integrity.folder import sync
from medlive.integrity.log import writing


@contextmanager
def whole_file(place: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears at `place` only if the block succeeds. Raises DiskFull and BadInput."""
    part = place.with_name(f"{place.name}.part")
    try:
        with writing(place):
            with part.open("wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            part.replace(place)
            sync(place.parent)
    finally:
        part.unlink(missing_ok=True)
