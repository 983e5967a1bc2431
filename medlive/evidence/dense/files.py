"""Files that are complete or absent, and locks that end with their process."""

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
    """Open a file for writing that appears at `place` only if the block succeeds. Raises DiskFull."""
    part = place.with_name(place.name + PART)
    try:
        with part.open("wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        part.replace(place)
        sync(place.parent)
    except BaseException as exc:
        part.unlink(missing_ok=True)
        if isinstance(exc, OSError) and exc.errno in _FULL:
            raise disk_full(part, exc) from exc
        raise


def disk_full(place: Path, exc: OSError) -> DiskFull:
    """Return the error for a file that does not fit."""
    return DiskFull(
        f"{place} could not be written: {exc.strerror}",
        hint=f"free space below {place.parent}, or let this user write more there, and run the same command"
        " again: every finished shard stays and is not made again",
    )


def is_disk_full(exc: OSError) -> bool:
    """Whether the error is a full disk, a quota or a limit on file sizes."""
    return exc.errno in _FULL


def sync(path: Path) -> None:
    """Flush a file, or the renames within a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Claim:
    """A lock on a file, released by the system when the process ends.

    A folder shared by several machines needs a file system with distributed locks: NFS from version 4, or with a
    lock daemon before, not mounted `nolock` or `local_lock=flock`.
    """

    def __init__(self, place: Path, lock: BaseFileLock) -> None:
        self._place = place
        self._lock = lock

    @classmethod
    def take(cls, place: Path) -> "Claim | None":
        """Return the claim, or None while another process or thread has it."""
        lock = FileLock(place, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            return None
        return cls(place, lock)

    def release(self, *, remove: bool = False) -> None:
        """Release the lock. Remove its file only once the work is done: a process that has the file open may then
        take a claim of its own."""
        if remove:
            self._place.unlink(missing_ok=True)
        self._lock.release()
