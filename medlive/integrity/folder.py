"""Listing and reading an untrusted snapshot's folder without following links."""

import hashlib
import io
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from medlive.guard.bounds import (
    SMALL_FILE_BYTES,
    SNAPSHOT_FILE_BYTES,
    SNAPSHOT_FILES,
    SNAPSHOT_LINE_BYTES,
)
from medlive.guard.printable import printable
from medlive.integrity.paths import open_plain

SUMS: Final = "SHA256SUMS"
"""The file with the digests of all others, in the format of sha256sum."""

SIGNATURE: Final = "SHA256SUMS.minisig"
"""The detached signature of SHA256SUMS; it exists exactly when the manifest names a key."""

SIGNATURE_COMMENT: Final = "signature of a medlive snapshot"
"""The signature's untrusted comment, fixed since it is not signed."""

FOLDERS: Final = ("data", "figures")
"""The folders in a snapshot's folder."""


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
    """The regular files in a folder, and faults for everything else."""

    sizes: Mapping[str, int]  # File, by its relative path with `/` → its bytes
    faults: tuple[Finding, ...] = field(default=())

    @property
    def files(self) -> frozenset[str]:
        """The names of the files."""
        return frozenset(self.sizes)


class TooLong(OSError):
    """A file or a line is longer than anything a snapshot holds: it cannot be read, as with the system's errors."""


def list_files(root: Path) -> Listing:
    """List the regular files under `root`; links, devices and unprintable names are faults."""
    if not _is_folder(root):
        got = "a symbolic link" if root.is_symlink() else "not a folder"
        return Listing({}, (Finding(".", "a folder", got),))
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
    return Listing(sizes, tuple(faults))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _list_folder(
    root: Path,
    prefix: str,
    sizes: dict[str, int],
    faults: list[Finding],
) -> None:
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


def sums_text(digests: Mapping[str, str]) -> str:
    """Return SHA256SUMS for name → sha256."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def read_small(path: Path, max_bytes: int = SMALL_FILE_BYTES) -> bytes:
    """Read a file whole. Raises OSError, as TooLong."""
    with open_plain(path) as handle:
        if os.fstat(handle.fileno()).st_size > max_bytes:
            raise TooLong(f"{path.name} has more than {max_bytes} bytes")
        return handle.readall()


def lines(source: Path | io.FileIO) -> Iterator[bytes]:
    """Yield the lines of a file, with their ends, split at `\\n` alone. Raises OSError, as TooLong."""
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
