"""One writer at a time: an exclusive lock that the system lets go of when its holder dies."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from medlive.errors import MedliveError


class Locked(MedliveError):
    """Another process is writing here."""

    exit_status = 3


@contextmanager
def exclusive(path: Path) -> Iterator[IO[bytes]]:
    """Hold the file at `path` (made when missing) for this process alone; gives it open to read and append.

    Raises Locked at once when another process holds it: two runs that wait for each other would pay twice.
    """
    with path.open("a+b") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise Locked(
                f"another process is writing {path}", hint="wait until it ends, or end it, and run this again"
            ) from exc
        yield handle
