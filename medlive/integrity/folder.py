"""Listing and reading an untrusted snapshot's folder without following links."""

import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

SUMS: Final = "SHA256SUMS"
"""The file with the digests of all others, in the format of sha256sum."""

SIGNATURE: Final = "SHA256SUMS.minisig"
"""The detached signature of SHA256SUMS; it exists exactly when the manifest names a key."""

SIGNATURE_COMMENT: Final = "signature of a medlive snapshot"
"""The signature's untrusted comment, fixed since it is not signed."""

FOLDERS: Final = ("data", "figures")
"""The folders in a snapshot's folder."""

MAX_FILES: Final = 1_000
MAX_FILE: Final = 16 * 1024**3
"""Longer files are not read: a sparse file may have any length."""
MAX_LINE: Final = 16 * 1024 * 1024
"""Reading stops at a longer line, so that a hostile file cannot fill the memory."""
MAX_SMALL: Final = 64 * 1024 * 1024
"""The most bytes of a file that is read whole."""
_PIECE: Final = 8 * 1024 * 1024
_BUFFER: Final = 256 * 1024

REQUIRED: Final = (
    "CHANGES.md",
    "LICENSE",
    "README.md",
    "changes.json",
    "croissant.json",
    "data/cases.jsonl",
    "data/cases.parquet",
    "data/criteria.jsonl",
    "data/criteria.parquet",
    "figures/axes.svg",
    "figures/criteria-per-case.svg",
    "figures/months.svg",
    "figures/sources.svg",
    "figures/specialties.svg",
    "figures/themes.svg",
    "holdouts.json",
    "livemedbench.json",
    "manifest.json",
)
"""The files of every snapshot besides SHA256SUMS and its signature."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: the file, what was expected and what was found."""

    file: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.file}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True, slots=True)
class Listing:
    """The regular files in a folder, by their relative path with `/`, and faults for everything else."""

    files: frozenset[str]
    faults: tuple[Finding, ...] = field(default=())
    stamps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """File → the part of its status that changes with every write: inode, size and times."""


class TooLong(Exception):
    """A file or a line is longer than anything a snapshot holds."""


def list_files(root: Path) -> Listing:
    """List the regular files under `root`; links, devices and unprintable names are faults."""
    stamps: dict[str, tuple[int, ...]] = {}
    faults: list[Finding] = []
    if root.is_symlink() or not root.is_dir():
        got = "a symbolic link" if root.is_symlink() else "not a folder"
        return Listing(frozenset(), (Finding(".", "a folder", got),))
    pending = [("", root)]
    while pending:
        prefix, folder = pending.pop()
        try:
            # Cut before sorting, since a folder may have a million entries.
            with os.scandir(folder) as entries:
                found = sorted(islice(entries, MAX_FILES + 1), key=lambda e: e.name)
            seen = [(entry, entry.stat(follow_symlinks=False)) for entry in found]
        except OSError as exc:
            faults.append(Finding(printable(prefix) or ".", "a readable folder", exc.strerror or str(exc)))
            continue
        for entry, status in seen:
            name, mode = prefix + entry.name, status.st_mode
            if stat.S_ISDIR(mode) and name in FOLDERS:
                pending.append((f"{name}/", Path(entry.path)))
            elif not stat.S_ISREG(mode) or printable(name) != name:
                faults.append(Finding(printable(name), "nothing but the files of a snapshot", _kind(mode)))
            elif status.st_size > MAX_FILE:
                faults.append(Finding(name, f"at most {MAX_FILE} bytes", f"{status.st_size}"))
            else:
                stamps[name] = _stamp(status)
            if len(stamps) + len(faults) > MAX_FILES:
                faults.append(Finding(".", f"at most {MAX_FILES} entries", "more"))
                return Listing(frozenset(stamps), tuple(faults), stamps)
    return Listing(frozenset(stamps), tuple(faults), stamps)


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISDIR(mode):
        return "another folder"
    return "a file with an unprintable name" if stat.S_ISREG(mode) else "not a regular file"


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def printable(name: str) -> str:
    """Return the text with unprintable characters escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in name)


def open_plain(path: Path) -> io.FileIO:
    """Open a regular file for unbuffered reading, without following a link or waiting for a pipe.

    Raises OSError, also if it is not a regular file.
    """
    return _plain(os.open(path, _READ), path.name)


def open_inside(root: Path, name: str) -> io.FileIO:
    """Open a file of a snapshot's folder likewise; no part of its name may be a link. Raises OSError."""
    *folders, last = name.split("/")
    opened = [os.open(root, _READ | _FOLDER)]
    try:
        for folder in folders:
            opened.append(os.open(folder, _READ | _FOLDER, dir_fd=opened[-1]))
        return _plain(os.open(last, _READ, dir_fd=opened[-1]), name)
    except OSError as exc:
        exc.filename = name
        raise
    finally:
        for descriptor in opened:
            os.close(descriptor)


_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER: Final = os.O_DIRECTORY


def _plain(descriptor: int, name: str) -> io.FileIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return io.FileIO(descriptor, "rb")


def sha256(path: Path) -> str:
    """Return the digest of a file, as sha256sum prints it. Raises OSError."""
    with open_plain(path) as handle:
        return digest_of(handle)


def digest_of(handle: io.FileIO) -> str:
    """Return the digest of the rest of an open file, as sha256sum prints it."""
    digest = hashlib.sha256()
    while piece := handle.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()


def read_small(path: Path, max_bytes: int = MAX_SMALL) -> bytes:
    """Read a file whole. Raises TooLong, or OSError."""
    with open_plain(path) as handle:
        return read_all(handle, path.name, max_bytes)


def read_all(handle: io.FileIO, name: str, max_bytes: int = MAX_SMALL) -> bytes:
    """Read an open file whole. Raises TooLong, or OSError."""
    if os.fstat(handle.fileno()).st_size > max_bytes:
        raise TooLong(f"{name} has more than {max_bytes} bytes")
    parts, size = [], 0
    while piece := handle.read(_PIECE):
        parts.append(piece)
        size += len(piece)
        if size > max_bytes:
            raise TooLong(f"{name} has more than {max_bytes} bytes")
    return b"".join(parts)


def lines(source: Path | io.FileIO) -> Iterator[bytes]:
    """Yield the lines of a file, with their ends, split at `\\n` alone. Raises TooLong, or OSError."""
    opened = open_plain(source) if isinstance(source, Path) else source
    with io.BufferedReader(opened, _BUFFER) as handle:
        while data := handle.readline(MAX_LINE):
            if len(data) >= MAX_LINE:
                raise TooLong(f"a line has {MAX_LINE} bytes or more")
            yield data
