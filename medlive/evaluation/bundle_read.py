"""Reading a bundle that nobody vouches for: into memory and no further, following nothing, writing nothing."""

import io
import os
import stat
import zipfile
from collections import Counter
from pathlib import Path
from typing import Final

from medlive.errors import BadInput
from medlive.evaluation.bundle import ALWAYS, ANSWERS, archive
from medlive.snapshot.entries import Faults
from medlive.snapshot.folder import (
    SIGNATURE,
    SUMS,
    TooLong,
    list_files,
    open_inside,
    printable,
    read_all,
    read_small,
)

MOST_BUNDLE: Final = 2**31
"""Bytes of an archive, and of a folder's files together."""
KNOWN: Final = frozenset({*ALWAYS, *ANSWERS, SUMS, SIGNATURE})
_NOTHING: Final = "nothing but the files of a bundle"
_MOST_ENTRIES: Final = 1_000


def read_bundle(path: Path) -> tuple[dict[str, bytes], Faults]:
    """The files of the bundle at `path` that are a bundle's, and what else is odd there.

    Raises BadInput when there is neither an archive nor a folder.
    """
    faults = Faults()
    if path.is_dir() or path.is_symlink():
        return _folder(path, faults), faults
    try:
        data = read_small(path, MOST_BUNDLE)
    except (OSError, TooLong) as exc:
        raise BadInput(f"{path} cannot be read as a bundle: {exc}") from exc
    return _archive(data, faults), faults


def _folder(root: Path, faults: Faults) -> dict[str, bytes]:
    listing = list_files(root)
    for fault in listing.faults:
        faults.put(fault)
    for name in sorted(listing.files - KNOWN):
        faults.add(name, _NOTHING, "a file")
    files: dict[str, bytes] = {}
    left = MOST_BUNDLE
    for name in sorted(listing.files & KNOWN):
        try:
            with open_inside(root, name) as handle:
                files[name] = read_all(handle, name, left)
            left -= len(files[name])
        except TooLong:
            faults.add(name, f"at most {MOST_BUNDLE} bytes in all", "more")
        except OSError as exc:
            faults.add(name, "a file that can be read", exc.strerror or str(exc)[:200])
    # An empty folder is no file, and so not in the listing.
    for entry in _folders(root):
        faults.add(printable(entry), _NOTHING, "a folder")
    return files


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))[:5]
    except OSError:  # named by the listing already
        return []


def _archive(data: bytes, faults: Faults) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            entries = packed.infolist()
            if len(entries) > _MOST_ENTRIES:
                faults.add(".", f"at most {_MOST_ENTRIES} entries", str(len(entries)))
                return {}
            for name, times in Counter(entry.filename for entry in entries).items():
                if times > 1:
                    faults.add(printable(name)[:200], "one entry of that name", str(times))
            for entry in entries:
                name = printable(entry.filename)[:200]
                if entry.filename not in KNOWN:
                    faults.add(name, _NOTHING, _kind(entry))
                elif (mode := entry.external_attr >> 16) and not stat.S_ISREG(mode):
                    faults.add(name, "a plain file", _kind(entry))
                elif entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
                    faults.add(name, "a file that is stored as it is", "one that is compressed")
                elif entry.flag_bits & 1:
                    faults.add(name, "a file that is not encrypted", "an encrypted one")
                elif entry.filename not in files and entry.file_size <= len(data):
                    files[entry.filename] = packed.read(entry)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, ValueError, OSError) as exc:
        faults.add(".", "a whole zip archive", str(exc)[:200] or type(exc).__name__)
        return files
    if not faults.count and archive(files) != data:
        faults.add(".", "an archive as medlive writes it", "other bytes around the same files")
    return files


def _kind(entry: zipfile.ZipInfo) -> str:
    if entry.is_dir():
        return "a folder"
    return "a symbolic link" if stat.S_ISLNK(entry.external_attr >> 16) else "a file"
