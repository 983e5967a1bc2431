"""XML files as they lie in a folder or in zip archives: read one at a time within bounds, never written anywhere."""

import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple
from xml.etree.ElementTree import Element

from medlive.evidence.corpora.model import ReadLog
from medlive.evidence.corpora.parsing.xml import UnsafeXml, local, parse

_DAMAGE = (
    zipfile.BadZipFile,
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    RuntimeError,
    NotImplementedError,
)
_ENCRYPTED = 1


class Member(NamedTuple):
    """A file, or a member of an archive."""

    name: str
    data: bytes


def zip_members(
    archive: IO[bytes], place: str, suffix: str, largest: int, log: ReadLog
) -> Iterator[Member]:
    """Yield the members whose names end so, in the archive's order.

    Args:
        archive: The zip file.
        place: Its name for the log.
        suffix: In lower case.
        largest: The most bytes of a member; a larger one is reported and skipped.
        log: Gets what could not be read.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if info.is_dir() or not info.filename.lower().endswith(suffix):
                    continue
                if info.file_size > largest or info.flag_bits & _ENCRYPTED:
                    log.problem(
                        f"{place}/{info.filename}",
                        f"encrypted, or more than the {largest} bytes of a member",
                    )
                    continue
                try:
                    yield Member(info.filename, opened.read(info))
                except _DAMAGE as exc:
                    log.problem(
                        f"{place}/{info.filename}",
                        f"damaged: {exc or type(exc).__name__}",
                    )
    except _DAMAGE as exc:
        log.problem(place, f"not a readable zip archive: {exc or type(exc).__name__}")


def xml_or_zip_files(path: Path) -> list[Path]:
    """The XML and zip files of a folder in the order of their names, or the file itself; links are passed over."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    chosen = []
    for file in files:
        named = file.name.lower().endswith((".xml", ".zip"))
        if named and file.is_file() and not file.is_symlink():
            chosen.append(file)
    return chosen


def xml_roots(
    members: Iterable[tuple[str, bytes]], roots: Collection[str], log: ReadLog
) -> Iterator[tuple[str, Element]]:
    """Yield the name and the root of every member that is XML with one of these roots; report the others."""
    for name, data in members:
        try:
            root = parse(data)
        except UnsafeXml as exc:
            log.problem(name, str(exc))
            continue
        if local(root.tag) in roots:
            yield name, root
        else:
            expected = " or ".join(f"<{each}>" for each in roots)
            log.problem(name, f"<{local(root.tag)[:40]}> where {expected} was expected")
