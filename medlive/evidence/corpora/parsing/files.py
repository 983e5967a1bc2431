"""The files of a folder or a tar archive, read one at a time and never written anywhere.

An archive or a folder is a stranger's: names that climb out, links and devices are reported and skipped, a member
or an archive that unpacks to more than its bound ends with a report, and damage keeps what came before it.
"""

import gzip
import io
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from medlive.errors import BadInput
from medlive.evidence.corpora.model import ReadLog
from medlive.integrity.paths import UnsafePath, open_below, walk

HEAD = 64 * 1024
MAX_MEMBER = 32 * 1024 * 1024
MAX_UNPACKED = 16 * 1024 * 1024 * 1024
_LOOKED_AT = 20
_MAX_HEADER = 1 << 20
_DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, RecursionError)
_NO_ELEMENT = re.compile(rb"<!--.*?(?:-->|\Z)|<[?!][^>]*(?:>|\Z)", re.S)
_ELEMENT = re.compile(rb"\s*<(?:[\w.-]+:)?([A-Za-z_][\w.-]*)[\s/>]")


class CorpusFile(NamedTuple):
    """A file that was named, or one below a folder that was."""

    folder: Path
    name: str
    """Relative to the folder, with `/`; what it is called in reports."""

    def open(self) -> io.FileIO:
        """Open it. Raises OSError, also for a link or a special file below the folder."""
        try:
            return open_below(self.folder, self.name)
        except UnsafePath as exc:
            raise OSError(str(exc)) from exc


def named_file(path: Path) -> CorpusFile:
    """Return the file that a user named, be it by a link."""
    real = path.resolve()
    return CorpusFile(real.parent, real.name)


def files_below(folder: Path, suffixes: tuple[str, ...]) -> Iterator[CorpusFile]:
    """Yield what has one of the suffixes below a folder, in the order of names: no folder, link or special file.

    Raises OSError if a folder cannot be read.
    """
    for entry in walk(folder):
        if entry.is_file and entry.name.lower().endswith(suffixes):
            yield CorpusFile(folder, entry.name)


@contextmanager
def open_unpacked(file: CorpusFile) -> Iterator[IO[bytes]]:
    """Open a file for reading, unpacked when it is a gzip. Raises OSError."""
    with io.BufferedReader(file.open()) as raw:
        if raw.peek(2)[:2] == b"\x1f\x8b":
            with gzip.open(raw) as unpacked:
                yield cast("IO[bytes]", unpacked)
        else:
            yield raw


def head_of(file: CorpusFile) -> bytes:
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
        yield from map(head_of, islice(files_below(path, suffixes), _LOOKED_AT))
    elif path.name.lower().endswith(suffixes):
        yield head_of(named_file(path))
    elif _is_tar(path):
        yield from (data[:HEAD] for _, data in islice(members(path, suffixes, ReadLog()), _LOOKED_AT))


def members(path: Path, suffixes: tuple[str, ...], log: ReadLog) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of every regular file with one of the suffixes: of a folder, an archive, or the path itself.

    Names are POSIX paths relative to the folder or the archive. Raises BadInput when `path` is none of them.
    """
    if path.is_dir():
        for entry in walk(path):
            if not entry.name.lower().endswith(suffixes) or entry.is_folder:
                continue
            if entry.is_file:
                yield from _read_member(CorpusFile(path, entry.name), entry.name, log)
            else:
                log.problem(entry.name, "a link or a special file, not followed")
    elif path.name.lower().endswith(suffixes):
        yield from _read_member(named_file(path), path.name, log)
    elif _is_tar(path):
        try:
            yield from _tar(path, suffixes, log)
        except _DAMAGE as exc:
            log.problem(
                path.name, f"the archive is damaged or too large from here on: {exc or type(exc).__name__}"
            )
    else:
        raise BadInput(f"{path} is neither a folder nor a tar archive nor a file in {' or '.join(suffixes)}")


def _read_member(file: CorpusFile, name: str, log: ReadLog) -> Iterator[tuple[str, bytes]]:
    """Yield a file's name and bytes, or log why there are none."""
    try:
        with io.BufferedReader(file.open()) as handle:
            if (size := os.fstat(handle.fileno()).st_size) > MAX_MEMBER:
                log.problem(name, f"{size} bytes, more than the {MAX_MEMBER} a member may have")
            else:
                yield name, handle.read(MAX_MEMBER)
    except OSError as exc:
        log.problem(name, f"cannot be read: {exc.strerror or exc}")


class _Member(tarfile.TarInfo):
    """A member whose extended headers, which tarfile reads whole, are bounded."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        extended = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
        if (
            self.type in (*extended, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
            and self.size > _MAX_HEADER
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
            if unpacked > MAX_UNPACKED:
                raise tarfile.ReadError(f"unpacks to more than {MAX_UNPACKED} bytes")
            if not name.lower().endswith(suffixes) or member.isdir():
                continue
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                log.problem(name, "a name that climbs out of the archive")
            elif not member.isreg():
                log.problem(name, "a link or a special file, not followed")
            elif member.size > MAX_MEMBER:
                log.problem(name, f"{member.size} bytes, more than the {MAX_MEMBER} a member may have")
            elif (handle := tar.extractfile(member)) is not None:
                yield name, handle.read()
