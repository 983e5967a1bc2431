"""What kind of XML a file, a folder or an archive holds, told by the root element of the first that has one."""

import heapq
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from xml.parsers import expat

from medlive.evidence.corpora.model import ReadLog
from medlive.evidence.corpora.parsing.members import is_tar, members

HEAD = 64 * 1024
_LOOKED_AT = 20


def root_of_path(path: Path, suffixes: tuple[str, ...]) -> str | None:
    """The name of the root element, without a prefix, of the first file that has one.

    A folder's files are asked in the order of their names, an archive's members in its own, 20 at most. None
    when none of them has one or the path is no such thing. Raises OSError when the path cannot be read.
    """
    return next((root for head in _heads(path, suffixes) if (root := root_of(head)) is not None), None)


def root_of(head: bytes) -> str | None:
    """The name of the root element of XML that begins so; None when there is none or it is refused."""
    parser = expat.ParserCreate()

    def start(tag: str, _: dict[str, str]) -> None:
        # Nothing after the root's name is looked at, so that no entity is ever expanded.
        raise _RootFound(tag)

    parser.StartElementHandler = start
    try:
        parser.Parse(head, False)
    except _RootFound as found:
        return str(found).rpartition(":")[2]
    except (expat.ExpatError, LookupError, ValueError):
        return None
    return None


class _RootFound(Exception):
    """The name of the root element, found."""


def _heads(path: Path, suffixes: tuple[str, ...]) -> Iterator[bytes]:
    if path.is_dir():
        files = (f for f in path.rglob("*") if f.name.lower().endswith(suffixes) and not f.is_symlink())
        yield from (head_of(file) for file in heapq.nsmallest(_LOOKED_AT, files) if file.is_file())
    elif is_tar(path):
        for _, data in islice(members(path, suffixes, ReadLog()), _LOOKED_AT):
            yield data[:HEAD]
    elif path.name.lower().endswith(suffixes):
        yield head_of(path)


def head_of(file: Path) -> bytes:
    """The beginning of a file's content, unpacked when it is a gzip; what can be read of it."""
    with file.open("rb") as handle:
        head = handle.read(HEAD)
        if not head.startswith(b"\x1f\x8b"):
            return head
        try:
            return zlib.decompressobj(31).decompress(head, HEAD)
        except zlib.error:
            return b""
