"""Files that are whole or absent, and claims on work that end with the process that made them."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import BaseFileLock, FileLock, Timeout

from medlive.errors import DiskFull

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PART = ".part"


@contextmanager
def whole_file(place: Path) -> Iterator[BinaryIO]:
    """A handle whose bytes stand at `place`, on the disk and all of them, once the block has ended well.

    Until then, and after a failure, nothing stands there. Raises DiskFull, with what to free, if they do not fit.
    """
    part = place.with_name(place.name + PART)
    try:
        with part.open("wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        part.replace(place)
        sync_folder(place.parent)
    except BaseException as exc:
        part.unlink(missing_ok=True)
        if isinstance(exc, OSError) and exc.errno in _FULL:
            raise disk_full(part, exc) from exc
        raise


def disk_full(place: Path, exc: OSError) -> DiskFull:
    """The error for a file that could not be written in whole."""
    return DiskFull(
        f"{place} could not be written: {exc.strerror}",
        hint=f"free space below {place.parent}, or let this user write more there, and run the same command"
        " again: every finished shard stays and is not made again",
    )


def is_disk_full(exc: OSError) -> bool:
    """Whether the system said that there is no room: a full disk, a quota or a limit on file sizes."""
    return exc.errno in _FULL


def sync_folder(folder: Path) -> None:
    """Make renames within the folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Claim:
    """The right to do a piece of work, held by a lock on a file.

    The system releases the lock when the process ends, however it ends. On a folder that
    several machines share it needs a file system that passes such locks on: NFS does from version 4, or with a
    running lock daemon before, unless it is mounted `nolock` or `local_lock=flock`.
    """

    def __init__(self, place: Path, lock: BaseFileLock) -> None:
        self._place = place
        self._lock = lock

    @classmethod
    def take(cls, place: Path) -> "Claim | None":
        """The claim, or None while another process or thread holds it."""
        lock = FileLock(place, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            return None
        return cls(place, lock)

    def release(self, *, remove: bool = False) -> None:
        """Let go; with `remove` the file goes too: only after the work's result stands, since a process that
        already has the file open may then take a claim of its own and must find the work done."""
        if remove:
            self._place.unlink(missing_ok=True)
        self._lock.release()
