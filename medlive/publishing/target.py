"""Places to publish to: the protocol that `publish` needs, and a folder that implements it."""

import errno
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Final, Protocol

from medlive.errors import BadInput, CheckFailed, DiskFull, UsageError
from medlive.integrity.folder import sha256
from medlive.integrity.lock import exclusive

IMMUTABLE: Final = "public, max-age=31536000, immutable"
MUTABLE: Final = "public, max-age=300, must-revalidate"
MAX_READ: Final = 64 * 1024 * 1024
"""The most bytes of a file that is read whole."""
_BLOCK: Final = 1024 * 1024
_PARTIAL: Final = ".publish-partial"
_LOCK: Final = ".publish.lock"
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".md": "text/markdown; charset=utf-8",
    ".parquet": "application/vnd.apache.parquet",
    ".svg": "image/svg+xml",
    ".xml": "application/atom+xml; charset=utf-8",
}


class RemoteState(StrEnum):
    """What a target has under an item's name."""

    ABSENT = "absent"
    SAME = "same"
    OTHER = "other"


class Taken(CheckFailed):
    """A file exists with other bytes."""


@dataclass(frozen=True, slots=True)
class Item:
    """A file to publish."""

    name: str
    """Its path on the target, with `/`."""
    source: Path | bytes
    size: int
    sha256: str
    """64 hexadecimal digits."""
    cache_control: str

    @property
    def content_type(self) -> str:
        """The media type by the name's suffix, by default plain text."""
        return _TYPES.get(Path(self.name).suffix, "text/plain; charset=utf-8")

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the bytes for reading. Raises OSError."""
        if isinstance(self.source, bytes):
            yield io.BytesIO(self.source)
        else:
            with self.source.open("rb") as handle:
                yield handle


def page(name: str, data: bytes) -> Item:
    """Return a mutable item of these bytes."""
    return Item(name, data, len(data), hashlib.sha256(data).hexdigest(), MUTABLE)


def changed(item: Item) -> CheckFailed:
    """Return the error that a file changed after it was verified."""
    return CheckFailed(
        f"{item.name} changed while it was being published; nothing of it was kept",
        hint="a frozen snapshot must not change: verify it",
    )


class Sent(Protocol):
    """Called with each number of bytes sent."""

    def __call__(self, amount: int) -> None:
        """`amount` more bytes were sent."""


def ignore_progress(amount: int) -> None:
    """Report no progress."""


class Target(Protocol):
    """A place with named files: immutable ones are added, mutable ones replaced.

    Calls block, as the clients of object stores do. Every method raises a MedliveError if the place refuses.
    """

    @property
    def where(self) -> str:
        """The place, for messages."""

    def session(self, *, write: bool) -> AbstractContextManager[None]:
        """Open the place for one publication, holding its lock if it has one."""

    def names(self, folder: str) -> frozenset[str]:
        """Return the full names of all files below a folder (`medlive-2026.W47/`), if it exists."""

    def folders(self) -> frozenset[str]:
        """Return the names of the folders at the root, without `/`."""

    def compare(self, item: Item) -> RemoteState:
        """Compare what exists under the item's name, by its bytes and not by a stated digest."""

    def add(self, item: Item, sent: Sent) -> None:
        """Add the item as a new file; if the process is killed, nothing is visible under its name.

        Raises Taken if a file with other bytes exists; one with the same bytes is accepted.
        """

    def replace(self, item: Item) -> None:
        """Put the item whatever lies there; a reader sees the old bytes or the new ones."""

    def read(self, name: str) -> bytes | None:
        """A small file's bytes; None when it is not there. Raises BadInput above `MAX_READ` bytes."""


