"""An exclusive lock on a file, which the system releases when the process ends."""

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
    """Hold the lock file at `path`, which is created if it is missing.

    Raises Locked at once if another process holds it: a second run that waited would pay for its requests again.
    """
    try:
        lock = FileLock(path, timeout=0).acquire()
    except Timeout as exc:
        raise Locked(
            f"another process is writing {path}",
            hint="wait until it ends, or end it, then run this again",
        ) from exc
    with lock:
        yield
