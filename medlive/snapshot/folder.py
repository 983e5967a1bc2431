"""A snapshot's folder as it lies on a disk that nobody vouches for: listed and read without following anything."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SUMS: Final = "SHA256SUMS"
"""The file that names every other one with its digest, in the format of sha256sum."""

SIGNATURE: Final = "SHA256SUMS.minisig"
"""The detached signature of SHA256SUMS, there exactly when the manifest names a key."""

FOLDERS: Final = ("data", "figures")
"""The folders in a snapshot's folder."""

MOST_FILES: Final = 1_000
MOST_LINE: Final = 64 * 1024 * 1024
"""A longer line is no row: reading stops there, so that a hostile file cannot fill the memory."""
MOST_SMALL: Final = 64 * 1024 * 1024
"""The most that a file which is read whole may hold."""

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


class TooLong(Exception):
    """A file or a line is longer than anything a snapshot holds."""


def list_files(root: Path) -> Listing:
    """Every regular file under `root`; symbolic links, devices and odd names are faults, and are not followed."""
    files: set[str] = set()
    faults: list[Finding] = []
    if root.is_symlink() or not root.is_dir():
        got = "a symbolic link" if root.is_symlink() else "no folder"
        return Listing(frozenset(), (Finding(".", "a folder", got),))
    pending = [("", root)]
    while pending:
        prefix, folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda e: e.name)
        except OSError as exc:
            faults.append(Finding(_printable(prefix) or ".", "a readable folder", exc.strerror or str(exc)))
            continue
        for entry in found:
            name = prefix + entry.name
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) and name in FOLDERS:
                pending.append((f"{name}/", Path(entry.path)))
            elif stat.S_ISREG(mode) and _printable(name) == name:
                files.add(name)
            else:
                faults.append(Finding(_printable(name), "nothing but the files of a snapshot", _kind(mode)))
            if len(files) + len(faults) > MOST_FILES:
                faults.append(Finding(".", f"at most {MOST_FILES} entries", "more"))
                return Listing(frozenset(files), tuple(faults))
    return Listing(frozenset(files), tuple(faults))


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISDIR(mode):
        return "another folder"
    return "a file with an odd name" if stat.S_ISREG(mode) else "something that is no file"


def _printable(name: str) -> str:
    """A name that can stand in a report whatever bytes it is made of."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in name)


def sha256(path: Path) -> str:
    """The digest of a file's bytes, as sha256sum prints it."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def read_small(path: Path) -> bytes:
    """A file's bytes, read whole. Raises TooLong, or OSError."""
    with path.open("rb") as handle:
        data = handle.read(MOST_SMALL + 1)
    if len(data) > MOST_SMALL:
        raise TooLong(f"{path.name} holds more than {MOST_SMALL} bytes")
    return data


def lines(path: Path) -> Iterator[bytes]:
    """A file's lines with their ends, cut at `\\n` alone. Raises TooLong, or OSError."""
    with path.open("rb") as handle:
        while data := handle.readline(MOST_LINE):
            if len(data) >= MOST_LINE:
                raise TooLong(f"{path.name} has a line of {MOST_LINE} bytes or more")
            yield data
