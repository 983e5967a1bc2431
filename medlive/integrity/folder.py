"""Lists and reads the files of an untrusted snapshot's folder, following no link, and reads files that a user names.

A file that a user names may be a link, or a pipe such as `<(…)` whose writer ends; a corpus may not be a pipe.
"""

import errno
import hashlib
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from medlive.guard.bounds import (
    GIVEN_BYTES,
    SMALL_FILE_BYTES,
    SNAPSHOT_FILE_BYTES,
    SNAPSHOT_FILES,
    SNAPSHOT_LINE_BYTES,
)
from medlive.guard.printable import printable

from .paths import open_plain

SUMS = "SHA256SUMS"
"""The file with the digests of all others, in the format of sha256sum."""

SIGNATURE = "SHA256SUMS.minisig"
"""The detached signature of SHA256SUMS; it exists exactly when the manifest names a key."""

SIGNATURE_COMMENT = "signature of a medlive snapshot"
"""The signature's untrusted comment, fixed since it is not signed."""

_SUM_LINE = re.compile(r"([0-9a-f]{64})  ([^\n\r\\]+)")
FOLDERS = ("data", "figures")
"""The folders in a snapshot's folder."""

REQUIRED = (
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


@dataclass(frozen=True)
class Finding:
    """One fault: the file, what was expected and what was found."""

    file: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.file}: expected {self.expected}, got {self.got}"


class TooLong(OSError):
    """A file or a line is longer than any of a snapshot; an OSError, since it cannot be read."""


def list_files(root: Path) -> tuple[dict[str, int], list[Finding]]:
    """List the regular files under `root`; links, devices and unprintable names are faults.

    Returns the files by their relative paths with `/`, each with its bytes, and the faults.
    """
    if not _is_folder(root):
        got = "a symbolic link" if root.is_symlink() else "not a folder"
        return {}, [Finding(".", "a folder", got)]
    sizes: dict[str, int] = {}
    faults: list[Finding] = []
    for prefix in ("", *(f"{name}/" for name in FOLDERS)):
        # Another entry of a folder's name is a fault that is found in the root.
        if _is_folder(root / prefix):
            try:
                _list_folder(root, prefix, sizes, faults)
            except OSError as exc:
                got = exc.strerror or str(exc)
                faults.append(Finding(prefix or ".", "a readable folder", got))
    return sizes, faults


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _list_folder(
    root: Path,
    prefix: str,
    sizes: dict[str, int],
    faults: list[Finding],
) -> None:
    """Add the files of a folder, "" or a name with `/`, to `sizes`, and its other entries to `faults`."""
    # Cut before sorting, since a folder may have a million entries.
    with os.scandir(root / prefix) as entries:
        listed = []
        for entry in islice(entries, SNAPSHOT_FILES + 1):
            listed.append((entry.name, entry.stat(follow_symlinks=False)))
    for own_name, status in sorted(listed):
        name = prefix + own_name
        mode = status.st_mode
        if stat.S_ISREG(mode) and status.st_size > SNAPSHOT_FILE_BYTES:
            most = f"at most {SNAPSHOT_FILE_BYTES} bytes"
            faults.append(Finding(printable(name), most, f"{status.st_size}"))
        elif stat.S_ISREG(mode) and name.isprintable():
            sizes[name] = status.st_size
        elif not (stat.S_ISDIR(mode) and name in FOLDERS):
            expected = "nothing but the files of a snapshot"
            got = f"an entry of mode {stat.filemode(mode)}"
            faults.append(Finding(printable(name), expected, got))
    if len(listed) > SNAPSHOT_FILES:
        most = f"at most {SNAPSHOT_FILES} entries"
        faults.append(Finding(prefix or ".", most, "more"))


def sha256(path: Path) -> str:
    """Return the digest of a file, as sha256sum prints it. Raises OSError."""
    with open_plain(path) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def parse_sums(sums: bytes) -> dict[str, str]:
    """Return name → sha256 as SHA256SUMS states them; malformed lines are left out."""
    digests = {}
    for row in sums.decode("utf-8", "replace").split("\n"):
        if match := _SUM_LINE.fullmatch(row):
            digests[match[2]] = match[1]
    return digests


def sums_text(digests: Mapping[str, str]) -> str:
    """Return SHA256SUMS for name → sha256."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def read_small(path: Path, max_bytes: int = SMALL_FILE_BYTES) -> bytes:
    """Read a file whole. Raises OSError, which is TooLong above `max_bytes`."""
    with open_plain(path) as handle:
        if os.fstat(handle.fileno()).st_size > max_bytes:
            raise TooLong(f"{path.name} has more than {max_bytes} bytes")
        return handle.readall()


def open_given(path: Path) -> io.FileIO:
    """Open a file that a user named; links are followed, and a pipe is read until its writer ends.

    Raises:
        OSError: If it cannot be opened, or is a folder or a device, which may never end.
    """
    handle = io.FileIO(path)
    mode = os.fstat(handle.fileno()).st_mode
    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return handle
    handle.close()
    raise OSError(errno.EINVAL, "it is a device, expected a file or a pipe", str(path))


def read_given(path: Path, most: int = GIVEN_BYTES) -> bytes:
    """Return the bytes of a file that a user named. Raises OSError as `open_given`, and TooLong."""
    with open_given(path) as handle:
        return read_to_end(handle, path.name, most)


def read_to_end(
    handle: io.FileIO,
    name: str,
    most: int,
) -> bytes:
    """Return what is left of an open file. Raises OSError, which is TooLong for more than `most` bytes."""
    data = bytearray()
    while block := handle.read(min(1 << 20, most + 1 - len(data))):
        data += block
        if len(data) > most:
            raise TooLong(f"{name} has more than {most} bytes")
    return bytes(data)


def lines(source: Path | io.FileIO) -> Iterator[bytes]:
    """Yield the lines of a file, with their ends, split at `\\n` alone. Raises OSError, and TooLong."""
    opened = open_plain(source) if isinstance(source, Path) else source
    with io.BufferedReader(opened, 256 * 1024) as handle:
        while data := handle.readline(SNAPSHOT_LINE_BYTES):
            if len(data) >= SNAPSHOT_LINE_BYTES:
                raise TooLong(f"a line has {SNAPSHOT_LINE_BYTES} bytes or more")
            yield data


def sync(*paths: Path) -> None:
    """Flush files and folders to the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
