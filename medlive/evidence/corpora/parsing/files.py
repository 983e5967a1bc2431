"""The files of a folder, a tar or a zip archive, read one at a time and never written anywhere.

An archive is a stranger's: names that climb out, links and devices are reported and skipped, a member or an
archive that unpacks to more than its bound ends with a report, and damage keeps what came before it.
"""

import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, cast
from xml.etree.ElementTree import Element

from medlive.errors import BadInput
from medlive.evidence.corpora.model import ReadLog
from medlive.guard.bounds import (
    ARCHIVE_BYTES,
    ARCHIVE_HEADER_BYTES,
    ARCHIVE_MEMBER_BYTES,
)
from medlive.guard.printable import printable
from medlive.integrity.folder import read_to_end
from medlive.integrity.paths import UnsafePath, open_plain, split_name

from .xml import UnsafeXml, parse

HEAD = 64 * 1024  # Bytes of a file's beginning, by which its kind is recognised
LARGE_MEMBER = 256 * 1024 * 1024
"""The most bytes of a member, for kinds whose members have pictures or are a whole corpus."""
_LOOKED_AT = 20  # Files, and members of each archive, by which a corpus is recognised
_NOT_FOLLOWED = "a link or a special file, not followed"
_ZIP = ".zip"
_ENCRYPTED = 1  # Bit of a zip member's flags
# What reading a damaged or hostile archive raises
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    RuntimeError,
)
_NO_ELEMENT = re.compile(rb"<!--.*?(?:-->|\Z)|<[?!][^>]*(?:>|\Z)", re.S)
_ELEMENT = re.compile(rb"\s*<(?:[\w.-]+:)?([A-Za-z_][\w.-]*)[\s/>]")


Member = tuple[str, bytes]
"""The name and the content of a file, or of a member of an archive."""


@contextmanager
def open_unpacked(file: Path) -> Iterator[IO[bytes]]:
    """Open a file of a corpus, unpacked when it is a gzip. Raises OSError for a link or a special file."""
    with io.BufferedReader(open_plain(file), HEAD) as handle:
        if handle.peek(2)[:2] != b"\x1f\x8b":
            yield handle
            return
        with gzip.GzipFile(fileobj=handle) as unpacked:
            yield cast("IO[bytes]", unpacked)


def head_of(file: Path) -> bytes:
    """The beginning of a file's content, unpacked when it is a gzip; empty for a damaged one. Raises OSError."""
    try:
        with open_unpacked(file) as handle:
            return handle.read(HEAD)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""


_LOCAL_HEADER = 30
"""Bytes before a member's name."""


def check_zip(archive: zipfile.ZipFile, most: int) -> int:
    """Return the bytes that an archive unpacks to.

    Raises BadZipFile if they are more than `most`, if members overlap, or for another packing than DEFLATE.

    Two members of which one lies in the other unpack the same bytes again and again; and bzip2 and LZMA are unpacked
    by zipfile without regard to the size that a member states.
    """
    end = size = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        if info.header_offset < end:
            raise zipfile.BadZipFile("a member lies in another")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile("a member is packed in another way than DEFLATE")
        end = info.header_offset + _LOCAL_HEADER + info.compress_size
        size += info.file_size
        if size > most:
            raise zipfile.BadZipFile(f"unpacks to more than {most} bytes")
    return size


