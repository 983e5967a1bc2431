"""An append-only log in JSON Lines: one writer at a time, a torn last line mended, nothing ever rewritten."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from pydantic_core import from_json

from medlive.digest import canonical_json
from medlive.errors import BadInput, DiskFull, MedliveError
from medlive.integrity.lock import exclusive

T = TypeVar("T")

MOST_LINE: Final = 256 * 1024 * 1024


@dataclass(slots=True)
class Lines:
    """The objects of a log, and the lines that hold none: (number, why)."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[tuple[int, str]] = field(default_factory=list)
    torn: int | None = None
    """The number of a last line that has no end and is no whole object: a write under way, or cut off."""

    def notes(self, name: str) -> list[str]:
        """What is damaged, a sentence for each line of the file of that name."""
        return [f"{name}:{number}: {why}" for number, why in self.damaged]


def read_log(path: Path) -> Lines:
    """Everything a log holds; an unreadable line is reported and the others stand. No file is an empty log.

    A last line without an end that is no whole object is a write under way or cut off, and no damage.
    """
    lines = Lines()
    lines.rows += [row for _, row in rows_of(path, lines)]
    return lines


def rows_of(path: Path, lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a log with their line numbers; damage is recorded in `lines`."""
    if not path.exists():
        return
    try:
        with path.open("rb") as handle:
            for number, data in enumerate(iter(lambda: handle.readline(MOST_LINE), b""), start=1):
                value = _read(data, number, lines)
                if value is not None:
                    yield number, value
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc


def values_of(path: Path, parse: Callable[[dict[str, Any]], T], notes: list[str]) -> Iterator[T]:
    """What `parse` makes of each row of a log, in order; `notes` is complete at the end.

    A damaged line, or a row that `parse` refuses by TypeError, KeyError or ValueError, is noted and passed over:
    what it held is asked for again.
    """
    lines = Lines()
    for number, row in rows_of(path, lines):
        try:
            value = parse(row)
        except (TypeError, KeyError, ValueError) as exc:
            lines.damaged.append((number, f"not a valid row: {str(exc)[:120]}"))
            continue
        yield value
    notes += lines.notes(path.name)


def _read(data: bytes, number: int, lines: Lines) -> dict[str, Any] | None:
    try:
        row = parsed(data)
    except (ValueError, RecursionError) as exc:
        if data.endswith(b"\n"):
            lines.damaged.append((number, str(exc)[:120]))
        else:
            lines.torn = number
        return None
    if isinstance(row, dict):
        return row
    lines.damaged.append((number, f"a {type(row).__name__} and no object"))
    return None


def parsed(data: bytes) -> Any:
    """The value of a line. Raises ValueError or RecursionError for what is no JSON."""
    try:
        return from_json(data, cache_strings="keys")
    except ValueError:
        # It refuses some of what the json module reads, such as a lone surrogate's escape; that one has the say.
        return json.loads(data.decode("utf-8"))


class LogWriter:
    """Appends rows to a log that this process holds."""

    def __init__(self, path: Path, handle: IO[bytes]) -> None:
        """`handle` is open for appending, its last line whole, nothing of it waiting to be written."""
        self._path = path
        self._file = handle.fileno()
        self._size = os.fstat(self._file).st_size

    def add(self, row: Mapping[str, Any]) -> bytes:
        """One row more, handed to the system whole before this returns: a kill loses no row that was added.

        A lone surrogate is written as its JSON escape, so the row comes back as it was. Raises DiskFull, and
        BadInput where the file cannot be written otherwise; then nothing of the row is there. Returns the line.
        """
        data = canonical_json(dict(row)).encode("utf-8", "backslashreplace") + b"\n"
        self.write(data)
        return data

    def write(self, data: bytes) -> None:
        """A row that is spelt already, with its line's end; as `add`."""
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as exc:
            # Half a row would make one line with the next, once there is room again.
            os.ftruncate(self._file, self._size)
            raise _unwritable(self._path, exc) from exc
        self._size += len(data)


def is_full(exc: OSError) -> bool:
    """Whether the system has no room, or allows this user or this process no more of it."""
    return exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _unwritable(path: Path, exc: OSError) -> MedliveError:
    if is_full(exc):
        return DiskFull(
            f"no space is left for {path}", hint="what was written is kept; make room and run this again"
        )
    return BadInput(f"{path} cannot be written: {exc.strerror or exc}")


@contextmanager
def open_log(path: Path) -> Iterator[LogWriter]:
    """Hold a log for writing. Raises Locked when another process does, BadInput and DiskFull where it cannot be
    written.

    A last line that a kill cut off is taken away; one that is whole but for its end gets it.
    """
    with ExitStack() as held:
        try:
            held.enter_context(exclusive(path.with_name(f".{path.name}.lock")))
            handle = held.enter_context(path.open("a+b"))
            _mend(handle)
            handle.flush()
        except OSError as exc:
            raise _unwritable(path, exc) from exc
        try:
            yield LogWriter(path, handle)
        finally:
            os.fsync(handle.fileno())


def _mend(handle: IO[bytes]) -> None:
    size = handle.seek(0, os.SEEK_END)
    start, tail = size, b""
    while start > 0 and b"\n" not in tail:
        step = min(65_536, start)
        start -= step
        handle.seek(start)
        tail = handle.read(step) + tail
    cut = tail.rfind(b"\n") + 1
    last = tail[cut:]
    if not last:
        return
    try:
        whole = isinstance(json.loads(last.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        whole = False
    if whole:
        handle.seek(0, os.SEEK_END)
        handle.write(b"\n")
    else:
        handle.truncate(size - len(last))
        handle.seek(0, os.SEEK_END)
