"""A snapshot's folder as it lies on a disk that nobody vouches for: listed and read without following anything."""

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
"""The file that names every other one with its digest, in the format of sha256sum."""

SIGNATURE: Final = "SHA256SUMS.minisig"
"""The detached signature of SHA256SUMS, there exactly when the manifest names a key."""

SIGNATURE_COMMENT: Final = "signature of a medlive snapshot"
"""The signature's untrusted comment. No key covers it, so that only one text can be the right one."""

FOLDERS: Final = ("data", "figures")
"""The folders in a snapshot's folder."""

MOST_FILES: Final = 1_000
MOST_FILE: Final = 16 * 1024**3
"""A longer file is not read at all: one without blocks on the disk may claim any length."""
MOST_LINE: Final = 16 * 1024 * 1024
"""A longer line is no row: reading stops there, so that a hostile file cannot fill the memory."""
MOST_SMALL: Final = 64 * 1024 * 1024
"""The most that a file which is read whole may hold."""
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
"""What every snapshot holds besides SHA256SUMS and its signature."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: in which file, what should be there and what is."""

    file: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.file}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True, slots=True)
class Listing:
    """The regular files under a folder, by their path in it with `/`, and what else lay there."""

    files: frozenset[str]
    faults: tuple[Finding, ...] = field(default=())
    stamps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """File → what the system says of it that no writing leaves as it was: its number, size and times."""


class TooLong(Exception):
    """A file or a line is longer than anything a snapshot holds."""


def list_files(root: Path) -> Listing:
    """Every regular file under `root`; symbolic links, devices and odd names are faults, and are not followed."""
    stamps: dict[str, tuple[int, ...]] = {}
    faults: list[Finding] = []
    if root.is_symlink() or not root.is_dir():
        got = "a symbolic link" if root.is_symlink() else "no folder"
        return Listing(frozenset(), (Finding(".", "a folder", got),))
    pending = [("", root)]
    while pending:
        prefix, folder = pending.pop()
        try:
            # Cut before it is sorted: a folder may have a million entries.
            with os.scandir(folder) as entries:
                found = sorted(islice(entries, MOST_FILES + 1), key=lambda e: e.name)
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
            elif status.st_size > MOST_FILE:
                faults.append(Finding(name, f"at most {MOST_FILE} bytes", f"{status.st_size}"))
            else:
                stamps[name] = _stamp(status)
            if len(stamps) + len(faults) > MOST_FILES:
                faults.append(Finding(".", f"at most {MOST_FILES} entries", "more"))
                return Listing(frozenset(stamps), tuple(faults), stamps)
    return Listing(frozenset(stamps), tuple(faults), stamps)


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISDIR(mode):
        return "another folder"
    return "a file with an odd name" if stat.S_ISREG(mode) else "something that is no file"


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def printable(name: str) -> str:
    """A name that can stand in a report whatever bytes it is made of."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in name)


def open_plain(path: Path) -> io.FileIO:
    """A regular file, open for reading without a buffer; a link is not followed and a pipe not waited for.

    Raises OSError, also for what is no regular file.
    """
    return _plain(os.open(path, _READ), path.name)


def open_inside(root: Path, name: str) -> io.FileIO:
    """The same for a file of a snapshot's folder, where no part of the name may be a link. Raises OSError."""
    *folders, last = name.split("/")
    held = [os.open(root, _READ | _FOLDER)]
    try:
        for folder in folders:
            held.append(os.open(folder, _READ | _FOLDER, dir_fd=held[-1]))
        return _plain(os.open(last, _READ, dir_fd=held[-1]), name)
    except OSError as exc:
        exc.filename = name
        raise
    finally:
        for descriptor in held:
            os.close(descriptor)


_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER: Final = os.O_DIRECTORY


def _plain(descriptor: int, name: str) -> io.FileIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", name)
    return io.FileIO(descriptor, "rb")


def sha256(path: Path) -> str:
    """The digest of a file's bytes, as sha256sum prints it. Raises OSError."""
    with open_plain(path) as handle:
        return digest_of(handle)


def digest_of(handle: io.FileIO) -> str:
    """The digest of what is left of an open file, as sha256sum prints it."""
    # Large pieces: whoever hashes beside a busy thread waits for the interpreter once a piece.
    digest, buffer = hashlib.sha256(), bytearray(min(_PIECE, os.fstat(handle.fileno()).st_size + 1))
    view = memoryview(buffer)
    while size := handle.readinto(buffer):
        digest.update(view[:size])
    return digest.hexdigest()


def read_small(path: Path, most: int = MOST_SMALL) -> bytes:
    """A file's bytes, read whole. Raises TooLong, or OSError."""
    with open_plain(path) as handle:
        return read_all(handle, path.name, most)


def read_all(handle: io.FileIO, name: str, most: int = MOST_SMALL) -> bytes:
    """The bytes of an open file, read whole. Raises TooLong, or OSError."""
    if os.fstat(handle.fileno()).st_size > most:
        raise TooLong(f"{name} holds more than {most} bytes")
    parts, size = [], 0
    while piece := handle.read(_PIECE):
        parts.append(piece)
        size += len(piece)
        if size > most:
            raise TooLong(f"{name} holds more than {most} bytes")
    return b"".join(parts)


def lines(source: Path | io.FileIO) -> Iterator[bytes]:
    """Yield the lines of a file, with their ends, split at `\\n` alone. Raises TooLong, or OSError."""
    opened = open_plain(source) if isinstance(source, Path) else source
    with io.BufferedReader(opened, _BUFFER) as handle:
        while data := handle.readline(MOST_LINE):
            if len(data) >= MOST_LINE:
                raise TooLong(f"a line has {MOST_LINE} bytes or more")
            yield data
