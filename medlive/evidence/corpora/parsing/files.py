"""The files of a folder or a tar archive, read one at a time and never written anywhere.

An archive is a stranger's: names that climb out, links and devices are reported and skipped, a member or an
archive that unpacks to more than its bound ends with a report, and damage keeps what came before it.
"""

import gzip
import heapq
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, cast

from medlive.bounds import ARCHIVE_BYTES, ARCHIVE_HEADER_BYTES, ARCHIVE_MEMBER_BYTES
from medlive.errors import BadInput
from medlive.evidence.corpora.model import ReadLog

HEAD = 64 * 1024
_LOOKED_AT = 20
_DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, RecursionError)
_NO_ELEMENT = re.compile(rb"<!--.*?(?:-->|\Z)|<[?!][^>]*(?:>|\Z)", re.S)
_ELEMENT = re.compile(rb"\s*<(?:[\w.-]+:)?([A-Za-z_][\w.-]*)[\s/>]")


def open_unpacked(file: Path) -> IO[bytes]:
    """Open a file for reading, unpacked when it is a gzip. Raises OSError."""
    with file.open("rb") as handle:
        packed = handle.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(file)) if packed else file.open("rb")


def head_of(file: Path) -> bytes:
    """The beginning of a file's content, unpacked when it is a gzip; empty for a damaged one."""
    try:
        with open_unpacked(file) as handle:
            return handle.read(HEAD)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""


def root_of_path(path: Path, suffixes: tuple[str, ...]) -> str | None:
    """The name of the root element, without a prefix, of the first file that has one.

    A folder's files are asked in the order of their names, an archive's members in its own, 20 at most. None
    when none of them has one or the path is no such thing. Raises OSError when the path cannot be read.
    """
    return next((root for head in _heads(path, suffixes) if (root := root_of(head)) is not None), None)


def root_of(head: bytes) -> str | None:
    """The name of the root element of XML that begins so; None when there is none."""
    element = _ELEMENT.match(_NO_ELEMENT.sub(b"", head.removeprefix(b"\xef\xbb\xbf")))
    return element[1].decode() if element else None


def _heads(path: Path, suffixes: tuple[str, ...]) -> Iterator[bytes]:
    if path.is_dir():
        files = (f for f in path.rglob("*") if f.name.lower().endswith(suffixes) and not f.is_symlink())
        yield from (head_of(file) for file in heapq.nsmallest(_LOOKED_AT, files) if file.is_file())
    elif path.name.lower().endswith(suffixes):
        yield head_of(path)
    elif _is_tar(path):
        yield from (data[:HEAD] for _, data in islice(members(path, suffixes, ReadLog()), _LOOKED_AT))


def members(path: Path, suffixes: tuple[str, ...], log: ReadLog) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of every regular file with one of the suffixes: of a folder, an archive, or the path itself.

    Names are POSIX paths relative to the folder or the archive. Raises BadInput when `path` is none of them.
    """
    if path.is_dir():
        yield from _files(path, sorted(path.rglob("*")), suffixes, log)
    elif path.name.lower().endswith(suffixes):
        yield from _files(path.parent, [path], suffixes, log)
    elif _is_tar(path):
        try:
            yield from _tar(path, suffixes, log)
        except _DAMAGE as exc:
            log.problem(
                path.name, f"the archive is damaged or too large from here on: {exc or type(exc).__name__}"
            )
    else:
        raise BadInput(f"{path} is neither a folder nor a tar archive nor a file in {' or '.join(suffixes)}")


def _files(
    root: Path, files: Iterable[Path], suffixes: tuple[str, ...], log: ReadLog
) -> Iterator[tuple[str, bytes]]:
    for file in files:
        name = file.relative_to(root).as_posix()
        if not name.lower().endswith(suffixes) or (file.is_dir() and not file.is_symlink()):
            continue
        try:
            if file.is_symlink() or not file.is_file():
                log.problem(name, "a link or a special file, not followed")
            elif (size := file.stat().st_size) > ARCHIVE_MEMBER_BYTES:
                log.problem(name, f"{size} bytes, more than the {ARCHIVE_MEMBER_BYTES} a member may have")
            else:
                yield name, file.read_bytes()
        except OSError as exc:
            log.problem(name, f"cannot be read: {exc.strerror}")


class _Member(tarfile.TarInfo):
    """A member whose extended headers, which tarfile reads whole, are bounded."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        extended = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
        if (
            self.type in (*extended, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
            and self.size > ARCHIVE_HEADER_BYTES
        ):
            raise tarfile.HeaderError(f"a header claims {self.size} bytes")
        return cast("tarfile.TarInfo", super()._proc_member(tar))  # type: ignore[misc]


def _is_tar(path: Path) -> bool:
    try:
        tarfile.open(path, tarinfo=_Member).close()
    except (tarfile.HeaderError, RecursionError):
        return True  # an archive, and reading it reports the header
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError):
        return False
    return True


def _tar(path: Path, suffixes: tuple[str, ...], log: ReadLog) -> Iterator[tuple[str, bytes]]:
    unpacked = 0
    with tarfile.open(path, tarinfo=_Member) as tar:
        while (member := tar.next()) is not None:
            vars(tar)["members"] = []  # tarfile keeps every header it has seen
            name, unpacked = member.name, unpacked + member.size
            if unpacked > ARCHIVE_BYTES:
                raise tarfile.ReadError(f"unpacks to more than {ARCHIVE_BYTES} bytes")
            if not name.lower().endswith(suffixes) or member.isdir():
                continue
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                log.problem(name, "a name that climbs out of the archive")
            elif not member.isreg():
                log.problem(name, "a link or a special file, not followed")
            elif member.size > ARCHIVE_MEMBER_BYTES:
                log.problem(name, f"{member.size} bytes, more than the {ARCHIVE_MEMBER_BYTES} a member may have")
            elif (handle := tar.extractfile(member)) is not None:
                yield name, handle.read()
