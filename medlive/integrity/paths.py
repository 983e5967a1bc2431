"""Names that strangers give: only here does such a name become a file below a folder.

A stranger is whoever names a file in a request, an archive, a manifest or a list of digests, and whoever may have
filled a folder that is read or written here. A name is a relative path with `/` between its parts. Files are
opened part by part from the folder's descriptor, so that a link put in the way meanwhile is not followed either.
"""

import errno
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from medlive.errors import BadInput
from medlive.guard.bounds import NAME_CHARS
from medlive.guard.printable import printable

PRIVATE_FILE = 0o600
"""Rights of a file that only its owner may read."""

PRIVATE_FOLDER = 0o700
"""Rights of a folder that only its owner may enter."""

_DRIVE = re.compile(r"[A-Za-z]:")
# O_NONBLOCK: a pipe must not make the caller wait
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors of opening a link, or a part of a path that is not of the expected kind
_NOT_FOLLOWED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR})


class UnsafePath(BadInput):
    """A name leads out of its folder, or to something other than a plain file."""


def split_name(name: str) -> tuple[str, ...]:
    """Return the parts of a stranger's name.

    Raises:
        UnsafePath: if it is empty, absolute, too long, names a drive, holds a backslash or an unprintable
            character (NUL, a line break), or if a part is empty, `.` or `..`.
    """
    parts = tuple(name.split("/"))
    is_plain = name.isprintable() and "\\" not in name and not _DRIVE.match(name)
    leads_below = {"", ".", ".."}.isdisjoint(parts)
    if len(name) > NAME_CHARS or not is_plain or not leads_below:
        raise UnsafePath(
            f"not a relative path below a folder: {printable(name)[:200]!r}"
        )
    return parts


def path_below(root: Path, name: str) -> Path:
    """Return the path of a file below `root`, which need not exist; nothing on the way to it is a link.

    For callers that hand a path on. Whoever reads or writes the file uses `open_below` or `create_below`.

    Raises:
        UnsafePath: if the name is unsafe, or it or a folder on its way is a link.
    """
    path = root
    for part in split_name(name):
        path = path / part
        if path.is_symlink():
            raise UnsafePath(f"{printable(name)[:200]} leads over a link")
    return path


def open_below(root: Path, name: str) -> io.FileIO:
    """Open a regular file below `root` for unbuffered reading; `root` itself may be a link.

    Raises:
        UnsafePath: if the name is unsafe, or leads over a link or to a folder, pipe, socket or device.
        OSError: if there is no such file, or it cannot be read.
    """
    with _parent_of(root, name) as (parent, last):
        descriptor = _open(last, _READ, parent, name)
    return _as_file(descriptor, name, "rb")


def create_below(root: Path, name: str, *, append: bool = False) -> io.FileIO:
    """Open a regular file below `root` for unbuffered writing, with the folders on its way, made where missing.

    Args:
        root: An existing folder.
        name: A stranger's name.
        append: Write behind what the file holds already; else it is emptied.

    Raises:
        UnsafePath: if the name is unsafe, or leads over a link, to a file with a second name (a hard link), or to
            something other than a regular file.
        OSError: if it cannot be written.
    """
    flags = _WRITE | os.O_APPEND if append else _WRITE
    with _parent_of(root, name, make=True) as (parent, last):
        descriptor = _open(last, flags, parent, name)
    handle = _as_file(descriptor, name, "ab" if append else "wb")
    if not append:
        handle.truncate(0)
    return handle


def open_plain(path: Path) -> io.FileIO:
    """Open a regular file of a known path for unbuffered reading, its last part not followed if it is a link.

    Raises:
        OSError: if there is no such file, or it is a link, a folder, a pipe, a socket or a device.
    """
    try:
        descriptor = _open(str(path), _READ, None, path.name)
        return _as_file(descriptor, path.name, "rb")
    except UnsafePath as exc:
        raise OSError(errno.EINVAL, "not a regular file", str(path)) from exc


def walk(
    root: Path,
    below: str = "",
) -> Iterator[tuple[str, int]]:
    """Yield everything below `root` in the order of names, folders before what they hold; no link is followed.

    Yields an entry's name relative to `root`, with `/`, and its own mode, for `stat.S_ISREG` and its like. `below` is
    where the walk begins: "" or a folder's name with a last `/`. Raises OSError if a folder cannot be read.
    """
    with os.scandir(root / below) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    for entry in entries:
        name = below + entry.name
        mode = entry.stat(follow_symlinks=False).st_mode
        yield name, mode
        if stat.S_ISDIR(mode):
            yield from walk(root, f"{name}/")


@contextmanager
def _parent_of(
    root: Path,
    name: str,
    *,
    make: bool = False,
) -> Iterator[tuple[int, str]]:
    """Yield the descriptor of the folder that holds a name, and the name's last part."""
    *folders, last = split_name(name)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, PRIVATE_FOLDER, dir_fd=descriptor)
            below = _open(folder, _FOLDER, descriptor, name)
            os.close(descriptor)
            descriptor = below
        yield descriptor, last
    finally:
        os.close(descriptor)


def _open(
    part: str,
    flags: int,
    parent: int | None,
    name: str,
) -> int:
    """Open one part of the path `name` in a folder's descriptor. Raises UnsafePath for a link or another kind."""
    try:
        return os.open(part, flags, PRIVATE_FILE, dir_fd=parent)
    except OSError as exc:
        if exc.errno in _NOT_FOLLOWED:
            raise UnsafePath(
                f"{printable(name)[:200]} leads over a link or to no regular file"
            ) from exc
        raise


def _as_file(descriptor: int, name: str, mode: str) -> io.FileIO:
    """The file of an open descriptor, if it is regular; a file to be written must have no second name (hard link)."""
    status = os.fstat(descriptor)
    has_other_name = mode != "rb" and status.st_nlink != 1
    if has_other_name or not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise UnsafePath(
            f"{printable(name)[:200]} is not a regular file of this folder alone"
        )
    return io.FileIO(descriptor, mode)