class FolderTarget:
    """A folder as a target, such as the root that a web server shows."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def where(self) -> str:
        """The folder's path."""
        return str(self.root)

    @contextmanager
    def session(self, *, write: bool) -> Iterator[None]:
        """Make the folder and hold its lock, or only look where it may not be written."""
        if not write:
            yield
            return
        with self._clear("written"):
            self.root.mkdir(parents=True, exist_ok=True)
            with exclusive(self.root / _LOCK):
                # Only a publisher that was killed can have left these: the lock is ours.
                shutil.rmtree(self.root / _PARTIAL, ignore_errors=True)
                (self.root / _PARTIAL).mkdir()
                try:
                    yield
                finally:
                    shutil.rmtree(self.root / _PARTIAL, ignore_errors=True)

    def names(self, folder: str) -> frozenset[str]:
        """Every entry below the folder that is no folder, links and devices included."""
        with self._clear("read"):
            top = self._plain(folder.rstrip("/"))
            if not top.is_dir():
                return frozenset()
            found: set[str] = set()
            for base, folders, files in os.walk(top, onerror=_raise):
                links = [name for name in folders if (Path(base) / name).is_symlink()]
                found |= {(Path(base) / name).relative_to(self.root).as_posix() for name in files + links}
            return frozenset(found)

    def folders(self) -> frozenset[str]:
        """The folders right below the root."""
        with self._clear("read"):
            if not self.root.is_dir():
                return frozenset()
            return frozenset(entry.name for entry in self.root.iterdir() if entry.is_dir())

    def compare(self, item: Item) -> RemoteState:
        """Compare by reading what lies there."""
        with self._clear("read"):
            path = self._plain(item.name)
            if not os.path.lexists(path):
                return RemoteState.ABSENT
            same = path.is_file() and path.stat().st_size == item.size and sha256(path) == item.sha256
            return RemoteState.SAME if same else RemoteState.OTHER

    def add(self, item: Item, sent: Sent) -> None:
        """Write beside, then link into place, which fails where a file lies."""
        with self._clear("written"):
            path, partial = self._plain(item.name), self._written(item, sent)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                _place(partial, path)
                _settle(path.parent)
            except FileExistsError as exc:
                if self.compare(item) is not RemoteState.SAME:
                    raise Taken(f"{item.name} exists in {self.where} with other bytes") from exc
            finally:
                partial.unlink(missing_ok=True)

    def replace(self, item: Item) -> None:
        """Write beside, then rename over."""
        with self._clear("written"):
            path, partial = self._plain(item.name), self._written(item, ignore_progress)
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.replace(path)
            _settle(path.parent)

    def read(self, name: str) -> bytes | None:
        """Read the file when it is one."""
        with self._clear("read"):
            path = self._plain(name)
            if not path.is_file():
                return None
            with path.open("rb") as handle:
                data = handle.read(MAX_READ + 1)
        if len(data) > MAX_READ:
            raise BadInput(f"{path} holds more than {MAX_READ} bytes")
        return data

    def _plain(self, name: str) -> Path:
        """The path of a name. Raises UsageError where a link on the way leads elsewhere."""
        path = self.root
        for part in name.split("/"):
            path = path / part
            if path.is_symlink():
                raise UsageError(
                    f"{path} is a symbolic link", hint="published files are plain ones: remove the link"
                )
        return path

    def _written(self, item: Item, sent: Sent) -> Path:
        """A file beside the target's, with the item's bytes, all of them on the disk."""
        digest = hashlib.sha256()
        handle, name = tempfile.mkstemp(dir=self.root / _PARTIAL)
        partial = Path(name)
        try:
            with os.fdopen(handle, "wb") as out, item.open() as data:
                while block := data.read(_BLOCK):
                    digest.update(block)
                    out.write(block)
                    sent(len(block))
                out.flush()
                os.fsync(out.fileno())
            if digest.hexdigest() != item.sha256:
                raise changed(item)
            partial.chmod(0o644)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return partial

    @contextmanager
    def _clear(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            if exc.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(
                    f"{self.where} cannot be {done}: {exc.strerror}",
                    hint="make room and publish again: what is there already is not sent twice",
                ) from exc
            what = exc.filename if isinstance(exc.filename, str) else self.where
            raise UsageError(f"{what} cannot be {done}: {exc.strerror or exc}") from exc


def _raise(exc: OSError) -> None:
    raise exc


def _place(partial: Path, path: Path) -> None:
    """Give the file its name unless the name is taken. Raises FileExistsError."""
    try:
        os.link(partial, path)
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        # A file system without hard links: our lock is all that keeps another publisher from coming in between.
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from exc
        partial.rename(path)


def _settle(folder: Path) -> None:
    """Have the system write a folder's names out."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
