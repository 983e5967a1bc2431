"""An append-only log in JSON Lines: one writer at a time, a torn last line mended, nothing ever rewritten."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic_core import from_json

from medlive.bounds import LOG_LINE_BYTES
from medlive.digest import canonical_json
from medlive.errors import BadInput, DiskFull
from medlive.integrity.lock import exclusive

T = TypeVar("T")


@dataclass(slots=True)
class Lines:
    """The objects of a log, and the lines that could not be parsed: (number, why)."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[tuple[int, str]] = field(default_factory=list)
    torn: int | None = None
    """The number of a last line that has no end and is no whole object: a write under way, or cut off."""


def read_log(path: Path) -> Lines:
    """Read all rows of a log and its damaged lines; a missing file is an empty log."""
    lines = Lines()
    lines.rows += [row for _, row in rows_of(path, lines)]
    return lines


def rows_of(path: Path, lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a log with their line numbers; damage is recorded in `lines`."""
    if not path.exists():
        return
    try:
        with path.open("rb") as handle:
            for number, data in enumerate(iter(lambda: handle.readline(LOG_LINE_BYTES), b""), start=1):
                if (row := _parse(data, lines, number)) is not None:
                    yield number, row
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc


def values_of(path: Path, parse: Callable[[dict[str, Any]], T], notes: list[str]) -> Iterator[T]:
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


def _parse(data: bytes, lines: Lines, number: int) -> dict[str, Any] | None:
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


class LogWriter:
    """Appends rows to a log that this process holds."""

    def __init__(self, path: Path, handle: IO[bytes]) -> None:
        """`handle` is open for appending, its last line whole, nothing of it waiting to be written."""
        self._path, self._file = path, handle.fileno()
        self._size = os.fstat(self._file).st_size

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row, handed to the system whole before this returns: a kill loses no row that was added.

        A lone surrogate is written as its JSON escape, so the row comes back as it was. Raises DiskFull, and
        BadInput where the file cannot be written otherwise; then nothing of the row is there.
        """
        data = canonical_json(dict(row)).encode("utf-8", "backslashreplace") + b"\n"
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
    """The first names for a message, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def read_bytes(path: Path) -> bytes:
    """A file's bytes. Raises BadInput if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises DiskFull and BadInput in place of OSError while a file or folder is written."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "what was written is kept; make room and run this again"
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
            handle = stack.enter_context(path.open("a+b"))
            _mend(handle)
            handle.flush()
        try:
            yield LogWriter(path, handle)
        finally:
            os.fsync(handle.fileno())


def _mend(handle: IO[bytes]) -> None:
    start = size = handle.seek(0, os.SEEK_END)
    tail = b""
    while start > 0 and b"\n" not in tail:
        step = min(65_536, start)
        start = handle.seek(start - step)
        tail = handle.read(step) + tail
    last = tail[tail.rfind(b"\n") + 1 :]
    handle.seek(0, os.SEEK_END)
    if last and _parse(last, Lines(), 0) is not None:
        handle.write(b"\n")
    else:
        handle.truncate(size - len(last))
        handle.seek(0, os.SEEK_END)
