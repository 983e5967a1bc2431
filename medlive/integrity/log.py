"""An append-only log in JSON Lines: one writer at a time, a torn last line mended, nothing ever rewritten."""

import errno
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from filelock import FileLock, Timeout
from pydantic_core import from_json

from medlive.errors import NO_SPACE, BadInput, DiskFull, MedliveError
from medlive.guard.bounds import GIVEN_BYTES, LOG_LINE_BYTES, RUN_FILE_BYTES
from medlive.integrity.digest import canonical_json
from medlive.integrity.folder import open_given, read_given, read_small
from medlive.integrity.paths import UnsafePath, create_below, open_plain

T = TypeVar("T")
_BUFFER: Final = 256 * 1024


class Locked(MedliveError):
    """Another process is writing here."""

    exit_status = 3


@dataclass(slots=True)
class Lines:
    """The objects of a log, and the lines that could not be parsed: (number, why)."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[tuple[int, str]] = field(default_factory=list)
    torn: int | None = None
    """The number of a last line that has no end and is no whole object: a write under way, or cut off."""


def read_log(path: Path) -> Lines:
    """Read all rows of a log that a user named and its damaged lines; a missing file is an empty log.

    Raises BadInput if it cannot be read, or a line is longer than `LOG_LINE_BYTES`.
    """
    lines = Lines()
    lines.rows += [row for _, row in rows_of(path, lines, open_given)]
    return lines


def rows_of(
    path: Path, lines: Lines, open_file: Callable[[Path], io.FileIO] = open_plain
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a log with their line numbers; damage is recorded in `lines`. Raises as `read_log`."""
    try:
        with io.BufferedReader(open_file(path), _BUFFER) as handle:
            number = 0
            while data := handle.readline(LOG_LINE_BYTES):
                number += 1
                if len(data) == LOG_LINE_BYTES:
                    raise BadInput(
                        f"{path}: line {number} has {LOG_LINE_BYTES} bytes or more"
                    )
                if (row := _parse(data, lines, number)) is not None:
                    yield number, row
    except FileNotFoundError:
        return
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc


def values_of(
    path: Path,
    parse: Callable[[dict[str, Any]], T],
    notes: list[str],
) -> Iterator[T]:
    """Yield what `parse` returns for each row; damaged lines and rows that it rejects by TypeError, KeyError or
    ValueError are skipped, and listed in `notes` at the end.
    """
    lines = Lines()
    for number, row in rows_of(path, lines):
        try:
            value = parse(row)
        except (TypeError, KeyError, ValueError) as exc:
            lines.damaged.append((number, f"not a valid row: {str(exc)[:120]}"))
            continue
        yield value
    notes += [f"{path.name}:{number}: {why}" for number, why in lines.damaged]


def _parse(
    data: bytes,
    lines: Lines,
    number: int,
) -> dict[str, Any] | None:
    try:
        try:
            row = from_json(data, cache_strings="keys")
        except ValueError:
            # It refuses some of what the json module reads, such as a lone surrogate's escape.
            row = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        if data.endswith(b"\n"):
            lines.damaged.append((number, str(exc)[:120]))
        else:
            lines.torn = number
        return None
    if not isinstance(row, dict):
        lines.damaged.append((number, f"a {type(row).__name__} and no object"))
        return None
    return row


def lines_of(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows as the bytes of a log; a lone surrogate is written as its JSON escape."""
    text = "".join(canonical_json(dict(row)) + "\n" for row in rows)
    return text.encode("utf-8", "backslashreplace")


class LogWriter:
    """Appends rows to a log that this process holds."""

    def __init__(
        self,
        path: Path,
        handle: io.FileIO,
    ) -> None:
        """`handle` is open for appending, its last line whole, nothing of it waiting to be written."""
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
    """The first names for a message or a page, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def read_bytes(path: Path, most: int = GIVEN_BYTES) -> bytes:
    """The bytes of a file that a user named. Raises BadInput if it cannot be read, or is a device."""
    return _read(path, partial(read_given, path, most))


def read_found(path: Path, most: int = RUN_FILE_BYTES) -> bytes:
    """The bytes of a file of a run's folder. Raises BadInput if it cannot be read, or is no plain file."""
    return _read(path, partial(read_small, path, most))


def _read(path: Path, read: Callable[[], bytes]) -> bytes:
    try:
        return read()
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
    if last and _parse(last, Lines(), 0) is not None:
        writer.write(b"\n")
    else:
        writer.truncate(size - len(last))