class _Member(tarfile.TarInfo):
    """A tar member whose extended headers, which tarfile reads whole, are bounded."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        extended = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
        if (
            self.type in (*extended, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
            and self.size > ARCHIVE_HEADER_BYTES
        ):
            raise tarfile.HeaderError(f"a header claims {self.size} bytes")
        return cast("tarfile.TarInfo", super()._proc_member(tar))  # type: ignore[misc]


def _is_tar(path: Path) -> bool:
    """Whether a file is a tar archive, also one with a header that reading it refuses."""
    try:
        tarfile.open(path, tarinfo=_Member).close()
    except (tarfile.HeaderError, RecursionError):
        return True  # an archive, and reading it reports the header
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError):
        return False
    return True


@dataclass(frozen=True)
class CorpusFiles:
    """The files that a kind of corpus is made of: in a folder, in archives, or alone."""

    suffixes: tuple[str, ...]
    """In lower case; ".zip" also reads the members of zip archives, one level nested."""
    roots: tuple[str, ...] = ()  # The root elements of XML files
    largest: int = ARCHIVE_MEMBER_BYTES
    """The most bytes of a member; a larger one is reported and skipped."""

    def include(self, name: str) -> bool:
        """Whether a name has one of the suffixes."""
        return name.lower().endswith(self.suffixes)

    def below(self, path: Path, log: ReadLog) -> list[tuple[str, Path]]:
        """(name below `path`, file) of each file of a folder with a suffix; or `path` itself if a file or link to one.

        Links and special files in a folder are reported, and not followed.
        """
        if not path.is_dir():
            return [(path.name, path.resolve())]
        files = []
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path).as_posix()
            if not self.include(name):
                continue
            if file.is_file() and not file.is_symlink():
                files.append((name, file))
            elif file.is_symlink() or not file.is_dir():
                log.problem(name, _NOT_FOLLOWED)
        return files

    def recognise(self, path: Path) -> bool:
        """Whether the first root element of an XML file at a path is one of `roots`, its namespace prefix ignored.

        A folder's files are read in the order of their names, an archive's members in its own, 20 of each at most.
        Raises OSError when the path cannot be read.
        """
        for name, file in self.below(path, ReadLog())[:_LOOKED_AT]:
            heads: Iterable[bytes] = ()
            if self.include(name) and not name.lower().endswith(_ZIP):
                heads = [head_of(file)]
            elif self.include(name) or _is_tar(file):
                inside = self._members_of(name, file, ReadLog())
                heads = (data[:HEAD] for _, data in islice(inside, _LOOKED_AT))
            for head in heads:
                element = _ELEMENT.match(
                    _NO_ELEMENT.sub(b"", head.removeprefix(b"\xef\xbb\xbf"))
                )
                if element:
                    return element[1].decode() in self.roots
        return False

    def members(self, path: Path, log: ReadLog) -> Iterator[Member]:
        """Yield every regular file with a suffix, of a folder or an archive or at the path; log what cannot be read.

        Names are POSIX paths relative to the folder or the archive. Raises BadInput for a file of another kind.
        """
        for name, file in self.below(path, log):
            if not self.include(name) and not _is_tar(file):
                raise BadInput(
                    f"{path} is neither a folder nor a tar archive nor a file in {' or '.join(self.suffixes)}"
                )
            yield from self._members_of(name, file, log)

    def xml_roots(self, path: Path, log: ReadLog) -> Iterator[tuple[str, Element]]:
        """Yield the name and the root of every member that has one of `roots`; report the others."""
        for name, data in self.members(path, log):
            try:
                root = parse(data)
            except UnsafeXml as exc:
                log.problem(name, str(exc))
                continue
            if root.tag in self.roots:
                yield name, root
            else:
                expected = " or ".join(f"<{each}>" for each in self.roots)
                log.problem(name, f"<{root.tag[:40]}> where {expected} was expected")

    def _members_of(self, name: str, file: Path, log: ReadLog) -> Iterator[Member]:
        """The file, or its members if it is an archive."""
        try:
            if not self.include(name):
                yield from self._tar(file, log)
                return
            with open_plain(file) as handle:
                if name.lower().endswith(_ZIP):
                    packed = io.BufferedReader(handle)
                    yield from self._zip(packed, name, log, ARCHIVE_BYTES)
                    return
                data = read_to_end(handle, name, self.largest)
        except DAMAGE as exc:
            cause = exc or type(exc).__name__
            log.problem(name, f"damaged, too large or unreadable from here on: {cause}")
        else:
            yield name, data

    def _zip(
        self,
        archive: IO[bytes],
        place: str,
        log: ReadLog,
        room: int,
    ) -> Generator[Member, None, int]:
        """Yield the members of a zip in its order; return the bytes of `room` that are left for other archives.

        `room` is what it and its inner zip archives may unpack to; archives nested deeper are skipped.
        """
        suffixes = tuple(suffix for suffix in self.suffixes if suffix != _ZIP)
        try:
            with zipfile.ZipFile(archive) as opened:
                room -= check_zip(opened, room)
                for info in opened.infolist():
                    name = f"{place}/{info.filename}"
                    if info.is_dir() or not self.include(name):
                        continue
                    if info.file_size > self.largest or info.flag_bits & _ENCRYPTED:
                        problem = f"encrypted, or more than the {self.largest} bytes of a member"
                        log.problem(name, problem)
                        continue
                    try:
                        data = opened.read(info)
                    except DAMAGE as exc:
                        log.problem(name, f"damaged: {exc or type(exc).__name__}")
                        continue
                    if name.lower().endswith(_ZIP):
                        inner = replace(self, suffixes=suffixes)
                        room = yield from inner._zip(io.BytesIO(data), name, log, room)
                    else:
                        yield name, data
        except DAMAGE as exc:
            cause = exc or type(exc).__name__
            log.problem(place, f"not a readable zip archive: {cause}")
        return room

    def _tar(self, path: Path, log: ReadLog) -> Iterator[Member]:
        """Yield the members of a tar; log those that are unsafe, too large or not a file. Raises ReadError."""
        unpacked = 0
        with tarfile.open(path, tarinfo=_Member) as tar:
            while (member := tar.next()) is not None:
                vars(tar)["members"] = []  # tarfile keeps every header it has seen
                name, unpacked = member.name, unpacked + member.size
                if unpacked > ARCHIVE_BYTES:
                    limit = f"more than {ARCHIVE_BYTES} bytes"
                    raise tarfile.ReadError(f"unpacks to {limit}")
                if not self.include(name) or member.isdir():
                    continue
                try:
                    split_name(name.removeprefix("./"))
                except UnsafePath:
                    cause = "a name that leads out of the archive, or not to a file"
                    log.problem(printable(name), cause)
                    continue
                handle = tar.extractfile(member) if member.isreg() else None
                if handle is None:
                    log.problem(name, _NOT_FOLLOWED)
                elif member.size > self.largest:
                    limit = f"more than the {self.largest} a member may have"
                    log.problem(name, f"{member.size} bytes, {limit}")
                else:
                    yield name, handle.read()
