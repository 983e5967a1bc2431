"""The files of a folder or a tar archive, read one at a time and never written anywhere.

An archive is a stranger's: names that climb out, links and devices are reported and skipped, a member or an
archive that unpacks to more than its bound ends with a report, and damage keeps what came before it.
"""

import gzip
import heapq
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, cast

from medlive.bounds import ARCHIVE_BYTES, ARCHIVE_HEADER_BYTES, ARCHIVE_MEMBER_BYTES
from medlive.errors import BadInput
from medlive.evidence.corpora.model import ReadLog
from medlive.integrity.folder import TooLong, read_small
from medlive.integrity.given import open_given, read_given
from medlive.integrity.paths import UnsafePath, open_plain, split_name
from medlive.printable import printable

HEAD = 64 * 1024
_LOOKED_AT = 20
_DAMAGE = (
    tarfile.TarError,
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    RecursionError,
)
_NO_ELEMENT = re.compile(rb"<!--.*?(?:-->|\Z)|<[?!][^>]*(?:>|\Z)", re.S)
_ELEMENT = re.compile(rb"\s*<(?:[\w.-]+:)?([A-Za-z_][\w.-]*)[\s/>]")


@contextmanager
def open_unpacked(file: Path, *, given: bool) -> Iterator[IO[bytes]]:
    """Open a file for reading, unpacked when it is a gzip.

    Args:
        file: The file.
        given: Whether a user named it, so that it may be a link or a pipe; else it lies in a folder.

    Raises:
        OSError: If it cannot be opened, or is no such file.
    """
    with io.BufferedReader(
        open_given(file) if given else open_plain(file), HEAD
    ) as handle:
        if handle.peek(2)[:2] != b"\x1f\x8b":
            yield handle
            return
        with gzip.GzipFile(fileobj=handle) as unpacked:
            yield cast("IO[bytes]", unpacked)


def head_of(file: Path, *, given: bool) -> bytes:
    """The beginning of a file's content, unpacked when it is a gzip; empty for a damaged one. Raises OSError."""
    try:
        with open_unpacked(file, given=given) as handle:
            return handle.read(HEAD)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""


def root_of_path(path: Path, suffixes: tuple[str, ...]) -> str | None:
    """The name of the root element, without a prefix, of the first file that has one.

    A folder's files are asked in the order of their names, an archive's members in its own, 20 at most. None
    when none of them has one or the path is no such thing. Raises OSError when the path cannot be read.
    """
    return next(
        (
            root
            for head in _heads(path, suffixes)
            if (root := root_of(head)) is not None
        ),
        None,
    )


def root_of(head: bytes) -> str | None:
    """The name of the root element of XML that begins so; None when there is none."""
    element = _ELEMENT.match(_NO_ELEMENT.sub(b"", head.removeprefix(b"\xef\xbb\xbf")))
    return element[1].decode() if element else None


def _heads(path: Path, suffixes: tuple[str, ...]) -> Iterator[bytes]:
    if path.is_dir():
        files = (
            f
            for f in path.rglob("*")
            if f.name.lower().endswith(suffixes) and not f.is_symlink()
        )
        for file in heapq.nsmallest(_LOOKED_AT, files):
            if file.is_file():
                yield head_of(file, given=False)
    elif path.name.lower().endswith(suffixes):
        yield head_of(path, given=True)
    elif _is_tar(path):
        yield from (
            data[:HEAD]
            for _, data in islice(members(path, suffixes, ReadLog()), _LOOKED_AT)
        )


def members(
    path: Path, suffixes: tuple[str, ...], log: ReadLog
) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of every regular file with one of the suffixes: of a folder, an archive, or the path itself.

    Names are POSIX paths relative to the folder or the archive. Raises BadInput when `path` is none of them.
    """
    if path.is_dir():
        yield from _files(path, sorted(path.rglob("*")), suffixes, log)
    elif path.name.lower().endswith(suffixes):
        yield from _given(path, log)
    elif _is_tar(path):
        try:
            yield from _tar(path, suffixes, log)
        except _DAMAGE as exc:
            log.problem(
                path.name,
                f"the archive is damaged or too large from here on: {exc or type(exc).__name__}",
            )
    else:
        raise BadInput(
            f"{path} is neither a folder nor a tar archive nor a file in {' or '.join(suffixes)}"
        )


def _files(
    root: Path, files: Iterable[Path], suffixes: tuple[str, ...], log: ReadLog
) -> Iterator[tuple[str, bytes]]:
    for file in files:
        name = file.relative_to(root).as_posix()
        if not name.lower().endswith(suffixes) or (
            file.is_dir() and not file.is_symlink()
        ):
            continue
        try:
            if file.is_symlink() or not file.is_file():
                log.problem(name, "a link or a special file, not followed")
                continue
            data = read_small(file, ARCHIVE_MEMBER_BYTES)
        except TooLong:
            log.problem(
                name, f"more than the {ARCHIVE_MEMBER_BYTES} bytes a member may have"
            )
        except OSError as exc:
            log.problem(name, f"cannot be read: {exc.strerror}")
        else:
            yield name, data


def _given(file: Path, log: ReadLog) -> Iterator[tuple[str, bytes]]:
    """The same of one file that a user named."""
    try:
        data = read_given(file, ARCHIVE_MEMBER_BYTES)
    except TooLong:
        log.problem(
            file.name, f"more than the {ARCHIVE_MEMBER_BYTES} bytes a member may have"
        )
    except OSError as exc:
        log.problem(file.name, f"cannot be read: {exc.strerror}")
    else:
        yield file.name, data


def _is_safe(name: str) -> bool:
    try:
        split_name(name.removeprefix("./"))
    except UnsafePath:
        return False
    return True


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


def _tar(
    path: Path, suffixes: tuple[str, ...], log: ReadLog
) -> Iterator[tuple[str, bytes]]:
    unpacked = 0
    with tarfile.open(path, tarinfo=_Member) as tar:
        while (member := tar.next()) is not None:
            vars(tar)["members"] = []  # tarfile keeps every header it has seen
            name, unpacked = member.name, unpacked + member.size
            if unpacked > ARCHIVE_BYTES:
                raise tarfile.ReadError(f"unpacks to more than {ARCHIVE_BYTES} bytes")
            if not name.lower().endswith(suffixes) or member.isdir():
                continue
            if not _is_safe(name):
                log.problem(
                    printable(name),
                    "a name that climbs out of the archive, or is none of a file",
                )
            elif not member.isreg():
                log.problem(name, "a link or a special file, not followed")
            elif member.size > ARCHIVE_MEMBER_BYTES:
                log.problem(
                    name,
                    f"{member.size} bytes, more than the {ARCHIVE_MEMBER_BYTES} a member may have",
                )
            elif (handle := tar.extractfile(member)) is not None:
                yield name, handle.read()
