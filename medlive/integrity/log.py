"""An append-only log in JSON Lines: one writer at a time, a torn last line mended, nothing ever rewritten.

Also the lock of that one writer (`exclusive`), and reading and writing any file with BadInput and DiskFull in place of
OSError (`reading`, `read_bytes`, `writing`, `write_whole`).
"""

import errno
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from pydantic_core import from_json

from medlive.errors import NO_SPACE, BadInput, DiskFull, MedliveError
from medlive.guard.bounds import GIVEN_BYTES, LOG_LINE_BYTES, RUN_FILE_BYTES

from .digest import canonical_json
from .folder import open_given, read_given, read_small
from .paths import UnsafePath, create_below, open_plain

T = TypeVar("T")
_BUFFER = 256 * 1024


class Locked(MedliveError):
    """Another process is writing here."""

    exit_status = 3


def read_log(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Read all rows of a log that a user named, and notes on its damaged lines; a missing file is an empty log.

    Raises BadInput if it cannot be read, or a line is longer than `LOG_LINE_BYTES`.
    """
    notes: list[str] = []
    return [row for _, row in rows_of(path, notes, named=True)], notes


def rows_of(
    path: Path, notes: list[str], *, named: bool = False
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a log with their line numbers; lines without an object are listed in `notes`.

    A file that a user `named` may be a link. A last line that has no end and holds no object is listed as cut off if
    the file is `named`; in other files it is a write under way and is not listed. Raises as `read_log`.
    """
    with reading(path), suppress(FileNotFoundError):
        opened = open_given(path) if named else open_plain(path)
        with io.BufferedReader(opened, _BUFFER) as handle:
            number = 0
            while data := handle.readline(LOG_LINE_BYTES):
                number += 1
                if len(data) == LOG_LINE_BYTES:
                    raise BadInput(
                        f"{path}: line {number} has {LOG_LINE_BYTES} bytes or more"
                    )
                try:
                    row = _parse(data)
                except (ValueError, RecursionError) as exc:
                    if data.endswith(b"\n"):
                        notes.append(f"{path.name}:{number}: {str(exc)[:120]}")
                    elif named:
                        notes.append(f"{path.name}:{number}: the last line is cut off")
                    continue
                yield number, row


def values_of(
    path: Path,
    parse: Callable[[dict[str, Any]], T],
    notes: list[str],
) -> Iterator[T]:
    """Yield what `parse` returns for each row; damaged lines and rows that it rejects by TypeError, KeyError or
    ValueError are skipped, and listed in `notes`.
    """
    for number, row in rows_of(path, notes):
        try:
            value = parse(row)
        except (TypeError, KeyError, ValueError) as exc:
            why = f"not a valid row: {str(exc)[:120]}"
            notes.append(f"{path.name}:{number}: {why}")
            continue
        yield value


def _parse(data: bytes) -> dict[str, Any]:
    """Parse the object of a line. Raises ValueError, and RecursionError."""
    try:
        row = from_json(data, cache_strings="keys")
    except ValueError:
        # It refuses some of what the json module reads, such as a lone surrogate's escape.
        row = json.loads(data.decode("utf-8"))
    if not isinstance(row, dict):
        raise ValueError(f"a {type(row).__name__} and no object")
    return row


def lines_of(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows as the bytes of a log; a lone surrogate is written as its JSON escape."""
    text = "".join(canonical_json(dict(row)) + "\n" for row in rows)
    return text.encode("utf-8", "backslashreplace")


class LogWriter:
    """Appends rows to a log whose lock this process holds."""

    def __init__(
        self,
        path: Path,
        handle: io.FileIO,
    ) -> None:
        """`handle` is open for appending and has no buffered bytes; its last line is whole."""
        self._path, self._file = path, handle.fileno()
        self._size = os.fstat(self._file).st_size

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row, handed to the system whole before this returns: a kill loses no row that was added.

        Raises DiskFull, and BadInput where the file cannot be written otherwise; then nothing of the row is there.
        """
        data = lines_of([row])
        left = memoryview(data)
        with writing(self._path):
            try:
                while left:
                    left = left[os.write(self._file, left) :]
            except OSError:
                # Half a row would make one line with the next, once there is room again.
                os.ftruncate(self._file, self._size)
                raise
        self._size += len(data)


def some(names: Sequence[str], most: int = 5) -> str:
    """The first `most` names for a message or a page, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def read_bytes(path: Path, most: int = GIVEN_BYTES) -> bytes:
    """The bytes of a file that a user named. Raises BadInput if it cannot be read, or is a device."""
    with reading(path):
        return read_given(path, most)


def read_found(path: Path, most: int = RUN_FILE_BYTES) -> bytes:
    """The bytes of a file that no user named, such as a run's. Raises BadInput if it is no plain file or unreadable."""
    with reading(path):
        return read_small(path, most)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raises BadInput in place of OSError while a file or folder is read."""
    try:
        yield
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, which is created if it is missing.

    Raises Locked at once if another process holds it: a second run that waited would pay for its requests again.
    """
    try:
        lock = FileLock(path, timeout=0).acquire()
    except Timeout as exc:
        raise Locked(
            f"another process is writing {path}",
            hint="wait until it ends, or end it, then run this again",
        ) from exc
    with lock:
        yield


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises DiskFull and BadInput in place of OSError while a file or folder is written."""
    try:
        yield
    except UnsafePath as exc:
        raise BadInput(
            f"{path} cannot be written: {exc.message}", hint="remove what lies there"
        ) from exc
    except OSError as exc:
        if exc.errno in NO_SPACE:
            hint = "make room and run this again"
            raise DiskFull(f"no space is left for {path}", hint=hint) from exc
        raise BadInput(f"{path} cannot be written: {exc.strerror or exc}") from exc


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or leave what was there. Raises DiskFull, and BadInput if it cannot be written."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.unlink(missing_ok=True)
            # Follows no link that was put there
            with partial.open("xb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def open_log(path: Path) -> Iterator[LogWriter]:
    """Open a log for writing; a last line that lacks only its end gets it, and a torn one is removed.

    Raises Locked if another process writes it, BadInput and DiskFull if it cannot be written.
    """
    with ExitStack() as stack:
        with writing(path):
            stack.enter_context(exclusive(path.with_name(f".{path.name}.lock")))
            handle = stack.enter_context(
                create_below(path.parent, path.name, append=True)
            )
            with open_plain(path) as reader:
                _mend(reader, handle)
        try:
            yield LogWriter(path, handle)
        finally:
            with writing(path):
                os.fsync(handle.fileno())


def _mend(reader: io.FileIO, writer: io.FileIO) -> None:
    """Give a last line that lacks its end that end, or cut it off if it holds no object."""
    start = size = reader.seek(0, os.SEEK_END)
    pieces: list[bytes] = []
    while start > 0 and not (pieces and b"\n" in pieces[-1]):
        if size - start >= LOG_LINE_BYTES:
            raise OSError(
                errno.EINVAL, f"its last line has {LOG_LINE_BYTES} bytes or more"
            )
        step = min(1 << 20, start)
        start = reader.seek(start - step)
        pieces.append(reader.read(step))
    tail = b"".join(reversed(pieces))
    last = tail[tail.rfind(b"\n") + 1 :]
    try:
        _parse(last)
        writer.write(b"\n")
    except (ValueError, RecursionError):
        writer.truncate(size - len(last))
