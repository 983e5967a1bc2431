"""The files of a folder or a tar archive, read one at a time and never written anywhere.

An archive is a stranger's: names that climb out, links and devices are reported and skipped, a member or an
archive that unpacks to more than its bound ends with a report, and damage keeps what came before it.
"""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from medlive.errors import BadInput
from medlive.evidence.corpora.model import ReadLog

MAX_MEMBER = 32 * 1024 * 1024
MAX_UNPACKED = 16 * 1024 * 1024 * 1024
_DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, RecursionError)


def members(path: Path, suffixes: tuple[str, ...], log: ReadLog) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of every regular file with one of the suffixes: of a folder, a tar archive, or the path itself

    Names are POSIX paths relative to the folder or the archive. Raises BadInput when `path` is none of them.
    """
    if path.is_dir():
        yield from _folder(path, suffixes, log)
    elif path.name.lower().endswith(suffixes):
        yield from _files(path.parent, [path], suffixes, log)
    elif is_tar(path):
        yield from _tar(path, suffixes, log)
    else:
        raise BadInput(f"{path} is neither a folder nor a tar archive nor a file in {' or '.join(suffixes)}")


def is_tar(path: Path) -> bool:
    """Whether the file starts like a tar archive, plain or compressed by gzip, bzip2 or xz."""
    try:
        with _unpacked(path) as stream:
            return stream.read(512)[257:262] == b"ustar"
    except _DAMAGE:
        return False


def _folder(root: Path, suffixes: tuple[str, ...], log: ReadLog) -> Iterator[tuple[str, bytes]]:
    yield from _files(root, sorted(root.rglob("*")), suffixes, log)


def _files(
    root: Path, files: Iterable[Path], suffixes: tuple[str, ...], log: ReadLog
) -> Iterator[tuple[str, bytes]]:
    for file in files:
        name = file.relative_to(root).as_posix()
        if not name.lower().endswith(suffixes):
            continue
        if file.is_symlink() or not file.is_file():
            if not file.is_dir():
                log.problem(name, "a link or a special file, not followed")
            continue
        try:
            size = file.stat().st_size
            if size > MAX_MEMBER:
                log.problem(name, f"{size} bytes, more than the {MAX_MEMBER} a member may have")
                continue
            data = file.read_bytes()
        except OSError as exc:
            log.problem(name, f"cannot be read: {exc.strerror}")
            continue
        yield name, data


def _tar(path: Path, suffixes: tuple[str, ...], log: ReadLog) -> Iterator[tuple[str, bytes]]:
    try:
        with _unpacked(path) as stream:
            # tarfile asks only for read, seek and tell of a file object.
            tar = tarfile.open(fileobj=cast("IO[bytes]", _Bounded(stream)), mode="r:")  # noqa: SIM115
            while (member := tar.next()) is not None:
                vars(tar)["members"] = []  # tarfile keeps every header it has seen
                name = member.name
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
    except _DAMAGE as exc:
        log.problem(path.name, f"the archive is damaged or too large from here on: {exc or type(exc).__name__}")


def _unpacked(path: Path) -> IO[bytes]:
    with path.open("rb") as handle:
        magic = handle.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if magic.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.open(path, "rb"))
    if magic.startswith(b"\xfd7zXZ\x00"):
        return cast("IO[bytes]", lzma.open(path, "rb"))
    return path.open("rb")


class _Bounded:
    """A forward-only stream with a bound on each read and on the whole.

    tarfile reads extended headers of any claimed size into memory, and steps back by one byte to see whether
    the file goes on; on a compressed stream that step may start the decompression anew.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._position = 0
        self._last = b""
        self._pending = b""

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > MAX_MEMBER + 1024:
            raise tarfile.ReadError(f"a header claims {size} bytes")
        data, self._pending = self._pending[:size], self._pending[size:]
        if len(data) < size:
            data += self._stream.read(size - len(data))
        self._position += len(data)
        if self._position > MAX_UNPACKED:
            raise tarfile.ReadError(f"unpacks to more than {MAX_UNPACKED} bytes")
        if data:
            self._last = data[-1:]
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        if whence != 0 or position < self._position - len(self._last):
            raise tarfile.ReadError("the archive points backwards")
        if position == self._position - 1:
            self._pending, self._last = self._last + self._pending, b""
            self._position = position
        while self._position < position:
            if not self.read(min(1 << 20, MAX_MEMBER, position - self._position)):
                break
        return self._position
