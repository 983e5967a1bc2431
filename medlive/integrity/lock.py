"""One writer at a time: an exclusive lock that the system releases when its holder dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from medlive.errors import MedliveError


class Locked(MedliveError):
    """Another process is writing here."""

    exit_status = 3


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, which is made when it is missing, for this process alone.

    Raises Locked at once when another process holds it: two runs that wait for each other would pay twice.
    """
    try:
        lock = FileLock(path, timeout=0).acquire()
    except Timeout as exc:
        raise Locked(
            f"another process is writing {path}", hint="wait until it ends, or end it, and run this again"
        ) from exc
    with lock:
        yield
