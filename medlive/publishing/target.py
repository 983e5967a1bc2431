"""Places to publish to: what is sent there, and a folder as such a place."""

import hashlib
import io
import os
import stat
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from medlive.errors import CheckFailed
from medlive.integrity.folder import sha256, sync
from medlive.integrity.log import exclusive, read_bytes, reading, writing
from medlive.integrity.paths import (
    create_below,
    open_below,
    path_below,
    walk,
)

# Values of Cache-Control
IMMUTABLE = "public, max-age=31536000, immutable"
MUTABLE = "public, max-age=300, must-revalidate"
PUBLIC_FILE = 0o644
"""Rights of a published file, whatever the umask: a web server of another user may show it."""
PUBLIC_FOLDER = 0o755
"""Rights of a folder that is made for published files."""
_PARTIAL = ".publish-partial"
_LOCK = ".publish.lock"

_TYPES = {
    ".bin": "application/octet-stream",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".md": "text/markdown; charset=utf-8",
    ".parquet": "application/vnd.apache.parquet",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".xml": "application/atom+xml; charset=utf-8",
}


def media_type(name: str) -> str:
    """Return the media type of a published file by its suffix, by default plain text."""
    return _TYPES.get(Path(name).suffix, "text/plain; charset=utf-8")


@dataclass(frozen=True)
class Item:
    """A file to publish."""

    name: str  # Its path on the target, with `/`
    source: Path | bytes
    size: int
    sha256: str  # 64 hexadecimal digits
    cache_control: str

    @property
    def content_type(self) -> str:
        """The media type."""
        return media_type(self.name)

    @property
    def base64(self) -> str:
        """The sha256 in base64, as S3 states it."""
        return b64encode(bytes.fromhex(self.sha256)).decode("ascii")

    def read(self) -> bytes:
        """Return the bytes. Raises CheckFailed if they changed since they were verified, or BadInput."""
        source = self.source
        data = source if isinstance(source, bytes) else read_bytes(source)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise CheckFailed(
                f"{self.name} changed while it was being published",
                hint="a frozen snapshot must not change: verify it",
            )
        return data


def page(name: str, data: bytes) -> Item:
    """Return an item of these bytes that may later be replaced."""
    return Item(
        name,
        data,
        len(data),
        hashlib.sha256(data).hexdigest(),
        MUTABLE,
    )


class FolderTarget:
    """A folder as a target, such as the root that a web server shows; `S3Target` has the same methods.

    A session turns OSErrors into BadInput and DiskFull.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.where = str(root)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Open the place for one publication: make the folder and hold its lock."""
        with writing(self.root):
            self._make_public(self.root)
            with exclusive(self.root / _LOCK):
                yield

    def names(self, folder: str) -> frozenset[str]:
        """Return the full names of all files below a folder (`medlive-2026.W47/`), if it exists.

        A file is every entry that is not a folder, links and devices included.
        """
        name = folder.rstrip("/")
        path = path_below(self.root, name)
        names = set()
        for below, mode in walk(path) if path.is_dir() else ():
            if not stat.S_ISDIR(mode):
                names.add(f"{name}/{below}")
        return frozenset(names)

    def folders(self) -> frozenset[str]:
        """Return the names of the folders right below the root, without `/`."""
        return frozenset(path.name for path in self.root.glob("*/"))

    def has(self, item: Item) -> bool | None:
        """Whether what exists under the item's name has the item's bytes (it is read); None: nothing exists."""
        path = path_below(self.root, item.name)
        if not os.path.lexists(path):
            return None
        return path.is_file() and sha256(path) == item.sha256

    def add(self, item: Item) -> None:
        """Add the item as a new file; if the process is killed, nothing is visible under its name.

        The lock keeps other publishers away. Raises CheckFailed if a file with other bytes exists; one with the same
        bytes is accepted.
        """
        is_same = self.has(item)
        if is_same is None:
            self.replace(item)
        elif not is_same:
            raise CheckFailed(f"{item.name} exists in {self.where} with other bytes")

    def replace(self, item: Item) -> None:
        """Write the item under another name, then rename it over what exists; a reader sees old bytes or new ones."""
        path = path_below(self.root, item.name)
        partial = self.root / _PARTIAL
        try:
            with io.BufferedWriter(create_below(self.root, _PARTIAL)) as out:
                out.write(item.read())
                out.flush()
                os.fchmod(out.fileno(), PUBLIC_FILE)
                os.fsync(out.fileno())
            self._make_public(path.parent)
            partial.replace(path)
            # Also after a power cut, SHA256SUMS (which comes last) names only files that are there.
            sync(path.parent)
        finally:
            partial.unlink(missing_ok=True)

    def read(self, name: str) -> bytes | None:
        """Return a small file's bytes; None if it does not exist."""
        path = path_below(self.root, name)
        with reading(path):
            if not os.path.lexists(path):
                return None
            with open_below(self.root, name) as handle:
                return handle.readall()

    def _make_public(self, folder: Path) -> None:
        """Make a folder, and those above it that are missing, readable by all: a web server is another user."""
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir()
            path.chmod(PUBLIC_FOLDER)
